"""Is gradient overlap at work? Read off a timeline: a simulated one, or one made from a profile.

Give it a timeline whose transfers are the gradients' all_reduces alone. All is measured on unions of
intervals: what is exposed, against what could hide, which is the communication as far as the backward pass is
long enough for it.
"""

from dataclasses import dataclass

import numpy as np

from labkit.intervals import intersection, intervals, length
from labkit.spec.checks import noun, whole
from labkit.spec.rule import counted
from labkit.strategies.checks import single
from labkit.strategies.timeline import (
    BACKWARD,
    FORWARD,
    INPUT_GRADIENT,
    TRANSFER,
    WEIGHT_GRADIENT,
    Timeline,
)
from labkit.units import format_share, format_time

NONE, OFF, TOO_LARGE, TOO_SMALL, TOO_MUCH, LITTLE = (
    "no all_reduce",
    "overlap off",
    "buckets too large",
    "buckets too small",
    "too much to hide",
    "little hidden",
)
NOTHING = 0.01  # shares below this are nothing: rounding, and the jitter of a profile
ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class OverlapFinding:
    """One thing that keeps communication exposed, or makes it long: its ``kind``, and what is seen of it."""

    kind: str
    says: str


def overlap_findings(timeline: Timeline, latency: float, rank: int = 0) -> list[OverlapFinding]:
    """What one rank's timeline says against its gradient overlap; an empty list where nothing does.

    Where less than half is hidden of what could hide, it says why:

    - of no all_reduce anything is hidden: overlap is off, or, where computing follows, its calls block;
    - one all_reduce alone exposes more than half of the communication: the buckets are too large;
    - neither: little is hidden, they start too late.

    And whatever is hidden:

    - more than half of the time of several is ``latency`` (seconds of an all_reduce of no bytes, from a
      link or from the fit of a sweep): the buckets are too small. The rule of ``bucket_warnings``, in time;
    - they take longer than the backward pass: no setting can hide them all.

    Steps are judged one by one where a forward begins after all_reduces are done; what is found in several is
    said once, with the figures of the first. An all_reduce of no length counts for nothing. Refused: what is
    no timeline, a latency below 0, and a rank that it has not.
    """
    noun(timeline, Timeline, "the timeline")
    latency = single(latency, "the latency of an all_reduce", zero=True)
    rank = whole(rank, "the rank", least=0, most=timeline.lanes - 1)
    here = timeline.lane == rank
    if not ((here & _sends(timeline)).any() and (here & _backward(timeline)).any()):
        return [OverlapFinding(NONE, "there is no all_reduce, or no backward pass, to look at")]
    steps = _steps(timeline, here)
    found: dict[str, list[tuple[int, str]]] = {}
    for number, step in enumerate(steps, 1):
        for kind, says in (*_hides_little(step), *_too_small(step, latency), *_too_much(step)):
            found.setdefault(kind, []).append((number, says))
    return [
        OverlapFinding(
            kind,
            says
            if len(steps) == 1
            else f"in {1 + len(more)} of {len(steps)} steps, first in step {first}: {says}",
        )
        for kind, ((first, says), *more) in found.items()
    ]


def _steps(timeline: Timeline, here: np.ndarray) -> list[Timeline]:
    """The steps of one rank that have a backward pass and all_reduces of some length, each as lane 0."""
    sends, backward = (
        here & which for which in (_sends(timeline) & (timeline.start < timeline.stop), _backward(timeline))
    )
    here = here & (sends | ~_sends(timeline))
    edges = [-np.inf]
    for start in np.unique(timeline.start[here & (timeline.kind == FORWARD)]):
        since = (timeline.start >= edges[-1]) & (timeline.start < start)
        both = (sends & since).any() and (backward & since).any()
        if both and timeline.stop[sends & since].max() <= start + ROUNDING * timeline.span:
            edges.append(start)
    steps = []
    for first, last in zip(edges, [*edges[1:], np.inf], strict=True):
        within = here & (timeline.start >= first) & (timeline.start < last)
        if (within & sends).any() and (within & backward).any():
            columns = (timeline.start, timeline.stop, timeline.kind, timeline.item)
            steps.append(Timeline(np.zeros(within.sum(), int), *(column[within] for column in columns)))
    return steps


def _hides_little(step: Timeline) -> list[tuple[str, str]]:
    """Why less is hidden than half of what could be; nothing where more is."""
    sends = _sends(step)
    start, stop = step.start[sends], step.stop[sends]
    seconds, count, could = stop - start, start.size, min(step.communication[0], _under(step))
    if step.hidden[0] >= could / 2:
        return []
    computes = intervals(step.start[~sends], step.stop[~sends])
    each = [intervals([one], [other]) for one, other in zip(start, stop, strict=True)]
    covered = np.array([length(intersection(one, computes)) for one in each])
    nothing = bool(np.all(covered < NOTHING * np.minimum(seconds, could)))
    follow = length(intersection(computes, intervals([start.min()], [step.stop.max()])))
    exposed = format_time(step.exposed[0])
    if nothing and follow > NOTHING * could:
        says = (
            f"nothing of {counted(count, 'all_reduce')} is hidden, {exposed} exposed, although "
            f"{format_time(follow)} of computing follow: overlap is off, or the calls block"
        )
        return [(OFF, says)]
    found = []
    if nothing and count > 1:
        says = (
            f"all {count} all_reduces start after the last backward block, {exposed} exposed: overlap is off"
        )
        found.append((OFF, says))
    worst = int(np.argmax(seconds - covered))
    shows = seconds[worst] - covered[worst]
    if shows > seconds.sum() / 2:
        share = format_share(seconds[worst] / seconds.sum())
        seen = (
            "starts after the backward pass"
            if nothing and count == 1
            else f"has {share} of the time of all {count}, {format_time(shows)} of it exposed"
        )
        says = f"one all_reduce of {format_time(seconds[worst])} {seen}: use smaller buckets"
        found.append((TOO_LARGE, says))
    if not found:
        says = (
            f"{format_time(step.hidden[0])} of the all_reduces' {format_time(step.communication[0])} are "
            f"hidden, and {format_time(could)} could be: start them earlier"
        )
        found.append((LITTLE, says))
    return found


def _too_small(step: Timeline, latency: float) -> list[tuple[str, str]]:
    """Where latency is more than half of the time of several all_reduces, added up."""
    seconds = (step.stop - step.start)[_sends(step)]
    waits = seconds.size * latency / seconds.sum()
    if seconds.size == 1 or waits <= 0.5:
        return []
    share = format_share(min(waits, 1.0))
    return [(TOO_SMALL, f"{share} of {seconds.size} all_reduces' time is latency: use larger buckets")]


def _too_much(step: Timeline) -> list[tuple[str, str]]:
    """Where the backward pass is too short for the communication."""
    seconds, under = step.communication[0], _under(step)
    if seconds <= under * (1 + ROUNDING):
        return []
    says = (
        f"the all_reduces take {format_time(seconds)}, the backward pass {format_time(under)}: "
        "send less, or compute more per step"
    )
    return [(TOO_MUCH, says)]


def _under(step: Timeline) -> float:
    """Seconds of the backward pass."""
    backward = _backward(step)
    return length(intervals(step.start[backward], step.stop[backward]))


def _sends(timeline: Timeline) -> np.ndarray:
    return timeline.kind == TRANSFER


def _backward(timeline: Timeline) -> np.ndarray:
    return np.isin(timeline.kind, (BACKWARD, INPUT_GRADIENT, WEIGHT_GRADIENT))
