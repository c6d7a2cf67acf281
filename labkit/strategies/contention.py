"""What overlap costs: a collective takes processors and memory bandwidth from the kernels beside it.

Galvatron (Miao et al. 2022) measured that computing takes 1.1 to 1.3 times as long beside a collective; Lee
et al. (2025, arXiv 2507.03114) a mean slow-down of 18.9 % and at most 40 % for GPT and LLaMA training on
hosts of A100, H100, MI210 and MI250. The collective may be slower as well: NVIDIA/nccl issue 1433 reports
up to 2 times, for memory bandwidth alone.
"""

import numpy as np

from labkit.errors import InputRefused
from labkit.spec.checks import broadcasting, shown
from labkit.strategies.checks import numbers, single
from labkit.units import plain

SLOW_DOWN = 1.2  # the middle of Galvatron's range, and near the mean of Lee et al.


def overlap_gain(hidden, beside, slow_down=SLOW_DOWN):
    """Seconds by which overlap shortens a step: what it hides less what it costs. Negative: it does not pay.

    ``hidden``: seconds that the hidden communication takes where nothing runs beside it; ``beside``: seconds,
    alone, of all the computing that is slowed ``slow_down`` times by it. These differ: a kernel that a short
    collective robs of its last processor is slowed as a whole. Arrays broadcast.

    >>> overlap_gain(10.0, 10.0, 1.25), overlap_gain(1.0, 10.0, 1.25)
    (7.5, -1.5)
    """
    hidden, beside, slow_down = _checked(hidden, beside, slow_down)
    return plain(hidden - (slow_down - 1) * beside)


def break_even(hidden, beside):
    """The slow-down at which overlap wins nothing any more: 1 + hidden/beside, or infinity beside nothing.

    Arguments of ``overlap_gain``.

    >>> break_even(1.0, 10.0)
    1.1
    """
    hidden, beside, _ = _checked(hidden, beside, 1.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        return plain(np.where(beside > 0, 1 + hidden / beside, np.inf))


def break_even_beside(collective_slow_down):
    """``break_even`` where both slow only while they overlap, and the collective is slowed so many times: r.

    Of h seconds side by side h/r of communication and h/s of computing get done; that pays while
    1/r + 1/s > 1, so up to s = r/(r - 1). A collective that is not slowed always pays: infinity.

    >>> break_even_beside(np.array([1.0, 1.25, 2.0])).tolist()
    [inf, 5.0, 2.0]
    """
    slowed = _factors(collective_slow_down)
    with np.errstate(divide="ignore"):
        return plain(slowed / (slowed - 1))


def slow_down_factor(value) -> float:
    """One slow-down as a float; refused below 1, where computing would gain from a collective beside it."""
    return float(_factors(single(value, "the slow-down")))


def _checked(hidden, beside, slow_down) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    hidden = numbers(hidden, "the seconds of hidden communication", zero=True)
    beside = numbers(beside, "the seconds of computing beside it", zero=True)
    slow_down = _factors(slow_down)
    shapes = {"hidden": hidden.shape, "beside": beside.shape, "slow-down": slow_down.shape}
    broadcasting(shapes, "an overlap")
    return hidden, beside, slow_down


def _factors(value) -> np.ndarray:
    factors = numbers(value, "the slow-down")
    if np.any(factors < 1):
        raise InputRefused(
            f"the slow-down is {shown(value)}; computing beside a collective is at least 1 times as slow"
        )
    return factors
