"""Whole-number logarithms and bit counts, exact and broadcasting."""

import numpy as np


def ceil_log2(n):
    """Rounds in which one rank's knowledge can reach n ranks: the bit length of n - 1.

    >>> ceil_log2(np.array([1, 2, 3, 8, 9.0])).tolist()
    [0, 1, 2, 3, 4]
    """
    return np.frexp(n - 1)[1]


def floor_log2(n):
    """The largest t with 2**t <= n.

    >>> floor_log2(np.array([1, 2, 3, 8, 9.0])).tolist()
    [0, 1, 1, 3, 3]
    """
    return np.frexp(n)[1] - 1


def power_of_two(n):
    """Whether n is a power of two (1 is)."""
    return np.frexp(n)[0] == 0.5


def bit_count(n):
    """Ones in the binary form of n.

    >>> bit_count(np.array([0, 1, 6, 255.0])).tolist()
    [0.0, 1.0, 2.0, 8.0]
    """
    return np.bitwise_count(np.asarray(n).astype(np.int64)).astype(float)


def bits_below(n):
    """Ones in the binary forms of 0 .. n-1 together: the hops of a binomial scatter of n blocks.

    >>> bits_below(np.array([1, 2, 4, 6.0])).tolist()
    [0.0, 1.0, 4.0, 7.0]
    """
    n = np.asarray(n, dtype=np.int64)
    ones = np.bitwise_count(np.arange(int(n.max())))
    return np.concatenate([[0.0], np.cumsum(ones)])[n]
