"""Section 5.2 as tables: the ten judgements for a model, many models side by side, and tuning steps."""

from collections import Counter
from functools import cache

from labkit.course.table import Table, table
from labkit.errors import InputRefused
from labkit.planner.procedure import Procedure, named, procedure
from labkit.planner.step import step_time
from labkit.planner.tuning import SAME, Tuned, tuning
from labkit.presets import cluster, model, model_ids
from labkit.units import format_bytes, format_share, format_time

MACHINES = ("a100", "h200", "l40s-pcie")
NODES, BATCH = 8, 512
EXAMPLES = ("llama2-7b", "gpt3-13b", "llama2-70b", "mixtral-8x7b", "gpt3-175b", "llama3.1-405b")


@cache
def decided(id="llama2-70b", machine="a100", nodes=NODES, batch=BATCH) -> Procedure:
    """The table for a preset model on nodes of a preset cluster."""
    return procedure(model(id), cluster(machine, nodes=nodes), batch)


def rows_table(id="llama2-70b", machine="a100", nodes=NODES, batch=BATCH) -> Table:
    """Claim 5.2-c: the ten rows, each with its condition in numbers, what to do, and its source."""
    rows = [
        (str(row.number), row.judgement, row.condition, row.holds, row.action, row.source)
        for row in decided(id, machine, nodes, batch).rows
    ]
    return table(("", "judgement 判断", "condition 条件, here", "holds", "action 动作", "source 依据"), rows)


def plans_table(machine="a100", nodes=NODES, batch=BATCH, ids=EXAMPLES) -> Table:
    """Where the table leads, model by model on one cluster."""
    rows = []
    for id in ids:
        try:
            found = decided(id, machine, nodes, batch)
        except InputRefused as refusal:
            rows.append((id, "none", "–", str(refusal).split(":")[0], "–"))
            continue
        plan = found.plan
        holds = ", ".join(str(row.number) for row in found.rows if row.holds)
        means = f"stage {plan.zero}" + ("" if plan.recompute == "none" else f", {plan.recompute} recompute")
        rows.append((id, holds, named(plan), means, format_bytes(found.memory.total)))
    return table(("model", "rows that hold", "plan", "sharding and recompute", "fullest rank"), rows)


@cache
def everywhere() -> tuple[Procedure, ...]:
    """The tables of all preset models on 64 cards of ``MACHINES``, those that end in a plan."""
    found = []
    for machine in MACHINES:
        for id in model_ids():
            try:
                found.append(decided(id, machine))
            except InputRefused:
                continue
    return tuple(found)


def asked() -> int:
    """How many tables ``everywhere`` asks for."""
    return len(MACHINES) * len(model_ids())


def what_asks() -> Counter:
    """Of the plans with tensor parallel, how many need it for what."""
    return Counter(found.needs for found in everywhere() if found.plan.tp > 1)


def needs_table() -> Table:
    """``what_asks`` as a table."""
    counts = what_asks()
    words = {
        "layer": "one layer, alone",
        "states": "states of all layers",
        "activations": "activations of all layers",
        "states and activations": "both together",
        "global batch": "the global batch",
    }
    return table(
        ("tensor parallel, because too large for a card are", "plans"),
        [(said, str(counts.get(name, 0))) for name, said in words.items()],
    )


@cache
def tuned(id="llama2-70b", machine="a100", nodes=NODES, batch=BATCH) -> tuple[Tuned, ...]:
    """Tuning steps from the plan of the table."""
    return tuning(model(id), cluster(machine, nodes=nodes), decided(id, machine, nodes, batch).plan)


def tuning_table(id="llama2-70b", machine="a100", nodes=NODES, batch=BATCH) -> Table:
    """Claim 5.2-b: first a plan that runs, then each step with its expected gain and what to measure."""
    steps = tuned(id, machine, nodes, batch)
    rows = [
        ("0", "it runs", named(decided(id, machine, nodes, batch).plan), format_time(steps[0].before), "", "")
    ]
    for number, step in enumerate(steps, 1):
        gain = "" if step.change == SAME else format_share(step.gain)
        rows.append((str(number), step.name, step.change, format_time(step.after), gain, step.measure))
    return table(("", "step", "change", "one step takes", "gain", "measure"), rows)


def examples_table(machine="a100", nodes=NODES, batch=BATCH, ids=EXAMPLES[:3]) -> Table:
    """From the plan that runs to the best one, model by model; MFU of both."""
    rows = []
    there = cluster(machine, nodes=nodes)
    for id in ids:
        steps = tuned(id, machine, nodes, batch)
        first, last = (step_time(model(id), there, one.plan) for one in (steps[0], steps[-1]))
        change = 1 - steps[-1].after / steps[0].before
        rows.append(
            (
                id,
                named(steps[0].plan),
                format_time(steps[0].before),
                named(steps[-1].plan),
                format_time(steps[-1].after),
                format_share(change),
                f"{format_share(first.mfu)} -> {format_share(last.mfu)}",
            )
        )
    heads = ("model", "it runs", "a step", "tuned", "a step", "gain", "MFU, overlap on")
    return table(heads, rows)
