"""Mixture of experts: where a router sends the tokens, what a capacity drops, and which rank gets how much.

Arrays have the shape (ranks, tokens, top_k): each rank routes tokens of its own, and each token visits top_k
different experts. All randomness is ``numpy.random.default_rng(seed)``: a seed gives the same result always.

Nothing is trained here. The router is a stand-in with a chosen popularity of its experts; what a trained one
does to keep the load even is the ``balance`` of ``popularity``.
"""

from dataclasses import dataclass, replace

import numpy as np

from labkit.errors import InputRefused
from labkit.spec.checks import noun, one_of, whole
from labkit.spec.rule import divisors, listed, nearest
from labkit.strategies.checks import counts, numbers, places, shaped, share, single
from labkit.units import plain

MOST_EXPERTS, MOST_DRAWS = 10**5, 10**8  # draws: ranks x tokens x experts, some seconds
PLACEMENTS = ("contiguous", "round_robin", "balanced")


@dataclass(frozen=True, slots=True, eq=False)
class Routing:
    """The routed tokens of one micro-batch and layer, all arrays of shape (ranks, tokens, top_k).

    ``chosen``: the experts of each token, strongest first; ``gates``: their weights, 1 together; ``kept``:
    whether the choice found room (everywhere true without a capacity); ``experts``: how many there are;
    ``capacity``: rows per expert in each rank's buffer, None without a capacity.
    """

    chosen: np.ndarray
    gates: np.ndarray
    kept: np.ndarray
    experts: int
    capacity: int | None = None

    @property
    def ranks(self) -> int:
        """Ranks that route tokens, which are also those that hold the experts."""
        return self.chosen.shape[0]

    @property
    def demand(self) -> np.ndarray:
        """Choices that fell on each expert, kept or not, shape (experts,)."""
        return np.bincount(self.chosen.ravel(), minlength=self.experts)

    @property
    def tokens_per_expert(self) -> np.ndarray:
        """Choices that each expert works on, shape (experts,)."""
        return np.bincount(self.chosen[self.kept], minlength=self.experts)

    @property
    def dropped(self) -> float:
        """Share of all choices that found no room."""
        return float(1 - self.kept.mean())

    @property
    def passed_by(self) -> float:
        """Share of tokens of which no choice found room: only the residual connection carries them on."""
        return float(1 - self.kept.any(axis=-1).mean())

    @property
    def padding(self) -> float:
        """Share of the buffers' rows that no token fills; 0 without a capacity."""
        if self.capacity is None:
            return 0.0
        return float(1 - self.kept.sum() / (self.ranks * self.experts * self.capacity))


def popularity(experts: int, skew: float = 0.0, balance: float = 0.0, seed: int = 0) -> np.ndarray:
    """How likely a router is to pick each expert first, shape (experts,), sum 1.

    Zipf's law: the i-th most popular expert has a share in proportion to i^-skew; 0 is even. Which expert is
    the i-th is drawn by ``seed``. ``balance`` from 0 to 1 moves each share that part of the way to
    1/experts: an approximation of the *effect* of an auxiliary loss ("GShard" 2020, section 2.2; "Switch
    Transformers" 2021, section 2.2) or of a bias on the router ("Auxiliary-Loss-Free Load Balancing Strategy
    for Mixture-of-Experts", 2024), neither of which is run here. Refused: a skew below 0, a balance outside
    0 to 1.

    >>> popularity(4, skew=1, seed=0).round(2).tolist(), popularity(4, skew=1, balance=1).tolist()
    ([0.16, 0.48, 0.24, 0.12], [0.25, 0.25, 0.25, 0.25])
    """
    experts = whole(experts, "the number of experts", most=MOST_EXPERTS)
    skew, balance = single(skew, "the skew", zero=True), share(balance, "the balance")
    seed = whole(seed, "the seed", least=0)
    # Shares below the smallest number are 0: nobody draws them.
    with np.errstate(under="ignore"):
        shares = np.arange(1, experts + 1) ** -skew
    shares = np.random.default_rng(seed).permutation(shares / shares.sum())
    return (1 - balance) * shares + balance / experts


def route(popular, ranks: int, tokens: int, top_k: int = 2, seed: int = 0) -> Routing:
    """``tokens`` tokens of each of ``ranks`` ranks choose ``top_k`` experts each, none twice.

    A token draws one expert after the other in proportion to ``popular``, shape (experts,), among those it
    has not drawn: in one go as the smallest of exponential times over ``popular`` (Efraimidis and Spirakis,
    "Weighted random sampling with a reservoir", 2006). The gates are the softmax of the chosen scores, minus
    the logarithms of these times. Nothing is dropped yet. Refused: a top_k above the number of experts.

    >>> route(popularity(8), ranks=2, tokens=3, top_k=2).chosen.shape
    (2, 3, 2)
    """
    popular = numbers(popular, "the popularity of an expert", zero=True)
    popular = shaped(popular, "the popularity", "experts").astype(np.float32)
    experts = popular.size
    ranks, tokens = whole(ranks, "the number of ranks"), whole(tokens, "the tokens of a rank")
    top_k, seed = whole(top_k, "top_k"), whole(seed, "the seed", least=0)
    if ranks * tokens * experts > MOST_DRAWS:
        raise InputRefused(
            f"{ranks} ranks x {tokens} tokens x {experts} experts are too many draws; stay below "
            f"{MOST_DRAWS:,}"
        )
    if top_k > experts:
        raise InputRefused(f"a token cannot visit {top_k} of {experts} experts; use top_k up to {experts}")
    times = np.random.default_rng(seed).standard_exponential((ranks, tokens, experts), dtype=np.float32)
    # Neither 0 (an infinite score) nor infinite (the mark of an expert already drawn) in 32 bits.
    np.maximum(times, np.finfo(np.float32).tiny, out=times)
    times /= np.maximum(popular, np.float32(1e-30))
    chosen, first = np.empty((ranks, tokens, top_k), dtype=int), np.empty((ranks, tokens, top_k))
    token = np.indices((ranks, tokens), sparse=True)
    for choice in range(top_k):
        chosen[..., choice] = soonest = times.argmin(axis=-1)
        first[..., choice] = times[*token, soonest]
        times[*token, soonest] = np.inf
    weights = first[..., :1] / first  # of each choice against the strongest
    gates = weights / weights.sum(axis=-1, keepdims=True)
    return Routing(chosen, gates, np.ones(chosen.shape, dtype=bool), experts)


def expert_capacity(factor, tokens, top_k, experts):
    """Rows that a rank reserves for each expert: factor x top_k x tokens / experts, rounded up.

    ``tokens`` are those of one rank, which sees only its own and so counts alone. "Switch Transformers"
    (2021), section 2.2, for top_k = 1; "GShard" (2020), section 2.2, per group. Refused: a factor not above
    0.

    >>> expert_capacity(1.25, 4096, top_k=2, experts=64)
    160.0
    """
    factor = numbers(factor, "the capacity factor")
    tokens, top_k = counts(tokens, "the tokens of a rank"), counts(top_k, "top_k")
    experts = counts(experts, "the number of experts")
    # 1.1 x 2 x 50 / 10 is a rounding above 11.
    return plain(np.ceil(factor * top_k * tokens / experts - 1e-9))


def drop_late(routing: Routing, factor: float | None) -> Routing:
    """The routing under a capacity factor: each rank keeps, for each expert, the choices that came first.

    Tokens arrive in the order in which they stand, a token's stronger choice before its weaker one. ``None``
    drops nothing (dropless).

    >>> r = route(popularity(4), ranks=1, tokens=100, top_k=1)
    >>> drop_late(r, 1).tokens_per_expert.max(), drop_late(r, None).dropped
    (np.int64(25), 0.0)
    """
    noun(routing, Routing, "the routing")
    if factor is None:
        return replace(routing, kept=np.ones(routing.chosen.shape, dtype=bool), capacity=None)
    ranks, tokens, top_k = routing.chosen.shape
    capacity = int(expert_capacity(single(factor, "the capacity factor"), tokens, top_k, routing.experts))
    queue = (np.arange(ranks)[:, None, None] * routing.experts + routing.chosen).ravel()
    order = np.argsort(queue, kind="stable")
    length = np.bincount(queue, minlength=ranks * routing.experts)
    place = np.empty_like(order)
    place[order] = np.arange(queue.size) - np.repeat(np.cumsum(length) - length, length)
    return replace(routing, kept=(place < capacity).reshape(routing.chosen.shape), capacity=capacity)


def place_experts(experts: int, ranks: int, how: str = "contiguous", load=None) -> np.ndarray:
    """The rank of each expert, shape (experts,), the same number of experts on all ranks.

    ``contiguous``: neighbours together; ``round_robin``: dealt one by one; ``balanced``: by a measured
    ``load`` per expert, shape (experts,), the largest first onto the least loaded rank that has a place left
    (Graham, "Bounds on multiprocessing timing anomalies", 1969, with limited places). Refused: experts that
    ranks do not divide, with the numbers nearby that work.

    >>> place_experts(4, 2).tolist(), place_experts(4, 2, "balanced", [9, 5, 3, 1]).tolist()
    ([0, 0, 1, 1], [0, 1, 1, 0])
    >>> place_experts(256, 3)
    Traceback (most recent call last):
    ...
    labkit.errors.InputRefused: 256 experts do not divide over 3 ranks (256 mod 3 = 1); use 2 or 4 ranks, ...
    """
    each = _experts_per_rank(experts, ranks)
    one_of(PLACEMENTS, how, "the expert placement")
    if how == "contiguous":
        return np.arange(experts) // each
    if how == "round_robin":
        return np.arange(experts) % ranks
    if load is None:
        raise InputRefused("a balanced placement needs the measured load of each expert; give it as load")
    load = shaped(numbers(load, "the load of an expert", zero=True), "the list of loads", experts)
    seats, carried, left = np.empty(experts, dtype=int), np.zeros(ranks), np.full(ranks, each)
    for expert in np.argsort(-load, kind="stable"):
        seats[expert] = rank = np.argmin(np.where(left > 0, carried, np.inf))
        carried[rank] += load[expert]
        left[rank] -= 1
    return seats


def _experts_per_rank(experts: int, ranks: int) -> int:
    """Experts on each rank; refused, with the numbers nearby that work, when they do not divide."""
    experts = whole(experts, "the number of experts", most=MOST_EXPERTS)
    ranks = whole(ranks, "the expert-parallel degree")
    if experts % ranks == 0:
        return experts // ranks
    near = listed(nearest(ranks, divisors(experts)))
    more = -(-experts // ranks) * ranks
    raise InputRefused(
        f"{experts} experts do not divide over {ranks} ranks ({experts} mod {ranks} = {experts % ranks}); "
        f"use {near} ranks, or add {more - experts} redundant experts: {more} = {ranks} x {more // ranks}"
    )


def tokens_per_rank(tokens_per_expert, seats, ranks: int) -> np.ndarray:
    """The load of each rank from that of each expert and the expert's rank, shape (ranks,).

    >>> tokens_per_rank([5, 1, 2, 4], place_experts(4, 2), 2).tolist()
    [6, 6]
    """
    tokens = numbers(tokens_per_expert, "the tokens of an expert", zero=True)
    tokens = shaped(tokens, "the list of tokens per expert", "experts")
    ranks = whole(ranks, "the number of ranks", most=MOST_EXPERTS)
    seats = places(seats, "the ranks of the experts", tokens.size, ranks)
    return np.bincount(seats, weights=tokens, minlength=ranks).astype(int)


def imbalance(tokens_per_rank):
    """Load of the fullest rank over the mean, along the last axis: 1 is even, the number of ranks the worst.

    What waits for all ranks takes this many times as long as with an even load. Refused: loads below 0, or
    none at all.

    >>> imbalance([3, 1, 2, 2])
    1.5
    """
    load = np.atleast_1d(numbers(tokens_per_rank, "the load of a rank", zero=True))
    if not np.all(load.sum(axis=-1) > 0):
        raise InputRefused("an imbalance needs loads of 0 or more, and some above 0; correct the loads")
    return plain(load.max(axis=-1) / load.mean(axis=-1))
