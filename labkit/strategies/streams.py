"""Programs on the streams of a GPU, with the mistakes that overlap invites: run them, and see what comes out.

A program is the list of what one rank's host launches, in order. Operations of one stream run in that order;
between streams only events order anything, as in CUDA: ``Record`` marks a point of a stream, ``Wait`` holds
another one until it is passed, and a wait for an event that was never recorded holds nothing. A collective
runs once every rank has come to its call: the k-th of each rank on a communicator belong together.

``run`` moves real numbers: an operation reads when it starts and writes when it stops. What is not ordered
goes wrong silently, or not at all, as the times fall; ``stream_check.check`` finds it whatever the times.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from labkit.errors import InputRefused
from labkit.spec.checks import shown
from labkit.strategies.checks import function, single
from labkit.strategies.communicator import Communicator
from labkit.strategies.timeline import FORWARD, TRANSFER, Timeline

COMPUTE, COMMUNICATION = "compute", "communication"


@dataclass(frozen=True, slots=True)
class Kernel:
    """Computes ``writes`` from the buffers it ``reads``: ``function`` of their arrays, in this order."""

    name: str
    reads: tuple[str, ...]
    writes: str
    function: Callable[..., np.ndarray]
    seconds: float = 1.0
    stream: str = COMPUTE


@dataclass(frozen=True, slots=True)
class AllReduce:
    """The sum of ``buffer`` over all ranks, in place, on a ``communicator``."""

    buffer: str
    seconds: float = 1.0
    communicator: str = "world"
    stream: str = COMMUNICATION

    @property
    def name(self) -> str:
        """What a sentence calls it."""
        return f"all_reduce of {self.buffer}"


@dataclass(frozen=True, slots=True)
class Record:
    """Marks the point that ``stream`` has reached."""

    event: str
    stream: str = COMPUTE


@dataclass(frozen=True, slots=True)
class Wait:
    """Holds ``stream`` until the last ``Record`` of the event that was launched before this is passed."""

    event: str
    stream: str = COMMUNICATION


Operation = Kernel | AllReduce | Record | Wait
At = tuple[int, int]  # rank, place in its program


@dataclass(frozen=True, slots=True)
class Outcome:
    """What each rank holds in the end, when it did what, and whether all of it ran (``finished``)."""

    buffers: list[dict[str, np.ndarray]]
    timeline: Timeline
    finished: bool


def run(programs: Sequence[Sequence[Operation]], buffers: Sequence[dict[str, np.ndarray]]) -> Outcome:
    """Runs one program per rank on copies of its buffers; what would wait for ever is left out.

    Refused: what is no program, a buffer that is read or reduced and that nobody made, arrays that do not fit
    one collective, and programs of which nothing can run. Below, the forgotten wait sums the zeros that stood
    in the buffer before.

    >>> double = Kernel("double", ("x",), "y", lambda x: 2 * x)
    >>> forgot = [[double, AllReduce("y")]] * 2
    >>> right = [[double, Record("doubled"), Wait("doubled"), AllReduce("y")]] * 2
    >>> start = [{"x": np.ones(1), "y": np.zeros(1)}] * 2
    >>> [run(one, start).buffers[0]["y"].item() for one in (forgot, right)]
    [0.0, 4.0]
    """
    graph = links(programs)
    start, stop = times(graph)
    if not isinstance(buffers, list | tuple) or len(buffers) != len(programs):
        raise InputRefused(f"{len(programs)} programs need a list with the buffers of each rank")
    held = [_copies(one) for one in buffers]
    works = [at for at in start if isinstance(graph.at(at), Kernel | AllReduce)]
    if not works:
        raise InputRefused("nothing of these programs can run; stream_check.check says what holds it")
    # At one time, what stops has written before what starts reads.
    moments = sorted([(stop[at], 0, at) for at in works] + [(start[at], 1, at) for at in works])
    results: dict[At, np.ndarray] = {}
    for _, starts, (rank, place) in moments:
        one = programs[rank][place]
        if not starts:
            held[rank][written(one)[0]] = results.pop((rank, place))
        elif isinstance(one, Kernel):
            results[rank, place] = np.asarray(one.function(*_read(held[rank], one)), float)
        elif (rank, place) not in results:
            calls = graph.meets[rank, place]
            arrays = [_read(held[at[0]], graph.at(at))[0] for at in calls]
            results |= zip(calls, Communicator().all_reduce(arrays, one.name), strict=True)
    kinds = [TRANSFER if isinstance(graph.at(at), AllReduce) else FORWARD for at in works]
    rows = [(at[0], start[at], stop[at], kind, at[1]) for at, kind in zip(works, kinds, strict=True)]
    return Outcome(held, Timeline(*zip(*rows, strict=True)), len(start) == len(graph.before))


@dataclass(frozen=True, slots=True)
class Links:
    """What must be over ``before`` each operation, by (rank, place in its program).

    ``meets``: the calls of all ranks that form one collective; ``missing``: the calls that no other call of
    some rank belongs to, so that they never run, with those ranks.
    """

    programs: Sequence[Sequence[Operation]]
    before: dict[At, list[At]]
    meets: dict[At, list[At]]
    missing: dict[At, list[int]]

    def at(self, at: At) -> Operation:
        """The operation in this place."""
        return self.programs[at[0]][at[1]]


def links(programs: Sequence[Sequence[Operation]]) -> Links:
    """What orders the operations: their streams, the events, and the meetings of the ranks."""
    check_programs(programs)
    before: dict[At, list[At]] = {}
    groups: dict[tuple[str, int], list[At]] = {}
    for rank, program in enumerate(programs):
        last, recorded, count = {}, {}, {}
        for place, one in enumerate(program):
            at = (rank, place)
            before[at] = [last[one.stream]] if one.stream in last else []
            last[one.stream] = at
            if isinstance(one, Record):
                recorded[one.event] = at
            elif isinstance(one, Wait) and one.event in recorded:
                before[at].append(recorded[one.event])
            elif isinstance(one, AllReduce):
                count[one.communicator] = count.get(one.communicator, 0) + 1
                groups.setdefault((one.communicator, count[one.communicator]), []).append(at)
    meets, missing = {}, {}
    for calls in groups.values():
        together = [earlier for at in calls for earlier in before[at]]
        absent = sorted({*range(len(programs))} - {rank for rank, _ in calls})
        for at in calls:
            before[at], meets[at] = together, calls
            if absent:
                missing[at] = absent
    return Links(programs, before, meets, missing)


def times(graph: Links) -> tuple[dict[At, float], dict[At, float]]:
    """Start and stop of each operation, in an order in which they can run; those held for ever are absent.

    An operation starts when all before it is over; a collective takes as long as its longest call.
    """
    start: dict[At, float] = {}
    stop: dict[At, float] = {}
    left = [at for at in graph.before if at not in graph.missing]
    while ready := [at for at in left if all(earlier in stop for earlier in graph.before[at])]:
        for at in ready:
            start[at] = max((stop[earlier] for earlier in graph.before[at]), default=0.0)
            together = [graph.at(call) for call in graph.meets.get(at, [at])]
            stop[at] = start[at] + max(getattr(one, "seconds", 0.0) for one in together)
        left = [at for at in left if at not in stop]
    return start, stop


def read(one: Operation) -> tuple[str, ...]:
    """The buffers that an operation reads."""
    if isinstance(one, Kernel):
        return one.reads
    return (one.buffer,) if isinstance(one, AllReduce) else ()


def written(one: Operation) -> tuple[str, ...]:
    """The buffer that an operation writes, if any."""
    if isinstance(one, Kernel):
        return (one.writes,)
    return (one.buffer,) if isinstance(one, AllReduce) else ()


def check_programs(programs) -> None:
    """Refuses what is no list of programs, one for each rank, of well-formed operations."""
    good = isinstance(programs, list | tuple) and all(isinstance(one, list | tuple) for one in programs)
    if not good or not programs:
        raise InputRefused("give a list of programs, one for each rank, each a list of operations")
    for one in [one for program in programs for one in program]:
        if not isinstance(one, Operation):
            raise InputRefused(
                f"an operation is {shown(one)}; use Kernel, AllReduce, Record and Wait, made with their names"
            )
        if one.stream not in (COMPUTE, COMMUNICATION):
            raise InputRefused(f"the stream is {shown(one.stream)}; use {COMPUTE!r} or {COMMUNICATION!r}")
        if isinstance(one, Kernel | AllReduce):
            single(one.seconds, f"the seconds of {one.name}")
        if isinstance(one, Kernel):
            function(one.function, f"what {one.name} computes")
            if not isinstance(one.reads, tuple):
                raise InputRefused(f"{one.name} reads {shown(one.reads)}; give a tuple of names of buffers")


def _copies(buffers) -> dict[str, np.ndarray]:
    try:
        return {name: np.array(value, float) for name, value in dict(buffers).items()}
    except (TypeError, ValueError):
        raise InputRefused("the buffers of a rank are arrays of numbers by name; give a dict") from None


def _read(buffers: dict[str, np.ndarray], one: Kernel | AllReduce) -> list[np.ndarray]:
    """The arrays that an operation reads; refused where nobody made one."""
    unmade = [name for name in read(one) if name not in buffers]
    if unmade:
        raise InputRefused(f"{one.name} reads {unmade[0]!r}, which no buffer holds yet; make it first")
    return [buffers[name] for name in read(one)]
