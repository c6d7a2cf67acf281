"""The one interval algebra: union, intersection, subtraction and length of stretches of time.

A set of intervals is an array of shape (k, 2), ``start`` and ``stop``, half-open, sorted and apart: touching
ones are one. End points of a result are end points of the input, never computed, so results are exact.
"""

import numpy as np

from labkit.errors import InputRefused


def intervals(start, stop) -> np.ndarray:
    """The union of stretches from ``start`` to ``stop`` (equally long sequences), in any order, shape (k, 2).

    Empty ones are dropped. Refused: ends that are not finite or lie before their start, and other shapes.

    >>> intervals([4, 0, 1], [5, 2, 3]).tolist()
    [[0.0, 3.0], [4.0, 5.0]]
    """
    try:
        start, stop = np.asarray(start, float), np.asarray(stop, float)
    except (TypeError, ValueError, OverflowError):
        raise InputRefused("starts and stops must be numbers; give two sequences of equal length") from None
    if start.shape != stop.shape or start.ndim != 1:
        raise InputRefused(
            f"starts and stops have the shapes {start.shape} and {stop.shape}; "
            "give two sequences of equal length"
        )
    if not np.all(np.isfinite(start) & np.isfinite(stop) & (start <= stop)):
        raise InputRefused("an interval must be finite and cannot stop before it starts; correct that one")
    order = np.argsort(start, kind="stable")
    order = order[start[order] < stop[order]]
    if not order.size:
        return np.empty((0, 2))
    start, reached = start[order], np.maximum.accumulate(stop[order])
    # A new interval begins where everything before has stopped.
    first = np.flatnonzero(np.append(True, start[1:] > reached[:-1]))
    return np.stack([start[first], reached[np.append(first[1:] - 1, -1)]], axis=1)


def union(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """What lies in ``a`` or in ``b``.

    >>> union(intervals([0], [2]), intervals([2, 5], [3, 6])).tolist()
    [[0.0, 3.0], [5.0, 6.0]]
    """
    return _where(a, b, np.logical_or)


def intersection(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """What lies in both.

    >>> intersection(intervals([0, 4], [3, 6]), intervals([2], [5])).tolist()
    [[2.0, 3.0], [4.0, 5.0]]
    """
    return _where(a, b, np.logical_and)


def subtract(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """What lies in ``a`` and not in ``b``.

    >>> subtract(intervals([0], [6]), intervals([1, 5], [2, 9])).tolist()
    [[0.0, 1.0], [2.0, 5.0]]
    """
    return _where(a, b, lambda in_a, in_b: in_a & ~in_b)


def length(a: np.ndarray) -> float:
    """Total length of a set of intervals.

    >>> length(intervals([0, 1, 4], [2, 3, 5]))
    4.0
    """
    a = _checked(a)
    return float((a[:, 1] - a[:, 0]).sum())


def _checked(a) -> np.ndarray:
    """A set of intervals; refused when it is none."""
    if not (isinstance(a, np.ndarray) and a.ndim == 2 and a.shape[1] == 2 and a.dtype.kind == "f"):
        raise InputRefused("a set of intervals has the shape (k, 2); make it with intervals(start, stop)")
    return a


def _where(a: np.ndarray, b: np.ndarray, keep) -> np.ndarray:
    """The stretches between neighbouring end points for which ``keep(in a, in b)`` is true."""
    a, b = _checked(a), _checked(b)
    points = np.unique(np.concatenate([a.ravel(), b.ravel()]))
    left, right = points[:-1], points[1:]
    kept = keep(*(_holds(one, left) for one in (a, b)))
    return intervals(left[kept], right[kept])


def _holds(a: np.ndarray, points: np.ndarray) -> np.ndarray:
    """Whether each point lies in ``a``: more intervals have started there than stopped."""
    return np.searchsorted(a[:, 0], points, "right") > np.searchsorted(a[:, 1], points, "right")
