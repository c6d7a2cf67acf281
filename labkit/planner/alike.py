"""Plans that work alike: stages of ZeRO below 3 differ in what is held and reduced, not in any layer.

Of an array of plans with several stages, layers and pipelines are timed once for all below 3, and for 3.
"""

from copy import copy
from dataclasses import dataclass, fields, replace

import numpy as np

from labkit.planner.step_traffic import StepTraffic
from labkit.spec import Plan
from labkit.spec.checks import array_shapes


@dataclass(frozen=True, slots=True)
class Alike:
    """One place of each kind along the ``axis`` of ZeRO, counted from the last, and the kind of each place.

    None of an axis: each plan is of its own kind.
    """

    axis: int | None
    first: np.ndarray
    kind: np.ndarray

    @classmethod
    def of(cls, plan: Plan, **beside) -> "Alike":
        """Of a plan whose stages of ZeRO have an axis for themselves; else nothing is taken together.

        ``beside``: what else may hold arrays that broadcast with those of the plan.
        """
        zero, shapes = np.asarray(plan.zero), array_shapes(plan=plan, **beside)
        shapes.pop("plan.zero", None)
        kinds, first, kind = np.unique(zero.ravel() == 3, return_index=True, return_inverse=True)
        axes = [axis for axis in range(-zero.ndim, 0) if zero.shape[axis] > 1]
        axis = axes[0] if len(axes) == 1 and kinds.size < zero.size else None
        if axis and any(len(shape) >= -axis and shape[axis] > 1 for shape in shapes.values()):
            axis = None
        return cls(axis, first, kind)

    def plan(self, plan: Plan) -> Plan:
        """The plan with one stage of each kind."""
        one = copy(plan)  # not made anew: a batch that does not come out whole is kept as it is
        object.__setattr__(one, "zero", self._take(plan.zero, self.first))
        return one

    def traffic(self, traffic: StepTraffic) -> StepTraffic:
        """The traffic of that plan."""

        def one(value):
            return list(map(one, value)) if isinstance(value, list) else self._take(value, self.first)

        return replace(traffic, **{part.name: one(getattr(traffic, part.name)) for part in fields(traffic)})

    def each(self, value, more: int = 0) -> np.ndarray:
        """What was found of each kind, for each of the plans; the value has ``more`` axes behind theirs."""
        return self._take(value, self.kind, more)

    def _take(self, value, places: np.ndarray, more: int = 0):
        axis = None if self.axis is None else self.axis - more
        if axis is None or np.ndim(value) < -axis or np.shape(value)[axis] == 1:
            return value
        return np.take(value, places, axis)
