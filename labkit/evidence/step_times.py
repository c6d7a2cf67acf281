"""Statistics of measured step times, in seconds: the mean alone hides what stalls a job."""

import math
from dataclasses import dataclass

import numpy as np

from labkit.errors import InputRefused
from labkit.spec.checks import floats

MOST_STEPS = 5000  # of one run: as text they still fit a cell that every CSV reader takes


def checked(times) -> tuple[float, ...]:
    """Step times as floats; refused: none of them or more than 5,000, and what is not finite and above 0."""
    array = floats(times)
    if array.ndim != 1 or not array.size or not np.all((array > 0) & (array < math.inf)):
        raise InputRefused(
            "step times are a list of seconds, one for each step, all of them finite and above 0; leave out "
            "steps that were not measured"
        )
    if array.size > MOST_STEPS:
        raise InputRefused(
            f"{array.size:,} step times are more than a run keeps, {MOST_STEPS:,}; give the last of them, or "
            "every tenth"
        )
    return tuple(array.tolist())


@dataclass(frozen=True, slots=True)
class Summary:
    """Seconds of a step over ``count`` measured ones. ``p99``: 99 of 100 steps take no longer.

    >>> summary([1.0, 1.0, 1.2, 1.0]).spread
    0.19999999999999996
    """

    count: int
    mean: float
    median: float
    p99: float
    shortest: float
    longest: float

    @property
    def spread(self) -> float:
        """(longest - shortest) / median."""
        return (self.longest - self.shortest) / self.median


def summary(times) -> Summary:
    """Mean, median, P99 (by nearest rank: a step that was measured), shortest and longest.

    With fewer than 100 steps P99 is the longest. Refused: what ``checked`` refuses.

    >>> summary(range(1, 201)).p99
    198.0
    """
    array = np.sort(checked(list(times) if isinstance(times, range) else times))
    return Summary(
        count=int(array.size),
        mean=float(array.mean()),
        median=float(np.median(array)),
        p99=float(array[math.ceil(0.99 * array.size) - 1]),
        shortest=float(array[0]),
        longest=float(array[-1]),
    )
