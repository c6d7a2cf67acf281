"""Sequence lengths of a training run, what a batch is made of, and the share of it that is padding.

A batch is a rectangle: as many positions in every row. How the rows are made is the choice: as long as the
longest sequence that happens to be in the batch, always the same, or one of a few lengths.
"""

from dataclasses import dataclass

import numpy as np

from labkit.errors import InputRefused
from labkit.spec.checks import amount, floats, one_of, whole

WAYS = ("as they come", "padded", "buckets", "packed")
_MULTIPLE = 8  # positions that kernels like rows to be a multiple of
_MOST = 10**7  # sequences


@dataclass(frozen=True, slots=True)
class Batches:
    """``shapes``: (rows, positions in a row) of each batch; ``padding``: share of all positions without a
    token; ``longest``: positions in the longest row there may be.
    """

    shapes: tuple[tuple[int, int], ...]
    padding: float
    longest: int


def draw_lengths(count: int, median: float, longest: int, spread: float = 0.8, seed: int = 0) -> np.ndarray:
    """Lengths of ``count`` documents in tokens: log-normal around the ``median``, cut at the ``longest``.

    ``spread``: standard deviation of the logarithm; 0: all alike. A shape that text corpora roughly have, not
    a measured one. Refused: what is not above 0 (``spread`` may be 0).
    """
    count, longest = whole(count, "the number of sequences", most=_MOST), whole(longest, "the longest length")
    median = float(amount(median, "the median length", arrays=False))
    spread = float(amount(spread, "the spread of lengths", zero=True, arrays=False))
    random = np.random.default_rng(whole(seed, "the seed", least=0))
    logarithm = np.log(median) + spread * random.standard_normal(count)
    lengths = np.exp(np.minimum(logarithm, np.log(longest)))
    return np.clip(np.round(lengths), 1, longest).astype(int)


def batches(lengths, rows: int, longest: int, way: str = "as they come", buckets: int = 4) -> Batches:
    """The batches of ``rows`` rows that sequences become in their order, in one of four ways.

    ``as they come``: each batch as wide as its longest sequence; ``padded``: all rows ``longest`` wide;
    ``buckets``: the next of ``buckets`` widths, equal parts of ``longest``; ``packed``: sequences follow each
    other in rows of ``longest``, each in the first row of the batch with room, so that there are fewer
    batches (attention has to be told where one ends). Widths are multiples of 8. Sequences that do not fill
    a last batch are left out, as loaders do.

    >>> for way in WAYS:
    ...     batches([5, 30, 100, 60], 2, 128, way).shapes
    ((2, 32), (2, 104))
    ((2, 128), (2, 128))
    ((2, 32), (2, 128))
    ((2, 128),)
    """
    lengths = floats(lengths)
    if not (lengths.ndim == 1 and np.all((lengths >= 1) & (lengths % 1 == 0))):
        raise InputRefused("lengths of sequences are whole numbers from 1 up, in a list; give such a list")
    rows, buckets = whole(rows, "the rows of a batch"), whole(buckets, "the number of buckets")
    longest = -(-whole(longest, "the longest length") // _MULTIPLE) * _MULTIPLE
    way = one_of(WAYS, way, "the way batches are made", arrays=False).item()
    if lengths.max() > longest:
        raise InputRefused(
            f"a sequence of {int(lengths.max()):,} tokens does not fit rows of {longest:,}; cut it"
        )
    if len(lengths) < rows:
        raise InputRefused(f"{len(lengths)} sequences make no batch of {rows} rows; give more")
    lengths = lengths.astype(int)
    if way == "packed":
        return _packed(lengths, rows, longest)
    groups = lengths[: len(lengths) // rows * rows].reshape(-1, rows)
    step = {"as they come": _MULTIPLE, "padded": longest, "buckets": longest / buckets}[way]
    widths = np.ceil(np.ceil(groups.max(axis=1) / step) * step / _MULTIPLE).astype(int) * _MULTIPLE
    return Batches(
        tuple((rows, int(width)) for width in widths),
        float(1 - groups.sum() / (rows * widths.sum())),
        longest,
    )


def _packed(lengths: np.ndarray, rows: int, longest: int) -> Batches:
    """First fit, batch after batch; the last batch counts although it is not full."""
    left, count = [longest] * rows, 1
    for length in lengths.tolist():
        place = next((row for row, room in enumerate(left) if room >= length), None)
        if place is None:
            left, count, place = [longest] * rows, count + 1, 0
        left[place] -= length
    return Batches(((rows, longest),) * count, float(1 - lengths.sum() / (count * rows * longest)), longest)
