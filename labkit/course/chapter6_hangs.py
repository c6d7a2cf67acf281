"""Section 6.1 as tables: the eight questions, recorded jobs walked through them, last lines and counters."""

import contextlib
import re
from functools import cache

from labkit.course.made_hang import made_hang
from labkit.course.table import Table, table
from labkit.evidence.hang.files import read_files
from labkit.evidence.hang.progress import progress_of
from labkit.evidence.hang.read import Hang, hang_of
from labkit.evidence.hang.records import Evidence
from labkit.evidence.hang.signature import ranks_said, said
from labkit.evidence.hang.suspects import call_site
from labkit.evidence.hang_jobs import JOBS, recorded_hang, silences
from labkit.evidence.hang_jobs.overhead import log_overhead
from labkit.evidence.triage import Step, Triage
from labkit.evidence.triage.hangs import QUESTIONS, triage_of
from labkit.units import digits, format_time, words

# The kinds of mismatch (claim 6.1-h), the guide's three first, and the job that has each.
KINDS = {
    "count 次数": "extra_batch",
    "order 顺序": "order",
    "shape 形状": "shape",
    "data type": "dtype",
    "group": "group",
    "root": "root",
    "rank missing": "missing",
    "rank condition": "branch",
}
_CHINESE = {
    "alive": "进程都活着吗",
    "counts": "次数",
    "order": "顺序",
    "sizes": "形状与 dtype",
    "rank condition": "条件分支",
    "last batch": "最后一个 batch",
    "interface, limit": "网卡与超时",
    "hardware": "硬件与网络自检",
}


# ---- recordings


@cache
def evidence_of(name: str) -> Evidence:
    """What the files of a recorded job say; they are named as they lie in its folder."""
    folder = recorded_hang(name)
    with contextlib.chdir(folder):
        return read_files(sorted(path.name for path in folder.iterdir()))


def hang(name: str) -> Hang:
    """The reader's verdict on a recorded job."""
    return hang_of(evidence_of(name))


def triage(name: str) -> Triage:
    """The eight questions, asked of a recorded job."""
    return triage_of(evidence_of(name))


def says(name: str, rank: int) -> list[str]:
    """What a rank of a recorded job printed itself: neither its stack nor PyTorch's warnings."""
    text = (recorded_hang(name) / f"rank_{rank}.log").read_text("utf-8")
    lines = [line.removeprefix(f"[rank{rank}]: ") for line in text.splitlines()]
    return [line for line in lines if not re.match(r"\s|Traceback|<frozen|\[?[WE]\d{4} ", line)]


# ---- the lost table (6.1-a, 6.1-j)


def triage_table() -> Table:
    """Claim 6.1-j: the eight questions in order, how each is answered, what a hit means."""
    rows = [
        (str(at), f"{name} {_CHINESE[name]}", one.asks, one.how, one.hit)
        for at, (name, one) in enumerate(QUESTIONS.items(), 1)
    ]
    return table(("顺序", "查什么", "asks", "怎么查 how", "命中说明 on a hit"), rows)


def kinds_table() -> Table:
    """Claims 6.1-a and 6.1-h: kinds of mismatch as recorded, what the reader finds, where the walk ends."""
    rows = []
    for kind, name in KINDS.items():
        found, cause = hang(name), triage(name).cause
        rows.append((kind, JOBS[name].mistake, words(found.verdict), named(found), stop(cause)))
    return table(("kind", "the mistake", "verdict", "likely", "triage stops at"), rows)


def named(found: Hang) -> str:
    """The suspects in words."""
    return ranks_said(found.suspects) if found.suspects else "nobody"


def stop(cause: Step | None) -> str:
    """Number and name of the question at which a walk ended."""
    if cause is None:
        return "none of them"
    return f"{list(QUESTIONS).index(cause.name) + 1} {cause.name}"


# ---- counters and last lines (6.1-e)


def counters_table(name: str = "ahead") -> Table:
    """Claim 6.1-e: each rank's number of calls in the default group, beside the last line that it printed."""
    (default,) = [one for one in progress_of(evidence_of(name)) if one.group.description == "default_pg"]
    first = hang(name).first.sequence
    rows = []
    for rank in sorted(default.at):
        printed = [line for line in says(name, rank) if not re.match("silent|RuntimeError", line)]
        waits = default.calls(first).get(rank)
        rows.append(
            (
                f"rank {rank}",
                printed[-1] if printed else "nothing",
                f"{default.enqueued[rank]}",
                f"call {first}, {said(waits)}" if waits else f"not come to call {first}",
            )
        )
    return table(("", "last line of its log", "calls made", "waits in"), rows)


def made_counters() -> tuple[int, int]:
    """The same of the made-up job: the call that is stuck, and the last that a host has issued."""
    job = made_hang(4, "does not come", rank=1, at=5, ahead=3)
    return job.stuck + 1, len(job.calls[0])


# ---- stacks (6.1-f), and both moments (6.1-i)


def stack_table(name: str = "branch") -> Table:
    """Claim 6.1-f: the line of the program that each rank's last call came from, as its dump has it."""
    rows = []
    evidence = evidence_of(name)
    last = {call.rank: call for call in evidence.calls if call.frames}
    for rank, call in sorted(last.items()):
        site = call_site(call.frames)
        rows.append((f"rank {rank}", site.function, str(site.line), call.operation, str(len(call.frames))))
    return table(("", "function", "line", "calls", "frames of its stack"), rows)


def moments_table(name: str = "branch") -> Table:
    """Claim 6.1-i: seconds without a word until the error came, and the words that came then."""
    rows = []
    for rank, seconds in sorted(silences(recorded_hang(name)).items()):
        (error,) = [line for line in says(name, rank) if line.startswith("RuntimeError")][:1] or [""]
        error = error.rsplit("] ", 1)[-1].removeprefix("RuntimeError: ")
        rows.append((f"rank {rank}", format_time(seconds), error.split(". ")[0]))
    return table(("", "silent for", "then says"), rows)


# ---- what logging costs (6.1-b, 6.1-g)


def overhead_table() -> Table:
    """Claim 6.1-g: the step of a real job at each level, the middle one of its rounds, and their range."""
    rows = [
        (
            one.setting,
            format_time(one.step),
            f"{digits(one.ratio)} times",
            f"{format_time(min(one.rounds))} to {format_time(max(one.rounds))}",
        )
        for one in log_overhead()
    ]
    return table(("setting", "step", "against off", "rounds"), rows)
