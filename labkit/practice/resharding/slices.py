"""Cutting one long row of elements, and putting slices of one cut together from those of another.

Source and target need not divide each other: every slice knows where it starts in the whole, so each target
slice is assembled from the parts of the source slices that it overlaps. That is how sharded checkpoints of
``torch.distributed.checkpoint`` and Megatron-LM's ``dist_checkpointing`` are read.
"""

from dataclasses import dataclass

import numpy as np

from labkit.errors import InputRefused
from labkit.spec.checks import shown, whole

LONGEST = 10**15


def cuts(length: int, parts: int, unit: int = 1) -> np.ndarray:
    """Where ``parts`` slices of ``length`` elements begin, and the end: parts + 1 whole numbers.

    Slices of ceil(length / parts), the last shorter or even empty, as ``torch.chunk`` and DTensor cut; no cut
    inside of ``unit`` elements that belong together. Refused: numbers not whole or below 1, and a unit that
    does not divide the length.

    >>> cuts(13, 3).tolist(), cuts(13, 4).tolist(), cuts(12, 2, unit=4).tolist()
    ([0, 5, 10, 13], [0, 4, 8, 12, 13], [0, 8, 12])
    """
    length, parts = whole(length, "the length", most=LONGEST), whole(parts, "the number of slices")
    unit = whole(unit, "the elements that belong together", most=LONGEST)
    if length % unit:
        raise InputRefused(
            f"{length} elements are no multiple of {unit}; give a unit that divides the length"
        )
    each = -(-(length // unit) // parts) * unit
    return np.minimum(np.arange(parts + 1) * each, length)


@dataclass(frozen=True, eq=False, slots=True)
class Overlaps:
    """What is read: columns of equal length, one row for each part of a source slice inside a target slice.

    ``target``, ``source``: which slices; ``start``, ``stop``: elements of the whole.
    """

    target: np.ndarray
    source: np.ndarray
    start: np.ndarray
    stop: np.ndarray

    @property
    def length(self) -> np.ndarray:
        """Elements of each part."""
        return self.stop - self.start


def overlaps(source: np.ndarray, target: np.ndarray) -> Overlaps:
    """What each target slice reads of which source slice; both are cuts of the same whole, as from ``cuts``.

    Any ascending cuts with the same ends will do, uneven ones and empty slices too. Refused: others.

    >>> read = overlaps(cuts(13, 3), cuts(13, 4))
    >>> list(zip(read.target.tolist(), read.source.tolist(), read.length.tolist(), strict=True))
    [(0, 0, 4), (1, 0, 1), (1, 1, 3), (2, 1, 2), (2, 2, 2), (3, 2, 1)]
    """
    source, target = _cut(source, "source"), _cut(target, "target")
    if source[0] != target[0] or source[-1] != target[-1]:
        raise InputRefused(
            f"the source covers {source[0]} to {source[-1]} and the target {target[0]} to {target[-1]}; "
            "give cuts of the same whole"
        )
    return overlap_segments(target[:-1], target[1:], source)


def overlap_segments(start: np.ndarray, stop: np.ndarray, source: np.ndarray) -> Overlaps:
    """The same for any segments of the whole, in any order, each inside the ends of the source's cuts."""
    first = np.searchsorted(source, start, side="right") - 1
    last = np.searchsorted(source, stop, side="left")
    count = np.where(stop > start, last - first, 0)
    target = np.repeat(np.arange(len(start)), count)
    before = np.cumsum(count) - count
    which = np.arange(count.sum()) - before[target] + first[target]
    begin, end = np.maximum(start[target], source[which]), np.minimum(stop[target], source[which + 1])
    some = end > begin  # none of an empty slice
    return Overlaps(target[some], which[some], begin[some], end[some])


def assemble(shards: list[np.ndarray], parts: int, unit: int = 1) -> list[np.ndarray]:
    """Other slices of the whole that ``shards`` hold along their first axis, each from the parts it overlaps.

    No array of the whole is made. Refused: what are no arrays of one kind, and what ``cuts`` refuses.

    >>> three = [np.arange(0, 5), np.arange(5, 10), np.arange(10, 13)]
    >>> [piece.tolist() for piece in assemble(three, 4)]
    [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11], [12]]
    """
    good = isinstance(shards, list | tuple) and all(isinstance(a, np.ndarray) and a.ndim for a in shards)
    if not (good and len({(a.shape[1:], a.dtype.str) for a in shards}) == 1 and sum(map(len, shards))):
        raise InputRefused(
            f"the shards are {shown(shards)}; give a list of arrays that differ in their first axis alone, "
            "with at least one element"
        )
    source = np.concatenate([[0], np.cumsum([len(a) for a in shards])])
    target = cuts(int(source[-1]), parts, unit)
    read = overlaps(source, target)
    made = [np.empty((size, *shards[0].shape[1:]), shards[0].dtype) for size in np.diff(target)]
    for t, s, start, stop in zip(read.target, read.source, read.start, read.stop, strict=True):
        made[t][start - target[t] : stop - target[t]] = shards[s][start - source[s] : stop - source[s]]
    return made


def _cut(given, what: str) -> np.ndarray:
    array = np.asarray(given) if isinstance(given, np.ndarray) else np.zeros(0)
    good = array.ndim == 1 and array.size >= 2 and array.dtype.kind in "iu"
    if not (good and np.all(np.diff(array) >= 0)):
        raise InputRefused(
            f"the cuts of the {what} are {shown(given)}; give an ascending array of whole numbers"
        )
    return array
