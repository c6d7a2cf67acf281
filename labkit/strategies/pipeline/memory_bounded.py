"""The memory-bounded schedule: every rank takes the best that is ready and that its memory allows.

"Zero Bubble Pipeline Parallelism" (Qi et al. 2024), section 3.1, as a list schedule: each rank runs forwards
until the first gradient can be there, then forwards and input gradients; weight gradients fill what is left,
or make room. Its limits 1x and 2x of 1F1B's memory are the paper's ZB-1p and ZB-2p. The paper's own search
tries more orders and can find better ones.
"""

from heapq import heappop, heappush

from labkit.errors import InputRefused
from labkit.strategies.checks import single
from labkit.strategies.pipeline.order import SPLIT, Order, check_counts
from labkit.strategies.pipeline.times import StageTimes, stage_times

_FORWARD, _INPUT, _WEIGHT = SPLIT
_NEVER = float("inf")


def greedy(
    p: int, m: int, limit: float, forward=1.0, backward=2.0, transfer=0.0, weight_gradient=None
) -> Order:
    """The greedy order in which no rank ever holds more than ``limit`` micro-batches.

    1F1B holds p on its first rank: ``limit = p`` is ZB-1p, ``limit = 2 * p`` ZB-2p. The times are those of
    ``simulate``, one value or one per stage: the order depends on them. Refused: a limit below 1.

    >>> from labkit.strategies.pipeline import peak_in_flight, simulate
    >>> order = greedy(4, 16, limit=8)
    >>> float(peak_in_flight(order).max()), simulate(order, 1, 2).bubble_rate
    (8.0, 0.0)
    """
    p, m, _ = check_counts(p, m)
    limit = single(limit, "the limit of micro-batches held", endless=True)
    if limit < 1:
        raise InputRefused(f"no micro-batch fits a limit of {limit:g}; use at least 1, or {p} for ZB-1p")
    times = stage_times(p, forward, backward, transfer, weight_gradient)
    passes = [_one_pass(m, limit, times, in_turn) for in_turn in (True, False)]
    return min(passes, key=lambda one: one[0])[1]


def _one_pass(m: int, limit: float, times: StageTimes, in_turn: bool) -> tuple[float, Order]:
    """One pass over time, in which ranks decide whenever they are free or something arrives.

    ``in_turn``: after the input gradient of one micro-batch comes the forward of another, if need be after a
    weight gradient that makes room; else input gradients always come first. Gives the order, and before it
    the longest time of any rank from its first start to its last stop.
    """
    p, last = len(times.forward), len(times.forward) - 1
    ahead = _ahead(times, limit)
    forward, hop, weight = times.forward.tolist(), times.transfer.tolist(), times.weight_gradient.tolist()
    gradient = (times.backward - times.weight_gradient).tolist()
    # When the inputs of each rank arrive, by micro-batch; after the last nothing more comes.
    activations, gradients = ([[_NEVER] * (m + 1) for _ in range(p)] for _ in range(2))
    activations[0][:m] = [0.0] * m
    done = [[0, 0, 0] for _ in range(p)]  # forwards, input gradients, weight gradients
    order = [[] for _ in range(p)]
    began, free, forward_next = [0.0] * p, [0.0] * p, [False] * p
    events = [(0.0, rank) for rank in range(p)]
    while events:
        now, rank = heappop(events)
        if now < free[rank]:
            continue
        f, b, w = done[rank]
        activation, gradient_in = activations[rank][f], gradients[rank][b]
        room = f - w + 1 <= limit
        may_forward = activation <= now and (b > 0 or f < ahead[rank])
        if forward_next[rank] and may_forward and (room or w < b):
            kind = _FORWARD if room else _WEIGHT
        elif gradient_in <= now:
            kind = _INPUT
        elif may_forward and room:
            kind = _FORWARD
        elif w < b:
            # What is on its way is worth a wait shorter than a weight gradient.
            soon = min(activation if activation > now else _NEVER, gradient_in)
            if room and soon < now + weight[rank] * (1 - 1e-9):
                continue
            kind = _WEIGHT
        else:
            continue
        if not order[rank]:
            began[rank] = now
        to = rank
        if kind == _FORWARD:
            order[rank].append((kind, f, rank))
            done[rank][0] = f + 1
            stop = arrival = now + forward[rank]
            forward_next[rank] = False
            if rank < last:
                to, arrival = rank + 1, stop + hop[rank]
                activations[to][f] = arrival
            else:
                gradients[rank][f] = arrival
        elif kind == _INPUT:
            order[rank].append((kind, b, rank))
            done[rank][1] = b + 1
            stop = arrival = now + gradient[rank]
            forward_next[rank] = in_turn
            if rank:
                to, arrival = rank - 1, stop + hop[rank - 1]
                gradients[to][b] = arrival
        else:
            order[rank].append((kind, w, rank))
            done[rank][2] = w + 1
            stop = now + weight[rank]
        free[rank] = stop
        heappush(events, (stop, rank))
        if to != rank and free[to] < arrival:
            heappush(events, (arrival, to))
    return max(stop - start for start, stop in zip(began, free, strict=True)), order


def _ahead(times: StageTimes, limit: float) -> list[float]:
    """Forwards of each rank that fit before the first gradient can be back, fewer on each later rank."""
    forward, gradient = times.forward.tolist(), (times.backward - times.weight_gradient).tolist()
    ahead, wait = [], forward[-1]
    for rank in reversed(range(len(forward))):
        if rank < len(forward) - 1:
            wait += forward[rank] + 2 * float(times.transfer[rank]) + gradient[rank + 1]
        ahead.append(max(1, min(limit, (wait + 1e-9 * wait) // forward[rank])))
    ahead.reverse()
    for rank in range(1, len(ahead)):
        ahead[rank] = max(1, min(ahead[rank], ahead[rank - 1] - 1))
    return ahead
