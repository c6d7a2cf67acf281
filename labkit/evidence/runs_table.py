"""The table that the guide keeps of its runs (6.3 and 5.5): what was set, and the four figures of each run.

Columns 关键参数, 单步时间, 每卡吞吐, 通信占比, 扩展效率: settings, step time, throughput a card,
communication share, scaling efficiency.
"""

from dataclasses import dataclass, replace

from labkit.evidence.limits import scaling_efficiency
from labkit.evidence.logged_run import LoggedRun
from labkit.spec.checks import noun
from labkit.spec.plan_words import said


@dataclass(frozen=True, slots=True)
class RunRow:
    """One run: ``settings`` of its plan in words, on ``cards``; the median ``step`` in seconds, and its P99.

    ``per_card``: tokens a second of one card. ``exposed``: share of the step in communication that nothing
    hides, ``share_from`` a ``profile`` of the run or else its ``prediction``; None and "" without either.
    ``efficiency``: tokens a card against the run with number ``base``, under ``scaling`` weak or strong; a
    base has 1 against itself.
    """

    number: int
    model: str
    cluster: str
    settings: str
    cards: int
    batch: float
    step: float
    p99: float
    per_card: float
    exposed: float | None
    share_from: str
    efficiency: float
    base: int
    scaling: str


def run_rows(runs: list[LoggedRun]) -> list[RunRow]:
    """A row for each run, in their order.

    The base of a run is the one on the fewest cards with the same model, kind of cluster and plan but for the
    number of replicas and the batch: first among those that give a replica as many micro-batches (weak
    scaling), else among those with the same global batch (strong). Of equally small ones the latest.
    """
    for run in runs:
        noun(run, LoggedRun, "a run of the table")
    return [_row(run, *_base(run, runs)) for run in runs]


def _row(run: LoggedRun, base: LoggedRun, scaling: str) -> RunRow:
    measured, plan, step = run.measured, run.plan, run.profiled or run.predicted
    exposed = step.exposed / step.total if step is not None and step.total > 0 else None
    source = "profile" if run.profiled is not None else "prediction"
    return RunRow(
        run.number,
        run.model.name,
        run.cluster.name,
        said(plan),
        plan.ranks,
        plan.global_batch,
        measured.median,
        measured.p99,
        _per_s(run) / plan.ranks,
        exposed,
        "" if exposed is None else source,
        scaling_efficiency(_per_s(run), plan.ranks, _per_s(base), base.plan.ranks),
        base.number,
        scaling,
    )


def _per_s(run: LoggedRun) -> float:
    """Tokens a second of all cards, by the median."""
    return run.plan.global_batch * run.model.sequence / run.measured.median


def _base(run: LoggedRun, runs: list[LoggedRun]) -> tuple[LoggedRun, str]:
    like = [one for one in runs if _family(one) == _family(run)]
    weak = [one for one in like if one.plan.accumulation == run.plan.accumulation]
    strong = [one for one in like if one.plan.global_batch == run.plan.global_batch]
    for scaling, found in (("weak", weak), ("strong", strong)):
        smallest = min(found, key=lambda one: (one.plan.ranks, -one.number))
        if smallest.plan.ranks < run.plan.ranks:
            return smallest, scaling
    return run, "base"


def _family(run: LoggedRun):
    """What runs have in common that differ in their number of replicas alone."""
    plan = replace(run.plan, dp=1, global_batch=None, accumulation=1)
    return run.model, replace(run.cluster, nodes=1, sources={}), plan
