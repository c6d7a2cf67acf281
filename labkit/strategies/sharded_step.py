"""Sharded data parallel (ZeRO) on real arrays: what each stage moves, and that all of them learn the same.

A model of L layers, each a row of weights, trained by Adam on N ranks. At stage 0 every rank holds everything
and the gradients are reduced to all of them. At stage 1 each rank keeps a shard of Adam's moments and updates
that shard of the weights alone: it needs the sum of its shard of the gradients (reduce_scatter), and then
everybody needs its weights (all_gather). Stage 2 keeps a shard of the gradients too, so that each micro-batch
is scattered as it comes; stage 3 keeps a shard of the weights, and a layer is gathered before its forward and
before its backward. "ZeRO" (Rajbhandari et al. 2020), sections 5 and 7. A ``Communicator`` moves the arrays
and counts.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from labkit.errors import InputRefused
from labkit.spec.checks import one_of, whole
from labkit.strategies.checks import flag, function, shaped, single
from labkit.strategies.communicator import BYTES_PER_ELEMENT, Call, Communicator
from labkit.units import plain

# Adam (Kingma and Ba 2015), the defaults of its section 2.
_FIRST, _SECOND, _EPSILON = 0.9, 0.999, 1e-8
MOST = 1000  # ranks, micro-batches, steps


@dataclass(frozen=True, slots=True)
class ShardedRun:
    """What training ends with: ``weights`` of every rank, shape (n, layers, width), and the calls it made.

    ``held``: elements that a rank keeps of weights, gradients and Adam's two moments; layers that are
    gathered for a moment are not among them.
    """

    weights: np.ndarray
    calls: list[Call]
    held: dict[str, int]
    steps: int

    @property
    def divergence(self) -> float:
        """How far the replicas are apart: the largest difference of a weight between two ranks."""
        return float(np.ptp(self.weights, axis=0).max())

    @property
    def collectives(self) -> float:
        """Collectives of one step."""
        return len(self.calls) / self.steps

    def sent(self, purpose: str = "") -> float:
        """Bytes that a rank sends per step, in units of S(N-1)/N, S the bytes of all weights; by purpose."""
        n, layers, width = self.weights.shape
        unit = layers * width * BYTES_PER_ELEMENT * (n - 1) / n
        moved = sum(call.sent for call in self.calls if purpose in ("", call.purpose))
        return plain(moved / self.steps / unit) if n > 1 else 0.0


def sharded_training(
    gradient: Callable[[int, int, np.ndarray], np.ndarray],
    weights: np.ndarray,
    ranks: int,
    stage: int = 1,
    micro_batches: int = 1,
    steps: int = 3,
    rate: float = 0.1,
    gather: bool = True,
) -> ShardedRun:
    """Trains by Adam at a sharding ``stage``, 0 to 3, and counts what moves.

    ``gradient(rank, micro_batch, weights)``: of that rank's mean loss, in the shape of ``weights``, which is
    (layers, width); the ranks must divide the width. It gets a copy of the weights. ``rate``: Adam's step
    size. Without ``gather`` stages 1 and 2 leave the all_gather of updated weights out, and the replicas
    diverge. Refused: other shapes, stages and counts.

    >>> def gradient(rank, micro_batch, weights):
    ...     return weights - rank
    >>> runs = [sharded_training(gradient, np.ones((2, 4)), 4, stage, micro_batches=3) for stage in range(4)]
    >>> [run.sent() for run in runs], [run.divergence for run in runs]
    ([2.0, 2.0, 4.0, 9.0], [0.0, 0.0, 0.0, 0.0])
    >>> sharded_training(gradient, np.ones((2, 4)), 4, gather=False).divergence > 0
    True
    """
    function(gradient, "the gradient")
    weights = shaped(weights, "the array of weights", "layers", "width").astype(float)
    n = whole(ranks, "the number of ranks", most=MOST)
    if weights.shape[1] % n:
        raise InputRefused(f"{n} ranks do not divide layers of {weights.shape[1]} weights; use a divisor")
    stage = one_of((0, 1, 2, 3), stage, "the sharding stage", arrays=False).item()
    micro_batches = whole(micro_batches, "the number of micro-batches", most=MOST)
    steps = whole(steps, "the number of steps", most=MOST)
    rate = single(rate, "the rate")
    flag(gather, "gather")
    talk = Communicator()
    local = [_cut(weights, n, rank) if stage == 3 else weights.copy() for rank in range(n)]
    shard = local[0] if stage == 3 else _cut(weights, n if stage else 1, 0)
    moments = [np.zeros((2, *shard.shape)) for _ in range(n)]
    for step in range(1, steps + 1):
        sums = [0.0] * n
        for micro_batch in range(micro_batches):
            if stage == 3:  # backward has to gather again, since forward freed what it had
                _gather(talk, local, "weights forward")
                full = _gather(talk, local, "weights backward")
            else:
                full = local
            found = [
                shaped(gradient(rank, micro_batch, full[rank].copy()), "a gradient", *weights.shape)
                / (n * micro_batches)
                for rank in range(n)
            ]
            if stage >= 2:
                found = _scatter(talk, found)
            sums = [total + each for total, each in zip(sums, found, strict=True)]
        if stage == 0:
            sums = talk.all_reduce(sums, "gradients")
        elif stage == 1:
            sums = _scatter(talk, sums)
        for rank in range(n):
            change = rate * _adam(moments[rank], sums[rank], step)
            mine = local[rank] if stage in (0, 3) else _cut(local[rank], n, rank)
            mine -= change
        if stage in (1, 2) and gather:
            local = _gather(talk, [_cut(each, n, rank) for rank, each in enumerate(local)], "new weights")
    whole_model = local if stage < 3 else _gather(Communicator(), local, "to look at")
    gradients = (shard if stage >= 2 else weights).size
    held = {"weights": local[0].size, "gradients": gradients, "moments": moments[0].size}
    return ShardedRun(np.stack(whole_model), talk.calls, held, steps)


def _cut(layers: np.ndarray, n: int, rank: int) -> np.ndarray:
    """A rank's shard of every layer, as a view into it."""
    width = layers.shape[1] // n
    return layers[:, rank * width : (rank + 1) * width]


def _gather(talk: Communicator, shards: list[np.ndarray], purpose: str) -> list[np.ndarray]:
    """Every rank's copy of all layers, gathered layer by layer."""
    by_layer = [talk.all_gather(list(row), purpose) for row in zip(*shards, strict=True)]
    return [np.stack(rows) for rows in zip(*by_layer, strict=True)]


def _scatter(talk: Communicator, gradients: list[np.ndarray]) -> list[np.ndarray]:
    """Every rank's shard of the sum, layer by layer."""
    by_layer = [talk.reduce_scatter(list(row), "gradients") for row in zip(*gradients, strict=True)]
    return [np.stack(rows) for rows in zip(*by_layer, strict=True)]


def _adam(moments: np.ndarray, gradient: np.ndarray, step: int) -> np.ndarray:
    """The change of the weights by one step of Adam at rate 1; the moments, shape (2, ...), move along."""
    moments[0] = _FIRST * moments[0] + (1 - _FIRST) * gradient
    moments[1] = _SECOND * moments[1] + (1 - _SECOND) * gradient**2
    mean, square = moments[0] / (1 - _FIRST**step), moments[1] / (1 - _SECOND**step)
    return mean / (np.sqrt(square) + _EPSILON)
