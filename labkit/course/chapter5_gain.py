"""Section 5.5: the best plan that the search finds for the guide's case, and where its gain comes from."""

from dataclasses import replace
from functools import cache
from itertools import pairwise

from labkit.course.chapter5_rounds import (
    BATCH,
    FIRST,
    HEADS,
    LARGER_BUCKET,
    MACHINE,
    MODEL,
    Round,
    cards,
    run_row,
    third,
)
from labkit.course.table import Table, table
from labkit.course.your_cluster import census_table
from labkit.planner.search import plan_of, search
from labkit.planner.step import step_time
from labkit.planner.tuning import Tuned, tuning
from labkit.planner.why import Difference, difference
from labkit.presets import model
from labkit.spec import Cluster, Plan
from labkit.spec.plan_words import said
from labkit.units import format_bytes, format_share, format_time

# Only the schedule is free: how many micro-batches, in which order.
SCHEDULE_ONLY = {"tp": 4, "cp": 1, "pp": 4, "zero": 0, "recompute": "none", "sequence_parallel": False}
GUIDE_CUT = {"tp": 4, "cp": 1, "pp": 4}


def found(batch=BATCH, name=MACHINE, network=1.0, **fixed):
    """The search's table of the guide's 13B on 32 cards, best first; ``network`` times the ports' rate."""
    return _found(batch, name, network, tuple(fixed.items()))


@cache
def _found(batch, name, network, fixed):
    return search(model(MODEL), with_network(cards(name), network), batch, dict(fixed))


def with_network(machine: Cluster, times: float) -> Cluster:
    """The cluster with ports of another rate."""
    return replace(machine, inter=replace(machine.inter, bandwidth=times * machine.inter.bandwidth))


def best(batch=BATCH, **more) -> Plan:
    """The plan that the search ranks first; settings as ``found`` takes them."""
    return plan_of(found(batch, **more).iloc[0])


def steps_up() -> dict[str, Plan]:
    """Round 1, and the best plan as ever more is free, at batch 64.

    First m, the micro-batch and interleaving; then schedules that split the backward pass; then all settings
    of the same cut; then the cut.
    """
    return {
        "round 1": FIRST.plan,
        "its cut, any 1F1B": best(**SCHEDULE_ONLY, schedule="1f1b"),
        "its cut, any schedule": best(**SCHEDULE_ONLY),
        "its cut, any setting": best(**GUIDE_CUT),
        "any cut": best(),
    }


def ladder_table(name=MACHINE) -> Table:
    """``steps_up`` in the columns of the run table, and the best at round 3's batch."""
    larger = third().plan.global_batch
    rounds = [Round(words, plan) for words, plan in steps_up().items()]
    rounds += [Round("round 3", third().plan, LARGER_BUCKET), Round("any cut", best(larger))]
    rows = ((*run_row(one, cards(name)), said(one.plan)) for one in rounds)
    return table((*HEADS, "plan"), rows)


def gain_over_round_1() -> Difference:
    """Why the best plan at batch 64 is faster than round 1: by term and by setting."""
    return difference(model(MODEL), cards(), FIRST.plan, best())


@cache
def tuned(one: Round) -> tuple[Tuned, ...]:
    """A round tuned one setting at a time, the cheapest first."""
    return tuning(model(MODEL), cards(), one.plan)


def sources_of_gain() -> dict[str, float]:
    """Seconds that each step of ``steps_up`` saves over the one before, by its name."""
    plans = steps_up()
    seconds = [step_time(model(MODEL), cards(), plan).total for plan in plans.values()]
    saved = (before - after for before, after in pairwise(seconds))
    return dict(zip(list(plans)[1:], saved, strict=True))


def overlap_gain() -> float:
    """Seconds that round 1 saves because gradients are reduced beside the backward pass."""
    shown, hidden = (step_time(model(MODEL), cards(), FIRST.plan, overlap=one).total for one in (False, True))
    return shown - hidden


def larger_bucket_gain() -> float:
    """Seconds that round 1 saves with buckets of 32 instead of 25 MB."""
    larger = Round("1", FIRST.plan, LARGER_BUCKET)
    return FIRST.step(cards()).total - larger.step(cards()).total


def sources_table() -> Table:
    """Claim 5.5-n: what each freedom saves of round 1's step; beside it what overlap and buckets do."""
    gains = sources_of_gain()
    whole = sum(gains.values())
    gains |= {"(overlap, as it is)": overlap_gain(), "(buckets of 32 MB)": larger_bucket_gain()}
    rows = (
        (name, f"{1e3 * gain:+.2f} ms", f"{round(100 * gain / whole, 1) + 0.0} %")
        for name, gain in gains.items()
    )
    return table(("what is free", "saves of round 1's step", "of the whole gain"), rows)


def best_table(count=5) -> Table:
    """The first plans of the search at batch 64."""
    rows = found().head(count)
    heads = ("plan", "step", "tokens/s a card", "MFU", "exposed", "memory")
    return table(
        heads,
        (
            (
                said(plan_of(row)),
                format_time(row["seconds"]),
                f"{row['tokens_per_s_per_gpu']:,.0f}",
                format_share(row["mfu"]),
                format_time(row["exposed"]),
                format_bytes(row["memory"]),
            )
            for row in (rows.iloc[i] for i in range(len(rows)))
        ),
    )


def counts_table() -> Table:
    """What became of all plans that the search tried at batch 64: each reason to refuse one, and what ran."""
    return census_table(found())


def place_of(one: Round) -> tuple[int, int]:
    """How many plans of the same batch are faster than a round's, and how many there are."""
    rows = found(one.plan.global_batch)
    return int((rows["seconds"] < one.step(cards()).total).sum()), len(rows)
