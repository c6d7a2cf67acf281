"""The closed forms of the bubble, equal stages without transfer time, in both conventions.

The simulation knows neither; tests hold them equal.
"""

from labkit.strategies.checks import counts
from labkit.units import plain


def bubble_share(p, m, v=1):
    """Idle share of the whole step: (p - 1)/(m v + p - 1), v = 1 for GPipe and 1F1B.

    Huang et al. 2019 (GPipe), section 2.3. p, m and v may be arrays.

    >>> round(bubble_share(4, 16), 4), round(bubble_share(4, 16, 2), 4)
    (0.1579, 0.0857)
    """
    p, m, v = _counts(p, m, v)
    return plain((p - 1) / (m * v + p - 1))


def bubble_over_ideal(p, m, v=1):
    """Idle time over the time of the work itself: (p - 1)/(m v).

    Narayanan et al. 2021, section 2.2. p, m and v may be arrays.

    >>> bubble_over_ideal(4, 16), bubble_over_ideal(4, 16, 2)
    (0.1875, 0.09375)
    """
    p, m, v = _counts(p, m, v)
    return plain((p - 1) / (m * v))


def _counts(p, m, v) -> list:
    names = "the number of pipeline ranks", "the number of micro-batches", "the number of chunks per rank"
    return [counts(number, name) for number, name in zip((p, m, v), names, strict=True)]
