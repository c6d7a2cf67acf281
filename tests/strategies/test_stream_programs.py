"""Random programs on streams: the checker against every interleaving, against runs, and against paths."""

from dataclasses import replace
from itertools import combinations

import numpy as np
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from labkit.strategies.stream_check import DEADLOCK, MISSING, RACE, check, vector_clocks
from labkit.strategies.streams import (
    COMMUNICATION,
    COMPUTE,
    AllReduce,
    Kernel,
    Record,
    Wait,
    links,
    run,
    times,
)


def kinds(programs):
    return [finding.kind for finding in check(programs)]


@st.composite
def programs(draw, most=8):
    """One program of a few kernels and all_reduces on three buffers, waits and records at random."""
    names, program = ("x", "y", "z"), []
    for number in range(draw(st.integers(1, most))):
        kind, stream = draw(st.sampled_from("krwa")), draw(st.sampled_from([COMPUTE, COMMUNICATION]))
        event, buffer = draw(st.sampled_from("ef")), draw(st.sampled_from(names))
        seconds = draw(st.sampled_from([1.0, 2.5]))
        source = draw(st.sampled_from(names))
        program.append(
            {
                "k": Kernel(f"k{number}", (source,), buffer, lambda x, k=number: 2 * x + k, seconds, stream),
                "r": Record(event, stream),
                "w": Wait(event, stream),
                "a": AllReduce(buffer, seconds, draw(st.sampled_from(["world", "pair"])), stream),
            }[kind]
        )
    return [*program, Kernel("end", ("x",), "x", lambda x: x)]


SECONDS = st.lists(st.floats(0.1, 9), min_size=20, max_size=20)


@given(programs(), programs(), st.booleans(), SECONDS)
@settings(max_examples=200)
def test_without_a_race_the_times_do_not_matter(program, another, same, seconds):
    """The checker finds no race: the result is that of any other duration of every operation."""
    begin = Kernel("begin", (), "w", lambda: np.ones(1))
    every = [[begin, *one] for one in (program, program if same else another)]
    assume(RACE not in kinds(every))
    start = [{name: np.array([rank + 1.0]) for name in "xyz"} for rank in range(2)]
    times = iter(seconds)
    other = [
        [replace(one, seconds=next(times)) if isinstance(one, Kernel | AllReduce) else one for one in program]
        for program in every
    ]
    first, second = run(every, start), run(other, start)
    assert first.finished == second.finished == (not {*kinds(every)} & {DEADLOCK, MISSING})
    for held, again in zip(first.buffers, second.buffers, strict=True):
        assert {name: value.item() for name, value in held.items()} == {n: v.item() for n, v in again.items()}


# ---- against every interleaving, by a machine that knows of no clock


def reached(programs):
    """Every state that two ranks can get to: for each stream of each, (operations begun, operations over).

    An operation begins when the one before it on its stream is over, and an event's Record if it waits for
    one; it is over at any time after that, an all_reduce only once its counterparts have begun.
    """
    streams, marks, calls = {}, {}, {}
    for rank, program in enumerate(programs):
        recorded, count = {}, {}
        for place, one in enumerate(program):
            at = (rank, place)
            streams.setdefault((rank, one.stream), []).append(at)
            if isinstance(one, Record):
                recorded[one.event] = at
            elif isinstance(one, Wait):
                marks[at] = recorded.get(one.event)
            elif isinstance(one, AllReduce):
                count[one.communicator] = count.get(one.communicator, 0) + 1
                calls[at] = (one.communicator, count[one.communicator])
    rows = list(streams.values())
    found, left = set(), [((0, 0),) * len(rows)]
    while left:
        state = left.pop()
        if state in found:
            continue
        found.add(state)
        begun = {at for row, (some, _) in zip(rows, state, strict=True) for at in row[:some]}
        over = {at for row, (_, some) in zip(rows, state, strict=True) for at in row[:some]}
        for stream, row in enumerate(rows):
            some, done = state[stream]
            new = None
            if some > done:
                at = row[done]
                here = [other for other in begun if at in calls and calls.get(other) == calls[at]]
                if at not in calls or len(here) == len(programs):
                    new = (some, done + 1)
            elif some < len(row) and marks.get(row[some]) in (None, *over):
                new = (some + 1, done)
            if new:
                left.append((*state[:stream], new, *state[stream + 1 :]))
    return rows, found


def uses(one, buffer):
    """Whether an operation uses a buffer, and whether it writes it."""
    if isinstance(one, Kernel):
        return buffer in (*one.reads, one.writes), buffer == one.writes
    return isinstance(one, AllReduce) and one.buffer == buffer, isinstance(one, AllReduce)


@given(programs(6), programs(6), st.booleans())
@settings(max_examples=300)
def test_the_checker_finds_what_some_interleaving_shows(one, other, same):
    """At work at once on a buffer that one of them writes: a race. At an end, and not all over: it hangs."""
    every = [one, one if same else other]
    rows, states = reached(every)
    races, ends = set(), []
    for state in states:
        at_work = [row[done] for row, (some, done) in zip(rows, state, strict=True) if some > done]
        for (rank, place), (where, elsewhere) in combinations(sorted(at_work), 2):
            pair = every[rank][place], every[where][elsewhere]
            for buffer in "xyz" if rank == where else "":
                (first, writes), (second, writes_too) = (uses(each, buffer) for each in pair)
                if first and second and (writes or writes_too):
                    races.add((rank, *((each.name, each.stream) for each in pair), buffer))
        ends.append(sum(done for _, done in state))
    found = check(every)
    said = [(rank, finding.says) for finding in found if finding.kind == RACE for rank in finding.ranks]
    assert len(said) == len(races)
    for rank, (first, stream), (second, _), buffer in races:
        words = (
            f": {first} ",
            f" {buffer} on the {stream} stream while {second} ",
            f"wait for it before {second}",
        )
        assert any(on == rank and all(word in says for word in words) for on, says in said)
    hangs = max(ends) < sum(map(len, every))
    assert hangs == bool({finding.kind for finding in found} & {DEADLOCK, MISSING})


@given(programs(), programs())
@settings(max_examples=60)
def test_clocks_are_the_paths_of_the_graph(one, other):
    """An operation happens before another if and only if links lead from it to that one."""
    graph = links([one, other])
    start, stop = times(graph)
    clocks = vector_clocks(graph, list(start))

    def earlier(at):
        """What is over when this begins: what is before it, and what was before each call it met."""
        found = {*graph.before[at]}
        left = [*found]
        while left:
            new = {one for call in graph.together(left.pop()) for one in graph.before[call]} - found
            found |= new
            left += new
        return found

    for second in start:
        before = earlier(second)
        for first in stop:
            own = (first[0], graph.at(first).stream)
            counted = clocks[second].get(own, 0) > clocks[first].get(own, 0)
            assert counted == (first in before)


CALLS = st.lists(st.builds(AllReduce, st.just("x"), communicator=st.sampled_from("abc")), max_size=5)


@given(st.lists(CALLS, min_size=2, max_size=4))
def test_what_hangs_is_found_and_what_is_found_hangs(calls):
    start = Kernel("start", ("x",), "y", lambda x: x, stream=COMMUNICATION)
    every = [[start, *each] for each in calls]
    hangs = not run(every, [{"x": np.ones(1)}] * len(calls)).finished
    assert hangs == bool({*kinds(every)} & {DEADLOCK, MISSING})
    counts = {tuple(sorted(one.communicator for one in each)) for each in calls}
    if len(counts) == 1 and hangs:
        assert DEADLOCK in kinds(every)
