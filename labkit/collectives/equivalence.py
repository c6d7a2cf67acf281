"""What training relies on, on real arrays: an all_reduce in two halves, a layout change, a loss."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from labkit.collectives.algorithms import trace
from labkit.collectives.algorithms.rings import unchunked_ring
from labkit.collectives.prove import run
from labkit.collectives.sends import Trace, from_sends
from labkit.errors import InputRefused


class Halves(NamedTuple):
    """Each rank's full array, its shard before the all_gather, and the two traces that moved them."""

    results: list[np.ndarray]
    shards: list[np.ndarray]
    scatter: Trace
    gather: Trace


def all_reduce_in_halves(
    inputs: np.ndarray,
    between: Callable[[int, np.ndarray], np.ndarray] | None = None,
    algorithm: str = "ring",
) -> Halves:
    """reduce_scatter, then ``between(rank, shard)`` on every rank's shard, then all_gather.

    ``inputs``: (n, length), a row per rank. Without ``between`` the results are those of an all_reduce and
    the bytes are equal. With an element-wise update there, as an optimizer sharded over ranks does it (ZeRO
    stages 1 and 2, Rajbhandari et al. 2020), the results are those of the update on the full sum: sharding it
    adds no traffic. Refused: inputs of another shape, and an update that changes the shape of a shard.

    >>> halves = all_reduce_in_halves(np.array([[1, 2, 3], [10, 20, 30]]), lambda rank, shard: -shard)
    >>> halves.results[0].tolist()
    [-11, -22, -33]
    """
    inputs = np.asarray(inputs)
    if inputs.ndim != 2:
        raise InputRefused(f"inputs must have one row per rank; the array has the shape {inputs.shape}")
    n = len(inputs)
    scatter, gather = trace("reduce_scatter", algorithm, n), trace("all_gather", algorithm, n)
    shards = run(scatter, inputs)
    if between is not None:
        updated = [np.asarray(between(rank, shard)) for rank, shard in enumerate(shards)]
        if any(new.shape != old.shape for new, old in zip(updated, shards, strict=True)):
            raise InputRefused("`between` must keep the length of a shard; return one value per element")
        shards = updated
    # An all_gather reads from each row the piece of its rank alone.
    buffers = np.tile(np.concatenate(shards), (n, 1))
    return Halves(run(gather, buffers), shards, scatter, gather)


def change_layout(
    shards: Sequence[np.ndarray], cut: int, join: int, algorithm: str = "pairwise"
) -> list[np.ndarray]:
    """Each rank cuts its array in n along axis ``cut``, sends piece d to rank d, and joins along ``join``.

    One all_to_all. Sequence shards (s/n, heads, d) become head shards (s, heads/n, d) with cut=1, join=0, and
    return with cut=0, join=1 (Jacobs et al., DeepSpeed Ulysses, 2023). Refused: no shards or unequal ones,
    axes that they do not have, and an axis ``cut`` that n does not divide.

    >>> parts = change_layout([np.array([[0, 1]]), np.array([[2, 3]])], cut=1, join=0)
    >>> [part.tolist() for part in parts]
    [[[0], [2]], [[1], [3]]]
    """
    n, shapes = len(shards), {np.shape(shard) for shard in shards}
    if len(shapes) != 1:
        raise InputRefused(f"there are shards of {len(shapes)} shapes; give one array per rank, all alike")
    (shape,) = shapes
    if not all(-len(shape) <= axis < len(shape) for axis in (cut, join)):
        raise InputRefused(f"shards of the shape {shape} have no axes {cut} and {join}; correct cut or join")
    if shape[cut] % n:
        raise InputRefused(
            f"axis {cut} of the shards must divide by {n} ranks, and it is {shape[cut]} long; "
            "use a length that does"
        )
    pieces = [np.split(np.asarray(shard), n, axis=cut) for shard in shards]
    inputs = np.stack([np.concatenate([piece.ravel() for piece in row]) for row in pieces])
    received = run(trace("all_to_all", algorithm, n), inputs)
    return [np.concatenate(list(row.reshape(n, *pieces[0][0].shape)), axis=join) for row in received]


def reduce_loss(losses, tokens, algorithm: str = "tree") -> tuple[float, float]:
    """(loss per token over all ranks, plain mean of the ranks' means), as rank 0 gets them by one reduce.

    ``losses`` and ``tokens``: each rank's mean loss and its token count, shape (n,). The first of the two
    results is the loss of the whole batch.

    >>> reduce_loss([4.0, 2.0], [1000, 3000])
    (2.5, 3.0)
    """
    losses, tokens = np.asarray(losses, dtype=float), np.asarray(tokens, dtype=float)
    if losses.shape != tokens.shape or losses.ndim != 1 or not tokens.sum() > 0:
        raise InputRefused("give one loss and one token count per rank, with at least one token in all")
    inputs = np.stack([losses * tokens, tokens, losses], axis=1)
    total, count, means = run(trace("reduce", algorithm, len(losses)), inputs)[0]
    return float(total / count), float(means / len(losses))


def unchunked_all_reduce(n: int) -> Trace:
    """An all_reduce of the whole message around a ring, without chunks: one link works at a time.

    It has the 2(n-1) rounds of the ring with chunks, and n times its bytes per round.

    >>> unchunked_all_reduce(4).rounds
    6
    """
    return from_sends("all_reduce", "ring without chunks", n, 1, 1, unchunked_ring(range(n)))
