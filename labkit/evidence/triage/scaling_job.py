"""Real jobs of four processes that do not scale, each for its own reason: what the triage is tried on.

Each rank loads a batch, computes, and adds up a vector with the others (PyTorch with gloo on the loopback
interface). Computing is waiting for a card that is not there: it takes its time and no core. Before the steps
every job measures its all_reduce alone, as a baseline should be measured, on the nodes that it will run on.
"""

import multiprocessing
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, sleep

import numpy as np

from labkit.collectives import busbw
from labkit.errors import InputRefused
from labkit.evidence.measured import Measured
from labkit.evidence.triage.exchanges import Exchange
from labkit.evidence.triage.scaling_evidence import ScalingEvidence
from labkit.presets.published import recorded
from labkit.spec import StepTime
from labkit.spec.checks import one_of, whole

RANKS, NEIGHBOURS, BATCH = 4, 4, 8
WARM_UP, ALONE = 5, 20  # steps that are not counted, and calls of the baseline
ITEM = 0.012  # seconds of fetching a sample
LATE = 0.1  # seconds more that the straggler takes in half of its steps: twice as long
SAVING, EVERY = 0.3, 10  # seconds of a save of rank 0, and steps between two
PATIENCE = 180.0  # seconds for a whole job
# Of each case seconds of computing in a step, and bytes of the all_reduce.
CASES = {
    "one worker": (0.04, 2**18),
    "straggler": (0.1, 2**18),
    "saving": (0.15, 2**18),
    "contention": (0.01, 2**23),
}
COLUMNS = ("load", "work", "arrival", "exchange", "step")


@dataclass(frozen=True, slots=True, repr=False)
class JobSteps:
    """What each rank measured, seconds in arrays of shape (steps, ranks), and the baseline of its all_reduce.

    ``load``: waiting for input; ``work``: that and computing and saving, outside of the collective;
    ``arrival``: when it came to the collective, counted from the first arrival of all; ``exchange``: the
    collective, waiting included; ``alone``: a call when nothing else ran, median, shape (ranks,).
    """

    case: str
    size: int
    workers: int
    load: np.ndarray
    work: np.ndarray
    arrival: np.ndarray
    exchange: np.ndarray
    step: np.ndarray
    alone: np.ndarray

    def evidence(self) -> ScalingEvidence:
        """The job as the triage reads it; the step by cause is a mean rank's."""
        load, work, exchange, step = (
            float(times.mean()) for times in (self.load, self.work, self.exchange, self.step)
        )
        by_cause = StepTime(
            compute=work - load,
            dp=exchange,
            data=load,
            idle=max(step - work - exchange, 0.0),
            communication=exchange,
        )
        measured = Measured(by_cause, known=("data",), steps=self.step.max(axis=1), rank_work=self.work)
        alone = busbw("all_reduce", RANKS, self.size / self.alone.min())
        calls = Exchange("all_reduce", self.size, RANKS, alone, self.exchange)
        return ScalingEvidence(measured, loading=self.load, workers=self.workers or None, exchanges=(calls,))


def recorded_steps(case: str) -> JobSteps:
    """A shipped recording, ``data/recorded/scaling_CASE.csv``; the case is one of ``CASES``."""
    one_of(tuple(CASES), case, "the case", arrays=False)
    rows = recorded(f"scaling_{case.replace(' ', '_')}")
    table = {
        name: np.array([row[f"{name}_ms"] for row in rows], float).reshape(-1, RANKS) / 1e3
        for name in (*COLUMNS, "alone")
    }
    alone = table.pop("alone")[0]
    return JobSteps(case, rows[0]["bytes"], rows[0]["workers"], alone=alone, **table)


def run_scaling_job(case: str, steps: int = 60) -> JobSteps:
    """Runs one of the ``CASES`` now, on this machine, with PyTorch; no process outlives the call.

    ``one worker``: 8 samples of 12 ms a step, and a loader of one worker; ``straggler``: rank 2 takes twice
    as long in half of its steps; ``saving``: rank 0 saves every tenth step; ``contention``: four other
    processes exchange large vectors all the time. Refused: other cases, steps outside 1 to 1000, a machine
    without PyTorch, and processes that do not come to the end within three minutes.
    """
    one_of(tuple(CASES), case, "the case", arrays=False)
    steps = whole(steps, "the number of steps", most=1000)
    try:
        import torch  # noqa: F401
    except ImportError:
        raise InputRefused("this job needs PyTorch; python3 tools/environment.py bench test") from None
    # spawn: a forked child would inherit the threads of the notebook's kernel in an unknown state.
    context = multiprocessing.get_context("spawn")
    world = RANKS + (NEIGHBOURS if case == "contention" else 0)
    reports, over = context.SimpleQueue(), context.Event()
    with tempfile.TemporaryDirectory() as folder:
        meet = str(Path(folder, "meet"))
        processes = [
            context.Process(target=_rank, args=(rank, world, case, steps, meet, reports, over))
            for rank in range(world)
        ]
        try:
            found = _collected(processes, reports)
        finally:
            over.set()
            for process in processes[:RANKS]:
                process.join(5)
            for process in processes:
                process.kill()
                process.join()
    table = {name: np.array([found[rank][0][name] for rank in range(RANKS)]).T for name in COLUMNS}
    table["arrival"] -= table["arrival"][0].min()
    alone = np.array([found[rank][1] for rank in range(RANKS)])
    return JobSteps(case, CASES[case][1], int(case == "one worker"), alone=alone, **table)


def _collected(processes, reports) -> dict:
    """What the ranks report, by rank; refused where one ends by itself or takes too long."""
    for process in processes:
        process.start()
    found, until = {}, monotonic() + PATIENCE
    while len(found) < RANKS:
        if not reports.empty():
            rank, *report = reports.get()
            found[rank] = report
        elif monotonic() > until or any(process.exitcode for process in processes):
            raise InputRefused(
                "the processes of the job did not come to the end; in a script, call run_scaling_job under "
                "if __name__ == '__main__', and on a busy machine run it again"
            )
        else:
            sleep(0.05)
    return found


class _Samples:
    """A data set whose samples take their time, as from remote storage."""

    def __init__(self, count: int):
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, at):
        sleep(ITEM)
        return at


def _rank(rank, world, case, steps, meet, reports, over) -> None:
    """One process: the baseline, then the steps; ranks beyond the first four are the neighbours."""
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{meet}", rank=rank, world_size=world)
    ours = dist.new_group(list(range(RANKS)))
    theirs = dist.new_group(list(range(RANKS, world))) if world > RANKS else None
    vector = torch.ones(CASES[case][1] // 4)
    alone = []
    if rank < RANKS:
        for _ in range(WARM_UP + ALONE):
            dist.barrier(ours)
            start = monotonic()
            dist.all_reduce(vector.fill_(1.0), group=ours)
            alone.append(monotonic() - start)
    dist.barrier()
    if rank >= RANKS:
        other = torch.ones(2**22)
        with suppress(RuntimeError):  # the job ends them one by one
            while True:
                dist.all_reduce(other.fill_(1.0), group=theirs)
        return
    times = _steps(rank, case, steps, vector, dist, ours)
    counted = {name: values[WARM_UP:] for name, values in times.items()}
    reports.put((rank, counted, float(np.median(alone[WARM_UP:]))))
    over.wait(PATIENCE)  # an early end would break the others' connections


def _steps(rank, case, steps, vector, dist, ours) -> dict[str, list[float]]:
    batches = iter(_batches(WARM_UP + steps) if case == "one worker" else [None] * (WARM_UP + steps))
    slow = np.random.default_rng(6).random(WARM_UP + steps) < 0.5
    times: dict[str, list[float]] = {name: [] for name in COLUMNS}
    dist.barrier(ours)
    for number in range(WARM_UP + steps):
        start = monotonic()
        next(batches)
        loaded = monotonic()
        sleep(CASES[case][0] + (LATE if case == "straggler" and rank == 2 and slow[number] else 0.0))
        if case == "saving" and rank == 0 and (number - WARM_UP) % EVERY == EVERY - 1:
            sleep(SAVING)
        arrived = monotonic()
        dist.all_reduce(vector.fill_(1.0), group=ours)
        end = monotonic()
        values = (loaded - start, arrived - start, arrived, end - arrived, end - start)
        for name, value in zip(COLUMNS, values, strict=True):
            times[name].append(value)
    return times


def _batches(steps: int):
    from torch.utils.data import DataLoader

    return DataLoader(_Samples(BATCH * steps), batch_size=BATCH, num_workers=1)
