"""What is wrong with programs on streams, found without luck: races and deadlocks, each with its remedy.

Of two operations one happens before the other if streams, events or collectives order them (Lamport 1978);
vector clocks tell (Fidge 1988, Mattern 1989). Two that use one buffer of a rank, one of them writing, and are
not ordered are a race, whether or not the times of a run show it. Operations that wait for each other in a
circle are a deadlock.

A collective orders what it needs and no more: no rank is past it before every rank has begun it. It does not
keep a rank from beginning. A collective's kernel may read its rank's buffer as soon as its own stream starts
it, before the others come, so what made the buffer must be over by that rank's own streams and events; that
another rank waited first, and so kept the sum from being over, mends nothing.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import product

from labkit.strategies import streams
from labkit.strategies.streams import (
    COMMUNICATION,
    COMPUTE,
    AllReduce,
    At,
    Links,
    Operation,
    Record,
    Wait,
    read,
    written,
)

RACE, DEADLOCK, MISSING, IDLE = "race", "deadlock", "missing call", "wait for nothing"
MISMATCH = "mismatch"


@dataclass(frozen=True, slots=True)
class Finding:
    """One mistake: its ``kind``, the ``ranks`` it is on, and a sentence: what, where and how to mend it."""

    kind: str
    ranks: tuple[int, ...]
    says: str


def check(programs: Sequence[Sequence[Operation]]) -> list[Finding]:
    """All that is wrong with the programs, one finding for each mistake; none where all is well.

    Ranks that hang in two circles, neither of which mends the other, have two findings. What is behind a
    deadlock is not looked at. Shapes are known to ``run`` alone, which refuses unequal ones. Refused: what
    ``run`` refuses of programs.

    >>> from labkit.strategies.streams import Kernel
    >>> double = Kernel("double", ("x",), "y", lambda x: 2 * x)
    >>> [finding.kind for finding in check([[double, AllReduce("y")]] * 2)]
    ['race']
    """
    graph = streams.links(programs)
    start, stop = streams.times(graph)
    return [
        *_deadlocks(graph, stop),
        *_missing(graph),
        *_mismatches(graph),
        *_idle(graph),
        *_races(graph, list(start)),
    ]


def _deadlocks(graph: Links, over) -> list[Finding]:
    """The circles of calls that wait for each other: one of all those that hang together."""
    waits = {
        at: [earlier for call in graph.together(at) for earlier in graph.before[call] if earlier not in over]
        for at in graph.before
        if at not in over
    }
    found = []
    while circle := _circle(waits):
        found.append(_deadlock(graph, [at for at in circle if isinstance(graph.at(at), AllReduce)]))
        behind: dict[At, list[At]] = {}
        for at, ahead in waits.items():
            for one in ahead:
                behind.setdefault(one, []).append(at)
        for at in _reached(circle[0], waits) & _reached(circle[0], behind):
            del waits[at]
    return found


def _circle(waits: dict[At, list[At]]) -> list[At]:
    """A circle of operations that wait for each other, if any; takes out what it finds to be in none."""
    path: dict[At, None] = {}
    while waits:
        at = next(reversed(path), None) or next(iter(waits))
        path[at] = None
        ahead = next((one for one in waits[at] if one in waits), None)
        if ahead is None:
            del waits[at], path[at]
        elif ahead in path:
            way = [*path]
            return way[way.index(ahead) :]
        else:
            path[ahead] = None
    return []


def _reached(at: At, ways: dict[At, list[At]]) -> set[At]:
    """What can be reached from an operation."""
    found, left = {at}, [at]
    while left:
        new = {one for one in ways.get(left.pop(), ()) if one in ways} - found
        found |= new
        left += new
    return found


def _deadlock(graph: Links, calls: list[At]) -> Finding:
    # A call that is behind another one of its own rank waits there.
    pairs = [(one, after) for one, after in _round(calls) if one[0] != after[0]]
    stands = " and ".join(f"rank {one[0]} waits in {_call(graph, one)} for rank {to[0]}" for one, to in pairs)
    says = f"{stands}; launch the collectives of these communicators in the same order on every rank"
    return Finding(DEADLOCK, _ranks(one[0] for one, _ in pairs), says)


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


def _mismatches(graph: Links) -> list[Finding]:
    """Calls that form one collective, though the ranks bring different buffers to it."""
    found: dict[tuple[str, str], list[int]] = {}
    ranks: dict[tuple[str, str], tuple[int, ...]] = {}
    number = Counter()
    for calls in [calls for at, calls in graph.meets.items() if at == calls[0]]:
        communicator = graph.at(calls[0]).communicator
        number[communicator] += 1
        brings: dict[str, list[int]] = {}
        for call in calls:
            brings.setdefault(graph.at(call).buffer, []).append(call[0])
        if len(brings) > 1:
            which = communicator, ", ".join(f"{buffer} of {_named(on)}" for buffer, on in brings.items())
            found.setdefault(which, []).append(number[communicator])
            ranks[which] = _ranks(call[0] for call in calls)
    return [
        Finding(
            MISMATCH,
            ranks[communicator, brings],
            f"call {first} of communicator {communicator}{f' and {len(more)} more' if more else ''}: sums "
            f"{brings}, as if they were one buffer; launch its collectives in the same order on every rank",
        )
        for (communicator, brings), (first, *more) in found.items()
    ]


def _idle(graph: Links) -> list[Finding]:
    """Waits that hold nothing, because no record of their event was launched before them."""
    found: dict[str, list[int]] = {}
    for rank, program in enumerate(graph.programs):
        recorded = set()
        for one in program:
            if isinstance(one, Record):
                recorded.add(one.event)
            elif isinstance(one, Wait) and one.event not in recorded:
                found.setdefault(one.event, []).append(rank)
    return [
        Finding(IDLE, _ranks(on), f"{_named(on)}: the wait for {event!r} holds nothing; record it before")
        for event, on in found.items()
    ]


def _races(graph: Links, order: list[At]) -> list[Finding]:
    """Pairs that use one buffer of a rank, one of them writing, and that nothing orders."""
    clocks = vector_clocks(graph, order)
    # By rank and buffer, and stream: who does what to it, and where. What is on one stream is ordered.
    uses: dict[tuple[int, str], dict[str, dict[tuple[str, str], list[At]]]] = {}
    for at in sorted(order):
        one = graph.at(at)
        for buffer in {*read(one), *written(one)}:
            users = uses.setdefault((at[0], buffer), {COMPUTE: {}, COMMUNICATION: {}})
            users[one.stream].setdefault((one.name, _does(one, buffer)), []).append(at)
    found: dict[str, list[int]] = {}
    for (rank, buffer), users in uses.items():
        for some, others in product(users[COMPUTE].values(), users[COMMUNICATION].values()):
            if not any(buffer in written(graph.at(at)) for at in (some[0], others[0])):
                continue
            # Of a loop's many pairs one tells all, in each order of launch: the remedies differ.
            races: dict[bool, tuple[At, At]] = {}
            for one, other in product(some, others):
                if (one < other) not in races and _at_once(graph, clocks, one, other):
                    races[one < other] = min(one, other), max(one, other)
            for first, second in races.values():
                says = _race(graph.at(first), graph.at(second), buffer)
                found.setdefault(says, []).append(rank)
    return [Finding(RACE, _ranks(on), f"{_named(on)}: {says}") for says, on in found.items()]


def _race(first: Operation, second: Operation, buffer: str) -> str:
    """One race as a sentence, without its ranks."""
    return (
        f"{first.name} {_does(first, buffer)} {buffer} on the {first.stream} stream while {second.name} "
        f"{_does(second, buffer)} it on the {second.stream} stream; record an event after {first.name}, "
        f"wait for it before {second.name}"
    )


def _does(one: Operation, buffer: str) -> str:
    """What an operation does to a buffer that it uses."""
    return "sums" if isinstance(one, AllReduce) else "writes" if buffer in written(one) else "reads"


def vector_clocks(graph: Links, order: list[At]) -> dict[At, dict[tuple[int, str], int]]:
    """For each operation: how many of each stream's operations are certainly over when it begins.

    ``order``: one in which they can begin, as ``streams.times`` gives it. One happens before another if the
    other's clock counts it: it counts more of the first one's stream than the first one's own clock does.
    """
    begins: dict[At, dict[tuple[int, str], int]] = {}
    over: dict[At, dict[tuple[int, str], int]] = {}
    for at in order:
        begins[at] = _latest(over[earlier] for earlier in graph.before[at])
        together = graph.together(at)
        # A collective is over once it has begun on every rank.
        if at not in graph.missing and all(call in begins for call in together):
            known = _latest(begins[call] for call in together)
            for call in together:
                own = (call[0], graph.at(call).stream)
                over[call] = {**known, own: known.get(own, 0) + 1}
    return begins


def _latest(clocks: Iterable[dict[tuple[int, str], int]]) -> dict[tuple[int, str], int]:
    """What is over by one of these clocks or another."""
    latest: dict[tuple[int, str], int] = {}
    for clock in clocks:
        for stream, count in clock.items():
            latest[stream] = max(latest.get(stream, 0), count)
    return latest


def _at_once(graph: Links, clocks, first: At, second: At) -> bool:
    """Whether two operations may be at work at once: neither is over when the other begins."""
    return not (_before(graph, clocks, first, second) or _before(graph, clocks, second, first))


def _before(graph: Links, clocks, first: At, second: At) -> bool:
    own = (first[0], graph.at(first).stream)
    return clocks[second].get(own, 0) > clocks[first].get(own, 0)


def _ranks(on: Iterable[int]) -> tuple[int, ...]:
    return tuple(sorted({*on}))


def _named(on: Iterable[int]) -> str:
    ranks = _ranks(on)
    return f"{'ranks' if len(ranks) > 1 else 'rank'} {', '.join(map(str, ranks))}"
