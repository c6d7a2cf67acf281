"""The message size at which two algorithms cost the same."""

import numpy as np

from labkit.collectives.cost import collective_cost
from labkit.collectives.names import takes_segments
from labkit.spec import Cluster, Link
from labkit.units import plain

_SMALLEST, _LARGEST = 1.0, 2.0**60
_POINTS = 241


def crossover(op, first, second, n, link_or_cluster: Link | Cluster, segments=None):
    """Size in bytes at which ``first`` and ``second`` cost the same among ``n`` ranks (broadcasts over n).

    An algorithm is a name, or several (operation, algorithm) pairs that run one after the other and do the
    same job, as ``(("scatter", "tree"), ("all_gather", "ring"))`` for a broadcast. ``segments`` goes to
    those that pipeline: 1 for the textbook forms, None for the best at each size. 0.0: ``second`` is never
    dearer; inf: ``first`` is never dearer; NaN: they cost the same at every size. Looked for between 1 byte
    and 2**60; of several, the largest.

    Both costs are continuous in size, so the sign of their difference is followed on a logarithmic grid and
    its last change bisected. On a flat Link with given segments both costs are straight lines, and the size
    is the one at which they meet.

    >>> from labkit.spec import Link
    >>> size = crossover("all_reduce", "recursive_doubling", "ring", 8, Link(5e-6, 50e9), segments=1)
    >>> round(size / 250e3, 1)
    8.8
    """
    n = np.asarray(n, dtype=float)[..., None]

    def seconds(size):
        return [_seconds(op, way, size, n, link_or_cluster, segments) for way in (first, second)]

    grid = np.geomspace(_SMALLEST, _LARGEST, _POINTS)
    one, other = seconds(grid)
    # Differences within rounding of the costs count as none.
    signs = np.where(np.abs(one - other) <= 1e-12 * one, 0.0, np.sign(one - other))
    always_first, always_second = (signs <= 0).all(axis=-1), (signs >= 0).all(axis=-1)
    pipelined = any(takes_segments(*pair) for way in (first, second) for pair in _pairs(op, way))
    if (always_first | always_second).all():
        found = np.zeros(always_first.shape)
    elif isinstance(link_or_cluster, Link) and not (pipelined and segments is None):
        (one_low, one_high), (other_low, other_high) = (
            np.moveaxis(x, -1, 0) for x in seconds(np.array([0.0, _LARGEST]))
        )
        latency, gain = other_low - one_low, (one_high - one_low) - (other_high - other_low)
        with np.errstate(divide="ignore", invalid="ignore"):
            found = latency / gain * _LARGEST
    else:
        found = _bisect(lambda size: np.subtract(*seconds(size)), grid, signs)[..., 0]
    found = np.where(always_first, np.inf, np.where(always_second, 0.0, found))
    return plain(np.where(always_first & always_second, np.nan, found))


def _pairs(op, algorithm):
    return ((op, algorithm),) if isinstance(algorithm, str) else algorithm


def _seconds(op, algorithm, size, n, link_or_cluster, segments):
    pairs = _pairs(op, algorithm)
    return sum(
        np.asarray(collective_cost(*pair, size, n, link_or_cluster, segments).seconds) for pair in pairs
    )


def _bisect(difference, grid, signs):
    """Where the difference last takes the sign that it keeps up to the largest size; shape (..., 1)."""
    final = signs[..., -1:]
    last = len(grid) - 1 - np.argmax((signs != final)[..., ::-1], axis=-1)[..., None]
    low, high = grid[last], grid[np.minimum(last + 1, len(grid) - 1)]
    steps = np.linspace(0.0, 1.0, 33)
    for _ in range(6):  # each pass looks 32 times closer, all its sizes in one call
        sizes = low * (high / low) ** steps
        reached = np.sign(difference(sizes)) == final
        reached[..., -1] = True
        first = np.maximum(np.argmax(reached, axis=-1), 1)[..., None]
        low, high = (np.take_along_axis(sizes, first - back, axis=-1) for back in (1, 0))
    return np.sqrt(low * high)
