"""Tables, and the facts around them, in the text that nccl-tests and rccl-tests print."""

import re
from copy import copy
from dataclasses import dataclass, field
from itertools import pairwise

from labkit.errors import InputRefused
from labkit.evidence.sweep_rows import (
    Half,
    Row,
    is_stub,
    piece_of,
    read_row,
    row_starts,
    whole_error,
    without_debug,
)

OPERATIONS = {
    **{
        op: op
        for op in ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce", "scatter", "gather")
    },
    **{"allreduce": "all_reduce", "allgather": "all_gather", "reducescatter": "reduce_scatter"},
    **{
        "alltoall": "all_to_all",
        "all_to_all": "all_to_all",
        "alltoallv": "all_to_all",
        "all_to_allv": "all_to_all",
    },
    **{"sendrecv": "send_recv", "send_recv": "send_recv", "hypercube": "all_gather"},
}  # every tool's spelling to ours; hypercube is an all_gather made of exchanges

# rank, group, process id, host, device
DEVICE = re.compile(
    r"Rank\s+(\d{1,7})\s+(?:Group\s+(\d{1,7})\s+)?(?:Pid\s+(\d+)\s+)?on\s+(\S+)\s+device\s+(\d{1,4})"
)
_CONFIG = re.compile(r"nThreads?:?\s+(\d{1,6})\s+nGpus:?\s+(\d{1,6})\s")
_PROGRAM = re.compile(r"\b([a-z_]{6,15}?)_(?:perf|test)\b(?:\.exe)?(\"?,?[\"']?\s*-[a-zA-Z])?")
_RUN = re.compile(r"Collective test (starting|concluded)")
_BUILD = re.compile(r"^(?:Linking|Compiling|make)\b|\.o\b")
_LAUNCH = re.compile(r"(?:\s-np?[= ]+|\s--ntasks[= ]+|SLURM_NTASKS=)(\d{1,7})\b")
_NRANKS = re.compile(r"NCCL INFO .*\bnranks (\d{1,7})\b")
_TRACED = re.compile(r" (AllReduce|AllGather|ReduceScatter|Broadcast|Reduce): ")
_HEADER = re.compile(r"\b(?:size|bytes)\b.*\balgbw\b.*\bbusbw\b")
_ELLIPSIS = re.compile(r"(?:^|\s)\.\.\.\s*$")
_FOOTER = re.compile(r"Avg bus bandwidth\s*:|Collective test concluded|Out of bounds values\s*:")
_FAILED = re.compile(r"(?:Out of bounds values|Avg bus bandwidth)\s*:\s*\S+\s+FAILED")
_TROUBLES = (
    *("Test CUDA failure", "Test HIP failure", "Test NCCL failure", "Test failure ", "Test timeout"),
    *("CUDA failure", "Cuda failure", "NCCL WARN", "# error:", "MPI_ABORT was invoked", "srun: error"),
    *("slurmstepd: error", "CANCELLED AT", "Segmentation fault", "exited on signal"),
)
_LONGEST = 2000  # characters of a line, and of each row in it, that are looked at; a row has about 150
_MOST_ROWS = 20_000
MOST_RANKS = 2**20  # ten times the GPUs of the largest cluster; more is a slip of the pen
_OF_THE_RUN = ("devices", "devices_cut", "threads", "gpus", "processes", "nranks", "name", "mentions")


@dataclass
class Table:
    """The rows of one table and what the text around them says."""

    rows: list[Row] = field(default_factory=list)
    skipped: list[tuple[int, str]] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    troubles: list[str] = field(default_factory=list)
    devices: list[tuple[int, int, str, str]] = field(default_factory=list)  # rank, group, host, process id
    devices_cut: bool = False
    threads: int = 1
    gpus: int = 1
    processes: int | None = None
    nranks: set[int] = field(default_factory=set)
    name: str | None = None
    mentions: set[str] = field(default_factory=set)
    header: str = ""
    columns: int | None = None
    error_column: bool = False
    milliseconds: bool = False
    cpu_time: bool = False

    @property
    def begun(self) -> bool:
        """Whether anything of the table itself has been seen."""
        return bool(self.rows or self.skipped or self.header)


class _Reader:
    """Goes through the lines once and sorts them into tables."""

    def __init__(self):
        self.tables: list[Table] = []
        self.table = Table()
        self.closed = False
        self.pending: Row | None = None
        self.configured = False
        self.rows = 0

    def next_table(self, same_run: bool):
        """Put the table away; the next one of the same run keeps its devices, settings and name."""
        self.give_up_pending()
        old, self.table, self.closed, self.configured = self.table, Table(), False, False
        if same_run:
            for name in _OF_THE_RUN:
                setattr(self.table, name, copy(getattr(old, name)))
        if old.begun or old.devices or old.troubles:
            self.tables.append(old)

    def give_up_pending(self):
        if self.pending:
            self.skip(self.pending.line, "it was printed in pieces that do not certainly belong together")
        self.pending = None

    def skip(self, at: int, why: str):
        self.table.skipped.append((at, why))

    def take(self, raw: str, at: int):
        """Sort one line."""
        if any(words in raw for words in _TROUBLES):
            start = max(0, min(raw.find(words) for words in _TROUBLES if words in raw) - 60)
            self.table.troubles.append(f"line {at}: {raw[start:][:160].strip()}")
        self.names(raw)
        line = without_debug(raw)
        if line != raw and any(read_row(raw[len(line) :], at)):
            self.skip(at, "a message of NCCL stands before it in its line")
        if not line.strip():
            return
        row, why = read_row(line, at, self.table.columns)
        if row or why:
            self.give_up_pending()
        if row and row.halves:
            self.add(row)
        elif row:
            self.pending = row
        elif why:
            self.skip(at, why)
        elif half := piece_of(line):
            self.piece(half, at)
        elif self.table.begun and is_stub(line):
            self.give_up_pending()
            self.skip(at, "it is not whole")
        elif self.facts(line, at) or line == raw:
            self.give_up_pending()  # only NCCL's own lines may stand inside a row

    def add(self, row: Row):
        rows = self.table.rows
        if self.closed and (not rows or row.size <= rows[-1].size):
            self.next_table(same_run=True)
        self.table.rows.append(row)
        self.rows += 1
        if self.rows > _MOST_ROWS:
            raise InputRefused(f"the log has more than {_MOST_ROWS} rows; cut the sweep you mean out of it")

    def piece(self, half: Half, at: int):
        if self.pending is None:
            self.skip(at, "it is a piece of a row whose beginning is missing")
        elif self.pending.out is None:
            self.pending.out = half
        else:
            row, self.pending = self.pending, None
            row.inp = half
            self.table.warnings.append(
                f"the row that begins in line {row.line} was put together again from pieces up to line {at}"
            )
            self.add(row)

    def facts(self, line: str, at: int) -> bool:
        """Take what a line that is no row says about the run; False when it says nothing."""
        if match := _CONFIG.search(line):
            if self.table.begun:
                self.next_table(same_run=False)
            elif self.configured:
                self.table.name = None
            self.configured = True
            self.table.threads, self.table.gpus = max(1, int(match[1])), max(1, int(match[2]))
        elif match := DEVICE.search(line):
            if self.table.rows and int(match[1]) > 0:
                raise InputRefused(
                    f"separate runs are mixed in this log: line {at} is of a device list, among the rows of "
                    "a table; let every run write a log of its own"
                )
            if self.table.rows:
                self.next_table(same_run=False)
            self.table.devices.append((int(match[1]), int(match[2] or 0), match[4], match[3] or ""))
        elif _HEADER.search(line):
            self.head(line)
        elif _ELLIPSIS.search(line):
            self.table.devices_cut = self.table.devices_cut or bool(
                self.table.devices and not self.table.begun
            )
        elif _FOOTER.search(line):
            self.closed = self.closed or bool(self.table.rows)
            if _FAILED.search(line):
                self.table.warnings.append(f"the log itself says FAILED: {line.strip(' #')[-60:]}")
        else:
            return False
        return True

    def head(self, line: str):
        if self.table.begun:
            self.next_table(same_run=True)
        table, words = self.table, line.split()
        times = [i for i, word in enumerate(words) if word in ("time", "cputime")]
        table.header = line
        if len(times) == 2 and times[1] - times[0] >= 4:
            table.columns = times[1] - times[0]
        table.error_column = bool(re.search(r"\b(?:error|res)\b", line))
        table.milliseconds = bool(re.search(r"\bbytes\s+N\s+type\b", line))
        table.cpu_time = "cputime" in words

    def names(self, line: str):
        """Take what a line says of the collective and of its ranks."""
        if "NCCL INFO " in line:
            if match := _TRACED.match(line, line.find("NCCL INFO ") + 9):
                self.table.mentions = {*self.table.mentions, OPERATIONS[match[1].lower()]}
            if "nranks " in line and (match := _NRANKS.search(line)):
                self.table.nranks = {*self.table.nranks, int(match[1])}
        if "_perf" in line or "_test" in line:
            found = [
                (OPERATIONS[name], option) for name, option in _PROGRAM.findall(line) if name in OPERATIONS
            ]
            if len({name for name, _ in found}) == 1 and not _BUILD.search(line):
                self.program(line, *found[0])
        if ("_perf" in line or "NTASKS" in line) and (match := _LAUNCH.search(line.split("_perf")[0])):
            self.table.processes = int(match[1])

    def program(self, line: str, name: str, option: str):
        """Take the name of a test program: its own words count, then a command, then a mere mention."""
        run = _RUN.search(line)
        starts = bool(run) and run[1] == "starting"
        if self.table.begun and (starts or (not run and self.closed and name != self.table.name)):
            self.next_table(same_run=False)
        if run or (option and not self.table.rows):
            self.table.name = name
        else:
            self.table.mentions = {*self.table.mentions, name}


def read_text(text: str) -> list[Table]:
    """Every table in the text of a log, in order, rows or not; refused for too many rows and mixed runs."""
    reader = _Reader()
    lines = text.split("\n")
    for at, line in enumerate(lines, 1):
        for part in line.split("\r"):  # progress bars write over their line
            for piece in _short(part):
                reader.take(piece, at)
    reader.next_table(same_run=False)
    for table in reader.tables:
        _keep_whole_rows(table, unfinished=len(lines) if lines[-1] else 0)
    return reader.tables


def _short(line: str) -> list[str]:
    """A line, or of a very long one its beginning and the beginning of every row in it."""
    if len(line) <= _LONGEST:
        return [line] if line else []
    starts = [0, *(start for start in row_starts(line) if start > 0), len(line)]
    return [line[start : min(end, start + _LONGEST)] for start, end in pairwise(starts)]


def _keep_whole_rows(table: Table, unfinished: int):
    """Leave out rows of size 0, half rows among whole ones, and a last row cut inside its last number.

    rccl-tests can switch one half off and still prints both halves' head: rows that are all halves are whole.
    ``unfinished`` is the number of the line that the text ends in without a line feed (0: none).
    """
    cells = [half.wrong for row in table.rows for half in row.halves]
    if not table.header:
        table.error_column = any("e-" in cell for cell in cells) and all(map(whole_error, cells))
    both = any(row.out and row.inp for row in table.rows)
    if table.header.count("algbw") == 2 and not both and any(row.out for row in table.rows):
        both = [row.line for row in table.rows] == [unfinished]
        if not both:
            table.warnings.append(
                "one half of the two in the head was printed, which one is unknown (-O 0 of rccl-tests "
                "leaves the out-of-place half out): it is taken as out of place"
            )
    kept = []
    for row in table.rows:
        if row.size == 0:
            why = "size 0: nothing was sent, so its time is no latency"
        elif both and row.out and not row.inp:
            why = "it ends before its in-place numbers"
        elif table.error_column and not all(whole_error(half.wrong) for half in row.halves):
            why = "it is cut inside its last number"
        else:
            kept.append(row)
            continue
        table.skipped.append((row.line, why))
    if kept and not table.error_column and kept[-1].halves[-1].wrong not in ("0", "N/A"):
        row, ends = kept[-1], {other.end for other in kept[:-1]}
        if row.line == unfinished or (len(ends) == 1 and row.end < min(ends)):
            table.skipped.append((kept.pop().line, "it may be cut inside its last number"))
    table.rows = kept
