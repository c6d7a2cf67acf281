"""A real job of a few processes in which ranks have unequal work: what step times show of it, and what not.

Each rank is a process. In a step it works, then all add up their vectors: nobody leaves this all_reduce
before the last has come. So every rank's step is as long as the slowest rank's, and only what it does outside
of the collective tells the ranks apart (claim 5.4-d). The work is elementwise arithmetic, which NumPy runs in
one thread. It is timed in seconds of a core, the step by the clock: ranks that share a core wait for it too.
"""

import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from threading import BrokenBarrierError
from time import perf_counter, thread_time

import numpy as np

from labkit.errors import InputRefused
from labkit.presets.published import recorded
from labkit.spec.checks import shown, whole
from labkit.units import format_share, format_time

MOST_RANKS, MOST_WORK, MOST_STEPS = 8, 64, 200
LENGTH, PASSES = 2_000, 480  # numbers of a rank's vector, and how often one unit of work goes over them
PATIENCE = 60.0  # seconds that the ranks wait for each other at most
WARM_UP = 2  # steps that are not counted: the first touch memory and caches


@dataclass(frozen=True, slots=True, repr=False)
class RankTimes:
    """Seconds of each step on each rank, arrays of shape (steps, ranks), and the ``units`` of work it had.

    ``work``: own work, outside of the collective, in seconds of a core; ``step``: the whole step. ``sums``:
    what the all_reduce gave each rank, so that a test can see that it ran.
    """

    units: tuple[int, ...]
    work: np.ndarray
    step: np.ndarray
    sums: tuple[float, ...] = ()

    def __repr__(self):
        lines = [f"mean of {len(self.step)} steps", f"{'rank':>4}  {'work':>5}  {'step':>8}  {'own work':>8}"]
        for rank, (units, step, work) in enumerate(zip(self.units, *self.means, strict=True)):
            lines.append(f"{rank:>4}  {units:>4}x  {format_time(step):>8}  {format_time(work):>8}")
        spreads = (format_share(spread(times)) for times in self.means)
        return "\n".join([*lines, "spread of the ranks: steps {}, own work {}".format(*spreads)])

    @property
    def means(self) -> tuple[np.ndarray, np.ndarray]:
        """Seconds of a step and of its own work on each rank, means of the steps."""
        return self.step.mean(axis=0), self.work.mean(axis=0)


def spread(times: np.ndarray) -> float:
    """(longest - shortest) / longest of the ranks.

    >>> spread(np.array([1.0, 2.0, 2.0]))
    0.5
    """
    return float(np.ptp(times) / np.max(times))


def recorded_job() -> RankTimes:
    """The shipped recording: four processes, the last with twice the work (``data/recorded``)."""
    rows = recorded("slow_rank_steps")
    ranks = 1 + max(row["rank"] for row in rows)
    work, step = (
        np.array([row[name] for row in rows]).reshape(-1, ranks) / 1e3 for name in ("work_ms", "step_ms")
    )
    return RankTimes(tuple(row["units"] for row in rows[:ranks]), work, step)


def run_slow_rank(units=(1, 1, 1, 2), steps: int = 20) -> RankTimes:
    """Runs the job on as many processes as there are ``units`` of work, now, on this machine.

    No process outlives the call. Refused: numbers of ranks outside 2 to 8, of units outside 1 to 64, of
    steps outside 1 to 200; a machine on which the processes do not start.
    """
    if not isinstance(units, list | tuple | np.ndarray) or not 2 <= np.size(units) <= MOST_RANKS:
        raise InputRefused(
            f"this job is for 2 to {MOST_RANKS} ranks; give a list of their work, not {shown(units)}"
        )
    units = tuple(whole(one, "the work of a rank", most=MOST_WORK) for one in units)
    steps = whole(steps, "the number of steps", most=MOST_STEPS)
    # spawn: a forked child would inherit the threads of the notebook's kernel in an unknown state.
    context = multiprocessing.get_context("spawn")
    meeting, vectors = context.Barrier(len(units)), context.Array("d", len(units) * LENGTH, lock=False)
    try:
        with ProcessPoolExecutor(len(units), context, _join, (meeting, vectors)) as pool:
            # One task for each process: none is free for a second before all have met.
            tasks = [pool.submit(_rank, rank, units[rank], steps) for rank in range(len(units))]
            found = [task.result() for task in tasks]
    except (BrokenProcessPool, BrokenBarrierError):
        raise InputRefused(
            "the processes of the job did not come together; in a script, call run_slow_rank under "
            "if __name__ == '__main__', and on a busy machine run it again"
        ) from None
    work, step, sums = zip(*found, strict=True)
    return RankTimes(units, np.array(work).T, np.array(step).T, sums)


_shared = {}  # of one process: where the ranks meet, and the vectors of all


def _join(meeting, vectors) -> None:
    _shared.update(meeting=meeting, vectors=np.frombuffer(vectors).reshape(-1, LENGTH))


def _rank(rank: int, units: int, steps: int) -> tuple[list[float], list[float], float]:
    """One process: seconds of own work and of the whole of each step, and the last sum."""
    meeting, vectors = _shared["meeting"], _shared["vectors"]
    work, step, total = [], [], np.zeros(LENGTH)
    meeting.wait(PATIENCE)
    for _ in range(WARM_UP + steps):
        start, busy = perf_counter(), thread_time()
        mine = np.full(LENGTH, float(rank + 1))
        for _ in range(units * PASSES):
            np.tanh(mine, out=mine)
            mine /= mine[0]  # back to 1, so that every step is the same
        busy = thread_time() - busy
        vectors[rank] = (rank + 1) * mine
        meeting.wait(PATIENCE)  # all have come
        total = vectors.sum(axis=0)
        meeting.wait(PATIENCE)  # all have read
        end = perf_counter()
        work.append(busy)
        step.append(end - start)
    return work[WARM_UP:], step[WARM_UP:], float(total[0])
