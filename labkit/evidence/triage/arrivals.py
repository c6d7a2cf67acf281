"""Who makes steps slow: one rank, another each time, all together, or the exchange itself.

Ranks that meet in a collective have equal steps whoever is late, so step times alone cannot tell (5.4-d).
What tells is the work that each rank does outside of collectives, or when it comes to one.
"""

from collections import Counter
from dataclasses import dataclass

import numpy as np

MOSTLY = 0.8  # share of steps from which it is the same rank; two ranks in turns reach half
HALF = 0.5  # share of the longer step that a cause must explain

ONE_RANK, CHANGING, TOGETHER, EXCHANGE = "one rank", "changing ranks", "all together", "the exchange"


@dataclass(frozen=True, slots=True)
class Late:
    """Which rank came last how often (a share of steps), and what the others wait for it (seconds)."""

    rank: int
    share: float
    seconds: float


def last_rank(own: np.ndarray) -> Late:
    """The rank that is last most often, of shape (steps, ranks), and by how much it is behind the median."""
    rank, times = Counter(own.argmax(axis=1).tolist()).most_common(1)[0]
    behind = np.median(own.max(axis=1) - np.median(own, axis=1))
    return Late(rank, times / len(own), float(behind))


def slow_cause(steps: np.ndarray, slow: np.ndarray, own: np.ndarray, work: bool) -> str | None:
    """What makes the steps ``slow`` (a mask) longer than the others; None where that cannot be told.

    ``own``, shape (steps, ranks): seconds of work outside of collectives, where ``work``, else when each rank
    came to one. Arrivals only tell how far ranks are apart: what all have in common is no part of them.
    """
    longer = np.median(steps[slow]) - np.median(steps[~slow])
    if not work:
        own = own - own.min(axis=1, keepdims=True)
    last, first = own.max(axis=1), own.min(axis=1)
    of_last = np.median(last[slow]) - np.median(last[~slow])
    if of_last < HALF * longer:
        return EXCHANGE if work else None
    if np.median(first[slow]) - np.median(first[~slow]) >= HALF * of_last:
        return TOGETHER
    return ONE_RANK if last_rank(own[slow]).share >= MOSTLY else CHANGING
