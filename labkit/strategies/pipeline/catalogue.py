"""All schedules by name, for a control or a loop over them."""

from collections.abc import Callable
from dataclasses import dataclass

from labkit.spec.checks import noun, one_of
from labkit.strategies.pipeline.classic import gpipe, interleaved, one_f_one_b
from labkit.strategies.pipeline.memory_bounded import greedy
from labkit.strategies.pipeline.order import Order, check_counts
from labkit.strategies.pipeline.times import StageTimes
from labkit.strategies.pipeline.zero_bubble import zb_h1, zb_h2
from labkit.strategies.pipeline.zero_bubble_v import zb_v


@dataclass(frozen=True)
class Schedule:
    """``make(p, m, v, times)`` gives the order; ``fixed_chunks``: chunks per rank where v has no say."""

    make: Callable[[int, int, int, StageTimes], Order]
    fixed_chunks: int | None = 1
    split: bool = False

    def chunks(self, v: int) -> int:
        """Chunks per rank when ``v`` is asked for: the stages are p times as many."""
        return v if self.fixed_chunks is None else self.fixed_chunks


SCHEDULES = {
    "GPipe": Schedule(lambda p, m, v, times: gpipe(p, m)),
    "1F1B": Schedule(lambda p, m, v, times: one_f_one_b(p, m)),
    "interleaved 1F1B": Schedule(lambda p, m, v, times: interleaved(p, m, v), fixed_chunks=None),
    "ZB-H1": Schedule(lambda p, m, v, times: zb_h1(p, m), split=True),
    "ZB-H2": Schedule(lambda p, m, v, times: zb_h2(p, m), split=True),
    "ZB-V": Schedule(lambda p, m, v, times: zb_v(p, m, *times), fixed_chunks=2, split=True),
    "ZB-1p": Schedule(lambda p, m, v, times: greedy(p, m, p, *times), split=True),
    "ZB-2p": Schedule(lambda p, m, v, times: greedy(p, m, 2 * p, *times), split=True),
}


def schedule(name: str, p: int, m: int, v: int, times: StageTimes) -> Order:
    """The order of the schedule ``name``; ``times`` are those of its p x ``chunks(v)`` stages.

    Only the memory-bounded schedules look at the times. Refused: an unknown name, and what the schedule
    itself refuses.

    >>> from labkit.strategies.pipeline import simulate, stage_times
    >>> times = stage_times(4, forward=1, backward=2)
    >>> simulate(schedule("ZB-H1", 4, 16, 1, times), *times).span
    51.0
    """
    name = one_of(tuple(SCHEDULES), name, "the schedule").item()
    check_counts(p, m, v)
    noun(times, StageTimes, "the times of the stages")
    return SCHEDULES[name].make(p, m, v, times)
