"""Collective calls of one rank, from the kernels and from all that a trace says of them."""

import math
from bisect import bisect_right
from dataclasses import dataclass

import numpy as np

from labkit.collectives.busbw import busbw_factor
from labkit.collectives.names import ALGORITHMS
from labkit.evidence.hang.records import Group
from labkit.evidence.printed import printable
from labkit.evidence.profile.kinds import COMMUNICATION, cause_of, operation_of, width_of
from labkit.evidence.profile.process_groups import ProcessGroups
from labkit.evidence.profile.trace import NOT_KNOWN, ON_GPU, Annotation, Said, Trace
from labkit.units import us

METADATA, ANNOTATED, NAMED = "metadata", "annotation", "kernel name"
_CUDA_LIKE = ("nccl", "xccl", "hccl", "rccl")  # back ends whose calls only put work into a queue
RESOLUTION = 1e-3 * us  # of a profiler's clock: a nanosecond


@dataclass(frozen=True, slots=True)
class Call:
    """One collective on one rank, seconds since the start of its trace, waiting for other ranks included.

    ``told_by``: what names the operation; a kernel's name alone is not reliable (an all_to_all runs as
    SendRecv). ``sequence``: its number in the group, where the trace has it. ``size``: bytes as nccl-tests
    counts them. ``cause``: a term of a StepTime, ``surely`` where the group's name says so. ``launch``: when
    the host called it, NaN where that is not known. ``thread``: the stream, as the trace numbers it.
    ``untrue``: whether the trace has a list of its group's ranks that cannot be one, and is left out.
    """

    operation: str
    told_by: str
    group: Group
    sequence: int | None
    start: float
    stop: float
    launch: float
    thread: int
    size: float | None
    cause: str
    surely: bool
    untrue: bool

    @property
    def seconds(self) -> float:
        """How long it took."""
        return self.stop - self.start


def busbw_of(operation: str, size: float | None, seconds: float, members: int | None) -> float | None:
    """Bytes/s as nccl-tests counts them; None where the operation has no such rate or something is not known.

    So it is of seconds below the resolution of the profiler's clock, which measured nothing.
    """
    if not (size and seconds >= RESOLUTION and members and members > 1):
        return None
    if operation not in ALGORITHMS or operation == "barrier":
        return None
    return size / seconds * busbw_factor(operation, members)


def launch_times(trace: Trace) -> tuple[np.ndarray, np.ndarray]:
    """When the host launched each row of work, NaN where the trace does not tell, and on which thread."""
    wanted, launches = trace.work["correlation"], trace.launches
    times, threads = np.full(wanted.size, np.nan), np.full(wanted.size, NOT_KNOWN)
    if launches["start"].size and wanted.size:
        order = np.argsort(launches["correlation"], kind="stable")
        known = launches["correlation"][order]
        place = np.minimum(np.searchsorted(known, wanted), known.size - 1)
        found = (known[place] == wanted) & (wanted != NOT_KNOWN)
        times[found] = launches["start"][order][place[found]]
        threads[found] = launches["thread"][order][place[found]]
    return times, threads


def gpu_calls(trace: Trace) -> list[Call]:
    """The collectives that ran on the GPU, in the order of their starts."""
    launched, threads = launch_times(trace)
    on_host, on_gpu = _Covering(one for one, _ in trace.host_collectives), _Covering(trace.gpu_annotations)
    work, groups, calls = trace.work, ProcessGroups(trace.groups), []
    rows = np.flatnonzero(work["kind"] == ON_GPU.index(COMMUNICATION))
    for row in rows[np.argsort(work["start"][rows], kind="stable")].tolist():
        start, thread = float(work["start"][row]), int(work["thread"][row])
        annotation = on_host.at(int(threads[row]), launched[row]) or on_gpu.at(thread, start)
        operation, told_by = _operation(trace.described[row][0], annotation, trace.names[row])
        times = (start, start + float(work["seconds"][row]), float(launched[row]))
        calls.append(_call(groups, operation, told_by, trace.described[row], times, thread))
    return calls


def host_calls(trace: Trace) -> list[Call]:
    """The collectives that ran on the host, as gloo's do: their annotations last as long as they do."""
    groups = ProcessGroups(trace.groups)
    return [
        _call(
            groups,
            operation_of(one.name) or printable(one.name),
            METADATA,
            said,
            (one.start, one.stop, one.start),
            one.thread,
        )
        for one, said in sorted(trace.host_collectives, key=lambda pair: pair[0].start)
    ]


def runs_on_host(trace: Trace) -> bool:
    """Whether a trace without rows of a GPU shows a job that computes and communicates on the host."""
    names = {one.name.split(":")[0].lower() for one, _ in trace.host_collectives}
    backend = trace.backend.lower()
    return not names & {*_CUDA_LIKE} and not (backend in _CUDA_LIKE and not names)


class _Covering:
    """Which annotation of a collective covers a time on a thread."""

    def __init__(self, annotations):
        self.by_thread: dict[int, list[Annotation]] = {}
        for one in annotations:
            if ":" in one.name.split("#")[0]:
                self.by_thread.setdefault(one.thread, []).append(one)
        for found in self.by_thread.values():
            found.sort(key=lambda one: one.start)

    def at(self, thread: int, time: float) -> str:
        """Its name; "" where there is none."""
        found = self.by_thread.get(thread, ())
        place = bisect_right(found, time, key=lambda one: one.start) - 1
        return found[place].name if place >= 0 and time <= found[place].stop else ""


def _operation(said: dict, annotation: str, kernel: str) -> tuple[str, str]:
    """labkit's name of the operation where it has one, else the trace's own, and what tells it."""
    name = said.get("Collective name")
    if isinstance(name, str) and name:
        return operation_of(name) or printable(name.lower()), METADATA
    if annotation:
        return operation_of(annotation) or printable(annotation.lower()), ANNOTATED
    return operation_of(kernel) or "not told", NAMED


def _call(groups: ProcessGroups, operation: str, told_by: str, said: Said, times: tuple, thread: int) -> Call:
    fields, sequence = said
    group, untrue = groups.of(fields)
    cause, surely = cause_of(f"{group.name} {group.description}", operation)
    return Call(
        operation=operation,
        told_by=told_by,
        group=group,
        sequence=sequence,
        start=times[0],
        stop=times[1],
        launch=times[2],
        thread=thread,
        size=_size(operation, fields, group.members),
        cause=cause,
        surely=surely,
        untrue=untrue,
    )


def _size(operation: str, said: dict, members: int | None) -> float | None:
    """Bytes of a call as the size column of nccl-tests counts them; None where the trace does not tell."""
    sent, received = said.get("In msg nelems"), said.get("Out msg nelems")
    width = width_of(said.get("dtype"))
    if sent is None and received is None:  # gloo's annotations have the shapes of their tensors
        return _size_of_tensors(said) if operation in ("all_reduce", "broadcast", "reduce") else None
    if width is None or not all(_counted(n) for n in (sent, received)):
        return None
    if operation == "all_gather":
        elements = max(received, sent * (members or 0))
    elif operation in ("gather", "scatter"):
        if members is None:
            return None
        elements = members * (sent if operation == "gather" else received)
    else:
        elements = max(sent, received)
    return float(elements * width) or None


def _size_of_tensors(said: dict) -> float | None:
    shapes, kinds = said.get("Input Dims"), said.get("Input type")
    if not (isinstance(shapes, list) and isinstance(kinds, list) and len(shapes) == len(kinds) == 1):
        return None
    width, shape = width_of(kinds[0]), shapes[0]
    if width is None or not (isinstance(shape, list) and all(map(_counted, shape))):
        return None
    elements = math.prod(shape)
    return float(width * elements) or None if _counted(elements) else None


def _counted(number) -> bool:
    """Whether it can be a number of elements; a damaged field may hold anything."""
    return type(number) is int and 0 <= number < 2**63
