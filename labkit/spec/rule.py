"""What a rule on plans is, what a broken one says, and the ways out of it that it offers."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from labkit.spec.hardware import Cluster
from labkit.spec.plan import Plan
from labkit.spec.transformer import Transformer
from labkit.units import digits, plain

IMPOSSIBLE, ADVICE = "impossible", "advice"


@dataclass(frozen=True, slots=True)
class Problem:
    """One broken rule: its name, how bad it is, what is wrong with the numbers, and what to do.

    ``options`` are the ways out that ``remedy`` has in words: each a dict of new values, every one of which
    lifts this rule. Their names are fields of the plan (for ``Plan.changed``), of the model (``sequence``,
    ``experts``) or of the cluster (``nodes``).
    """

    rule: str
    severity: str
    message: str
    remedy: str
    options: tuple[dict, ...] = ()

    def __str__(self):
        return f"{self.severity}: {self.message}; {self.remedy}"


@dataclass(frozen=True, slots=True)
class WayOut:
    """A remedy in words, and the changes it stands for; none where it is not a matter of numbers."""

    words: str
    options: tuple[dict, ...] = ()


@dataclass(frozen=True, slots=True)
class Rule:
    """``broken(model, cluster, plan)`` is a mask over plans; ``says`` the words for one plan."""

    name: str
    severity: str
    broken: Callable[[Transformer, Cluster, Plan], np.ndarray]
    says: Callable[[Transformer, Cluster, Plan], tuple[str, list[WayOut]]]

    def mask(self, model: Transformer, cluster: Cluster, plan: Plan):
        """Where the rule is broken: a bool, or an array of them for an array of plans."""
        return plain(np.asarray(self.broken(model, cluster, plan), bool))

    def problem(self, model: Transformer, cluster: Cluster, plan: Plan) -> Problem:
        """The broken rule in words, for one plan."""
        message, ways = self.says(model, cluster, plan)
        remedy = ", or ".join(way.words for way in ways)
        options = tuple(option for way in ways for option in way.options)
        return Problem(self.name, self.severity, message, remedy, options)


def use(name: str, values: list[int]) -> list[WayOut]:
    """The way out "use name = value or value"; none where there are no values.

    >>> use("dp", [4, 8])
    [WayOut(words='use dp = 4 or 8', options=({'dp': 4}, {'dp': 8}))]
    """
    return [WayOut(f"use {name} = {listed(values)}", tuple({name: one} for one in values))] if values else []


def divisors(number: int) -> list[int]:
    """The whole numbers that divide ``number``, ascending.

    >>> divisors(52)
    [1, 2, 4, 13, 26, 52]
    """
    small = [d for d in range(1, int(number**0.5) + 1) if number % d == 0]
    return sorted({*small, *(number // d for d in small)})


def nearest(wanted: float, fits: list[int]) -> list[int]:
    """The largest of ``fits`` below ``wanted`` and the smallest above it, as far as there are.

    >>> nearest(8, [1, 2, 4, 13]), nearest(20, [1, 13])
    ([4, 13], [13])
    """
    below = [one for one in fits if one < wanted]
    above = [one for one in fits if one > wanted]
    return ([max(below)] if below else []) + ([min(above)] if above else [])


def multiples(wanted: float, step: int) -> list[int]:
    """The multiples of ``step`` on either side of ``wanted``, from ``step`` up.

    >>> multiples(6, 4), multiples(3, 4)
    ([4, 8], [4])
    """
    below = int(wanted // step) * step
    return [one for one in (below, below + step) if one > 0 and one != wanted]


def listed(numbers: list[int], last: str = "or") -> str:
    """Numbers as words.

    >>> listed([1, 2, 4])
    '1, 2 or 4'
    """
    *first, end = map(str, numbers)
    return f"{', '.join(first)} {last} {end}" if first else end


def counted(number: float, noun: str) -> str:
    """A number, four digits of its fraction, and its noun in the singular or the plural.

    >>> counted(1, "sequence"), counted(18.2857, "micro-batch"), counted(1024, "card")
    ('1 sequence', '18.29 micro-batches', '1,024 cards')
    """
    text = digits(number, 4) if number % 1 else f"{int(number):,}"
    plural = "" if text == "1" else "es" if noun.endswith("ch") else "s"
    return f"{text} {noun}{plural}"
