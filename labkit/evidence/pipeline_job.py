"""A real pipeline job of a few processes, and what becomes of it when one rank has a micro-batch more.

Each rank is a process with one layer; activations and gradients travel through pipes; before the optimizer
all ranks meet, as they do in the gradient reduction. Nothing checks that the ranks agree on their number of
micro-batches: that is the point. A watchdog ends the job when nobody has got any further for a while.
"""

import multiprocessing
from dataclasses import dataclass
from multiprocessing.connection import wait

import numpy as np

from labkit.errors import InputRefused
from labkit.spec.checks import shown, whole
from labkit.strategies.checks import flag, single
from labkit.strategies.pipeline import one_f_one_b
from labkit.strategies.timeline import FORWARD
from labkit.units import format_time

ROWS, HIDDEN = 4, 8  # of one micro-batch
STARTING = 60.0  # seconds that the processes may take to start
MOST_RANKS, MOST_MICRO_BATCHES = 4, 64
OPTIMIZER = "all ranks, before the optimizer"


@dataclass(frozen=True, slots=True, repr=False)
class JobReport:
    """How a job ended; its text is the same each time it is run.

    ``counts``: micro-batches that each rank had; ``ran``: how many it worked through or was about to;
    ``waiting``: what each rank waited for when the watchdog came, empty for a job that finished; ``limit``:
    seconds without progress after which it comes; ``equal``: whether the gradients are those of one process.
    """

    counts: tuple[int, ...]
    ran: tuple[int, ...]
    waiting: tuple[str, ...]
    limit: float
    equal: bool

    @property
    def finished(self) -> bool:
        """Whether all ranks came to the end."""
        return not self.waiting

    def __repr__(self):
        lines = [f"ranks 0 to {len(self.counts) - 1} have {_listed(self.counts)} micro-batches"]
        if self.ran != self.counts:
            lines.append(f"they exchange these numbers first, and run {_listed(self.ran)}")
        if self.finished:
            same = "equal those" if self.equal else "differ from those"
            return "\n".join([*lines, f"finished: the gradients {same} of one process"])
        lines.append(f"stopped: nobody got any further for {format_time(self.limit)}")
        lines += [f"rank {rank} waits for {what}" for rank, what in enumerate(self.waiting)]
        return "\n".join(lines)


def run_job(counts, agree: bool = False, limit: float = 3.0) -> JobReport:
    """Runs 1F1B on as many processes as there are ``counts``, the micro-batches of each rank.

    ``agree``: the ranks exchange their numbers first and all run the smallest. ``limit``: seconds without
    any progress after which the watchdog stops the job and says who waits for whom. No process outlives the
    call. Refused: numbers of ranks outside 2 to 4, of micro-batches outside 1 to 64, and a limit that is not
    above 0.
    """
    if not isinstance(counts, list | tuple | np.ndarray) or not 2 <= np.size(counts) <= MOST_RANKS:
        raise InputRefused(
            f"this job is for 2 to {MOST_RANKS} ranks of 1 to {MOST_MICRO_BATCHES} micro-batches each; "
            f"give a list of their numbers, not {shown(counts)}"
        )
    counts = tuple(whole(m, "the micro-batches of a rank", most=MOST_MICRO_BATCHES) for m in counts)
    flag(agree, "agree")
    limit = single(limit, "the seconds that the watchdog waits")
    ran = (min(counts),) * len(counts) if agree else counts
    states, gradients = _Job(counts, agree).watch(limit)
    if len(gradients) < len(counts):
        return JobReport(counts, ran, tuple(states), limit, False)
    alone = _in_one_process(len(counts), ran[0])
    equal = all(np.allclose(gradients[rank], alone[rank], atol=1e-12) for rank in range(len(counts)))
    return JobReport(counts, ran, (), limit, equal)


class _Job:
    """The processes of one job, and their pipes: neighbours to each other, and each to the watchdog."""

    def __init__(self, counts: tuple[int, ...], agree: bool):
        # spawn: a forked child would inherit the threads of the notebook's kernel in an unknown state.
        context = multiprocessing.get_context("spawn")
        p = len(counts)
        up = [context.Pipe(duplex=False) for _ in range(p - 1)]
        down = [context.Pipe(duplex=False) for _ in range(p - 1)]
        reports = [context.Pipe(duplex=False) for _ in range(p)]
        # Kept here, because they vanish with their last holder, and the processes do not hold them yet.
        self.shared = meeting, numbers = context.Barrier(p), context.Array("i", p) if agree else None
        self.reports = [receiver for receiver, _ in reports]
        self.senders = [sender for _, sender in reports]
        self.processes = []
        for rank, m in enumerate(counts):
            below = (up[rank - 1][0], down[rank - 1][1]) if rank else (None, None)
            above = (down[rank][0], up[rank][1]) if rank < p - 1 else (None, None)
            arguments = (rank, p, m, below, above, meeting, numbers, reports[rank][1])
            self.processes.append(context.Process(target=_rank, args=arguments, daemon=True))
        self.ends = [end for pair in (*up, *down, *reports) for end in pair]

    def watch(self, limit: float) -> tuple[list[str], dict[int, np.ndarray]]:
        """Starts the ranks; gives what each said last, and the gradients of those that finished."""
        states, gradients = [""] * len(self.processes), {}
        try:
            for process, sender in zip(self.processes, self.senders, strict=True):
                process.start()
                sender.close()  # so that the pipe ends with the process
            while len(gradients) < len(self.processes):
                running = all(states)
                heard = wait(self._talking(gradients), timeout=limit if running else STARTING)
                if not heard:
                    break
                for report in heard:
                    self._read(self.reports.index(report), states, gradients)
            if not all(states):
                raise InputRefused(
                    "the processes of the job did not start; run it again on a less busy machine"
                )
        finally:
            self._end()
        return states, gradients

    def _talking(self, gradients) -> list:
        return [report for rank, report in enumerate(self.reports) if rank not in gradients]

    def _read(self, rank: int, states: list[str], gradients: dict) -> None:
        try:
            said = self.reports[rank].recv()
        except EOFError:
            raise InputRefused(
                f"the process of rank {rank} ended by itself; in a script, call run_job under "
                "if __name__ == '__main__'"
            ) from None
        if isinstance(said, str):
            states[rank] = said
        else:
            gradients[rank] = said

    def _end(self) -> None:
        """No process and no pipe is left behind."""
        for process in self.processes:
            if process.pid is not None:
                process.kill()
                process.join()
            process.close()
        for end in self.ends:
            end.close()


def _rank(rank, p, m, below, above, meeting, numbers, report) -> None:
    """One process: its stage's part of 1F1B, then the meeting. It says what it waits for before it waits."""
    if numbers is not None:
        report.send("the numbers of the others")
        numbers[rank] = m
        meeting.wait()
        m = min(numbers)
        meeting.wait()
    stage = _Stage(rank)
    for kind, k, _ in one_f_one_b(p, m)[rank]:
        forward = kind == FORWARD
        source, target = (below[0], above[1]) if forward else (above[0], below[1])
        if source is None:
            given = _input(k) if forward else stage.outputs[k]
        else:
            what, who = ("activation", rank - 1) if forward else ("gradient", rank + 1)
            report.send(f"the {what} of micro-batch {k} from rank {who}")
            given = source.recv()
        result = stage.forward(k, given) if forward else stage.backward(k, given)
        if target is not None:
            target.send(result)
    report.send(OPTIMIZER)
    meeting.wait()
    report.send(stage.gradient)
    meeting.wait()  # nobody leaves, and closes pipes, before all have reported


class _Stage:
    """One layer, y = tanh(x W), with what it keeps for its backward."""

    def __init__(self, rank: int):
        self.weight = np.random.default_rng(rank).normal(size=(HIDDEN, HIDDEN)) / HIDDEN**0.5
        self.gradient = np.zeros_like(self.weight)
        self.inputs, self.outputs = {}, {}

    def forward(self, k: int, x: np.ndarray) -> np.ndarray:
        self.inputs[k], self.outputs[k] = x, np.tanh(x @ self.weight)
        return self.outputs[k]

    def backward(self, k: int, gradient: np.ndarray) -> np.ndarray:
        """Of half the sum of the squares of the last stage's outputs, whose gradient is these outputs."""
        inner = gradient * (1 - self.outputs.pop(k) ** 2)
        self.gradient += self.inputs.pop(k).T @ inner
        return inner @ self.weight.T


def _input(k: int) -> np.ndarray:
    return np.random.default_rng(1000 + k).normal(size=(ROWS, HIDDEN))


def _in_one_process(p: int, m: int) -> list[np.ndarray]:
    stages = [_Stage(rank) for rank in range(p)]
    for k in range(m):
        x = _input(k)
        for stage in stages:
            x = stage.forward(k, x)
        for stage in reversed(stages):
            x = stage.backward(k, x)
    return [stage.gradient for stage in stages]


def _listed(numbers) -> str:
    return ", ".join(map(str, numbers))
