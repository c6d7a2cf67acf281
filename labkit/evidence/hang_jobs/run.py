"""Runs a job that hangs, under torchrun and a time limit, and keeps what it leaves: dumps and messages."""

import os
import re
import time
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from labkit.errors import InputRefused
from labkit.evidence.hang_jobs.table import MOST_RANKS, job_named
from labkit.evidence.hang_jobs.torchrun import need_torch, run_torchrun
from labkit.spec.checks import shown, whole

AGENT = "labkit.evidence.hang_jobs.agent"
_FAILED = re.compile(r"rank +: (\d+) \(local_rank: \d+\)\s+exitcode +: (-?\d+)")


@dataclass(frozen=True, slots=True, repr=False)
class HangJob:
    """A job that was run: its name, the folder with its dumps and messages, and the seconds it took, rounded.

    ``codes``: the exit status of each rank, below 0 where a signal ended it.
    """

    name: str
    codes: tuple[int, ...]
    folder: Path
    seconds: float

    @property
    def ranks(self) -> int:
        """How many ranks it had."""
        return len(self.codes)

    def __repr__(self):
        return f"HangJob({self.name}, {self.ranks} ranks, exit status {', '.join(map(str, self.codes))})"


def settings(name: str) -> dict[str, str]:
    """The environment that the job needs: the recorder on, and collectives checked where it says so."""
    new = tuple(map(int, re.findall(r"\d+", metadata.version("torch"))[:2])) >= (2, 9)
    return {
        "TORCH_FR_BUFFER_SIZE" if new else "TORCH_NCCL_TRACE_BUFFER_SIZE": "2000",
        "TORCH_DISTRIBUTED_DEBUG": "DETAIL" if job_named(name).checked else "OFF",
    }


def run_hang(name: str, folder: str | os.PathLike, ranks: int | None = None) -> HangJob:
    """Runs the job now, on this machine's CPUs, and returns when all its processes have ended.

    ``folder`` is made, or empty; in it come to lie ``trace_rank_N`` and ``trace_rank_N.json``, the dumps of
    the flight recorder, and ``rank_N.log``, what the rank said. ``ranks``: 2 to 4; of the recording where
    not given. Refused: an unknown job, a folder with something in it, and a Python without PyTorch.
    """
    job = job_named(name)
    ranks = whole(job.ranks if ranks is None else ranks, "the number of ranks", job.least, MOST_RANKS)
    need_torch()
    if not isinstance(folder, str | os.PathLike):
        raise InputRefused(f"the folder for what the job leaves is {shown(folder)}; give a path")
    folder = Path(folder).resolve()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise InputRefused(f"{folder} is not empty; give a new folder")
    except OSError as error:
        raise InputRefused(f"{folder} cannot be written ({error.strerror}); give another folder") from None
    begun = time.perf_counter()
    said = run_torchrun(ranks, folder, ("-m", AGENT, name, str(folder)), settings(name))
    seconds = float(round(time.perf_counter() - begun))
    for rank in range(ranks):
        (folder / f"rank_{rank}.log").write_text(_said(folder, rank), "utf-8")
    failed = {int(rank): int(code) for rank, code in _FAILED.findall(said)}
    return HangJob(name, tuple(failed.get(rank, 0) for rank in range(ranks)), folder, seconds)


def _said(folder: Path, rank: int) -> str:
    """A rank's output and errors, each line with the rank before it."""
    lines = []
    for name in ("stdout.log", "stderr.log"):
        for path in sorted(folder.glob(f"torchrun/*/attempt_0/{rank}/{name}")):
            lines += path.read_text("utf-8", errors="replace").splitlines()
    begin = f"[rank{rank}]:"
    return "".join(f"{line if line.startswith(begin) else f'{begin} {line}'}\n" for line in lines if line)
