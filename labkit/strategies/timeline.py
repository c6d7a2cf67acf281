"""Timeline: who is busy when. Every strategy that overlaps work with communication gives one.

A lane is one rank (for pipelines: one stage). What a rank computes and what it sends stand on the same lane,
told apart by ``kind``: they may overlap, as on the streams of a GPU, but only computing counts as busy.
"""

import gzip
import json
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np

from labkit.errors import InputRefused
from labkit.intervals import intersection, intervals, length
from labkit.spec import StepTime
from labkit.spec.checks import one_of, shown
from labkit.spec.step_time import COMMUNICATION
from labkit.strategies.chrome import chrome_trace

FORWARD, BACKWARD, TRANSFER = "forward", "backward", "transfer"
# The two halves of a backward, for schedules that run them apart.
INPUT_GRADIENT, WEIGHT_GRADIENT = "input gradient", "weight gradient"
COMPUTING = (FORWARD, BACKWARD, INPUT_GRADIENT, WEIGHT_GRADIENT)


@dataclass(frozen=True, eq=False)
class Timeline:
    """Blocks of time as columns of equal length, in any order.

    ``lane``: the rank, counted from 0 (a transfer stands on the lane of its sender); ``start``, ``stop``:
    seconds; ``kind``: one of ``COMPUTING``, or ``transfer``; ``item``: which micro-batch. Columns that do
    not fit together, no block at all, or a block that stops before it starts: ``InputRefused``.

    >>> kind = ["forward", "transfer", "forward"]
    >>> t = Timeline(lane=[0, 0, 1], start=[0, 1, 1.5], stop=[1, 1.5, 2], kind=kind, item=[0, 0, 0])
    >>> t.span, t.busy.tolist(), t.idle.tolist(), t.bubble
    (2.0, [1.0, 0.5], [1.0, 1.5], 0.625)
    """

    lane: np.ndarray
    start: np.ndarray
    stop: np.ndarray
    kind: np.ndarray
    item: np.ndarray

    CAUSE: ClassVar[str] = "dp"  # the term of a step that transfers are, unless it is said

    def __post_init__(self):
        """Columns become arrays of one type each and are checked against each other."""
        for name, dtype in (("lane", int), ("start", float), ("stop", float), ("kind", str), ("item", int)):
            object.__setattr__(self, name, _column(name, getattr(self, name), dtype))
        shapes = {column.shape for column in (self.lane, self.start, self.stop, self.kind, self.item)}
        if len(shapes) != 1 or self.lane.ndim != 1 or self.lane.size == 0:
            raise InputRefused(
                f"the columns of a timeline have the shapes {sorted(shapes)}; "
                "give one value per block in each, and at least one block"
            )
        if self.lane.min() < 0 or not {*self.kind.tolist()} <= {*COMPUTING, TRANSFER}:
            raise InputRefused(
                f"a timeline has lanes counted from 0, and the kinds {', '.join((*COMPUTING, TRANSFER))}; "
                "correct the others"
            )
        runs = (self.start <= self.stop) & np.isfinite(self.start) & np.isfinite(self.stop)
        if not np.all(runs):
            block = int(np.flatnonzero(~runs)[0])
            raise InputRefused(
                f"block {block} of a timeline runs from {self.start[block]} to {self.stop[block]} s; "
                "a block is finite and cannot stop before it starts"
            )

    @property
    def lanes(self) -> int:
        """Number of lanes; a lane without a block counts when a later one has one."""
        return int(self.lane.max()) + 1

    @property
    def span(self) -> float:
        """Seconds from the first start to the last stop: the length of the step."""
        return float(self.stop.max() - self.start.min())

    @property
    def busy(self) -> np.ndarray:
        """Seconds that each lane computes, shape (lanes,); transfers leave it free and do not count."""
        computes = np.isin(self.kind, COMPUTING)
        seconds = (self.stop - self.start)[computes]
        return np.bincount(self.lane[computes], weights=seconds, minlength=self.lanes)

    @property
    def idle(self) -> np.ndarray:
        """Seconds of the span in which each lane does not compute, shape (lanes,)."""
        return self.span - self.busy

    @property
    def bubble(self) -> float:
        """Idle share of all lanes' time over the span, as in Huang et al. 2019 (GPipe), section 2.3."""
        return float(self.idle.sum() / (self.lanes * self.span))

    @cached_property
    def communication(self) -> np.ndarray:
        """Seconds in which each lane communicates, whatever else it does, shape (lanes,).

        Blocks that overlap count once: it is the length of their union.
        """
        return np.array([length(self._union(lane, computing=False)) for lane in range(self.lanes)])

    @cached_property
    def hidden(self) -> np.ndarray:
        """Seconds of its communication during which each lane computes as well, shape (lanes,)."""
        both = [
            intersection(self._union(lane, computing=False), self._union(lane, computing=True))
            for lane in range(self.lanes)
        ]
        return np.array([length(one) for one in both])

    @property
    def exposed(self) -> np.ndarray:
        """Seconds of its communication during which each lane does nothing else, shape (lanes,)."""
        return self.communication - self.hidden

    @property
    def coverage(self) -> float:
        """Hidden share of all lanes' communication; NaN where there is none."""
        communication = self.communication.sum()
        return float(self.hidden.sum() / communication) if communication > 0 else float("nan")

    def steps(self, cause: str | None = None) -> list[StepTime]:
        """The span as a ``StepTime`` for each lane: what ``read_profile`` finds in ``to_chrome``'s trace.

        ``cause``: the term that transfers are, as "tp"; without it that of the timeline, "pp" for a
        pipeline's, else "dp". A lane that neither computes nor transfers is idle: why, a timeline does not
        know, so a pipeline's bubble is idle too.

        >>> t = Timeline([0, 0], [0, 1], [2, 4], ["forward", "transfer"], [0, 0])
        >>> t.steps()[0].compute, t.steps()[0].dp, t.steps()[0].communication
        (2.0, 2.0, 3.0)
        """
        cause = self._cause(cause)
        busy = [length(self._union(lane, computing=True)) for lane in range(self.lanes)]
        rows = zip(busy, self.exposed.tolist(), self.communication.tolist(), strict=True)
        return [
            StepTime(
                compute=compute,
                idle=max(self.span - compute - exposed, 0.0),
                communication=communication,
                **{cause: exposed},
            )
            for compute, exposed, communication in rows
        ]

    def to_chrome(self, path, cause: str | None = None) -> None:
        """Writes a trace for Perfetto or chrome://tracing: a process for each lane (``chrome_trace``).

        ``path``: what to write, packed where it ends in ``.gz``; a file that is there is replaced. ``cause``:
        as for ``steps``. Refused: a path that cannot be written.
        """
        transfers = self.kind == TRANSFER
        columns = (self.lane, self.start, self.stop, self.kind, self.item)
        text = json.dumps(chrome_trace(*columns, transfers, self._cause(cause)))
        data = gzip.compress(text.encode(), mtime=0) if str(path).endswith(".gz") else text.encode()
        try:
            if not (isinstance(path, str) or hasattr(path, "__fspath__")):
                raise TypeError  # open() would take a number for an open file
            with open(path, "wb") as file:  # the one file that is written below evidence
                file.write(data)
        except (OSError, ValueError, TypeError) as error:
            said = getattr(error, "strerror", None) or "it is no path"
            raise InputRefused(f"{shown(path)} cannot be written ({said}); give another path") from None

    def _cause(self, given: str | None) -> str:
        return self.CAUSE if given is None else one_of(COMMUNICATION, given, "the cause of transfers").item()

    def _union(self, lane: int, computing: bool) -> np.ndarray:
        """When a lane computes, or when it communicates, as a set of intervals."""
        chosen = (self.lane == lane) & (np.isin(self.kind, COMPUTING) == computing)
        return intervals(self.start[chosen], self.stop[chosen])


def _column(name: str, values, dtype: type) -> np.ndarray:
    """A column as an array of its type; refused when it cannot be one."""
    try:
        column = np.asarray(values)
    except ValueError:  # rows of unequal lengths
        column = np.asarray(None)
    kinds = {int: "iu", float: "iuf", str: "U"}[dtype]
    if column.size and column.dtype.kind not in kinds:
        what = {int: "whole numbers", float: "numbers", str: "texts"}[dtype]
        raise InputRefused(f"the column {name} of a timeline has other things than {what}; correct it")
    return column.astype(dtype, copy=False)
