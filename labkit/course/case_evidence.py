"""The evidence of the cases as a few lines of text, and what labkit's readers decide on it."""

import contextlib
from dataclasses import replace
from itertools import groupby

from labkit.course.chapter6_hangs import evidence_of, hang, says
from labkit.course.table import table
from labkit.evidence.hang.files import read_files
from labkit.evidence.hang.read import Hang, hang_of
from labkit.evidence.hang.records import Call, Evidence
from labkit.evidence.hang.signature import ranks_said, said
from labkit.evidence.triage import scaling_triage
from labkit.evidence.triage.scaling_job import recorded_steps
from labkit.presets import data_path
from labkit.units import format_size, format_time

BLAMING = ("missing_rank", "mismatch", "order")  # verdicts that name ranks


def of_hang(name: str, ranks: tuple[int, ...]) -> str:
    """What these ranks printed, and the calls in their dumps; ranks that say the same stand together."""
    by_words: dict[tuple[str, ...], list[int]] = {}
    for rank in ranks:
        printed = tuple(_short(line) for line in _ends(says(name, rank)))
        by_words.setdefault((*printed, f"calls: {calls_of(evidence_of(name), rank)}"), []).append(rank)
    lines = []
    for printed, same in by_words.items():
        lines += [ranks_said(same), *(f"    {line}" for line in printed)]
    return "\n".join(lines)


def _ends(lines: list[str]) -> list[str]:
    """Of a progress bar the first and the last line."""
    kept = []
    for bar, some in groupby(lines, lambda line: "%|" in line):
        some = list(some)
        kept += [some[0], some[-1]] if bar else some
    return kept


def _short(line: str) -> str:
    """An error without the library's own line, and without the half of a transfer that it was."""
    return line.rsplit("] ", 1)[-1].split(" for ")[0].split(" [")[0] if "Error: [" in line else line


def calls_of(evidence: Evidence, rank: int) -> str:
    """A rank's calls in the order in which it made them, alike ones together, the group where it changes."""
    mine = sorted((one for one in evidence.calls if one.rank == rank and one.order is not None), key=_order)
    parts = []
    for name, some in groupby(mine, lambda one: one.group.description or one.group.name):
        inside = []
        for words, same in groupby(some, lambda one: said((replace(one, frames=(), dtype=""),))):
            first, *_, last = [one.sequence for one in same] * 2
            inside.append(f"{first} {words}" if first == last else f"{first} to {last} {words}")
        parts.append(f"[{name}] {', '.join(inside)}")
    return " ".join(parts) or "no dump"


def _order(call: Call) -> int:
    return call.order


def decided_hang(name: str) -> tuple[str, str]:
    """The verdict on a recorded job as ``verdict_of`` has it, and the report."""
    found = hang(name)
    return verdict_of(found), repr(found)


def verdict_of(found: Hang) -> str:
    """A verdict with the ranks that it names: ``missing_rank 2``, ``stall``."""
    if found.verdict not in BLAMING:
        return found.verdict
    return f"{found.verdict} {ranks_said(found.suspects).split(' ', 1)[1] if found.suspects else 'nobody'}"


def never_joined() -> str:
    """The last line of each of the three logs of a job of four processes."""
    lines = ["four processes were to start; three left a log, which ends with"]
    for path in sorted(data_path("recorded/never_joined").iterdir()):
        lines.append("    " + path.read_text("utf-8").splitlines()[-1].replace("torch.distributed.", ""))
    return "\n".join(lines)


def decided_never_joined() -> tuple[str, str]:
    """What the reader makes of these logs."""
    folder = data_path("recorded/never_joined")
    with contextlib.chdir(folder):
        found = hang_of(read_files(sorted(path.name for path in folder.iterdir())))
    return verdict_of(found), repr(found)


def of_steps(name: str) -> str:
    """The mean step of each rank of a recorded job by parts, and its all_reduce with nothing beside it."""
    job = recorded_steps(name)
    parts = (job.load, job.work - job.load, job.exchange)
    rows = [
        (f"rank {rank}", *(format_time(part[:, rank].mean()) for part in parts), format_time(job.alone[rank]))
        for rank in range(job.step.shape[1])
    ]
    heads = ("", "waits for input", "computes", "in the all_reduce", "the same alone")
    said = f"means of {len(job.step)} steps; an all_reduce of {format_size(job.size)} ends each of them"
    return f"{said}\n{table(heads, rows)!r}"


def decided_steps(name: str) -> tuple[str, str]:
    """The cause that the scaling triage stops at, and its walk."""
    found = scaling_triage(recorded_steps(name).evidence())
    return found.cause.kind if found.cause else "none", repr(found)
