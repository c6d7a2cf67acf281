"""A job that trains and saves, as a timeline: when the card trains, when it copies, when the host writes."""

import numpy as np

from labkit.practice.saving import ASYNCHRONOUS, SYNCHRONOUS, WAYS
from labkit.spec.checks import amount, one_of, whole
from labkit.strategies.timeline import BACKWARD, FORWARD, TRANSFER, Timeline

CARD, HOST = 0, 1  # the lanes
_FORWARD = 1 / 3  # of a step: the backward pass does twice the work
MOST_STEPS = 10_000
_ROUNDING = 1e-9  # seconds


def save_timeline(way, steps, step, every, copy, write) -> Timeline:
    """``steps`` steps with a save after each ``every`` of them, in one of the ways of ``stall_seconds``.

    Lane 0, the card: forward and backward of each step (the update at its end takes no time here), and the
    copies to the host; lane 1, the host: the writes. ``item``: the step, of copies and writes the save; both
    count from 0. A synchronous save has no copy of its own. The last save may be written after the last step.
    Refused: other ways, steps not whole, and seconds below 0.

    >>> t = save_timeline("asynchronous", 5, 1.0, 2, 0.5, 1.0)
    >>> t.busy[0].item(), t.span, stalls(t)
    (5.0, 6.0, [0.5, 0.5])
    """
    way = one_of(WAYS, way, "the way of saving", arrays=False).item()
    steps = whole(steps, "steps", most=MOST_STEPS)
    every = whole(every, "the steps between two saves")
    step = float(amount(step, "the seconds of a step", arrays=False))
    copy, write = (
        float(amount(seconds, f"the seconds of a {what}", zero=True, arrays=False))
        for seconds, what in ((copy, "copy"), (write, "write"))
    )
    blocks: list[tuple[int, float, float, str, int]] = []
    now = written = copied = 0.0
    for number in range(steps):
        turn = now + _FORWARD * step
        blocks.append((CARD, now, turn, FORWARD, number))
        blocks.append((CARD, turn, now + step, BACKWARD, number))
        now = max(now + step, copied)  # the update waits for a copy of what it changes
        if (number + 1) % every:
            continue
        save = number // every
        if way == SYNCHRONOUS:
            now, start = now + write, now
        else:
            now = max(now, written)  # one copy in host memory: it must be on disk before the next
            copied = start = now + copy
            blocks.append((CARD, now, copied, TRANSFER, save))
            now = copied if way == ASYNCHRONOUS else now
        written = start + write
        blocks.append((HOST, start, written, TRANSFER, save))
    lane, start, stop, kind, item = zip(*blocks, strict=True)
    return Timeline(lane=lane, start=start, stop=stop, kind=kind, item=item)


def stalls(timeline: Timeline) -> list[float]:
    """Seconds from the end of a step to the start of the next, wherever the card waits.

    >>> stalls(save_timeline("synchronous", 5, 1.0, 2, 0.5, 1.0))
    [1.0, 1.0]
    """
    own = (timeline.lane == CARD) & (timeline.kind != TRANSFER)
    starts, stops = np.sort(timeline.start[own]), np.sort(timeline.stop[own])
    gaps = starts[1:] - stops[:-1]
    return gaps[gaps > _ROUNDING].tolist()
