"""Pipeline schedules: the order in which each stage works, and a simulation of when it does.

An *order* holds, for each stage, its operations ``(kind, micro-batch)`` one after the other. Which order is
used is the schedule; the times follow from the data dependence alone. No closed form is used here.
"""

import numpy as np

from labkit.errors import InputRefused
from labkit.strategies.timeline import BACKWARD, FORWARD, TRANSFER, Timeline

Order = list[list[tuple[str, int]]]


def gpipe(p: int, m: int) -> Order:
    """All forwards, then all backwards, on each of ``p`` stages with ``m`` micro-batches.

    Backwards run in reverse (last in, first out), as in Huang et al. 2019 (GPipe), figure 2.

    >>> gpipe(2, 2)[0]
    [('forward', 0), ('forward', 1), ('backward', 1), ('backward', 0)]
    """
    _check_counts(p, m)
    stage = [(FORWARD, k) for k in range(m)] + [(BACKWARD, k) for k in reversed(range(m))]
    return [list(stage) for _ in range(p)]


def one_f_one_b(p: int, m: int, warmup: int = 1) -> Order:
    """One forward, one backward in turn, once stage i has run ``warmup`` x (p - 1 - i) forwards ahead.

    ``warmup=1`` is plain 1F1B (Narayanan et al. 2021, section 2.2.1): stage i holds at most p - i
    micro-batches. ``warmup=2`` doubles the warm-up: at most 2 (p - i) - 1, the slack in which transfers hide.
    ``warmup=0`` is no pipeline at all: one micro-batch after the other.

    >>> one_f_one_b(2, 2)[0]
    [('forward', 0), ('forward', 1), ('backward', 0), ('backward', 1)]
    >>> one_f_one_b(2, 2)[1]
    [('forward', 0), ('backward', 0), ('forward', 1), ('backward', 1)]
    """
    _check_counts(p, m)
    if warmup < 0:
        raise InputRefused(
            f"the warm-up factor is {warmup}; use 1 (plain), 2 (doubled) or any other from 0 on"
        )
    order = []
    for i in range(p):
        ahead = min(m, warmup * (p - 1 - i))
        stage = [(FORWARD, k) for k in range(ahead)]
        for k in range(m - ahead):
            stage += [(FORWARD, ahead + k), (BACKWARD, k)]
        stage += [(BACKWARD, k) for k in range(m - ahead, m)]
        order.append(stage)
    return order


def peak_in_flight(order: Order) -> np.ndarray:
    """Most micro-batches that each stage holds at once, shape (p,): forward begun, backward not yet finished.

    It follows from the order alone: a stage does one thing at a time, whatever the times are.

    >>> peak_in_flight(one_f_one_b(4, 16)).tolist(), peak_in_flight(one_f_one_b(4, 16, warmup=2)).tolist()
    ([4, 3, 2, 1], [7, 5, 3, 1])
    """
    return np.array([np.cumsum([1 if kind == FORWARD else -1 for kind, _ in stage]).max() for stage in order])


def simulate(order: Order, forward: float, backward: float, transfer: float = 0.0) -> Timeline:
    """When each operation of ``order`` runs: as soon as its stage is free and its input has arrived.

    ``forward`` and ``backward``: seconds per micro-batch, one value or one per stage, shape (p,).
    ``transfer``: seconds from one stage to the next, one value or one per boundary, shape (p - 1,). It is
    non-blocking: sender and receiver go on working, and transfers do not queue behind each other.
    The step starts at 0. Refused: times that are not finite and above zero (``transfer`` may be 0), an order
    that leaves out or repeats an operation, and one in which stages wait for each other for ever.

    >>> simulate(gpipe(4, 4), forward=1, backward=2).bubble == 3 / 7
    True
    >>> [simulate(one_f_one_b(4, 16, warmup), 1, 2, transfer=0.5).span - 57 for warmup in (1, 2)]
    [14.0, 3.0]
    """
    _check_order(order)
    p = len(order)
    seconds = {
        FORWARD: _times(forward, p, "forward", "stage"),
        BACKWARD: _times(backward, p, "backward", "stage"),
    }
    hop = _times(transfer, p - 1, "transfer", "boundary", zero_allowed=True)

    arrived = {(0, FORWARD, k): 0.0 for kind, k in order[0] if kind == FORWARD}
    free = [0.0] * p
    position = [0] * p
    blocks = []
    awake = list(range(p))
    while awake:
        stage = awake.pop()
        while position[stage] < len(order[stage]):
            kind, k = order[stage][position[stage]]
            if (stage, kind, k) not in arrived:
                break  # asleep: the arrival of this input wakes the stage again
            start = max(free[stage], arrived[stage, kind, k])
            stop = free[stage] = start + seconds[kind][stage]
            blocks.append((stage, start, stop, kind, k))
            position[stage] += 1
            receiver, needed_by = _output_goes_to(stage, kind, p)
            if receiver is None:
                continue
            arrival = stop
            if receiver != stage:
                arrival = stop + hop[min(stage, receiver)]
                blocks.append((stage, stop, arrival, TRANSFER, k))
                awake.append(receiver)
            arrived[receiver, needed_by, k] = arrival
    _check_finished(order, position)
    return Timeline(*zip(*blocks, strict=True))


def _output_goes_to(stage: int, kind: str, p: int) -> tuple[int | None, str | None]:
    """Which stage needs an output, and for what: up the stages forward, then down again backward."""
    if kind == FORWARD:
        return (stage + 1, FORWARD) if stage < p - 1 else (stage, BACKWARD)
    return (stage - 1, BACKWARD) if stage > 0 else (None, None)


def _times(value: float, count: int, name: str, per: str, zero_allowed: bool = False) -> list[float]:
    """``value`` as one Python float for each of ``count`` stages or boundaries."""
    times = np.asarray(value, dtype=float)
    if times.shape not in ((), (count,)):
        raise InputRefused(
            f"{name} times have the shape {times.shape}; give one value or one per {per}, shape ({count},)"
        )
    if not np.all(np.isfinite(times) & ((times >= 0) if zero_allowed else (times > 0))):
        bound = "zero or more" if zero_allowed else "above zero"
        raise InputRefused(f"{name} times must be finite and {bound}, in seconds; got {value}")
    return np.broadcast_to(times, (count,)).tolist()


def _check_counts(p: int, m: int) -> None:
    if p < 1 or m < 1:
        raise InputRefused(f"{p} stages and {m} micro-batches make no pipeline; use at least 1 of each")


def _check_order(order: Order) -> None:
    """Every stage runs each micro-batch forward once and backward once."""
    if not order or not order[0]:
        raise InputRefused("the order is empty; give a list of operations for each stage")
    micro_batches = {k for _, k in order[0]}
    expected = sorted((kind, k) for kind in (FORWARD, BACKWARD) for k in micro_batches)
    for i, stage in enumerate(order):
        if sorted(stage) != expected:
            raise InputRefused(
                f"stage {i} does not run each of the {len(micro_batches)} micro-batches forward once and "
                "backward once; correct its order"
            )


def _check_finished(order: Order, position: list[int]) -> None:
    """All stages came to the end of their order; if not, say which stage waits where."""
    stuck = [
        (i, *stage[at]) for i, (stage, at) in enumerate(zip(order, position, strict=True)) if at < len(stage)
    ]
    if stuck:
        waits = ", ".join(f"stage {i} at {kind} {k}" for i, kind, k in stuck)
        raise InputRefused(f"these wait for each other for ever: {waits}; move what they wait for forward")
