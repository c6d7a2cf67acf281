"""Why a plan cannot run, all reasons at once, and the nearest plan that can."""

from dataclasses import dataclass, fields

import numpy as np

from labkit.errors import InputRefused
from labkit.planner.feasible import Census, capacity_of, feasible
from labkit.planner.memory import memory
from labkit.planner.plan_space import UNTRIED, Space
from labkit.planner.step import step_time
from labkit.planner.why import setting
from labkit.spec import Cluster, Plan, Transformer, problems
from labkit.spec.rule import IMPOSSIBLE, listed
from labkit.units import format_memory

_NUMBERS = ("tp", "cp", "pp", "dp", "ep", "v", "micro_batch")
_STEP = 1e-3  # what a factor of 2 in a number counts, where changing a setting at all counts 1


@dataclass(frozen=True, slots=True, repr=False)
class WhyNot:
    """``reasons`` against a plan, in words, and the ``nearest`` plan that may run; None where none may.

    ``changes``: from the plan to the nearest, in words. Without reasons the nearest is the plan itself.
    """

    plan: Plan
    reasons: tuple[str, ...]
    nearest: Plan | None
    changes: tuple[str, ...] = ()

    def __repr__(self):
        if not self.reasons:
            return "nothing stands against this plan: it is possible and fits"
        if self.nearest is None:
            return "\n".join(
                [*self.reasons, "no plan on these GPUs with this global batch is possible and fits"]
            )
        return "\n".join([*self.reasons, f"nearest plan that runs: {listed(list(self.changes), 'and')}"])


def why_not(model: Transformer, cluster: Cluster, plan: Plan, max_memory: float | None = None) -> WhyNot:
    """Every rule that makes a plan impossible, whether it fits the card, and the nearest that runs.

    Nearest is the one with the fewest other settings, then with the smallest steps in degrees, micro-batch
    and virtual stages, then the fastest; all GPUs and the global batch stay. What a search does not try
    (``order``, ``fused_attention``, ``stage_layers`` ...) stays too, unless nothing runs with it. Refused:
    arguments of another type, arrays of plans, and a ``max_memory`` that is not above 0.

    >>> from labkit.spec import Gpu, Link
    >>> card = Gpu("80 GB card", 80e9, {"bf16": 312e12}, 0.5, 2e12)
    >>> node = Cluster("node", card, 1, 8, Link(2e-6, 235e9), Link(5e-6, 25e9), 8)
    >>> gpt = Transformer("1.3B", 24, 2048, 16, 50257, 2048)
    >>> why_not(gpt, node, Plan(tp=4, dp=2, accumulation=24, global_batch=64)).changes
    ('micro-batch 1.333 -> 1', 'accumulation 24 -> 32')
    """
    capacity = capacity_of(cluster, max_memory)
    broken = [problem for problem in problems(model, cluster, plan) if problem.severity == IMPOSSIBLE]
    reasons = [f"{problem.rule}: {problem.message}" for problem in broken]
    reasons += _too_much(model, cluster, plan, capacity)
    if not reasons:
        return WhyNot(plan, (), plan)
    split = plan.stage_layers is not None and all(problem.rule != "layers" for problem in broken)
    nearest = _nearest(model, cluster, plan, capacity, split)
    return WhyNot(plan, tuple(reasons), nearest, () if nearest is None else _changes(plan, nearest))


def _too_much(model, cluster, plan, capacity) -> list[str]:
    """The sentence on memory, where the plan has too much of it; none where its stages make no sense."""
    try:
        held = memory(model, cluster, plan)
    except InputRefused:  # stage_layers that are not those of the plan: a rule has said so
        return []
    if held.peak <= capacity:
        return []
    peak, most = format_memory(held.peak), format_memory(capacity)
    return [f"memory: stage {held.fullest} takes {peak} of a card, more than {most}"]


def _nearest(model, cluster, plan, capacity, split: bool) -> Plan | None:
    """The nearest that runs, with what a search does not try as it is, or where that cannot be, as usual.

    ``split``: its stages have layers of their own that may stay.
    """
    stays = {name: getattr(plan, name) for name in UNTRIED}
    split_anew = {name: value for name, value in stays.items() if name != "stage_layers"}
    for fixed in (stays, split_anew, {}) if split else (split_anew, {}):
        try:
            nearest = _nearest_with(model, cluster, plan, capacity, fixed)
        except InputRefused:
            if fixed is not stays:
                raise
            continue  # no pipeline on these GPUs has as many stages as there are stage_layers
        if nearest is not None:
            return nearest
    return None


def _nearest_with(model, cluster, plan, capacity, fixed: dict) -> Plan | None:
    """The nearest that runs, of those with what is fixed."""
    best = (np.inf, np.inf)  # distance and seconds
    nearest = None
    for space, runs, _ in feasible(model, cluster, plan.global_batch, fixed, capacity, Census()):
        distance = np.where(runs, _distance(plan, space), np.inf)
        if distance.min() <= best[0]:
            seconds, place = _fastest(space, distance == distance.min())
            if (distance.min(), seconds) < best:
                best, nearest = (distance.min(), seconds), space.at(place)
    return nearest


def _distance(plan: Plan, space: Space) -> np.ndarray:
    """Settings in which the plans of a space differ from this one, and how far, of its shape."""
    found = np.zeros(space.shape)
    for name, values in space.fields():
        mine = getattr(plan, name)
        found += values != mine
        if name in _NUMBERS:
            found += _STEP * np.abs(np.log2(values / mine))
    return found


def _fastest(space: Space, chosen: np.ndarray) -> tuple[float, tuple]:
    """Seconds and place of the fastest of some plans of a space."""
    cuts = np.flatnonzero(chosen.any(axis=(1, 2, 3, 4)))
    part = space.part(cuts)
    total = np.broadcast_to(step_time(part.model, part.cluster, part.plan).total, part.shape)
    seconds = np.where(chosen[cuts], total, np.inf)
    cut, *others = np.unravel_index(int(seconds.argmin()), seconds.shape)
    return seconds.min(), (cuts[cut], *others)


def _changes(plan: Plan, nearest: Plan) -> tuple[str, ...]:
    """Fields that differ, in words; of the batch what is as it was is left out."""
    return tuple(
        setting(plan, nearest, (f.name,))
        for f in fields(Plan)
        if getattr(plan, f.name) != getattr(nearest, f.name)
    )
