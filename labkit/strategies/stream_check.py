"""What is wrong with programs on streams, found without luck: races and deadlocks, each with its remedy.

Of two operations one happens before the other if streams, events or collectives order them (Lamport 1978);
vector clocks tell (Fidge 1988, Mattern 1989). Two that use one buffer, one of them writing, and are not
ordered are a race, whether or not the times of a run show it. Operations that wait for each other in a circle
are a deadlock.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

from labkit.strategies import streams
from labkit.strategies.streams import AllReduce, At, Links, Operation, Record, Wait, read, written

RACE, DEADLOCK, MISSING, IDLE = "race", "deadlock", "missing call", "wait for nothing"


@dataclass(frozen=True, slots=True)
class Finding:
    """One mistake: its ``kind``, the ``ranks`` it is on, and a sentence: what, where and how to mend it."""

    kind: str
    ranks: tuple[int, ...]
    says: str


def check(programs: Sequence[Sequence[Operation]]) -> list[Finding]:
    """All that is wrong with the programs, one finding for each mistake; none where all is well.

    What is behind a deadlock is not looked at. Refused: what ``run`` refuses of programs.

    >>> from labkit.strategies.streams import Kernel
    >>> double = Kernel("double", ("x",), "y", lambda x: 2 * x)
    >>> [finding.kind for finding in check([[double, AllReduce("y")]] * 2)]
    ['race']
    """
    graph = streams.links(programs)
    start, _ = streams.times(graph)
    return [*_deadlock(graph, start), *_missing(graph), *_idle(graph), *_races(graph, list(start))]


def _deadlock(graph: Links, ran) -> list[Finding]:
    """The circle of calls that wait for each other, if there is one."""
    waits = {
        at: [earlier for earlier in before if earlier not in ran]
        for at, before in graph.before.items()
        if at not in ran
    }
    # What waits for nothing that waits itself is in no circle.
    while outside := [at for at, earlier in waits.items() if not any(one in waits for one in earlier)]:
        for at in outside:
            del waits[at]
    if not waits:
        return []
    at, path = next(iter(waits)), []
    while at not in path:
        path.append(at)
        at = next(earlier for earlier in waits[at] if earlier in waits)
    calls = [one for one in path[path.index(at) :] if isinstance(graph.at(one), AllReduce)]
    # A call that is behind another one of its own rank waits there.
    pairs = [(one, after) for one, after in _round(calls) if one[0] != after[0]]
    stands = " and ".join(f"rank {one[0]} waits in {_call(graph, one)} for rank {to[0]}" for one, to in pairs)
    says = f"{stands}; launch the collectives of these communicators in the same order on every rank"
    return [Finding(DEADLOCK, tuple(sorted({one[0] for one, _ in pairs})), says)]


def _round(calls: list[At]) -> list[tuple[At, At]]:
    """Each with the next, and the last with the first."""
    return list(zip(calls, [*calls[1:], calls[0]], strict=True))


def _call(graph: Links, at: At) -> str:
    one = graph.at(at)
    return f"the {one.name} (communicator {one.communicator})"


def _missing(graph: Links) -> list[Finding]:
    """Collectives that some ranks call and others never do."""
    found = {}
    for at, absent in graph.missing.items():
        ranks = tuple(rank for rank, _ in graph.meets[at])
        says = (
            f"{_named(ranks)} in {_call(graph, graph.meets[at][0])}: waiting for ever for {_named(absent)}, "
            "which never calls it; let every rank make the same calls"
        )
        found[ranks, says] = Finding(MISSING, ranks, says)
    return list(found.values())


def _idle(graph: Links) -> list[Finding]:
    """Waits that hold nothing, because no record of their event was launched before them."""
    ranks: dict[str, list[int]] = {}
    for rank, program in enumerate(graph.programs):
        recorded = set()
        for one in program:
            if isinstance(one, Record):
                recorded.add(one.event)
            elif isinstance(one, Wait) and one.event not in recorded:
                ranks.setdefault(one.event, []).append(rank)
    return [
        Finding(IDLE, tuple(on), f"{_named(on)}: the wait for {event!r} holds nothing; record it before")
        for event, on in ranks.items()
    ]


def _races(graph: Links, order: list[At]) -> list[Finding]:
    """Pairs that use one buffer of a rank, one of them writing, and that nothing orders."""
    clocks = vector_clocks(graph, order)
    uses: dict[tuple[int, str], list[At]] = {}
    for at in sorted(order):
        one = graph.at(at)
        for buffer in {*read(one), *written(one)}:
            uses.setdefault((at[0], buffer), []).append(at)
    ranks: dict[str, list[int]] = {}
    for (rank, buffer), users in uses.items():
        for first, second in combinations(users, 2):
            writes = buffer in (*written(graph.at(first)), *written(graph.at(second)))
            if writes and not (
                _before(graph, clocks, first, second) or _before(graph, clocks, second, first)
            ):
                ranks.setdefault(_race(graph.at(first), graph.at(second), buffer), []).append(rank)
    return [Finding(RACE, tuple(on), f"{_named(on)}: {says}") for says, on in ranks.items()]


def _race(first: Operation, second: Operation, buffer: str) -> str:
    """One race as a sentence, without its ranks."""
    does = [
        "sums" if isinstance(one, AllReduce) else "writes" if buffer in written(one) else "reads"
        for one in (first, second)
    ]
    return (
        f"{first.name} {does[0]} {buffer} on the {first.stream} stream while {second.name} {does[1]} it on "
        f"the {second.stream} stream; record an event after {first.name}, wait for it before {second.name}"
    )


def vector_clocks(graph: Links, order: list[At]) -> dict[At, dict[tuple[int, str], int]]:
    """For each operation, in an order in which they can run: how many of each stream's are over, or are it.

    ``order``: as ``streams.times`` gives it. One happens before another if the other's clock counts it.
    """
    clocks: dict[At, dict[tuple[int, str], int]] = {}
    for at in order:
        clock: dict[tuple[int, str], int] = {}
        for earlier in graph.before[at]:
            for stream, count in clocks[earlier].items():
                clock[stream] = max(clock.get(stream, 0), count)
        own = (at[0], graph.at(at).stream)
        clock[own] = clock.get(own, 0) + 1
        clocks[at] = clock
    return clocks


def _before(graph: Links, clocks, first: At, second: At) -> bool:
    own = (first[0], graph.at(first).stream)
    return clocks[second].get(own, 0) >= clocks[first][own]


def _named(ranks: Sequence[int]) -> str:
    return f"{'ranks' if len(ranks) > 1 else 'rank'} {', '.join(map(str, ranks))}"
