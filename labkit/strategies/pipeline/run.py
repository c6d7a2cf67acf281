"""Run: a pipeline's timeline, with the stage of every block and what follows from it."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from labkit.spec.checks import whole
from labkit.strategies.checks import places
from labkit.strategies.pipeline.counts import change_of
from labkit.strategies.pipeline.times import LONGEST
from labkit.strategies.timeline import FORWARD, TRANSFER, Timeline


@dataclass(frozen=True, eq=False)
class Run(Timeline):
    """A timeline whose lanes are the ranks of a pipeline; ``stage``: the model stage of each block.

    Three answers to "how much is idle", all of the same blocks: ``bubble``, the idle share of the step;
    ``bubble_over_ideal``, idle over busy time; ``bubble_rate``, by what share the rank that takes longest,
    from its own first to its own last operation, exceeds the busiest rank's work. For equal stages without
    transfers GPipe and 1F1B have (p - 1)/(m + p - 1), (p - 1)/m, and the first again.
    """

    stage: np.ndarray

    CAUSE: ClassVar[str] = "pp"

    def __post_init__(self):
        """The columns of a timeline, and one more."""
        super().__post_init__()
        object.__setattr__(self, "stage", places(self.stage, "the stages", self.lane.size, LONGEST))

    @property
    def stages(self) -> int:
        """Number of stages of the model, v for each rank."""
        return int(self.stage.max()) + 1

    @property
    def bubble_over_ideal(self) -> float:
        """Idle over busy time of all ranks together: (p - 1)/m in Narayanan et al. 2021, section 2.2.

        >>> from labkit.strategies.pipeline import one_f_one_b, simulate
        >>> run = simulate(one_f_one_b(4, 16), 1, 2)
        >>> round(run.bubble, 4), run.bubble_over_ideal
        (0.1579, 0.1875)
        """
        return float(self.idle.sum() / self.busy.sum())

    @property
    def longest_own_span(self) -> float:
        """Longest time that any rank takes from its first start to its last stop, seconds.

        It is the length of the step where a rank's optimizer does not wait for the other ranks, as in "Zero
        Bubble Pipeline Parallelism" (Qi et al. 2024), section 4.
        """
        computes = self.kind != TRANSFER
        lane, start, stop = self.lane[computes], self.start[computes], self.stop[computes]
        first, last = np.full(self.lanes, np.inf), np.zeros(self.lanes)
        np.minimum.at(first, lane, start)
        np.maximum.at(last, lane, stop)
        return float((last - first).max())

    @property
    def bubble_rate(self) -> float:
        """(cost - m (F + B + W))/cost, cost the longest own span, F + B + W of the busiest rank.

        The measure of Qi et al. 2024, section 5.3: 0 where no rank takes longer than the work
        of the busiest one, whenever it begins.

        >>> from labkit.strategies.pipeline import one_f_one_b, simulate, zb_h1, zb_h2
        >>> [round(simulate(order(4, 16), 1, 2).bubble_rate, 4) for order in (one_f_one_b, zb_h1, zb_h2)]
        [0.1579, 0.0588, 0.0]
        """
        cost = self.longest_own_span
        return float((cost - self.busy.max()) / cost)

    def in_flight(self, rank: int, kept: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
        """Times at which what ``rank`` holds changes, and the micro-batches held from then on.

        Held from the start of a forward to the stop of its backward, or of its weight gradient where the
        backward is split; then the input gradient frees all but ``kept`` (M_W/M_B in Qi et al. 2024, table
        1). The unit is all that a rank keeps of one micro-batch: with v chunks a stage counts 1/v. The
        first time is 0; both arrays have one value per change.

        >>> from labkit.strategies.pipeline import one_f_one_b, simulate
        >>> when, held = simulate(one_f_one_b(2, 2), 1, 2).in_flight(0)
        >>> when.tolist(), held.tolist()
        ([0.0, 1.0, 6.0, 9.0], [1.0, 2.0, 1.0, 0.0])
        """
        rank = whole(rank, "the rank", least=0, most=self.lanes - 1)
        change = np.zeros(self.kind.size)
        for kind, activations in change_of(kept).items():
            change[self.kind == kind] = activations
        at_start = self.kind == FORWARD
        chosen = (self.lane == rank) & (change != 0)
        when = np.where(at_start[chosen], self.start[chosen], self.stop[chosen])
        # What is freed at the moment when something else begins is freed first.
        order = np.lexsort((at_start[chosen], when))
        held = np.cumsum(change[chosen][order]) * self.lanes / self.stages
        when = when[order]
        last = np.append(when[1:] != when[:-1], True)
        return when[last], np.round(held[last], 12)
