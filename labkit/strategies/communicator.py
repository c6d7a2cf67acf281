"""A communicator: collectives run on one array per rank, each counted as it runs.

Arrays are float64 so that results can be compared to the last digits; bytes are counted as if an element had
the two of bf16, which is what travels in training.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from labkit.collectives import Trace, run, trace
from labkit.errors import InputRefused
from labkit.spec.checks import whole

BYTES_PER_ELEMENT = 2.0

_trace = cache(trace)  # a layer calls the same few over and over


@dataclass(frozen=True, slots=True)
class Call:
    """One collective that ran, and what for; ``size`` is S in bytes, ``sent`` bytes per rank by its trace.

    ``size`` is the full tensor for all_reduce, all_gather and reduce_scatter, what one rank holds for
    all_to_all, and the message for send_recv, as in ``collective_cost``.
    """

    collective: str
    purpose: str
    ranks: int
    size: float
    sent: float


class Communicator:
    """Runs collectives on lists of arrays, one per rank, and keeps a ``Call`` for each in ``calls``.

    Every method takes the arrays of all ranks and returns those of all ranks. A single rank talks to nobody:
    its array comes back, and no call is kept. Refused: arrays of unequal shapes.

    >>> talk = Communicator()
    >>> [part.tolist() for part in talk.all_reduce([np.array([1.0, 2.0]), np.array([10.0, 20.0])], "forward")]
    [[11.0, 22.0], [11.0, 22.0]]
    >>> talk.calls
    [Call(collective='all_reduce', purpose='forward', ranks=2, size=4.0, sent=4.0)]
    """

    def __init__(self):
        self.calls: list[Call] = []

    def all_reduce(self, arrays: Sequence[np.ndarray], purpose: str) -> list[np.ndarray]:
        """Every rank's sum of all arrays."""
        arrays = _alike(arrays)
        shape = arrays[0].shape
        rows = self._run(_trace("all_reduce", "ring", len(arrays)), _rows(arrays), purpose)
        return [row.reshape(shape) for row in rows]

    def reduce_scatter(self, arrays: Sequence[np.ndarray], purpose: str) -> list[np.ndarray]:
        """Rank r's n-th part of the sum, cut along the first axis, which the ranks must divide."""
        arrays = _alike(arrays, axes=1)
        n, (length, *rest) = len(arrays), arrays[0].shape
        if length % n:
            raise InputRefused(f"{length} rows cannot be scattered evenly over {n} ranks; use a multiple")
        rows = self._run(_trace("reduce_scatter", "ring", n), _rows(arrays), purpose)
        return [row.reshape(length // n, *rest) for row in rows]

    def all_gather(self, shards: Sequence[np.ndarray], purpose: str) -> list[np.ndarray]:
        """Every rank's copy of all shards, joined along the first axis."""
        shards = _alike(shards, axes=1)
        n, (length, *rest) = len(shards), shards[0].shape
        # Of each row the collective reads the piece of its own rank alone.
        whole = np.tile(_rows(shards).ravel(), (n, 1))
        rows = self._run(_trace("all_gather", "ring", n), whole, purpose)
        return [row.reshape(n * length, *rest) for row in rows]

    def all_to_all(self, shards: Sequence[np.ndarray], cut: int, join: int, purpose: str) -> list[np.ndarray]:
        """Every rank cuts its array in n along ``cut``, sends piece d to rank d and joins along ``join``."""
        shards = _alike(shards, axes=1)
        axes = shards[0].ndim
        cut, join = (whole(axis, "an axis", least=0, most=axes - 1) for axis in (cut, join))
        n, length = len(shards), shards[0].shape[cut]
        if length % n:
            raise InputRefused(f"an axis of {length} cannot be cut evenly for {n} ranks; use a multiple")
        pieces = [np.split(shard, n, axis=cut) for shard in shards]
        shape = pieces[0][0].shape
        rows = self._run(
            _trace("all_to_all", "pairwise", n), np.stack([_rows(row).ravel() for row in pieces]), purpose
        )
        return [np.concatenate(list(row.reshape(n, *shape)), axis=join) for row in rows]

    def pass_on(self, arrays: Sequence[np.ndarray], purpose: str) -> list[np.ndarray]:
        """What each rank receives when all send to the next one round the ring (send_recv)."""
        arrays = _alike(arrays)
        shape = arrays[0].shape
        rows = self._run(_trace("send_recv", "linear", len(arrays)), _rows(arrays), purpose)
        return [row.reshape(shape) for row in rows]

    def _run(self, how: Trace, rows: np.ndarray, purpose: str) -> list[np.ndarray]:
        if how.n == 1:
            return [rows[0]]
        size = rows.shape[1] * BYTES_PER_ELEMENT
        sent = float(how.piece_bytes(size)[how.chunk % how.parts].sum() / how.n)
        self.calls.append(Call(how.op, purpose, how.n, size, sent))
        return run(how, rows)


def _alike(arrays, axes: int = 0) -> list[np.ndarray]:
    """The ranks' arrays; refused unless they are numbers of one shape, with as many axes or more."""
    if not isinstance(arrays, list | tuple) or not arrays:
        raise InputRefused("a collective needs a list with the array of each rank, at least of one")
    arrays = [np.asarray(array) for array in arrays]
    shapes = {array.shape for array in arrays}
    if len(shapes) != 1:
        raise InputRefused(f"the ranks hold arrays of {len(shapes)} shapes; a collective needs all alike")
    if arrays[0].ndim < axes or not all(array.dtype.kind in "buif" for array in arrays):
        raise InputRefused(f"a collective needs arrays of numbers with {axes} or more axes; correct them")
    return arrays


def _rows(arrays: Sequence[np.ndarray]) -> np.ndarray:
    """One row per rank."""
    return np.stack([array.ravel() for array in arrays])


def tally(calls: list[Call]) -> dict[tuple[str, str], int]:
    """How many calls of each (purpose, collective), in the order in which they first ran."""
    return dict(Counter((call.purpose, call.collective) for call in calls))


def sent_per_rank(calls: list[Call]) -> float:
    """Bytes that one rank sends in all of these calls, as the mean over the ranks of each."""
    return sum(call.sent for call in calls)
