"""Many pipelines at once, checked, and shared out by form so that each formula sees only its own."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields

import numpy as np

from labkit.errors import InputRefused
from labkit.spec.checks import broadcasting, one_of, whole
from labkit.spec.plan import SCHEDULES
from labkit.strategies.checks import counts, numbers
from labkit.strategies.pipeline.kinds import KINDS, Stages


@dataclass(frozen=True, eq=False)
class Pipelines:
    """Pipelines as they are given, arrays that broadcast; the times have an array for each kind of stage."""

    p: np.ndarray
    m: np.ndarray
    v: np.ndarray
    longer: np.ndarray
    transfer: np.ndarray
    forward: tuple[np.ndarray, ...]
    backward: tuple[np.ndarray, ...]
    weight: tuple[np.ndarray, ...]

    @classmethod
    def checked(
        cls, schedule, p, m, v, forward, backward, weight, transfer, longer
    ) -> tuple[np.ndarray, "Pipelines"]:
        """The names of the schedules and their pipelines, from what ``pipeline_span`` takes."""
        schedule = one_of(SCHEDULES, schedule, "the schedule")
        names = "the number of pipeline ranks", "the number of micro-batches", "the number of chunks per rank"
        p, m, v = (counts(number, name) for number, name in zip((p, m, v), names, strict=True))
        longer = np.asarray(whole(longer, "the number of longer stages", 0, arrays=True))
        transfer = numbers(transfer, "the transfer time", zero=True)
        forward, backward = _times(forward, "forward"), _times(backward, "backward")
        weight = backward / 2 if weight is None else _times(weight, "weight gradient")
        plans = {"schedule": schedule, "p": p, "m": m, "v": v, "longer": longer, "transfer": transfer}
        times = {"forward": forward, "backward": backward, "weight_gradient": weight}
        shapes = {name: array.shape for name, array in plans.items()}
        broadcasting(shapes | {name: array.shape[:-1] for name, array in times.items()}, "a pipeline")
        if np.any(weight > backward):
            raise InputRefused("a weight gradient takes longer than its backward; give the whole backward")
        chunks = np.where(schedule == "zb-v", 2, np.where(schedule == "1f1b", v, 1)) if np.any(longer) else 1
        if np.any(longer > np.maximum(p * chunks - 2, 0)):
            raise InputRefused(
                "a pipeline has more longer stages than inner ones; give at most p v - 2, all but the first "
                "and the last"
            )
        plans = (np.asarray(array, float) for array in (p, m, v, longer, transfer))
        return schedule, cls(*plans, *(tuple(np.moveaxis(array, -1, 0)) for array in times.values()))

    def stages(self) -> Stages:
        """Their stages by kind."""
        return Stages.of(
            self.p, self.m, self.v, self.longer, self.forward, self.backward, self.weight, self.transfer
        )

    def each(self, form: np.ndarray, forms: dict[str, Callable[["Pipelines"], np.ndarray]]) -> np.ndarray:
        """What the ``forms`` say, each of its own pipelines; ``form`` names the one of each."""
        names = np.unique(form)
        result = np.empty(np.broadcast_shapes(form.shape, *(array.shape for array in self._arrays())))
        for name in names:
            part, place = (self, ...) if names.size == 1 else self._chosen(form == name)
            result[place] = forms[name](part)
        return result

    def _arrays(self) -> Iterator[np.ndarray]:
        for field in fields(self):
            value = getattr(self, field.name)
            yield from value if isinstance(value, tuple) else (value,)

    def _chosen(self, chosen: np.ndarray) -> tuple["Pipelines", tuple | np.ndarray]:
        """The chosen pipelines and their place: whole rows or columns where they are, else one by one."""
        axes = [axis for axis in range(-chosen.ndim, 0) if chosen.shape[axis] > 1]
        if len(axes) == 1:
            axis = axes[0]
            place = (..., _slice(np.flatnonzero(chosen)), *[slice(None)] * (-1 - axis))

            def pick(array):
                return array[place] if array.ndim >= -axis and array.shape[axis] > 1 else array

        else:
            shape = np.broadcast_shapes(chosen.shape, *(array.shape for array in self._arrays()))
            place = np.broadcast_to(chosen, shape)

            def pick(array):
                return np.broadcast_to(array, shape)[place] if array.ndim else array

        values = [getattr(self, field.name) for field in fields(self)]
        picked = [tuple(map(pick, value)) if isinstance(value, tuple) else pick(value) for value in values]
        return Pipelines(*picked), place


def _times(value, name: str) -> np.ndarray:
    """Seconds by kind of stage, one value for each along the last axis."""
    times = numbers(value, f"the {name} time", zero=True)
    if times.shape[-1:] != (len(KINDS),):
        raise InputRefused(
            f"{name} times have the shape {times.shape}; give four along the last axis, of a stage of each "
            f"kind: {', '.join(KINDS)}"
        )
    return times


def _slice(places: np.ndarray):
    """Places as a slice where they follow each other, which copies nothing."""
    first, last = places[0], places[-1]
    return slice(first, last + 1) if last - first + 1 == places.size else places
