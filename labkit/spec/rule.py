"""What a rule on plans is, what a broken one says, and the words for "nearest values that work"."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from labkit.spec.hardware import Cluster
from labkit.spec.plan import Plan
from labkit.spec.transformer import Transformer
from labkit.units import plain

IMPOSSIBLE, ADVICE = "impossible", "advice"


@dataclass(frozen=True, slots=True)
class Problem:
    """One broken rule: its name, how bad it is, what is wrong with the numbers, and what to do."""

    rule: str
    severity: str
    message: str
    remedy: str

    def __str__(self):
        return f"{self.severity}: {self.message}; {self.remedy}"


@dataclass(frozen=True, slots=True)
class Rule:
    """``broken(model, cluster, plan)`` is a mask over plans, ``says`` the message and remedy for one plan."""

    name: str
    severity: str
    broken: Callable[[Transformer, Cluster, Plan], np.ndarray]
    says: Callable[[Transformer, Cluster, Plan], tuple[str, str]]

    def mask(self, model: Transformer, cluster: Cluster, plan: Plan):
        """Where the rule is broken: a bool, or an array of them for an array of plans."""
        return plain(np.asarray(self.broken(model, cluster, plan), bool))


def divisors(number: int) -> list[int]:
    """The whole numbers that divide ``number``, ascending.

    >>> divisors(52)
    [1, 2, 4, 13, 26, 52]
    """
    small = [d for d in range(1, int(number**0.5) + 1) if number % d == 0]
    return sorted({*small, *(number // d for d in small)})


def nearest(wanted: float, options: list[int]) -> str:
    """The option below and the one above ``wanted`` in words; one of them where the other is missing.

    >>> nearest(8, [1, 2, 4, 13]), nearest(20, [1, 13])
    ('4 or 13', '13')
    """
    below = [o for o in options if o < wanted]
    above = [o for o in options if o > wanted]
    found = [str(max(below))] if below else []
    return " or ".join(found + ([str(min(above))] if above else []))


def listed(options: list[int]) -> str:
    """Numbers as words.

    >>> listed([1, 2, 4])
    '1, 2 or 4'
    """
    *first, last = map(str, options)
    return f"{', '.join(first)} or {last}" if first else last
