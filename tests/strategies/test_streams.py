"""Programs on streams: what they compute with and without their waits, and what the checker finds."""

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from labkit.errors import InputRefused
from labkit.strategies.stream_check import DEADLOCK, IDLE, MISSING, RACE, check, vector_clocks
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
from labkit.strategies.tensor_streams import WAYS, tensor_case

DOUBLE = Kernel("double", ("x",), "y", lambda x: 2 * x)
ADD = Kernel("add", ("y",), "z", lambda y: y + 1)
SEND = [Record("made"), Wait("made"), AllReduce("y"), Record("summed", COMMUNICATION)]
HELD = Wait("summed", COMPUTE)
START = [{"x": np.array([1.0])}, {"x": np.array([10.0])}]


def kinds(programs):
    return [finding.kind for finding in check(programs)]


def test_with_its_waits_the_sum_arrives():
    outcome = run([[DOUBLE, *SEND, HELD, ADD]] * 2, START)
    assert [one["z"].item() for one in outcome.buffers] == [23, 23] and outcome.finished
    assert outcome.timeline.span == 3 and outcome.timeline.coverage == 0
    assert check([[DOUBLE, *SEND, HELD, ADD]] * 2) == []


def test_without_the_wait_the_number_is_stale_and_nothing_complains():
    programs = [[DOUBLE, *SEND, ADD]] * 2
    outcome = run(programs, START)
    assert [one["z"].item() for one in outcome.buffers] == [3, 21] and outcome.finished
    (found,) = check(programs)
    assert found.kind == RACE and found.ranks == (0, 1)
    assert "all_reduce of y sums y" in found.says and "add reads it" in found.says
    assert "record an event after all_reduce of y, wait for it before add" in found.says


def test_a_race_is_found_where_the_times_hide_it():
    """The kernel is so late that its number is right; nothing makes it so."""
    late = Kernel("wait about", ("x",), "u", lambda x: x, seconds=9.0)
    programs = [[DOUBLE, *SEND, late, ADD]] * 2
    assert run(programs, START).buffers[0]["z"].item() == 23
    assert kinds(programs) == [RACE]


def test_what_is_overwritten_too_early_is_a_race_as_well():
    again = Kernel("double", ("x",), "y", lambda x: 0 * x)
    assert kinds([[DOUBLE, *SEND, again]] * 2) == [RACE]
    assert kinds([[DOUBLE, *SEND, HELD, again]] * 2) == []


def test_a_wait_before_its_record_holds_nothing():
    programs = [[DOUBLE, Wait("made"), Record("made"), AllReduce("y")]] * 2
    assert kinds(programs) == [IDLE, RACE]
    assert "ranks 0, 1: the wait for 'made' holds nothing" in check(programs)[0].says


def orders(*communicators):
    return [DOUBLE, Record("made"), Wait("made"), *(AllReduce("y", communicator=c) for c in communicators)]


def test_two_communicators_in_opposite_orders_hang():
    programs = [orders("data", "tensor"), orders("tensor", "data")]
    outcome = run(programs, START)
    assert not outcome.finished and outcome.buffers[0]["y"].item() == 2
    (found,) = check(programs)
    assert found.kind == DEADLOCK and found.ranks == (0, 1)
    assert "rank 0 waits in the all_reduce of y (communicator data) for rank 1" in found.says
    assert "rank 1 waits in the all_reduce of y (communicator tensor) for rank 0" in found.says
    assert "same order on every rank" in found.says
    assert check([orders("data", "tensor")] * 2) == []


@pytest.mark.parametrize("n", [3, 5])
def test_a_circle_of_many_ranks(n):
    """Rank r starts with communicator r."""
    names = [f"c{rank}" for rank in range(n)]
    programs = [orders(*names[rank:], *names[:rank]) for rank in range(n)]
    found = check(programs)
    assert [one.kind for one in found] == [DEADLOCK] and len(found[0].ranks) >= 2


def test_a_call_that_one_rank_never_makes():
    (found,) = check([[DOUBLE, *SEND], [DOUBLE]])
    assert found.kind == MISSING and found.ranks == (0,)
    assert "waiting for ever for rank 1, which never calls it" in found.says
    assert not run([[DOUBLE, *SEND], [DOUBLE]], START).finished


@st.composite
def programs(draw):
    """One program of a few kernels and all_reduces on three buffers, waits and records at random."""
    names, program = ("x", "y", "z"), []
    for number in range(draw(st.integers(1, 8))):
        kind, stream = draw(st.sampled_from("krwa")), draw(st.sampled_from([COMPUTE, COMMUNICATION]))
        event, buffer = draw(st.sampled_from("ef")), draw(st.sampled_from(names))
        seconds = draw(st.sampled_from([1.0, 2.5]))
        source = draw(st.sampled_from(names))
        program.append(
            {
                "k": Kernel(f"k{number}", (source,), buffer, lambda x, k=number: 2 * x + k, seconds, stream),
                "r": Record(event, stream),
                "w": Wait(event, stream),
                "a": AllReduce(buffer, seconds),
            }[kind]
        )
    return [*program, Kernel("end", ("x",), "x", lambda x: x)]


@given(programs(), st.lists(st.floats(0.1, 9), min_size=9, max_size=9))
@settings(max_examples=150)
def test_without_a_race_the_times_do_not_matter(program, seconds):
    """The checker finds nothing: the result is that of any other duration of every operation."""
    assume(RACE not in kinds([program] * 2))
    start = [{name: np.array([rank + 1.0]) for name in "xyz"} for rank in range(2)]
    other = [
        type(one)(**{name: getattr(one, name) for name in one.__slots__} | {"seconds": each})
        if isinstance(one, Kernel | AllReduce)
        else one
        for one, each in zip(program, seconds, strict=False)
    ]
    first, second = (run([one] * 2, start) for one in (program, other))
    assert first.finished and second.finished
    for held, again in zip(first.buffers, second.buffers, strict=True):
        assert {name: value.item() for name, value in held.items()} == {n: v.item() for n, v in again.items()}


@pytest.mark.parametrize("late_first", [True, False])
def test_a_circle_is_found_beside_a_call_that_is_missing(late_first):
    late = [AllReduce("y", communicator="late")]
    first = orders("data", "tensor")
    programs = [late + first if late_first else first + late, orders("tensor", "data")]
    assert kinds(programs) == [DEADLOCK, MISSING]


@given(programs(), programs())
@settings(max_examples=60)
def test_clocks_are_the_paths_of_the_graph(one, other):
    """An operation happens before another if and only if links lead from it to that one."""
    graph = links([one, other])
    order = list(times(graph)[0])
    clocks, earlier = vector_clocks(graph, order), {}
    for at in order:
        earlier[at] = {at}.union(*(earlier[before] for before in graph.before[at]))
    for first in order:
        own = (first[0], graph.at(first).stream)
        for second in order:
            assert (clocks[second].get(own, 0) >= clocks[first][own]) == (first in earlier[second])


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


# ---- tensor parallel


@pytest.mark.parametrize("t", [1, 2, 4])
@pytest.mark.parametrize("way", WAYS)
def test_legal_overlaps_are_right_and_the_illegal_one_is_found(way, t):
    case = tensor_case(way, t)
    outcome = run(case.programs, case.buffers)
    right = all(
        np.allclose(held[name], value, rtol=1e-12)
        for held in outcome.buffers
        for name, value in case.expected.items()
    )
    illegal = way == "beside the next block"
    assert kinds(case.programs) == ([RACE] if illegal else [])
    assert right == (not illegal or t == 1) and outcome.finished and case.expected


def test_the_legal_ways_do_overlap():
    def coverage(way):
        case = tensor_case(way)
        return run(case.programs, case.buffers).timeline.coverage

    assert coverage("in turn") == 0
    # Units of one: of two halves of two blocks all but the last travels beside a product.
    assert coverage("half batches") == 3 / 4 and coverage("beside weight gradients") == 1
    assert 0 < coverage("in chunks") < 1


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: run([], []), "list of programs"),
        (lambda: run([[DOUBLE]], []), "list with the buffers"),
        (lambda: run([[DOUBLE]], [3]), "buffers of a rank"),
        (lambda: run([[DOUBLE]], [{}]), "double reads 'x', which no buffer holds"),
        (lambda: run([[Record("e")]], [{}]), "nothing of these programs can run"),
        (lambda: run([["x"]], [{}]), "an operation is 'x'"),
        (lambda: check([[Record("e", "third")]]), "stream is 'third'"),
        (lambda: check([[AllReduce("y", 0)]]), "seconds of all_reduce of y is 0"),
        (lambda: check([[Kernel("k", (), "y", 3)]]), "what k computes is 3"),
        (lambda: check([[Kernel("k", "x", "y", abs)]]), "k reads 'x'"),
        (lambda: tensor_case("sideways"), "the way is 'sideways'"),
        (lambda: tensor_case("in turn", 9), "from 1 to 8"),
        (lambda: run([[AllReduce("y")]] * 2, [{"y": [1.0]}, {"y": [1.0, 2.0]}]), "2 shapes"),
    ],
)
def test_refused(call, words):
    with pytest.raises(InputRefused, match=words):
        call()
