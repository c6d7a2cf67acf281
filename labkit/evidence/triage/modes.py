"""Whether step times gather around one length or several: modes, found without a guess at their shape.

The times are cut in two where the squares within both parts are least. In any distribution with **one** mode
a window between the medians of the parts holds at least as many steps as the smaller of two windows of the
same width around these medians: on each side of the mode, density only falls. So far fewer steps at the cut
than beside it mean two modes, however skewed the times are.
"""

from dataclasses import dataclass

import numpy as np

from labkit.evidence.limits import GUIDE
from labkit.evidence.step_times import checked

APART = GUIDE.spread  # modes closer than this share of the shorter are one: the guide's limit for ranks
LEAST = 10  # steps of a mode: with none between, one mode looks like this once in 2^10
CHANCE = 2.0**-LEAST
FEW = 0.1  # share of the steps that is set aside to look at the others: they may hide two modes


@dataclass(frozen=True, slots=True)
class Mode:
    """Steps of about one length: their median in seconds, their ``share`` of all steps, and their range."""

    seconds: float
    share: float
    shortest: float
    longest: float


def modes(times) -> tuple[Mode, ...]:
    """The modes of some step times, the shortest first; most jobs have one.

    A mode has ten steps or more and lies more than 5 % above the one before. Fewer steps far beyond several
    modes belong to none, so that shares may add up to less than 1. Refused: what is no list of step times.

    >>> [(mode.seconds, mode.share) for mode in modes([0.8, 1.6] * 50)]
    [(0.8, 0.5), (1.6, 0.5)]
    >>> len(modes(1.2 + 0.1 * np.random.default_rng(0).standard_normal(1000)))
    1
    """
    array = np.sort(checked(times))
    parts = _parts(array, _resolution(array))
    return tuple(
        Mode(float(np.median(part)), part.size / array.size, float(part[0]), float(part[-1]))
        for part in parts
    )


def _parts(array: np.ndarray, resolution: float) -> list[np.ndarray]:
    """Sorted times as one part, or cut again and again while the parts are modes of their own."""
    rest = array
    while rest.size >= 2 * LEAST:
        low, high = np.split(rest, [cut(rest)])
        if _valley(low, high, resolution):
            return [*_parts(low, resolution), *_parts(high, resolution)]
        if min(low.size, high.size) > max(LEAST, FEW * rest.size):
            break
        rest = max(low, high, key=len)  # a few far ones would hide what the others do
    return [array]


def cut(array: np.ndarray) -> int:
    """Where to cut sorted times, two or more, so that the squares within both parts are least."""
    below = np.arange(1, array.size)
    sums = np.cumsum(array)
    low, high = sums[:-1] / below, (sums[-1] - sums[:-1]) / (array.size - below)
    return int(below[np.argmax(below * (array.size - below) * (high - low) ** 2)])


def _valley(low: np.ndarray, high: np.ndarray, resolution: float) -> bool:
    """Whether fewer steps lie where two parts meet than chance would leave out of one mode."""
    below, above = np.median(low), np.median(high)
    width = (above - below) / 3
    if above <= (1 + APART) * below or width < resolution:
        return False
    gap = np.clip((low[-1] + high[0]) / 2, below + width, above - width)
    array = np.concatenate([low, high])
    beside_low, beside_high, between = (
        int(np.diff(np.searchsorted(array, [middle - width / 2, middle + width / 2]))[0])
        for middle in (below, above, gap)
    )
    beside = min(beside_low, beside_high)
    return between < beside and _as_few(between, beside + between) <= CHANCE


def _as_few(hits: int, tries: int) -> float:
    """Chernoff's bound on the chance of so few hits in fair tries; exact for none."""
    share = hits / tries
    entropy = -sum(p * np.log2(p) for p in (share, 1 - share) if p > 0)
    return 2.0 ** (-tries * (1 - entropy))


def _resolution(array: np.ndarray) -> float:
    """The decimal step to which times were rounded, in seconds: neighbours on such a grid are no modes."""
    for decimals in range(7):
        if np.all(np.abs(array - np.round(array, decimals)) <= 1e-9 * array):
            return 10.0**-decimals
    return 0.0
