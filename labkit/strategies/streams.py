"""Programs on the streams of a GPU, with the mistakes that overlap invites: run them, and see what comes out.

A program is the list of what one rank's host launches, in order. Operations of one stream run in that order;
between streams only events order anything, as in CUDA: ``Record`` marks a point of a stream, ``Wait`` holds
another one until it is passed, and a wait for an event that was never recorded holds nothing. A collective
is one call of each rank, and the k-th calls on a communicator belong together, whatever their buffers. A call
begins on its own rank, when its stream comes to it, and is over once it has begun on every rank.

``run`` moves real numbers: an operation reads when it begins and writes when it is over. What is not ordered
goes wrong silently, or not at all, as the times fall; ``stream_check.check`` finds it whatever the times.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from labkit.errors import InputRefused
from labkit.spec.checks import label, shown
from labkit.strategies.checks import function, single
from labkit.strategies.stream_values import computed, copies, summed, taken
from labkit.strategies.timeline import FORWARD, TRANSFER, Timeline

COMPUTE, COMMUNICATION = "compute", "communication"
MOST, MOST_RANKS = 2_000, 64  # operations of all ranks, and ranks


@dataclass(frozen=True, slots=True)
class Kernel:
    """Computes ``writes`` from the buffers it ``reads``: ``function`` of their arrays, in this order.

    The function must not change the arrays it is given: it gets them read-only.
    """

    name: str
    reads: tuple[str, ...]
    writes: str
    function: Callable[..., np.ndarray]
    seconds: float = 1.0
    stream: str = COMPUTE

    def __post_init__(self):
        label(self.name, "the name of a kernel")
        if not isinstance(self.reads, tuple):
            raise InputRefused(f"{self.name} reads {shown(self.reads)}; give a tuple of names of buffers")
        for buffer in (*self.reads, self.writes):
            label(buffer, f"a buffer of {self.name}")
        function(self.function, f"what {self.name} computes")
        single(self.seconds, f"the seconds of {self.name}")
        _check_stream(self.stream)


@dataclass(frozen=True, slots=True)
class AllReduce:
    """The sum of ``buffer`` over all ranks, in place, on a ``communicator``."""

    buffer: str
    seconds: float = 1.0
    communicator: str = "world"
    stream: str = COMMUNICATION

    def __post_init__(self):
        label(self.buffer, "the buffer of an all_reduce")
        label(self.communicator, f"the communicator of the {self.name}")
        single(self.seconds, f"the seconds of {self.name}")
        _check_stream(self.stream)

    @property
    def name(self) -> str:
        """What a sentence calls it."""
        return f"all_reduce of {self.buffer}"


@dataclass(frozen=True, slots=True)
class Record:
    """Marks the point that ``stream`` has reached."""

    event: str
    stream: str = COMPUTE

    def __post_init__(self):
        label(self.event, "the event of a Record")
        _check_stream(self.stream)


@dataclass(frozen=True, slots=True)
class Wait:
    """Holds ``stream`` until the last ``Record`` of the event that was launched before this is passed."""

    event: str
    stream: str = COMMUNICATION

    def __post_init__(self):
        label(self.event, "the event of a Wait")
        _check_stream(self.stream)


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

    Refused: what is no program, or more than ``MOST`` operations; a buffer that is read or reduced and that
    nobody made; a kernel's function that fails or returns no numbers; arrays of unequal shapes in one
    collective; and programs of which no Kernel or AllReduce can run. Below, the forgotten wait sums the
    zeros that stood in the buffer before.

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
    held = [copies(one) for one in buffers]
    works = [at for at in stop if isinstance(graph.at(at), Kernel | AllReduce)]
    if not works:
        raise InputRefused(_nothing_runs(programs))
    # At one time, what is over has written before what begins reads.
    moments = sorted([(stop[at], 0, at) for at in works] + [(start[at], 1, at) for at in works])
    values: dict[At, np.ndarray] = {}  # what a kernel computed; what a call brings to its collective
    sums: dict[At, np.ndarray] = {}
    for _, begins, at in moments:
        rank, one = at[0], graph.at(at)
        if begins:
            arrays = taken(one.name, held[rank], read(one))
            kernel = isinstance(one, Kernel)
            values[at] = computed(one.name, one.function, arrays) if kernel else arrays[0]
            continue
        if at in graph.meets and at not in sums:
            calls = graph.meets[at]
            sums |= zip(calls, summed(one.name, [values[call] for call in calls]), strict=True)
        held[rank][written(one)[0]] = sums.get(at, values[at])
    rows = []
    for at in works:
        kind = TRANSFER if at in graph.meets else FORWARD
        # Numbers travel from the moment at which the last rank has come.
        rows.append((at[0], max(start[call] for call in graph.together(at)), stop[at], kind, at[1]))
    return Outcome(held, Timeline(*zip(*rows, strict=True)), len(stop) == len(graph.before))


@dataclass(frozen=True, slots=True)
class Links:
    """What must be over on its own rank ``before`` each operation, by (rank, place in its program).

    ``meets``: the calls of all ranks that form one collective; ``missing``: the calls that no other call of
    some rank belongs to, so that they are never over, with those ranks.
    """

    programs: Sequence[Sequence[Operation]]
    before: dict[At, list[At]]
    meets: dict[At, list[At]]
    missing: dict[At, list[int]]

    def at(self, at: At) -> Operation:
        """The operation in this place."""
        return self.programs[at[0]][at[1]]

    def together(self, at: At) -> list[At]:
        """What must have begun before the operation in this place is over: all calls, or itself."""
        return self.meets.get(at, [at])


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
    meets = {at: calls for calls in groups.values() for at in calls}
    missing = {}
    for calls in groups.values():
        if absent := sorted({*range(len(programs))} - {rank for rank, _ in calls}):
            missing |= dict.fromkeys(calls, absent)
    return Links(programs, before, meets, missing)


def times(graph: Links) -> tuple[dict[At, float], dict[At, float]]:
    """When each operation begins and is over, in an order in which they can; those held for ever are absent.

    An operation begins when all before it is over. A collective is over when the last rank has come and the
    longest of its calls has passed; a call that waits there for ever has begun and is never over.
    """
    start: dict[At, float] = {}
    stop: dict[At, float] = {}
    after: dict[At, list[At]] = {at: [] for at in graph.before}
    for at, before in graph.before.items():
        for earlier in before:
            after[earlier].append(at)
    held = {at: len(before) for at, before in graph.before.items()}
    ready = [at for at, count in held.items() if not count]
    for at in ready:  # which grows as operations are over
        start[at] = max((stop[earlier] for earlier in graph.before[at]), default=0.0)
        together = graph.together(at)
        if at in graph.missing or not all(call in start for call in together):
            continue
        come = max(start[call] for call in together)
        over = come + max(getattr(graph.at(call), "seconds", 0.0) for call in together)
        for call in together:
            stop[call] = over
            for later in after[call]:
                held[later] -= 1
                if not held[later]:
                    ready.append(later)
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
    """Refuses what is no list of programs, one for each rank, of operations, and what is too long."""
    good = isinstance(programs, list | tuple) and all(isinstance(one, list | tuple) for one in programs)
    if not good or not programs:
        raise InputRefused("give a list of programs, one for each rank, each a list of operations")
    count = sum(map(len, programs))
    if len(programs) > MOST_RANKS or count > MOST:
        raise InputRefused(
            f"{len(programs):,} programs have {count:,} operations; give up to {MOST_RANKS} programs of "
            f"{MOST:,} operations in all"
        )
    for one in [one for program in programs for one in program]:
        if not isinstance(one, Operation):
            raise InputRefused(
                f"an operation is {shown(one)}; use Kernel, AllReduce, Record and Wait, made with their names"
            )


def _check_stream(stream) -> None:
    if not (isinstance(stream, str) and stream in (COMPUTE, COMMUNICATION)):
        raise InputRefused(f"the stream is {shown(stream)}; use {COMPUTE!r} or {COMMUNICATION!r}")


def _nothing_runs(programs) -> str:
    if any(isinstance(one, Kernel | AllReduce) for program in programs for one in program):
        return "nothing of these programs can run; stream_check.check says what holds it"
    return "these programs compute nothing and send nothing; give them a Kernel or an AllReduce"
