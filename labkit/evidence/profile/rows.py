"""A file's rows, taken as they come and kept in flat columns, then given as a trace for each rank.

A row that cannot be used is left out and counted; what cannot be used of a row that can costs that alone.
"""

import re
from array import array
from pathlib import Path
from sys import intern

import numpy as np

from labkit.errors import InputRefused
from labkit.evidence.printed import printable, printable_path
from labkit.evidence.profile.files import read_events
from labkit.evidence.profile.kinds import (
    ANNOTATION,
    COMMUNICATION,
    GPU_ANNOTATION,
    LAUNCH,
    OPERATOR,
    kind_of,
)
from labkit.evidence.profile.trace import NOT_KNOWN, ON_GPU, Annotation, Said, Trace, rank_of_process
from labkit.units import us

_ANNOTATED = re.compile(
    r"ProfilerStep#|enumerate\(DataLoader\)|Optimizer\.step#|(?:nccl|gloo|mpi|ucc|xccl|hccl):"
)
_ARGS = (
    *("Collective name", "In msg nelems", "Out msg nelems", "Group size", "dtype", "Process Group Name"),
    *("Process Group Description", "Process Group Ranks", "Global rank start", "Global rank stride"),
    *("Input Dims", "Input type"),
)
_DESCRIPTION = "description"  # of a collective, on the host
_MARKS = (ANNOTATION, GPU_ANNOTATION)
_HALVES = frozenset("BEbeSF")  # phases that mark the begin or the end of a stretch
_POINTS = frozenset(("M", *"CiIPRstfnNODTpcvV()"))  # phases of rows without a duration
_NUMBERS = frozenset((int, float))  # and no truth value
_NOTHING: dict = {}
_WHOLE = 2**53  # up to here a float holds every whole number; microseconds: the year 2255
_LONGEST = 1e12  # microseconds, 12 days: no trace lasts so long
_MOST_LEFT_OUT = 1_000_000  # rows; with more it is no trace of a profiler


def read_traces(path: Path, largest: float) -> list[Trace]:
    """The traces of a file: one, or one for each process that its metadata name ``rank N``.

    Refused: what ``read_events`` refuses, and a file of a million rows that cannot be used.
    """
    rows = _Rows(path)
    head = read_events(path, rows.take, largest)
    ranks = rows.ranks_of_processes()
    if len(ranks) > 1:
        return [rows.trace(head, rank, pids) for rank, pids in sorted(ranks.items())]
    return [rows.trace(head, next(iter(ranks), None), None)]


class _Rows:
    """Takes the events of a file as they come, and keeps them in flat arrays of doubles."""

    def __init__(self, path: Path):
        self.path = path
        self.kinds: dict[tuple, str] = {}
        self.threads: dict[tuple, int] = {}  # number of each (process, thread)
        self.counts: list[int] = []  # its rows
        self.processes: dict = {}
        self.work, self.launches, self.operators = array("d"), array("d"), array("d")
        self.names: dict[int, str] = {}
        self.described: dict[int, tuple] = {}
        self.marks: list[tuple] = []
        self.params: dict = {}
        self.sayings: dict[tuple, dict] = {}
        self.left_out = self.unpaired = 0

    def take(self, events: list) -> None:
        """Adds some events."""
        threads, kinds, counts = self.threads, self.kinds, self.counts
        for event in events:
            try:
                phase = event["ph"]
                if phase == "X":
                    place = (event.get("pid"), event.get("tid"))
                    thread = threads.get(place)
                    if thread is None:
                        thread = threads[place] = len(counts)
                        counts.append(0)
                    counts[thread] += 1
                    place = (event.get("cat"), event["name"])
                    kind = kinds.get(place)
                    if kind is None:
                        kind = kinds[place] = _kept_kind(*place)
                    if kind:
                        self._take_row(event, kind, thread)
                elif phase == "M":
                    if event.get("name") == "process_name":
                        self.processes[event["pid"]] = str(event["args"]["name"])
                elif phase in _HALVES:
                    self.unpaired += 1
                elif phase not in _POINTS:
                    raise ValueError
            except (TypeError, KeyError, AttributeError, ValueError, OverflowError):
                self.left_out += 1
        if self.left_out > _MOST_LEFT_OUT:
            raise InputRefused(
                f"{printable_path(self.path)} has more than {_MOST_LEFT_OUT:,} rows without a usable name, "
                "time or duration; give a trace that torch.profiler exported"
            )

    def _take_row(self, event: dict, kind: str, thread: int) -> None:
        """One row with a start and a duration, of a kind that is kept."""
        start, seconds = event["ts"], event["dur"]
        if type(start) not in _NUMBERS or type(seconds) not in _NUMBERS:
            raise ValueError
        if not (-_WHOLE < start < _WHOLE and 0 <= seconds < _LONGEST):
            raise ValueError
        if kind == OPERATOR:
            self.operators.extend((start, seconds, thread))
            return
        args = event.get("args")
        args = args if type(args) is dict else _NOTHING
        if kind == LAUNCH:
            self.launches.extend((start, thread, _whole(args.get("correlation"))))
            self.operators.extend((start, seconds, thread))
        elif kind in ON_GPU:
            if kind == COMMUNICATION:
                number = len(self.work) // len(_WORK)
                self.described[number] = (*self._said(args), _key(args.get("External id")))
                self.names[number] = intern(event["name"])
            correlation = _whole(args.get("correlation"))
            self.work.extend((start, seconds, thread, ON_GPU.index(kind), correlation))
        elif kind == _DESCRIPTION:
            self.params[_key(args.get("External id"))] = self._said(args)
        else:
            self.marks.append((kind, event["name"], start, seconds, thread, self._said(args)))

    def _said(self, args: dict) -> Said:
        """What a row says of its collective, and its number; what several rows say alike is kept once."""
        if not args:
            return _NOTHING, None
        sequence = args.get("Seq")
        sequence = sequence if type(sequence) is int else None
        values = tuple(map(args.get, _ARGS))
        try:
            known = self.sayings.get(values)
        except TypeError:  # there are lists among them
            return {key: args[key] for key in _ARGS if key in args}, sequence
        if known is None:
            known = self.sayings[values] = {key: args[key] for key in _ARGS if key in args}
        return known, sequence

    def ranks_of_processes(self) -> dict[int, set]:
        """Rank -> its process ids, where the metadata name processes ``rank N``."""
        found: dict[int, set] = {}
        for pid, name in self.processes.items():
            rank = rank_of_process(name)
            if rank is not None:
                found.setdefault(rank, set()).add(pid)
        return found

    def trace(self, head: dict, rank: int | None, pids: set | None) -> Trace:
        """The rows as a trace; those of some processes only where ``pids`` are given."""
        mine = np.array([pids is None or pid in pids for pid, _ in self.threads], bool)
        tables = [_table(*pair) for pair in ((self.work, _WORK), (self.operators, _HOST))]
        starts = [table[mine[table[:, 2].astype(int)], 0] for table in tables]
        starts = np.concatenate([*starts, [mark[2] for mark in self.marks if mine[mark[4]]]])
        middle = np.median(starts) if starts.size else 0.0
        near = np.abs(starts - middle) < _LONGEST
        origin = starts[near].min(initial=np.inf)

        def columns(flat: array, names: tuple) -> tuple[dict, np.ndarray]:
            table = _table(flat, names)
            thread = table[:, names.index("thread")].astype(int)
            chosen = np.flatnonzero(mine[thread] & (np.abs(table[:, 0] - middle) < _LONGEST))
            found = dict(zip(names, table[chosen].T, strict=True))
            found["start"] = (found["start"] - origin) * us
            for name in found.keys() - {"start", "seconds"}:
                found[name] = found[name].astype(np.int64)
            if "seconds" in found:
                found["seconds"] = found["seconds"] * us
            return found, chosen

        work, numbers = columns(self.work, _WORK)
        trace = Trace(
            path=self.path,
            work=work,
            launches=columns(self.launches, _LAUNCHES)[0],
            operators=columns(self.operators, _HOST)[0],
            rows=sum(count for count, one in zip(self.counts, mine, strict=True) if one),
            left_out=self.left_out + int((~near).sum()),
            unpaired=self.unpaired,
            strangers=self._strangers() if pids is not None else {},
        )
        for place, number in enumerate(numbers.tolist()):
            if number in self.names:
                said, sequence, call = self.described[number]
                if "Collective name" not in said and call is not None:
                    more, numbered = self.params.get(call, (_NOTHING, None))
                    said, sequence = {**more, **said}, numbered if sequence is None else sequence
                trace.names[place], trace.described[place] = self.names[number], (said, sequence)
        for kind, name, start, seconds, thread, said in self.marks:
            if mine[thread] and abs(start - middle) < _LONGEST:
                start -= origin
                one = Annotation(name, start * us, (start + seconds) * us, thread)
                (trace.gpu_annotations if kind == GPU_ANNOTATION else trace.annotations).append(one)
                if kind == ANNOTATION and ":" in name.split("#")[0]:
                    trace.host_collectives.append((one, said))
        trace.read_head(head)
        trace.rank = trace.rank if rank is None else rank
        return trace

    def _strangers(self) -> dict[str, int]:
        """Rows of each process that is named for no rank."""
        named = set().union(*self.ranks_of_processes().values())
        found: dict[str, int] = {}
        for (pid, _), count in zip(self.threads, self.counts, strict=True):
            if pid not in named:
                found[printable(str(pid), 20)] = found.get(printable(str(pid), 20), 0) + count
        return found


_WORK = ("start", "seconds", "thread", "kind", "correlation")
_HOST = ("start", "seconds", "thread")
_LAUNCHES = ("start", "thread", "correlation")


def _table(flat: array, names: tuple) -> np.ndarray:
    return np.array(flat).reshape(-1, len(names))


def _kept_kind(category, name: str) -> str:
    """The kind of a row; "" for one that nobody asks for."""
    kind = kind_of(category, name)
    if kind == OPERATOR and name.startswith("c10d::"):  # waits for its collective, or starts it
        return ""
    if kind == OPERATOR and name == "record_param_comms":
        return _DESCRIPTION
    wanted = kind in (*ON_GPU, LAUNCH, OPERATOR) or (kind in _MARKS and _ANNOTATED.match(name))
    return kind if wanted else ""


def _whole(value) -> int:
    """A correlation as a whole number; ``NOT_KNOWN`` for what is none."""
    return value if type(value) is int and 0 <= value < _WHOLE else NOT_KNOWN


def _key(value) -> int | str | None:
    """A call's id; None for what is none."""
    return value if isinstance(value, int | str) else None
