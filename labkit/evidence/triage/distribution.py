"""How step times are distributed, and what that says: the mean alone hides it (guide, 6.3).

``distribution`` takes the seconds of every step, of one rank or of all, and where they were measured the
ranks' own work or their arrivals at a collective; every finding is a sentence with its figures.
"""

from dataclasses import dataclass

import numpy as np

from labkit.errors import InputRefused
from labkit.evidence.limits import GUIDE, Limits
from labkit.evidence.step_times import Summary, summary
from labkit.evidence.triage import arrivals as ranks
from labkit.evidence.triage.modes import LEAST, Mode, cut, modes
from labkit.evidence.triage.rhythm import drift, period, switch
from labkit.spec.checks import floats, noun
from labkit.strategies.checks import shaped
from labkit.units import digits, format_share, format_time, wrapped

FAR = 3 * 1.4826  # median deviations from the median: three standard deviations of a normal distribution
LEAST_SLOW = 3  # slow steps from which their cause is asked for
TAIL = 1.5  # P99 over the median from which a tail is said
# What usually stands behind a cause of slow steps, and so what to look at.
LOOK_AT = {
    ranks.ONE_RANK: "its node (clock, PCIe, other jobs), its stage, its experts",
    ranks.CHANGING: "samples of unequal length, garbage collection that runs when it likes, shared storage",
    ranks.TOGETHER: "what all of them do or wait for: input, saving, evaluation, longer sequences",
    ranks.EXCHANGE: "the network: congestion, other jobs on it, a link that fell back",
}


@dataclass(frozen=True, slots=True)
class StepFinding:
    """One observation: ``kind`` for programs, ``message`` for people.

    Kinds: ``modes tail drift switch period ranks_apart late_rank slow_steps cannot_be_told too_few``.
    """

    kind: str
    message: str


@dataclass(frozen=True, slots=True, repr=False)
class Distribution:
    """Step times taken together: their summary, modes, drift (share of the median per 1000 steps) and period.

    ``slow``: numbers of the slow steps, from 0: those of the upper modes, else those far above the median.
    ``cause`` of the slow steps: ``one rank``, ``changing ranks``, ``all together``, ``the exchange``, or None
    where it cannot be told; ``last``: the rank that is last most often, in the slow steps where there are
    any, else in all; None where nothing tells it.
    """

    summary: Summary
    modes: tuple[Mode, ...]
    drift: float
    period: int | None
    slow: tuple[int, ...]
    cause: str | None
    last: ranks.Late | None
    findings: tuple[StepFinding, ...]

    @property
    def bimodal(self) -> bool:
        """Whether the steps gather around more than one length."""
        return len(self.modes) > 1

    def of(self, kind: str) -> StepFinding | None:
        """The first finding of a kind, None where there is none."""
        return next((finding for finding in self.findings if finding.kind == kind), None)

    def __repr__(self):
        figures = ("mean", "median", "p99", "longest")
        parts = (f"{name.replace('p9', 'P9')} {format_time(getattr(self.summary, name))}" for name in figures)
        says = [f"{self.summary.count} steps: {', '.join(parts)}", *(one.message for one in self.findings)]
        return "\n".join(part for line in says for part in wrapped(line))


def distribution(steps, work=None, arrivals=None, limits: Limits = GUIDE) -> Distribution:
    """What the times of all steps say (claims 6.3-e, 6.3-p); seconds.

    ``steps``: shape (steps,), or (steps, ranks), of which the longest of each step counts. ``work``: each
    rank's own work outside of collectives, ``arrivals``: when it came to one by a common clock, both of
    shape (steps, ranks). Refused: other shapes, more than 5,000 steps, and times that are not above 0.

    >>> found = distribution([0.8, 1.6] * 50)
    >>> round(found.summary.mean, 3), found.bimodal, found.period
    (1.2, True, 2)
    """
    noun(limits, Limits, "the limits")
    table = floats(steps)
    if table.ndim not in (1, 2):
        raise InputRefused("step times have the shape (steps,) or (steps, ranks); give seconds of each step")
    each = table if table.ndim == 1 else table.max(axis=1)
    facts, found, grows = summary(each), modes(each), drift(each)
    own, is_work = _own(work, arrivals, table)
    slow, rhythms = _slow(each, found)
    says = [*_shape(facts, found), *_course(each, found, slow, grows, limits), *_rhythm(each, rhythms)]
    cause, last, said = _ranks(table, each, slow, own, is_work, limits)
    every = next((steps_between for _, steps_between in rhythms if steps_between), None)
    numbers = tuple(np.flatnonzero(slow).tolist())
    return Distribution(facts, found, grows, every, numbers, cause, last, tuple([*says, *said]))


def _own(work, arrivals, table) -> tuple[np.ndarray | None, bool]:
    """Own work, else arrivals, and whether it is work."""
    for value, name, is_work in ((work, "own work", True), (arrivals, "arrivals", False)):
        if value is not None:
            width = table.shape[1] if table.ndim == 2 else "ranks"
            array = shaped(value, f"the {name} of the ranks", table.shape[0], width).astype(float)
            if np.any(array < 0) or array.shape[1] < 2:
                raise InputRefused(f"the {name} of the ranks are seconds from 0 up of two ranks or more")
            return array, is_work
    return None, False


def _slow(each: np.ndarray, found: tuple[Mode, ...]) -> tuple[np.ndarray, list]:
    """The mask of slow steps, and the period of each kind of them with its mode (None: far ones)."""
    slow, rhythms = np.zeros(each.size, bool), []
    for mode in found[1:]:
        inside = (each >= mode.shortest) & (each <= mode.longest)
        slow |= inside
        rhythms.append((mode, period(np.flatnonzero(inside))))
    rest = each[~slow]
    middle = np.median(rest)
    limits = [middle + FAR * np.median(np.abs(rest - middle)), (1 + GUIDE.spread) * middle]
    if rest.size > 1:
        limits.append(np.sort(rest)[cut(np.sort(rest)) - 1])
    far = ~slow & (each > max(limits))
    if far.any():
        rhythms.append((None, period(np.flatnonzero(far))))
    return slow | far, rhythms


def _shape(facts: Summary, found: tuple[Mode, ...]) -> list[StepFinding]:
    """Modes, or a tail, or too few steps to tell."""
    if facts.count < 2 * LEAST:
        says = f"{facts.count} steps are too few to tell one mode from two; measure {2 * LEAST} or more"
        return [StepFinding("too_few", says)]
    if len(found) > 1:
        parts = ", ".join(f"{format_share(mode.share)} around {format_time(mode.seconds)}" for mode in found)
        near = any(mode.shortest <= facts.mean <= mode.longest for mode in found)
        of_none = "" if near else ", the length of no step"
        says = (
            f"{len(found)} kinds of steps: {parts}; the mean is {format_time(facts.mean)}{of_none}; "
            f"{format_share(1 - found[0].seconds / facts.mean)} of the time is what the slower ones take more"
        )
        return [StepFinding("modes", says)]
    if facts.p99 > TAIL * facts.median:
        says = (
            f"one kind of steps with a long tail: P99 is {digits(facts.p99 / facts.median)} times the "
            f"median, the longest step {digits(facts.longest / facts.median)} times"
        )
        return [StepFinding("tail", says)]
    return []


def _course(each, found, slow, grows, limits) -> list[StepFinding]:
    """A switch from one mode to another, or a drift that adds up."""
    if len(found) > 1:
        at = switch(np.flatnonzero(slow), each.size)
        if at is not None:
            before, after = np.median(each[:at]), np.median(each[at:])
            says = (
                f"the kinds follow each other: {format_time(before)} up to step {at}, "
                f"{format_time(after)} from there on; look at what changed then (clock, heat, a neighbour)"
            )
            return [StepFinding("switch", says)]
    over_run = grows * each.size / 1000
    if not abs(over_run) > limits.spread:
        return []
    says = (
        f"steps get {'longer' if grows > 0 else 'shorter'}: {format_share(abs(grows))} of the median per "
        f"1000 steps, {format_share(abs(over_run))} over the {each.size} measured"
    )
    return [StepFinding("drift", says)]


def _rhythm(each, rhythms) -> list[StepFinding]:
    """Slow steps that come back in equal distances."""
    says = []
    for mode, between in rhythms:
        if between is None:
            continue
        what = "far slower steps" if mode is None else f"steps around {format_time(mode.seconds)}"
        usual = (
            "alternating lengths of the batches"
            if between < 4
            else "saving, evaluation, garbage collection, logging: what runs as often?"
        )
        says.append(StepFinding("period", f"{what} come back every {between} steps: {usual}"))
    return says


def _ranks(
    table, each, slow, own, is_work, limits
) -> tuple[str | None, ranks.Late | None, list[StepFinding]]:
    """The rank that is last, and what makes the slow steps slow."""
    says = []
    if table.ndim == 2 and table.shape[1] > 1:
        apart = float(np.median(np.ptp(table, axis=1) / each))
        if apart > limits.spread:
            says.append(
                StepFinding(
                    "ranks_apart",
                    f"the ranks' steps are {format_share(apart)} apart: they do not meet in every step, or "
                    "their clocks stop at different places",
                )
            )
        elif own is None:
            says.append(
                StepFinding(
                    "cannot_be_told",
                    f"the steps of {table.shape[1]} ranks are {format_share(apart)} apart, and would be "
                    "whoever is late: measure each rank's own work outside of collectives, or its arrival",
                )
            )
    if own is None:
        if table.ndim == 1 and slow.sum() >= LEAST_SLOW:
            says.append(
                StepFinding(
                    "cannot_be_told",
                    "one late rank or all of them: step times alone do not tell; measure each rank's own "
                    "work outside of collectives, or when it comes to one",
                )
            )
        return None, None, says
    last = ranks.last_rank(own)
    what = "own work" if is_work else "arrivals"
    whole = own.max(axis=1) if is_work else each
    apart = float(np.median(np.ptp(own, axis=1) / np.where(whole > 0, whole, 1.0)))
    if apart > limits.spread:
        says.append(
            StepFinding(
                "late_rank",
                f"{what} of the ranks: {format_share(apart)} apart, {_who(last, len(own))}",
            )
        )
    cause = None
    if LEAST_SLOW <= slow.sum() < slow.size:
        cause, last = ranks.slow_cause(each, slow, own, is_work), ranks.last_rank(own[slow])
        says.append(_slow_finding(cause, last, int(slow.sum()), what))
    return cause, last, says


def _who(late: ranks.Late, steps: int) -> str:
    if late.share >= ranks.MOSTLY:
        return f"rank {late.rank} is the last in {format_share(late.share)} of {steps} steps"
    return f"another rank is the last each time (rank {late.rank} most often, {format_share(late.share)})"


def _slow_finding(cause: str | None, late: ranks.Late, steps: int, what: str) -> StepFinding:
    """What the slow steps have in common."""
    if cause is None:
        says = (
            "in the slow steps the ranks arrive as close together as in the others: all are slower, or the "
            "exchange is; own work tells which"
        )
        return StepFinding("cannot_be_told", says)
    said = {
        ranks.ONE_RANK: f"a straggler: in the {steps} slow steps {_who(late, steps)}",
        ranks.CHANGING: f"the {steps} slow steps have one late rank each, but {_who(late, steps)}",
        ranks.TOGETHER: f"a shared cause: in the {steps} slow steps all ranks have more {what}",
        ranks.EXCHANGE: f"in the {steps} slow steps no rank has more {what}: the exchange itself is slower",
    }[cause]
    return StepFinding("slow_steps", f"{said}; look at {LOOK_AT[cause]}")
