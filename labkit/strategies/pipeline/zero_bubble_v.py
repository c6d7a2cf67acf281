"""ZB-V: two chunks per rank placed as a V, the forwards and input gradients in a published order.

"Pipeline Parallelism with Controllable Memory" (Qi et al. 2024); the order of passes is that of PyTorch's
``ScheduleZBVZeroBubble``, in which no rank waits between its first and its last operation where forward,
input gradient and weight gradient take equally long. PyTorch gives each weight gradient a fixed place. Here
it makes room, or starts where its rank would otherwise wait for more than half of its time: as good with
equal passes, and better with few micro-batches or unequal stages.
"""

from collections import deque
from heapq import heappop, heappush

from labkit.strategies.pipeline.order import SPLIT, Coded, Order, check_counts
from labkit.strategies.pipeline.simulation import Route, groups_of, route_of
from labkit.strategies.pipeline.times import stage_times

_NEVER = float("inf")


def zb_v(p: int, m: int, forward=0.5, backward=1.0, transfer=0.0, weight_gradient=None) -> Order:
    """ZB-V: rank i has the stages i and 2 p - 1 - i, so that a micro-batch goes down the ranks and up again.

    Every rank holds at most p micro-batches, as 1F1B does on its first (a stage counts 1/2). The times are
    those of ``simulate``, one value or one per stage, 2 p stages: where the weight gradients fall depends on
    them.

    >>> from labkit.strategies.pipeline import peak_in_flight, simulate
    >>> order = zb_v(4, 16)
    >>> peak_in_flight(order).tolist(), simulate(order, 0.5, 1).bubble_rate
    ([4.0, 4.0, 4.0, 4.0], 0.0)
    """
    p, m, _ = check_counts(p, m)
    times = stage_times(2 * p, forward, backward, transfer, weight_gradient)
    passes = [_down_and_up(rank, p, m) for rank in range(p)]
    numbers = Coded(SPLIT, m, [*range(p), *reversed(range(p))], passes)
    filled = _filled(numbers, groups_of(numbers, times), route_of(numbers, times), limit=2 * p)
    name = [(kind, stage) for kind in SPLIT for stage in range(2 * p)]
    return [[(name[code // m][0], code % m, name[code // m][1]) for code in rank] for rank in filled]


def _down_and_up(rank: int, p: int, m: int) -> list[int]:
    """The forwards and input gradients of one rank, by their codes.

    It is the order for at least 2 p - 1 micro-batches, which fill the pipeline, without those beyond m.
    """
    down, up, later = rank, 2 * p - 1 - rank, p - rank
    full = max(m, 2 * p - 1)
    # Groups as in ``Coded``: forwards on the way down and up, input gradients on the way up and down.
    f_down, f_up, b_up, b_down = down, up, 2 * p + up, 2 * p + down
    groups = (
        [f_down] * (2 * later - 1)
        + [f_up, f_down] * rank
        + [f_up, b_up] * later
        + [f_down, b_down, f_up, b_up] * (full - 2 * p + 1 + rank)
        + [b_down, f_up, b_up] * (later - 1)
        + [b_down, b_up] * rank
        + [b_down] * later
    )
    seen = dict.fromkeys(groups, 0)
    codes = []
    for group in groups:
        if seen[group] < m:
            codes.append(group * m + seen[group])
        seen[group] += 1
    return codes


def _filled(numbers: Coded, seconds: list[float], route: Route, limit: int) -> list[list[int]]:
    """The codes of each rank with its weight gradients among them; it holds at most ``limit`` activations.

    Ranks decide in the order of time. One works ahead until it needs an input that nobody has begun to make;
    it decides about that when all others have come as far.
    """
    m, gradients = numbers.m, numbers.stages * numbers.m  # codes of input gradients begin there
    steps = list(zip(seconds, route.shift, route.hop, route.receiver, strict=True))
    arrives = [_NEVER] * (len(seconds) * m)
    arrives[:m] = [0.0] * m
    filled: list[list[int]] = [[] for _ in numbers.codes]
    weights: list[deque[int]] = [deque() for _ in numbers.codes]  # weight gradients that wait
    left = [deque(own) for own in numbers.codes]
    held, waits_for = [0] * numbers.p, [-1] * numbers.p
    events = [(0.0, rank) for rank in range(numbers.p)]
    while events:
        now, rank = heappop(events)
        own, waiting, done = left[rank], weights[rank], filled[rank]
        decided = False
        while own or waiting:
            code = own[0] if own else -1
            crowded = code < gradients and held[rank] == limit
            arrival = _NEVER if crowded or not own else arrives[code]
            if arrival == _NEVER and own and not crowded and decided:
                heappush(events, (now, rank))
                break
            if waiting and arrival >= now + seconds[waiting[0] // m] / 2:
                code = waiting.popleft()
                now += seconds[code // m]
                held[rank] -= 1
            elif arrival == _NEVER:
                waits_for[rank] = code
                break
            else:
                own.popleft()
                duration, shift, hop, receiver = steps[code // m]
                now = max(now, arrival) + duration
                if code < gradients:
                    held[rank] += 1
                else:
                    waiting.append(code + gradients)
                if shift:
                    arrives[code + shift] = now + hop
                    if waits_for[receiver] == code + shift:
                        waits_for[receiver] = -1
                        heappush(events, (now + hop, receiver))
            done.append(code)
            decided = True
    return filled
