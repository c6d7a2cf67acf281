"""What step times do in the course of a run: drift, and slow steps that come back in equal distances."""

from math import sqrt

import numpy as np

from labkit.errors import InputRefused
from labkit.evidence.step_times import checked
from labkit.spec.checks import shown, whole

BLOCKS = 50  # medians of so many stretches are compared: one slow step in a stretch does not count
LEAST_BLOCKS = 8
SURE = 3.3  # standard deviations of Kendall's count: once in a thousand by chance
GAPS = 4  # distances between slow steps of which most must be equal
EVEN, LIKE = 0.1, 0.8  # how far a distance may be off, as a share, and how many of them must not be


def drift(times) -> float:
    """By what share of the median a step grows in 1000 steps; 0 where growth and chance look alike.

    Medians of up to 50 stretches of the run are compared in pairs: the slope is the median of all pairs'
    (Theil and Sen), and it counts where far more pairs rise than fall, or the reverse (Mann and Kendall). NaN
    with fewer than eight steps. Refused: what is no list of step times.

    >>> round(drift(1 + 1e-4 * np.arange(1000)), 3)
    0.095
    """
    array = np.array(checked(times))
    stretches = np.array_split(array, min(BLOCKS, array.size))
    if len(stretches) < LEAST_BLOCKS:
        return float("nan")
    level = np.array([np.median(stretch) for stretch in stretches])
    ends = np.cumsum([stretch.size for stretch in stretches])
    middle = ends - np.array([stretch.size for stretch in stretches]) / 2
    later, earlier = np.tril_indices(level.size, -1)
    rise, apart = level[later] - level[earlier], middle[later] - middle[earlier]
    n = level.size
    deviation = sqrt(n * (n - 1) * (2 * n + 5) / 18)  # of the count, where the order is chance
    if abs(np.sign(rise).sum()) <= SURE * deviation:
        return 0.0
    return float(np.median(rise / apart) * 1000 / np.median(array))


def period(slow) -> int | None:
    """How many steps lie between slow ones, where they come back regularly; else None.

    ``slow``: the numbers of the slow steps, rising. Regular: of at least four distances, eight in ten are
    within 10 % of their median, and that is 2 or more. Refused: what are no rising whole numbers.

    >>> period([9, 19, 29, 39, 49]), period([3, 4, 9, 20, 21]), period([0, 2, 4, 6, 8])
    (10, None, 2)
    """
    numbers = _numbers(slow)
    gaps = np.diff(numbers)
    if gaps.size < GAPS:
        return None
    usual = int(np.median(gaps))
    even = np.abs(gaps - usual) <= EVEN * usual
    return usual if usual >= 2 and even.mean() >= LIKE else None


def switch(slow, steps: int) -> int | None:
    """The step from which a run is in another mode for good: fast before and slow after, or the reverse.

    ``slow``: the numbers of the slow steps among ``steps``. None where they are mixed: nine in ten of the
    slow and nine in ten of the fast steps must be on their side.

    >>> switch(range(60, 100), 100), switch(range(0, 100, 2), 100), switch([0], 100)
    (60, None, None)
    """
    is_slow = np.zeros(whole(steps, "the number of steps", most=10**6), bool)
    numbers = _numbers(slow)
    if numbers.size and not 0 <= numbers[0] <= numbers[-1] < steps:
        raise InputRefused(f"a slow step lies outside of the {steps:,} steps; count them from 0")
    is_slow[numbers] = True
    if is_slow.all() or not is_slow.any() or is_slow.sum() < GAPS:
        return None
    # Of either kind, the share of its steps that come before each step.
    slow_before, fast_before = (
        np.concatenate([[0], np.cumsum(kind)[:-1]]) / kind.sum() for kind in (is_slow, ~is_slow)
    )
    rises, falls = np.minimum(fast_before, 1 - slow_before), np.minimum(slow_before, 1 - fast_before)
    best = int(np.argmax(np.abs(fast_before - slow_before)))
    return best if max(rises[best], falls[best]) >= 1 - EVEN else None


def _numbers(slow) -> np.ndarray:
    array = np.asarray(list(slow) if isinstance(slow, range | list | tuple) else slow)
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iu") or np.any(np.diff(array) <= 0):
        raise InputRefused(
            f"the numbers of slow steps are {shown(slow)}; give a list of rising whole numbers"
        )
    return array.astype(int)
