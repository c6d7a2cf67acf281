"""The memory-bounded schedule: every rank takes the best that is ready and that its memory allows.

"Zero Bubble Pipeline Parallelism" (Qi et al. 2024), section 3.1, as a list schedule: each rank runs forwards
until the first gradient can be there, then forwards and input gradients; weight gradients fill what is left,
or make room. Its limits 1x and 2x of 1F1B's memory are the paper's ZB-1p and ZB-2p; on two chunks per rank
placed as a V it gives ZB-V. The paper's own search tries more orders and can find better ones.
"""

from collections import deque
from heapq import heappop, heappush

from labkit.errors import InputRefused
from labkit.strategies.pipeline.order import SPLIT, Order, check_counts
from labkit.strategies.pipeline.times import StageTimes, stage_times

_FORWARD, _INPUT, _WEIGHT = range(3)
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
    check_counts(p, m)
    if not limit >= 1:
        raise InputRefused(f"no micro-batch fits a limit of {limit}; use at least 1, or {p} for ZB-1p")
    times = stage_times(p, forward, backward, transfer, weight_gradient)
    passes = [_Pass(list(range(p)), m, limit, times, in_turn) for in_turn in (True, False)]
    return min(passes, key=lambda one: one.longest_own_span()).orders


def zb_v(p: int, m: int, forward=0.5, backward=1.0, transfer=0.0, weight_gradient=None) -> Order:
    """ZB-V: rank i has the stages i and 2 p - 1 - i, so that a micro-batch goes down the ranks and up again.

    Every rank holds at most p micro-batches, as 1F1B does on its first (a stage counts 1/2). The placement
    and the limit are those of "Pipeline Parallelism with Controllable Memory" (Qi et al. 2024); the order is
    found as by ``greedy``. The times are those of ``simulate``, one value or one per stage, 2 p stages.

    >>> from labkit.strategies.pipeline import peak_in_flight, simulate
    >>> order = zb_v(4, 16)
    >>> peak_in_flight(order).tolist(), round(simulate(order, 0.5, 1).bubble_rate, 3)
    ([4.0, 4.0, 4.0, 4.0], 0.01)
    """
    check_counts(p, m)
    times = stage_times(2 * p, forward, backward, transfer, weight_gradient)
    return _Pass([*range(p), *reversed(range(p))], m, 2 * p, times, in_turn=True).orders


class _Pass:
    """One pass over time, in which ranks decide whenever they are free or something arrives.

    ``in_turn``: after the input gradient of one micro-batch comes the forward of another, if need be after a
    weight gradient that makes room; else input gradients always come first. ``held`` and ``limit`` count
    stage activations; ``own``: the stages of each rank, the last first, since what is further on its way
    frees memory sooner.
    """

    def __init__(self, rank_of: list[int], m: int, limit: float, times: StageTimes, in_turn: bool):
        self.m, self.limit, self.in_turn, self.rank_of = m, limit, in_turn, rank_of
        n, p = len(rank_of), max(rank_of) + 1
        gradient = times.backward - times.weight_gradient
        self.seconds = [part.tolist() for part in (times.forward, gradient, times.weight_gradient)]
        self.hop = [
            0.0 if a == b else hop
            for a, b, hop in zip(rank_of[:-1], rank_of[1:], times.transfer.tolist(), strict=True)
        ]
        self.own = [[s for s in reversed(range(n)) if rank_of[s] == rank] for rank in range(p)]
        self.places = self._places()
        self.ahead = self._ahead() if n == p else [_NEVER] * p
        # When the inputs of each stage arrive, by kind, stage and micro-batch.
        self.arrives = [[[_NEVER] * (m + 1) for _ in range(n)] for _ in (_FORWARD, _INPUT)]
        self.arrives[_FORWARD][0][:m] = [0.0] * m
        self.done = [[0] * n for _ in (_FORWARD, _INPUT, _WEIGHT)]
        self.held = [0] * p
        self.weights: list[deque[int]] = [deque() for _ in range(p)]  # stages whose weight gradients wait
        self.turn = [_FORWARD] * p  # the last operation that was no weight gradient
        self.orders = [[] for _ in range(p)]
        self.began, self.free = [0.0] * p, [0.0] * p
        self._run()

    def longest_own_span(self) -> float:
        """Longest time of any rank from its first start to its last stop."""
        return max(stop - start for start, stop in zip(self.began, self.free, strict=True))

    def _places(self) -> list[float]:
        """How many activations of each stage its rank may hold.

        A stage's share of the rank's memory is its share of the time under way, 2 (stages after it) + 1
        steps; the last stage of a rank may use all. Otherwise the early stages fill the memory, and nothing
        passes.
        """
        n = len(self.rank_of)
        steps = [2 * (n - 1 - stage) + 1 for stage in range(n)]
        places = [self.limit] * n
        for own in self.own:
            for stage in own[1:]:
                places[stage] = self.limit * steps[stage] // sum(steps[s] for s in own)
        return places

    def _ahead(self) -> list[float]:
        """Forwards that fit before the first gradient can be back, fewer on each later rank."""
        forward, gradient, _ = self.seconds
        ahead, wait = [], forward[-1]
        for rank in reversed(range(len(forward))):
            if rank < len(forward) - 1:
                wait += forward[rank] + 2 * self.hop[rank] + gradient[rank + 1]
            ahead.append(max(1, min(self.limit, (wait + 1e-9 * wait) // forward[rank])))
        ahead.reverse()
        for rank in range(1, len(ahead)):
            ahead[rank] = max(1, min(ahead[rank], ahead[rank - 1] - 1))
        return ahead

    def _run(self) -> None:
        """Begins one operation after the other, in the order of time."""
        free, orders, done, held = self.free, self.orders, self.done, self.held
        events = [(0.0, rank) for rank in range(len(self.own))]
        while events:
            now, rank = heappop(events)
            if now < free[rank]:
                continue
            kind, stage = self._choose(rank, now)
            if kind is None:
                continue
            if not orders[rank]:
                self.began[rank] = now
            k = done[kind][stage]
            stop = free[rank] = now + self.seconds[kind][stage]
            heappush(events, (stop, rank))
            if kind == _WEIGHT:
                self.weights[rank].popleft()
                held[rank] -= 1
            else:
                if kind == _FORWARD:
                    held[rank] += 1
                else:
                    self.weights[rank].append(stage)
                self.turn[rank] = kind
                self._send(kind, stage, k, stop, events)
            done[kind][stage] = k + 1
            orders[rank].append((SPLIT[kind], k, stage))

    def _choose(self, rank: int, now: float) -> tuple[int | None, int | None]:
        """Kind and stage of the operation to begin now, or neither to wait for an arrival."""
        weights, own = self.weights[rank], self.own[rank]
        forward, gradient, weight = self.done
        room = self.held[rank] + 1 <= self.limit
        begun = gradient[own[0]] > 0
        forward_first = self.in_turn and begun and self.turn[rank] == _INPUT
        soon = _NEVER
        for kind in (_FORWARD, _INPUT) if forward_first else (_INPUT, _FORWARD):
            done, arrives = self.done[kind], self.arrives[kind]
            for stage in own:
                arrival = arrives[stage][done[stage]]
                if arrival > now:
                    if arrival < soon:
                        soon = arrival
                elif kind == _INPUT:
                    return kind, stage
                elif begun or forward[stage] < self.ahead[rank]:
                    if room and forward[stage] - weight[stage] < self.places[stage]:
                        return kind, stage
                    if forward_first and weights:
                        return _WEIGHT, weights[0]
        if not weights:
            return None, None
        # What is on its way is worth a wait shorter than a weight gradient.
        if room and soon < now + self.seconds[_WEIGHT][weights[0]] * (1 - 1e-9):
            return None, None
        return _WEIGHT, weights[0]

    def _send(self, kind: int, stage: int, k: int, stop: float, events: list) -> None:
        """The output is on its way to the stage that needs it, up forward, down again backward."""
        to, arrival = stage, stop
        if kind == _INPUT:
            if stage == 0:
                return
            to, arrival = stage - 1, stop + self.hop[stage - 1]
        elif stage < len(self.rank_of) - 1:
            to, arrival = stage + 1, stop + self.hop[stage]
        else:
            kind = _INPUT
        self.arrives[kind][to][k] = arrival
        receiver = self.rank_of[to]
        if self.free[receiver] < arrival:
            heappush(events, (arrival, receiver))
