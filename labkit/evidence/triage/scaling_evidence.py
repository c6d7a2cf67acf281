"""What was measured of a job that does not scale, as the triage reads it. Everything may be missing."""

from dataclasses import dataclass, field

import numpy as np

from labkit.errors import InputRefused
from labkit.evidence.mapping import Mapping
from labkit.evidence.measured import Measured
from labkit.evidence.triage.exchanges import Exchange
from labkit.spec import Cluster, Plan, Transformer
from labkit.spec.checks import floats, noun, shown, whole
from labkit.strategies.checks import share


@dataclass(frozen=True, slots=True)
class ScalingEvidence:
    """Evidence for the four steps; None is what was not measured.

    ``measured``: the step by cause, and the ranks' own work (``labkit.evidence.measured``). ``loading``:
    seconds a step that each rank waits for its input, shape (ranks,) or (steps, ranks), where it is known of
    more than the one rank whose ``data`` stands in the step. ``workers``: loader processes of a rank, 0 where
    the training process loads itself. ``counter``: what the usual utilisation counter reads, a share.
    ``mapping`` and ``plan``; with ``model`` and ``cluster`` the mapping's cost is known too. ``exchanges``:
    measured collectives of a step.
    """

    measured: Measured = field(default_factory=Measured)
    loading: np.ndarray | None = None
    workers: int | None = None
    counter: float | None = None
    mapping: Mapping | None = None
    plan: Plan | None = None
    model: Transformer | None = None
    cluster: Cluster | None = None
    exchanges: tuple[Exchange, ...] = ()

    def __post_init__(self):
        noun(self.measured, Measured, "what was measured of a step")
        for name, kind in (
            ("mapping", Mapping),
            ("plan", Plan),
            ("model", Transformer),
            ("cluster", Cluster),
        ):
            if getattr(self, name) is not None:
                noun(getattr(self, name), kind, f"the {name}")
        if self.loading is not None:
            array = floats(self.loading)
            if array.ndim > 2 or not np.all(np.isfinite(array) & (array >= 0)):
                raise InputRefused(
                    f"the seconds of waiting for input are {shown(self.loading)}; give one number for each "
                    "rank, or a row of them for each step, from 0 up"
                )
            object.__setattr__(self, "loading", np.atleast_2d(array))
        if self.workers is not None:
            object.__setattr__(self, "workers", whole(self.workers, "the loader workers of a rank", least=0))
        if self.counter is not None:
            object.__setattr__(self, "counter", share(self.counter, "the utilisation counter"))
        several = isinstance(self.exchanges, tuple | list)
        if not several or not all(isinstance(one, Exchange) for one in self.exchanges):
            raise InputRefused("the exchanges are a list of Exchange, one for each kind of collective")
        object.__setattr__(self, "exchanges", tuple(self.exchanges))

    @property
    def seconds(self) -> float | None:
        """Seconds of a step: of the step by cause, else the mean of all step times."""
        step, steps = self.measured.step, self.measured.steps
        if step is not None:
            return step.total
        return None if steps is None else float(steps.mean())

    @property
    def wait(self) -> float | None:
        """Seconds a step that the worst rank waits for its input; None where nobody looked."""
        if self.loading is not None:
            return float(self.loading.mean(axis=0).max())
        return self.measured.step.data if self.measured.knows("data") else None

    @property
    def busy(self) -> float | None:
        """Share of the step in which a card computes; None without the step by cause."""
        step = self.measured.step
        return None if step is None or not step.compute else (step.compute + step.optimizer) / step.total

    @property
    def late(self) -> float | None:
        """Seconds a step that a mean rank waits for the last: from the collectives, else from own work."""
        if self.exchanges and all(one.every_rank for one in self.exchanges):
            return sum(one.count * one.waiting for one in self.exchanges)
        return self.measured.late
