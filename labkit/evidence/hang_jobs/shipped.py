"""Recordings of the jobs, ``data/recorded/hangs/NAME``, made by ``record``: read without PyTorch."""

import os
import re
from pathlib import Path

from labkit.evidence.hang_jobs.table import job_named
from labkit.presets import data_path


def recorded_hang(name: str) -> Path:
    """The folder with the recording of a job: a dump and the messages of each rank that left any.

    >>> sorted(path.name for path in recorded_hang("circular").iterdir())
    ['rank_0.log', 'rank_1.log', 'trace_rank_0', 'trace_rank_1']
    """
    job_named(name)
    return data_path(f"recorded/hangs/{name}")


def silences(folder: str | os.PathLike) -> dict[int, float]:
    """Both moments of a hang: by rank, the seconds without a word until the error came (claim 6.1-i).

    Ranks that did not fail are left out.
    """
    return {rank: float(found[0]) for rank, found in _found(folder, r"silent for (\d+) s, then").items()}


def sums(folder: str | os.PathLike) -> dict[int, list[float]]:
    """By rank, the sums of the loss that it was told, step by step."""
    return {
        rank: [float(number) for number in found]
        for rank, found in _found(folder, r"step \d+: loss sum (\S+)").items()
    }


def weights_received(folder: str | os.PathLike) -> dict[int, list[float]]:
    """By rank, the weights that it had after the broadcast of ``half_filled``; first those of the root."""
    return {
        rank: [float(number) for number in found[0].split(",")]
        for rank, found in _found(folder, r"weights \[([^\]]*)\]").items()
    }


def abort_said(folder: str | os.PathLike) -> tuple[int, int, int]:
    """Of a process that gloo ended: its rank, the bytes that came, and those that it had room for."""
    said = _found(folder, r".*op\.preamble\.length <= op\.nbytes\. (\d+ vs \d+)")
    rank, (words, *_) = next(iter(said.items()))
    came, room = map(int, words.split(" vs "))
    return rank, came, room


def _found(folder: str | os.PathLike, pattern: str) -> dict[int, list[str]]:
    by_rank = {}
    for path in sorted(Path(folder).glob("rank_*.log")):
        if found := re.findall(rf"^\[rank\d+\]: {pattern}", path.read_text("utf-8"), re.MULTILINE):
            by_rank[int(path.stem.removeprefix("rank_"))] = found
    return by_rank
