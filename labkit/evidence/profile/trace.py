"""One file's rows in columns: what ran on the GPU, what launched it, and what the host did meanwhile.

Only what is asked of later is kept. Times are seconds since the first row of the file: clocks of other ranks
have another origin and another pace, so times of different ranks are never compared.
"""

import re
from array import array
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from labkit.evidence.profile.files import read_events
from labkit.evidence.profile.kinds import (
    ANNOTATION,
    COMMUNICATION,
    COMPUTE,
    COPY,
    GPU_ANNOTATION,
    LAUNCH,
    OPERATOR,
    kind_of,
)
from labkit.units import us

ON_GPU = (COMPUTE, COMMUNICATION, COPY)
_ANNOTATED = re.compile(
    r"ProfilerStep#|enumerate\(DataLoader\)|Optimizer\.step#|(?:nccl|gloo|mpi|ucc|xccl|hccl):"
)
_RANK = re.compile(r"rank[-_ #]?(\d{1,6})(?!\d)", re.IGNORECASE)
_ARGS = (
    *(
        "Collective name",
        "In msg nelems",
        "Out msg nelems",
        "Group size",
        "dtype",
        "Seq",
        "Process Group Name",
    ),
    *("Process Group Description", "Process Group Ranks", "Global rank start", "Global rank stride", "Rank"),
    *("Input Dims", "Input type", "External id"),
)


@dataclass(frozen=True, slots=True)
class Annotation:
    """A named stretch of time. ``thread``: which row of the trace it stands on."""

    name: str
    start: float
    stop: float
    thread: int


@dataclass(slots=True)
class Trace:
    """The rows of one rank. All columns of ``work``, ``launches`` and ``operators`` are equally long.

    ``work``: start, seconds, kind (a place in ``ON_GPU``), thread and correlation of what ran on the GPU;
    ``described``: what the trace says of a row of ``work``, by its number; ``launches``: start, thread and
    correlation; ``operators``: start and seconds of what the host did; ``host_collectives``: those that a
    ``gloo:`` annotation or the like shows on the host, with what is said of them.
    """

    path: Path
    rank: int | None = None
    world: int | None = None
    backend: str = ""
    groups: list[dict] = field(default_factory=list)
    work: dict[str, np.ndarray] = field(default_factory=dict)
    names: dict[int, str] = field(default_factory=dict)
    described: dict[int, dict] = field(default_factory=dict)
    launches: dict[str, np.ndarray] = field(default_factory=dict)
    operators: dict[str, np.ndarray] = field(default_factory=dict)
    annotations: list[Annotation] = field(default_factory=list)
    gpu_annotations: list[Annotation] = field(default_factory=list)
    host_collectives: list[tuple[Annotation, dict]] = field(default_factory=list)
    rows: int = 0
    left_out: int = 0


def read_traces(path: Path, largest: float) -> list[Trace]:
    """The traces of a file: one, or one for each process that its metadata name ``rank N``.

    Refused: what ``read_events`` refuses.
    """
    rows = _Rows()
    head = read_events(path, rows.take, largest)
    ranks = rows.ranks_of_processes()
    if len(ranks) > 1:
        return [rows.trace(path, head, rank, pids) for rank, pids in sorted(ranks.items())]
    return [rows.trace(path, head, next(iter(ranks), None), None)]


class _Rows:
    """Takes the events of a file as they come, and keeps them in flat arrays."""

    def __init__(self):
        self.origin = None
        self.kinds: dict[tuple, str] = {}
        self.threads: dict[tuple, int] = {}
        self.processes: dict = {}
        self.work = _Columns(start="d", seconds="d", kind="b", thread="i", correlation="q")
        self.launches = _Columns(start="d", thread="i", correlation="q")
        self.operators = _Columns(start="d", seconds="d", thread="i")
        self.names: dict[int, str] = {}
        self.described: dict[int, dict] = {}
        self.annotations: list[tuple] = []
        self.params: dict = {}
        self.rows = self.left_out = 0

    def take(self, events: list) -> None:
        """Adds some events."""
        for event in events:
            try:
                phase = event["ph"]
                if phase == "X":
                    self.rows += 1
                    place = (event.get("cat"), event["name"])
                    kind = self.kinds.get(place)
                    if kind is None:
                        kind = self.kinds[place] = _kept_kind(*place)
                    if kind:
                        self._take_row(event, kind)
                elif phase == "M" and event.get("name") == "process_name":
                    self.processes[event["pid"]] = str(event["args"]["name"])
            except (TypeError, KeyError, AttributeError, ValueError, OverflowError):
                self.left_out += 1

    def _take_row(self, event: dict, kind: str) -> None:
        """One row with a start and a duration, of a kind that is kept."""
        start, seconds = event["ts"], event.get("dur", 0)
        if not (-_LONGEST < start < _LONGEST and 0 <= seconds < _LONGEST):
            raise ValueError
        if self.origin is None:
            self.origin = start
        start -= self.origin  # in whole microseconds or in fractions: exact, as long as it is not converted
        place = (event.get("pid"), event.get("tid"))
        thread = self.threads.get(place)
        if thread is None:
            thread = self.threads[place] = len(self.threads)
        if kind == OPERATOR:
            self.operators.add(start, seconds, thread)
            return
        args = event.get("args") or _NOTHING
        if kind == LAUNCH:
            self.launches.add(start, thread, _whole(args.get("correlation")))
            self.operators.add(start, seconds, thread)
        elif kind in ON_GPU:
            number, correlation = self.work.rows, _whole(args.get("correlation"))
            if kind == COMMUNICATION:
                self.described[number] = {key: args[key] for key in _ARGS if key in args}
                self.names[number] = event["name"]
            self.work.add(start, seconds, ON_GPU.index(kind), thread, correlation)
        else:
            said = {key: args[key] for key in _ARGS if key in args}
            if kind == DESCRIPTION:
                self.params[args.get("External id")] = said
            else:
                self.annotations.append((kind, event["name"], start, seconds, thread, said))

    def ranks_of_processes(self) -> dict[int, set]:
        """Rank -> its process ids, where the metadata name processes ``rank N``."""
        found: dict[int, set] = {}
        for pid, name in self.processes.items():
            told = _RANK.fullmatch(name.strip())
            if told:
                found.setdefault(int(told[1]), set()).add(pid)
        return found

    def trace(self, path: Path, head: dict, rank: int | None, pids: set | None) -> Trace:
        """The rows as a trace; those of some processes only where ``pids`` are given."""
        kept = np.array([pids is None or pid in pids for pid, _ in self.threads], bool)

        def columns(given: _Columns) -> tuple[dict, np.ndarray]:
            found = {name: np.array(one) for name, one in given.arrays.items()}
            chosen = kept[found["thread"]] if kept.size else np.zeros(0, bool)
            found = {name: one[chosen] for name, one in found.items()}
            for name in ("start", "seconds"):
                if name in found:
                    found[name] = found[name] * us
            return found, np.flatnonzero(chosen)

        work, numbers = columns(self.work)
        trace = Trace(
            path=path,
            work=work,
            launches=columns(self.launches)[0],
            operators=columns(self.operators)[0],
            rows=self.rows,
            left_out=self.left_out,
        )
        for place, number in enumerate(numbers.tolist()):
            if number in self.names:
                said = self.described[number]
                if "Collective name" not in said:
                    call = said.get("External id")
                    known = self.params.get(call, _NOTHING) if isinstance(call, int | str) else _NOTHING
                    said = {**known, **said}
                trace.names[place], trace.described[place] = self.names[number], said
        for kind, name, start, seconds, thread, said in self.annotations:
            if not kept[thread]:
                continue
            one = Annotation(name, start * us, (start + seconds) * us, thread)
            (trace.gpu_annotations if kind == GPU_ANNOTATION else trace.annotations).append(one)
            if kind == ANNOTATION and ":" in name.split("#")[0]:
                trace.host_collectives.append((one, said))
        _read_head(trace, head)
        trace.rank = trace.rank if rank is None else rank
        return trace


class _Columns:
    """Flat arrays of equal length, by name."""

    def __init__(self, **codes: str):
        self.arrays = {name: array(code) for name, code in codes.items()}
        self._append = [one.append for one in self.arrays.values()]

    @property
    def rows(self) -> int:
        """How many there are."""
        return len(next(iter(self.arrays.values())))

    def add(self, *values) -> None:
        """One row more."""
        for append, value in zip(self._append, values, strict=True):
            append(value)


DESCRIPTION = "description"  # of a collective, on the host
_MARKS = (ANNOTATION, GPU_ANNOTATION)
_NOTHING: dict = {}
_LONGEST = 1e18  # microseconds, 30,000 years
NOT_KNOWN = -1


def _kept_kind(category, name: str) -> str:
    """The kind of a row; "" for one that nobody asks for."""
    kind = kind_of(category, name)
    if kind == OPERATOR and name.startswith("c10d::"):  # waits for its collective, or starts it
        return ""
    if kind == OPERATOR and name == "record_param_comms":
        return DESCRIPTION
    wanted = kind in (*ON_GPU, LAUNCH, OPERATOR) or (kind in _MARKS and _ANNOTATED.match(name))
    return kind if wanted else ""


def _whole(value) -> int:
    """A correlation as a whole number; ``NOT_KNOWN`` for what is none."""
    return value if type(value) is int and 0 <= value < 2**63 else NOT_KNOWN


def _read_head(trace: Trace, head: dict) -> None:
    """What the file says of its rank and of the groups it is in."""
    info = head.get("distributedInfo")
    info = info if isinstance(info, dict) else {}
    for name, key in (("rank", "rank"), ("world", "world_size")):
        value = info.get(key)
        if type(value) is int and 0 <= value < 10**7:
            setattr(trace, name, value)
    trace.backend = info["backend"] if isinstance(info.get("backend"), str) else ""
    groups = info.get("pg_config")
    trace.groups = [one for one in groups if isinstance(one, dict)] if isinstance(groups, list) else []


def rank_in_name(path: Path) -> int | None:
    """The rank that a file's name has, as in ``rank-3.json.gz`` or ``trace_rank_3.json``.

    >>> rank_in_name(Path("rank-34.Jul_15.pt.trace.json.gz")), rank_in_name(Path("h100.json"))
    (34, None)
    """
    told = _RANK.search(path.name)
    return int(told[1]) if told else None
