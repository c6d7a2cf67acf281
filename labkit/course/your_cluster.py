"""Tables of the notebook on the reader's own cluster, which ``labkit plan`` prints too."""

from labkit.course.table import Table, table
from labkit.evidence.best_plans import BestPlan
from labkit.evidence.logged_run import LoggedRun
from labkit.evidence.mapping import Mapping
from labkit.evidence.mapping_judge import crossings, mapping_cost
from labkit.evidence.sweep import read_sweep
from labkit.planner.search import carried
from labkit.spec import Cluster, Plan, Transformer
from labkit.spec.plan_words import said
from labkit.units import format_bytes, format_rate, format_share, format_time

# What breaks each rule that a search meets, in a clause.
WHY = {
    "heads": "tp does not divide the attention heads",
    "kv heads": "tp neither divides the KV heads nor is a multiple of them",
    "ffn": "tp does not divide the width of the MLP",
    "vocabulary": "tp does not divide the vocabulary, and nothing pads it",
    "layers": "the layers do not divide over the stages, or leave some empty",
    "experts": "ep does not divide the experts",
    "expert ranks": "a stage has not as many ranks as ep asks for, or no multiple",
    "sequence": "the sequence does not cut into the pieces of context parallel",
    "sequence parallel": "the sequence does not cut into cp x tp pieces",
    "all_to_all": "tp x cp does not divide the heads that all_to_all spreads",
    "batch": "the global batch does not divide into dp replicas and micro-batches",
    "interleaving": "virtual stages without a pipeline, or micro-batches in no multiple of pp",
    "schedule": "the schedule does not go with so many virtual stages",
    "ranks": "the degrees do not fill the cluster",
    "shard ranks": "shards do not divide the replicas",
    "memory": "possible, but the fullest card holds more than it may",
}
_FIGURES = {"alpha": ("alpha_us", format_time), "bandwidth": ("reached_GBps", format_rate)}


def fits_table(logs: dict) -> Table:
    """What the sweeps of some logs show, by any name, and what in them the fit warns of."""
    rows = []
    for name, log in logs.items():
        for sweep in read_sweep(log):
            fit = sweep.fit()
            notes = [*sweep.warnings, *fit.warnings, *(finding.message for finding in fit.findings)]
            ranks = f"{sweep.collective}, {sweep.n_ranks}"
            figures = (format_time(fit.alpha), format_rate(fit.bandwidth), format_rate(fit.plateau))
            rows.append((name, ranks, *figures, "; ".join(notes) or "nothing"))
    return table(("log", "collective, ranks", "latency", "bandwidth", "busbw", "stands out"), rows)


def link_rows(before: Cluster, after: Cluster) -> list[tuple[str, str, str, str, str]]:
    """Link, figure, before, after, and what it is from, of both links' latency and bandwidth of a hop."""
    return [
        (
            "inside" if side == "intra" else "a port",
            figure,
            *(form(getattr(getattr(one, side), figure)) for one in (before, after)),
            after.sources.get(f"{side}.{key}", "as given"),
        )
        for side in ("intra", "inter")
        for figure, (key, form) in _FIGURES.items()
    ]


def links_table(before: Cluster, after: Cluster) -> Table:
    """What sweeps changed in a cluster's links, and where each figure is from."""
    return table(("link", "figure of a hop", "was", "is", "from"), link_rows(before, after))


def census_rows(found) -> list[tuple[str, str, str]]:
    """Reason, plans that a search refused for it, and its meaning, the most frequent first."""
    refused = carried(found)["refused"]
    return [
        (name, f"{refused[name]:,}", WHY[name]) for name in sorted(refused, key=lambda name: -refused[name])
    ]


def census_table(found) -> Table:
    """What a search tried, refused by reason, and what is left."""
    tried = carried(found)["tried"]
    rows = [("tried", f"{tried:,}", "plans, each counted once"), *census_rows(found)]
    return table(("plans", "number", "why"), [*rows, ("left", f"{len(found):,}", "possible, and fit")])


def plan_row(best: BestPlan) -> tuple[str, ...]:
    """Place, plan, step, speed, MFU and memory of one of the best plans, in words."""
    step = best.step
    return (
        str(best.place),
        said(best.plan),
        format_time(step.total),
        f"{step.tokens_per_s_per_gpu:,.0f}",
        format_share(step.mfu),
        format_bytes(best.memory),
    )


HEADS = ("", "plan", "step", "tokens/s a GPU", "MFU", "memory")


def best_table(plans: list[BestPlan]) -> Table:
    """The best plans, a row each."""
    return table(HEADS, map(plan_row, plans))


def reasons_table(plans: list[BestPlan]) -> Table:
    """Why each of the best plans stands where it does, a sentence a row."""
    return table(("", "why"), ((str(one.place), reason) for one in plans for reason in one.reasons))


def seats_table(model: Transformer, cluster: Cluster, plan: Plan, mapping: Mapping) -> Table:
    """Which groups of the plan cross hosts as mapped and in block order, and all collectives of a step.

    Seconds are those of all collectives one after the other, nothing hidden.
    """
    rows = [
        (f"{name} groups", str(one.groups), str(one.across), str(one.in_order))
        for name, one in crossings(mapping, plan).items()
    ]
    costs = mapping_cost(model, cluster, plan, mapping)
    totals = (sum(row.mapped for row in costs), sum(row.in_order for row in costs))
    rows.append(("collectives of a step", "", *map(format_time, totals)))
    return table(("", "number", "across hosts as mapped", "in block order"), rows)


def run_table(run: LoggedRun) -> Table:
    """A logged run: what was predicted and what the steps took."""
    measured, predicted = run.measured, run.predicted
    rows = [("median", measured.median), ("P99", measured.p99), ("longest", measured.longest)]
    told = [(f"measured, {name}", format_time(seconds)) for name, seconds in rows]
    if predicted is not None:
        off = format_share(predicted.total / measured.median - 1)
        told += [("predicted", format_time(predicted.total)), ("predicted / measured - 1", off)]
    return table((run.model.name, said(run.plan)), told)
