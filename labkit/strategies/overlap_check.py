"""Is gradient overlap at work? Read off a timeline: a simulated one, or one made from a profile.

Give it a timeline whose transfers are the gradients' all_reduces alone.
"""

from dataclasses import dataclass

import numpy as np

from labkit.spec.checks import noun, whole
from labkit.strategies.checks import single
from labkit.strategies.timeline import BACKWARD, INPUT_GRADIENT, TRANSFER, WEIGHT_GRADIENT, Timeline
from labkit.units import format_share, format_time

NONE, OFF, TOO_LARGE, TOO_SMALL, TOO_MUCH = (
    "no all_reduce",
    "overlap off",
    "buckets too large",
    "buckets too small",
    "too much to hide",
)


@dataclass(frozen=True, slots=True)
class OverlapFinding:
    """One thing that keeps communication exposed: its ``kind``, and a sentence with the figures."""

    kind: str
    says: str


def overlap_findings(timeline: Timeline, latency: float, rank: int = 0) -> list[OverlapFinding]:
    """What one rank's timeline says against its gradient overlap; an empty list where nothing does.

    - one all_reduce alone: the bucket is too large, nothing can be sent before the backward pass is over;
    - several, all of them after the last backward block: overlap is off;
    - more than half of their time is ``latency`` (seconds of an all_reduce of no bytes, from a link or from
      the fit of a sweep): the buckets are too small. It is the rule of ``bucket_warnings``, in time;
    - they take longer than the backward pass: no setting can hide them all.

    Refused: what is no timeline, a latency below 0, and a rank that it has not.
    """
    noun(timeline, Timeline, "the timeline")
    latency = single(latency, "the latency of an all_reduce", zero=True)
    rank = whole(rank, "the rank", least=0, most=timeline.lanes - 1)
    here = timeline.lane == rank
    sends = here & (timeline.kind == TRANSFER)
    backward = here & np.isin(timeline.kind, (BACKWARD, INPUT_GRADIENT, WEIGHT_GRADIENT))
    count, seconds = int(sends.sum()), timeline.communication[rank]
    if not count or not backward.any():
        return [OverlapFinding(NONE, "there is no all_reduce, or no backward pass, to look at")]
    found, over = [], timeline.stop[backward].max()
    exposed = format_time(timeline.exposed[rank])
    after = bool(np.all(timeline.start[sends] >= over))
    if after and count == 1:
        says = f"one all_reduce of {format_time(seconds)} starts after the backward pass: use smaller buckets"
        found.append(OverlapFinding(TOO_LARGE, says))
    elif after:
        says = (
            f"all {count} all_reduces start after the last backward block, {exposed} exposed: overlap is off"
        )
        found.append(OverlapFinding(OFF, says))
    waits = count * latency / seconds if seconds else 0.0
    if waits > 0.5:
        says = f"{format_share(min(waits, 1.0))} of {count} all_reduces' time is latency: use larger buckets"
        found.append(OverlapFinding(TOO_SMALL, says))
    under = (timeline.stop - timeline.start)[backward].sum()
    if seconds > under:
        says = (
            f"the all_reduces take {format_time(seconds)}, the backward pass {format_time(under)}: "
            "send less, or compute more per step"
        )
        found.append(OverlapFinding(TOO_MUCH, says))
    return found
