"""Why adding cards does not help: the guide's four steps (6.2) over what was measured, cheapest first.

Data loading, mapping, coverage, volume. The triage stops at the first step that explains, and says of each
one that it could not decide what to measure. The guide reads one observation in two of its steps; here step 3
judges how much communication is **exposed**, step 4 how long it takes **against what is expected**.
"""

from dataclasses import dataclass

from labkit.evidence.limits import GUIDE, Limits
from labkit.evidence.mapping_judge import LAUNCHERS, crossings, mapping_cost
from labkit.evidence.triage.scaling_evidence import ScalingEvidence
from labkit.evidence.triage.steps import CLEAR, DIFFERS, EXPLAINS, UNKNOWN, Step, Triage, walk
from labkit.spec.checks import noun
from labkit.spec.rule import counted
from labkit.units import digits, format_share, format_time

BUSY = 0.60  # the guide's threshold of utilisation, below which it looks at the loader first
STARVED = 0.05  # share of a step that waits for input from which it is a cause: a healthy loader has none
LOST = 0.05  # share of a step that a mapping must cost to be a cause, where its cost is known
AGREES = 1.25  # measured over expected: a sound sweep repeats within a quarter


@dataclass(frozen=True, slots=True)
class Cost:
    """What looking costs: ``minutes``, our rough estimate, and whether the job must run again for it."""

    minutes: int
    rerun: bool

    def __str__(self):
        return f"{self.minutes} min, {'a rerun' if self.rerun else 'no rerun'}"


COSTS = {
    "data loading": Cost(2, False),  # a counter, and where the training process stands
    "mapping": Cost(5, False),  # a listing that the launcher prints
    "coverage": Cost(20, True),  # a profile of a few steps
    "volume": Cost(60, True),  # a baseline on the idle nodes, and a profile of every rank
}
ORDER = tuple(sorted(COSTS, key=lambda name: (COSTS[name].rerun, COSTS[name].minutes)))
QUESTIONS = {
    "data loading": "do the cards wait for input?",
    "mapping": "do the groups with most traffic leave their host?",
    "coverage": "is communication exposed that could be hidden?",
    "volume": "does communication take longer than its bytes?",
}
MEASURE = {
    "data loading": "time next(loader) in each step on every rank; at once: py-spy dump --pid PID of a rank "
    "shows whether it stands in the loader",
    "mapping": "print rank and host on every rank, then labkit mapping FILE",
    "coverage": "profile a few steps with torch.profiler, then labkit profile PATH",
    "volume": "profile the same steps on every rank; the baseline: nccl-tests on these nodes, idle, then "
    "labkit sweep FILE",
}


def scaling_triage(evidence: ScalingEvidence, limits: Limits = GUIDE) -> Triage:
    """The four steps, up to the first that explains (claims 6.2-a to 6.2-f).

    Kinds of causes: ``data_loading mapping coverage late_ranks contention volume``. ``Triage.unknown`` has
    the steps that could not be told, each with what to measure. Refused: what is not ``ScalingEvidence``.

    >>> from labkit.evidence.measured import Measured
    >>> from labkit.spec import StepTime
    >>> step = StepTime(compute=0.5, data=0.5)
    >>> scaling_triage(ScalingEvidence(Measured(step), workers=1)).cause.kind
    'data_loading'
    """
    noun(evidence, ScalingEvidence, "the evidence of a job")
    noun(limits, Limits, "the limits")
    judges = {"data loading": _loading, "mapping": _mapping, "coverage": _coverage, "volume": _volume}
    return walk(judges[name](evidence, limits) for name in ORDER)


def _step(name: str, answer: str, evidence: str, next_step: str = "", kind: str = "") -> Step:
    """A step with its question and cost; what to measure is known where it cannot be told."""
    asked = next_step or (MEASURE[name] if answer in (UNKNOWN, DIFFERS) else "")
    return Step(name, QUESTIONS[name], answer, evidence, asked, kind, str(COSTS[name]))


# ---- 1


def _loading(evidence: ScalingEvidence, limits: Limits) -> Step:
    name, wait, seconds, busy = "data loading", evidence.wait, evidence.seconds, evidence.busy
    one = {0: "the training process loads itself (0 workers)", 1: "one loader worker a rank"}
    few = one.get(evidence.workers)
    if wait is not None and seconds:
        says = f"{format_time(wait)} of {format_time(seconds)} wait for input, {format_share(wait / seconds)}"
        says += "" if busy is None else f"; computing {format_share(busy)}"
        says += f"; {few}" if few else ""
        if wait > STARVED * seconds:
            remedy = (
                f"more workers than {evidence.workers} first: it is one setting"
                if few
                else "more workers up to the host's cores, then preprocessing on the card, or encoded data"
            )
            return _step(name, EXPLAINS, says, remedy, "data_loading")
        return _step(name, CLEAR, says)
    if few:
        return _step(name, DIFFERS, f"{few}; how long a step waits for input was not measured")
    if busy is not None:
        says = f"computing {format_share(busy)} of the step; waiting for input was not measured"
        return _step(name, CLEAR if busy >= BUSY else DIFFERS, says)
    if evidence.counter is not None:
        reads = f"the utilisation counter reads {format_share(evidence.counter)}"
        if evidence.counter < BUSY:
            return _step(name, DIFFERS, f"{reads}, under the guide's {format_share(BUSY)}")
        return _step(name, UNKNOWN, f"{reads}, as it does while kernels wait for a starved peer")
    return _step(name, UNKNOWN, "neither waiting for input nor computing was measured")


# ---- 2


def _mapping(evidence: ScalingEvidence, limits: Limits) -> Step:
    name, mapping, plan = "mapping", evidence.mapping, evidence.plan
    if mapping is None or plan is None:
        return _step(name, UNKNOWN, "the hosts of the ranks, or the plan, are not known")
    found, hosts = crossings(mapping, plan), counted(len(mapping.ranks_on), "host")
    inner = {kind: one for kind, one in found.items() if kind in ("tp", "cp", "ep")}
    broken = {kind: one for kind, one in inner.items() if one.across > one.in_order}
    said = [f"{one.across} of {one.groups} {kind} groups leave their host" for kind, one in inner.items()]
    says = "; ".join(said) if said else f"no tp, cp or ep groups on {hosts}"
    priced = evidence.model is not None and evidence.cluster is not None
    saved = None
    if priced and broken:
        rows = mapping_cost(evidence.model, evidence.cluster, plan, mapping)
        saved = sum(row.mapped - row.in_order for row in rows)
        says += f"; block order saves {format_time(saved) if saved > 0 else 'nothing'} a step"
    counts = saved is None or saved > LOST * (evidence.seconds or sum(row.in_order for row in rows))
    if broken and counts:
        ways = "; ".join(f"{launcher}: {way}" for launcher, way in LAUNCHERS.items())
        return _step(name, EXPLAINS, says, f"launch in block order ({ways})", "mapping")
    if "tp" in found and found["tp"].in_order:
        remedy = f"the cut: tp = {plan.tp} does not fit a host; a smaller degree"
        return _step(name, EXPLAINS, f"{says}, in any order", remedy, "mapping")
    return _step(name, CLEAR, says)


# ---- 3


def _coverage(evidence: ScalingEvidence, limits: Limits) -> Step:
    name, step = "coverage", evidence.measured.step
    if step is None or not (step.exposed or step.communication is not None):
        return _step(name, UNKNOWN, "exposed communication was not measured")
    late = _waiting(evidence)
    says = f"{format_share(step.exposed / step.total)} of the step exposed"
    says += f", of which up to {format_time(late)} is waiting for the last rank" if late else ""
    if not _too_much(evidence, limits):
        return _step(name, CLEAR, f"{says}: within the limits of 5.4")
    if step.communication is None:
        return _step(name, UNKNOWN, f"{says}; how long communication runs in all was not measured")
    says += f"; {format_share(step.coverage)} of the communication hidden"
    hideable = min(step.compute, step.communication - late)
    could = max(step.communication - late - hideable, 0.0) / step.total
    if could <= limits.data:
        says += f", and {format_time(step.compute)} of computing could hide all but {format_share(could)}"
        remedy = (
            "is overlap switched on, does the reduction start during the backward pass; then the size of the "
            "buckets; its duration alone says nothing of this"
        )
        return _step(name, EXPLAINS, says, remedy, "coverage")
    return _step(name, CLEAR, f"{says}; computing is too short to hide it: it must get shorter")


def _waiting(evidence: ScalingEvidence) -> float:
    """Seconds of the exposed communication that may be waiting for late ranks: no overlap hides those."""
    return min(evidence.late or 0.0, evidence.measured.step.exposed)


def _too_much(evidence: ScalingEvidence, limits: Limits) -> bool:
    """Whether what is exposed, waiting left out, is beyond the limits: of data parallel, and of all others.

    The guide has limits for data and tensor parallelism; the other kinds are held against the second.
    """
    step = evidence.measured.step
    part = 1 - _waiting(evidence) / step.exposed if step.exposed else 0.0
    data, others = part * step.dp / step.total, part * (step.exposed - step.dp) / step.total
    return data > limits.data or others > limits.tensor


# ---- 4


def _volume(evidence: ScalingEvidence, limits: Limits) -> Step:
    name, step, exchanges = "volume", evidence.measured.step, evidence.exchanges
    seconds, late = evidence.seconds, evidence.late
    profiled = step is not None and (step.exposed or step.communication is not None)
    shows = min(late or 0.0, step.exposed) if profiled else late or 0.0  # hidden waiting is free
    waits = bool(seconds) and shows > limits.spread * seconds
    waiting = f"a mean rank waits {format_time(late or 0)} of {format_time(seconds or 0)} for the last one"
    last = max(exchanges, key=lambda one: one.count * (one.waiting or 0.0)).last if exchanges else None
    if not exchanges or any(one.expected is None for one in exchanges):
        if waits:
            return _late(waiting, _last_by_work(evidence) if last is None else last)
        return _step(name, UNKNOWN, "no collective was measured against its baseline")
    expected, measured = (
        sum(one.count * getattr(one, figure) for one in exchanges) for figure in ("expected", "measured")
    )
    says = (
        f"measured {format_time(measured)}, expected {format_time(expected)} from a rank's traffic over the "
        f"measured busbw: {digits(measured / expected)} times"
    )
    if profiled and not _too_much(evidence, limits):
        return (
            _late(f"{says}; {waiting}", last) if waits else _step(name, CLEAR, f"{says}; little is exposed")
        )
    if measured * AGREES < expected:
        check = "check size, ranks and busbw of the collective; in-switch reduction sends fewer bytes"
        return _step(name, UNKNOWN, f"{says}: faster than its baseline", check)
    if measured <= AGREES * expected:
        remedy = "it is the traffic itself: another plan (labkit.search), fewer exchanges, a faster network"
        return _step(name, EXPLAINS, says, remedy, "volume")
    if not all(one.every_rank for one in exchanges):
        return _step(name, UNKNOWN, f"{says}; one rank cannot tell waiting from contention")
    transfer = measured - late
    says += f"; transfer {format_time(transfer)} (shortest rank), waiting {format_time(late)}"
    if late >= transfer - expected:
        return _late(says, last)
    remedy = (
        "the network: other jobs on it, congestion, several groups on one port, a link that fell back; "
        "measure pairs of nodes (5.4)"
    )
    return _step(name, EXPLAINS, says, remedy, "contention")


def _late(says: str, rank: int | None) -> Step:
    who = "the last rank" if rank is None else f"rank {rank}"
    remedy = f"what makes {who} late: its input, its share of the work, then its node; not the network"
    return _step("volume", EXPLAINS, says, remedy, "late_ranks")


def _last_by_work(evidence: ScalingEvidence) -> int | None:
    """The rank with most own work; None where only arrivals are known of one step."""
    work = evidence.measured.work
    return None if work is None else int(work.mean(axis=0).argmax())
