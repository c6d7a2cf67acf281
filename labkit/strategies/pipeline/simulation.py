"""When each operation of an order runs: times follow from the data dependence alone, by no closed form."""

from dataclasses import dataclass

import numpy as np

from labkit.errors import InputRefused
from labkit.strategies.pipeline.order import SPLIT, Coded, Order, coded
from labkit.strategies.pipeline.run import Run
from labkit.strategies.pipeline.times import StageTimes, stage_times
from labkit.strategies.timeline import TRANSFER


def simulate(order: Order | Coded, forward, backward, transfer=0.0, weight_gradient=None) -> Run:
    """Runs ``order``: each operation as soon as its rank is free and its input has arrived.

    ``forward`` and ``backward``: seconds per micro-batch, one value or one per stage; ``weight_gradient``:
    the part of ``backward`` that is the weight gradient's (half unless given), for orders that run it apart.
    ``transfer``: seconds from one stage to the next, one value or one per boundary, shape (stages - 1,). It
    is non-blocking: sender and receiver go on working, and transfers do not queue behind each other. Between
    two stages of one rank there is none. The step starts at 0. ``stage_times`` makes all four. Refused: what
    ``stage_times`` refuses, an order that leaves out or repeats an operation, and one in which ranks wait for
    each other for ever.

    >>> from labkit.strategies.pipeline import gpipe, one_f_one_b
    >>> simulate(gpipe(4, 4), forward=1, backward=2).bubble == 3 / 7
    True
    >>> [simulate(one_f_one_b(4, 16, warmup), 1, 2, transfer=0.5).span - 57 for warmup in (1, 2)]
    [14.0, 3.0]
    """
    numbers = coded(order)
    times = stage_times(numbers.stages, forward, backward, transfer, weight_gradient)
    seconds = groups_of(numbers, times)
    route = route_of(numbers, times)
    start = np.array(_starts(numbers, seconds, route))
    stop = start + np.repeat(seconds, numbers.m)
    return _as_run(numbers, start, stop, route)


def groups_of(numbers: Coded, times: StageTimes) -> list[float]:
    """Seconds of one operation, for each kind and stage in turn (a *group* of m operations)."""
    if numbers.kinds == SPLIT:
        parts = (times.forward, times.backward - times.weight_gradient, times.weight_gradient)
    else:
        parts = (times.forward, times.backward)
    return np.concatenate(parts).tolist()


@dataclass(frozen=True)
class Route:
    """Where the output of each group goes: up the stages forward, from the last down again backward.

    ``shift``: by how much the code of the operation that needs it is higher, 0 where none does; ``receiver``:
    its rank, ``hop``: seconds until it is there. ``weight``: the same shift for the weight gradient, whose
    input is the input gradient of its own stage.
    """

    rank: list[int]
    shift: list[int]
    receiver: list[int]
    hop: list[float]
    weight: list[int]


def route_of(numbers: Coded, times: StageTimes) -> Route:
    """The route of an order's groups."""
    n, m, rank_of = numbers.stages, numbers.m, numbers.rank_of
    others = [None] * n * (len(numbers.kinds) - 2)
    to = [*range(1, n), 2 * n - 1, None, *range(n, 2 * n - 1), *others]
    hops = times.transfer.tolist()
    hops = [*hops, 0.0, 0.0, *hops, *[0.0] * len(others)]
    rank = rank_of * len(numbers.kinds)
    receiver = [here if there is None else rank[there] for here, there in zip(rank, to, strict=True)]
    return Route(
        rank=rank,
        shift=[0 if there is None else (there - here) * m for here, there in enumerate(to)],
        receiver=receiver,
        hop=[0.0 if a == b else seconds for a, b, seconds in zip(rank, receiver, hops, strict=True)],
        weight=[0] * n + [n * m if others else 0] * n + [0] * len(others),
    )


def _starts(numbers: Coded, seconds: list[float], route: Route) -> list[float]:
    """Start of every operation, by its code.

    A rank works through its order until an input is missing; then it sleeps, and the arrival of that input
    wakes it again.
    """
    m = numbers.m
    steps = list(zip(seconds, route.shift, route.hop, route.receiver, route.weight, strict=True))
    missing = -1.0
    arrived = [missing] * (len(seconds) * m)
    arrived[:m] = [0.0] * m
    starts = [0.0] * len(arrived)
    free = [0.0] * numbers.p
    position = [0] * numbers.p
    waits_for = [-1] * numbers.p
    awake = list(range(numbers.p))
    while awake:
        rank = awake.pop()
        own, now = numbers.codes[rank], free[rank]
        for at in range(position[rank], len(own)):
            code = own[at]
            start = arrived[code]
            if start < 0:
                position[rank], waits_for[rank] = at, code
                break
            if start < now:
                start = now
            starts[code] = start
            duration, shift, hop, receiver, weight = steps[code // m]
            now = start + duration
            if shift:
                arrived[code + shift] = now + hop
                if waits_for[receiver] == code + shift:
                    awake.append(receiver)
            if weight:
                arrived[code + weight] = now
        else:
            position[rank], waits_for[rank] = len(own), -1
        free[rank] = now
    _check_finished(numbers, position)
    return starts


def _as_run(numbers: Coded, start: np.ndarray, stop: np.ndarray, route: Route) -> Run:
    """The blocks of all operations, and of the transfers that follow them, as one timeline."""
    m, n = numbers.m, numbers.stages
    groups, rank = len(route.rank), np.array(route.rank)
    sends = np.flatnonzero(np.array(route.receiver) != rank)
    # Rows of the table of (group, micro-batch) that a transfer follows.
    sent = (sends[:, None] * m + np.arange(m)).ravel()
    group = np.repeat(np.arange(groups), m)
    item = np.tile(np.arange(m), groups)
    names = np.array([*numbers.kinds, TRANSFER])
    return Run(
        lane=rank[np.concatenate([group, group[sent]])],
        start=np.concatenate([start, stop[sent]]),
        stop=np.concatenate([stop, stop[sent] + np.array(route.hop)[group[sent]]]),
        kind=names[np.concatenate([group // n, np.full(sent.size, len(numbers.kinds))])],
        item=np.concatenate([item, item[sent]]),
        stage=np.concatenate([group, group[sent]]) % n,
    )


def _check_finished(numbers: Coded, position: list[int]) -> None:
    """All ranks came to the end of their order; if not, say which rank waits where."""
    stuck = [
        f"rank {rank} at {numbers.name(own[at])}"
        for rank, (own, at) in enumerate(zip(numbers.codes, position, strict=True))
        if at < len(own)
    ]
    if stuck:
        raise InputRefused(
            f"these wait for each other for ever: {', '.join(stuck)}; move what they wait for forward"
        )
