"""Why one plan is faster than another: each term of the step, and the settings that change it.

Every mix of the settings of two plans is timed, all at once. A setting's part in a term is the mean of what
it changes over all orders in which the settings could be changed one by one (Shapley 1953): no order is
preferred, and the parts add up to the whole difference.
"""

import math
from dataclasses import dataclass, fields
from itertools import product

import numpy as np

from labkit.errors import InputRefused
from labkit.planner.search import carried, plan_of
from labkit.planner.step import step_time
from labkit.spec import Cluster, Plan, StepTime, Transformer, problems
from labkit.spec.checks import without_arrays
from labkit.spec.rule import IMPOSSIBLE, listed
from labkit.spec.rules import allowed, check_nouns
from labkit.spec.step_time import TERMS
from labkit.units import digits, format_share, format_time, words

_SETTINGS = tuple(field.name for field in fields(Plan) if field.name != "accumulation")
_SINGLE = ("stage_layers", "order", "etp", "shard_ranks")  # no arrays, or None where they follow others
_OF_A_PIPELINE = ("pp", "v", "schedule")  # single too where stage_layers are given
_MOST = 12  # settings in which two plans may differ: 2 to that power mixes are timed
_ROUNDING = 1e-13  # of a step
_SHOWN = 0.1  # share of a term from which on a setting is named for it


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Difference:
    """Step of ``b`` less step of ``a``, in seconds, as ``parts`` of shape (settings, terms).

    ``settings``: what changes from a to b, in words; settings that only work together are one. ``fields``:
    their names in ``Plan``. ``terms``: those of ``StepTime``. ``before``, ``after``: the steps of a and of b.
    """

    settings: tuple[str, ...]
    fields: tuple[tuple[str, ...], ...]
    parts: np.ndarray
    before: StepTime
    after: StepTime
    terms: tuple[str, ...] = TERMS

    @property
    def total(self) -> float:
        """Seconds that b takes longer than a; negative where it is faster."""
        return self.after.total - self.before.total

    @property
    def by_term(self) -> dict[str, float]:
        """Seconds by term of the step."""
        return dict(zip(self.terms, self.parts.sum(axis=0).tolist(), strict=True))

    @property
    def by_setting(self) -> dict[str, float]:
        """Seconds by setting."""
        return dict(zip(self.settings, self.parts.sum(axis=1).tolist(), strict=True))

    def causes(self, term: str) -> list[tuple[str, float]]:
        """Settings that change a term, and the seconds that each does, the largest first."""
        column = self.parts[:, self.terms.index(term)]
        found = [(self.settings[i], column[i].item()) for i in np.argsort(-np.abs(column), kind="stable")]
        return [(name, seconds) for name, seconds in found if not self._is_rounding(seconds)]

    def _is_rounding(self, seconds: float) -> bool:
        return abs(seconds) <= _ROUNDING * max(self.before.total, self.after.total)

    def sentences(self) -> list[str]:
        """The difference, then each term that changes, the largest first, with what changes it."""
        if not self.settings:
            return ["the two plans are the same"]
        first, second = self.before.total, self.after.total
        lines = [
            f"{format_time(first)} becomes {format_time(second)}: {_change(second - first)} "
            f"({format_share(abs(second / first - 1))})"
        ]
        for term, seconds in sorted(self.by_term.items(), key=lambda pair: -abs(pair[1])):
            if not self._is_rounding(seconds):
                lines.append(f"{_NAMES.get(term, term)}: {_change(seconds)}, by {self._by(term)}")
        return lines

    def _by(self, term: str) -> str:
        causes = self.causes(term)
        whole = sum(abs(seconds) for _, seconds in causes)
        named = [one for one in causes if abs(one[1]) >= _SHOWN * whole]
        said = [f"{name} ({_change(seconds)})" if len(causes) > 1 else name for name, seconds in named]
        rest = sum(seconds for _, seconds in causes[len(named) :])
        return listed([*said, f"others ({_change(rest)})"] if rest else said, "and")

    def __repr__(self):
        return "\n".join(self.sentences())


_NAMES = {
    "tp": "tensor parallel",
    "cp": "context parallel",
    "ep": "expert parallel",
    "pp": "pipeline transfers",
    "dp": "data parallel",
    "launch": "kernel launches",
    "data": "input",
    "idle": "other waiting",
}


def _change(seconds: float) -> str:
    return f"{format_time(abs(seconds))} {'more' if seconds > 0 else 'less'}"


def why(a, b) -> Difference:
    """Why two rows of tables that ``search`` made, as ``table.iloc[0]``, take different times.

    Refused: anything but rows of one model on one cluster.
    """
    mine, other = carried(a), carried(b)
    if any(mine[name] != other[name] for name in ("model", "cluster")):
        raise InputRefused("the two rows are of different models or clusters; compare plans of one of each")
    return difference(mine["model"], mine["cluster"], plan_of(a), plan_of(b))


def difference(model: Transformer, cluster: Cluster, a: Plan, b: Plan) -> Difference:
    """What changes from the step of plan ``a`` to that of plan ``b``, by term and by setting.

    Settings whose change alone would make an impossible plan, as tp without dp, are taken together with
    those that make it possible. Refused: arguments of another type, arrays of plans, plans that a rule makes
    impossible, and plans that differ in more than 12 settings.
    """
    for plan in (a, b):
        check_nouns(model=model, cluster=cluster, plan=plan)
        for problem in problems(model, cluster, plan):
            if problem.severity == IMPOSSIBLE:
                raise InputRefused(f"a plan to compare is impossible: {problem.message}; why_not() says more")
    without_arrays("a comparison", cluster=cluster)
    names = [name for name in _SETTINGS if getattr(a, name) != getattr(b, name)]
    if len(names) > _MOST:
        raise InputRefused(
            f"these plans differ in {len(names)} settings; compare plans that differ in {_MOST} at most"
        )
    mixes = _Mixes(a, b, names)
    blocks = _blocks(mixes.possible(model, cluster), len(names))
    corners = [sum(chosen) for chosen in product(*((0, block) for block in blocks))]
    seconds = mixes.seconds(model, cluster, corners)
    parts = _shapley(seconds, len(blocks))
    together = tuple(tuple(name for i, name in enumerate(names) if block >> i & 1) for block in blocks)
    said = tuple(setting(a, b, group) for group in together)
    return Difference(said, together, parts, step_time(model, cluster, a), step_time(model, cluster, b))


@dataclass(frozen=True, slots=True)
class _Mixes:
    """Plans with some of the settings of a, the others of b: bit i of a number says whose setting i is."""

    a: Plan
    b: Plan
    names: list[str]

    def plans(self, numbers: np.ndarray):
        """Arrays of plans, and the places in ``numbers`` of each."""
        given = self.a.stage_layers is not None or self.b.stage_layers is not None
        apart = [name for name in self.names if name in (*_SINGLE, *(given * _OF_A_PIPELINE))]
        of_b = {name: numbers >> i & 1 == 1 for i, name in enumerate(self.names)}
        for side in product((False, True), repeat=len(apart)):
            here = np.all([of_b[name] == one for name, one in zip(apart, side, strict=True)] or True, axis=0)
            here = np.flatnonzero(np.broadcast_to(here, numbers.shape))
            if here.size:
                fields = {
                    name: getattr(self.b if one else self.a, name)
                    for name, one in zip(apart, side, strict=True)
                }
                for name in set(self.names) - set(apart):
                    fields[name] = np.where(of_b[name][here], getattr(self.b, name), getattr(self.a, name))
                batch = {
                    name: fields.get(name, getattr(self.a, name)) for name in ("micro_batch", "global_batch")
                }
                yield self.a.changed(**{**fields, **batch}), here

    def possible(self, model, cluster) -> np.ndarray:
        """Of all mixes those that no rule makes impossible."""
        numbers = np.arange(2 ** len(self.names))
        found = np.empty(numbers.shape, bool)
        for plan, here in self.plans(numbers):
            found[here] = allowed(model, cluster, plan)
        return found

    def seconds(self, model, cluster, numbers: list[int]) -> np.ndarray:
        """Terms of the step of some mixes, shape (mixes, terms)."""
        found = np.empty((len(numbers), len(TERMS)))
        for plan, here in self.plans(np.array(numbers)):
            step = step_time(model, cluster, plan)
            for i, term in enumerate(TERMS):
                found[here, i] = getattr(step, term)
        return found


def _blocks(possible: np.ndarray, settings: int) -> list[int]:
    """The settings as numbers of one bit each; those that must change together have their bits in one.

    Two at a time are joined, so that the fewest impossible mixes are left, until none is.
    """
    blocks = [1 << i for i in range(settings)]

    def impossible(parts):
        mixes = np.array([sum(chosen) for chosen in product(*((0, part) for part in parts))])
        return np.count_nonzero(~possible[mixes])

    while len(blocks) > 1 and impossible(blocks):
        joined = [
            [block for k, block in enumerate(blocks) if k not in (i, j)] + [blocks[i] | blocks[j]]
            for i in range(len(blocks))
            for j in range(i + 1, len(blocks))
        ]
        blocks = sorted(min(joined, key=impossible), key=lambda block: block & -block)
    return blocks


def _shapley(seconds: np.ndarray, number: int) -> np.ndarray:
    """Each block's mean effect over all orders; ``seconds`` of all mixes, in the order of ``product``."""
    cube = seconds.reshape((2,) * number + (-1,))
    parts = np.zeros((number, seconds.shape[-1]))
    for block in range(number):
        effect = np.diff(cube, axis=block).squeeze(block)
        for others in product((0, 1), repeat=number - 1):
            weight = math.factorial(sum(others)) * math.factorial(number - 1 - sum(others))
            parts[block] += weight / math.factorial(number) * effect[others]
    return parts


def named(field: str) -> str:
    """A field of a plan as the course writes it.

    >>> named("micro_batch"), named("sequence_parallel")
    ('micro-batch', 'sequence parallel')
    """
    return words(field).replace("micro batch", "micro-batch")


def setting(a: Plan, b: Plan, names) -> str:
    """What some fields change from one plan to another, in words.

    >>> setting(Plan(tp=4, dp=2), Plan(tp=8), ("tp", "dp"))
    'tp 4 -> 8 and dp 2 -> 1'
    """
    return listed([f"{named(name)} {_value(a, name)} -> {_value(b, name)}" for name in names], "and")


def _value(plan: Plan, name: str) -> str:
    value = getattr(plan, name)
    if name == "stage_layers":
        return "equal" if value is None else "uneven"
    if isinstance(value, bool):
        return "on" if value else "off"
    return digits(value, 4) if isinstance(value, float) else str(value)
