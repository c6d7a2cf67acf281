"""Programs on streams: what they compute with and without their waits, and what the checker finds."""

import numpy as np
import pytest

from labkit.errors import InputRefused
from labkit.strategies.stream_check import DEADLOCK, IDLE, MISMATCH, MISSING, RACE, check
from labkit.strategies.streams import (
    COMMUNICATION,
    COMPUTE,
    AllReduce,
    Kernel,
    Record,
    Wait,
    run,
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


def test_what_another_rank_waits_for_orders_nothing_here():
    """Rank 1 alone waits; rank 0's call may read y at once. An event of its own mends it."""
    make, early = Kernel("make", ("x",), "y", lambda x: x), AllReduce("x", communicator="a", stream=COMPUTE)
    wait, total = [Record("made"), Wait("made")], AllReduce("y", communicator="b")
    (found,) = check([[make, early, total], [make, early, *wait, total]])
    assert (found.kind, found.ranks) == (RACE, (0,)) and "wait for it before all_reduce of y" in found.says
    assert check([[make, early, *wait, total]] * 2) == []
    late = [{"x": np.ones(1), "y": np.zeros(1)}] * 2
    ends = run([[make, early, total], [make, early, *wait, total]], late).buffers
    assert [one["y"].item() for one in ends] == [1, 1]  # rank 0 brought its old zero


def test_what_a_collective_orders_across_ranks_does_count():
    """The sum on one stream is over before what waits for it, whatever the other rank does."""
    add = Kernel("add", ("y",), "z", lambda y: y)
    mine = [AllReduce("y"), Record("summed", COMMUNICATION), Wait("summed", COMPUTE), add]
    assert check([mine, [AllReduce("y")]]) == []


def test_calls_out_of_order_on_one_communicator_are_a_mismatch():
    start = [{"g1": np.ones(1), "g2": np.full(1, 100.0)}] * 2
    one, two = AllReduce("g1"), AllReduce("g2")
    programs = [[one, two], [two, one]]
    assert [value.item() for value in run(programs, start).buffers[0].values()] == [101, 101]
    found = check(programs)
    assert [finding.kind for finding in found] == [MISMATCH] * 2 and found[0].ranks == (0, 1)
    assert found[0].says.startswith("call 1 of communicator world: sums g1 of rank 0, g2 of rank 1, as if")
    assert kinds([[AllReduce("x")], [AllReduce("y")]]) == [MISMATCH]
    (loop,) = check([[AllReduce("x")] * 4, [AllReduce("y")] * 4])
    assert "call 1 of communicator world and 3 more" in loop.says
    assert kinds([[one, two], [two]]) == [MISSING, MISMATCH]


@pytest.mark.parametrize("streams", [(COMPUTE, COMPUTE), (COMPUTE, COMMUNICATION)])
def test_two_circles_are_two_findings(streams):
    """Side by side on two streams, or one behind the other."""
    a, b, c, d = (
        AllReduce(name, communicator=name, stream=stream)
        for name, stream in zip("abcd", np.repeat(streams, 2).tolist(), strict=True)
    )
    found = check([[a, b, c, d], [b, a, d, c]])
    assert [finding.kind for finding in found] == [DEADLOCK] * 2
    assert ["communicator a" in finding.says for finding in found] == [True, False]


def test_ranks_are_named_once():
    step = [Wait("e"), DOUBLE, AllReduce("y")]
    found = check([step * 3] * 2)
    assert {finding.ranks for finding in found} == {(0, 1)}
    assert all(finding.says.startswith("ranks 0, 1: ") for finding in found)
    both = {finding.says.split("; ")[1] for finding in found if finding.kind == RACE}
    assert len(both) == 2  # an iteration's kernel before its sum, and its sum before the next kernel


@pytest.mark.parametrize("late_first", [True, False])
def test_a_circle_is_found_beside_a_call_that_is_missing(late_first):
    late = [AllReduce("late", communicator="late")]
    first = orders("data", "tensor")
    programs = [late + first if late_first else first + late, orders("tensor", "data")]
    assert kinds(programs) == [DEADLOCK, MISSING]


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
        (lambda: run([[Record("e")]], [{}]), "compute nothing and send nothing"),
        (lambda: run([[], []], [{}, {}]), "compute nothing and send nothing"),
        (lambda: run([[AllReduce("x")], []], [{}, {}]), "nothing of these programs can run"),
        (lambda: run([["x"]], [{}]), "an operation is 'x'"),
        (lambda: check([[]] * 65), "up to 64 programs"),
        (lambda: check([[HELD] * 2001]), "of 2,000 operations in all"),
        (lambda: Kernel("k", ([],), "y", abs), "a buffer of k is of type list"),
        (lambda: Kernel("k", ("x",), ["y"], abs), "a buffer of k is of type list"),
        (lambda: Kernel("k", ("x",), ("y", "z"), abs), "a buffer of k is of type tuple"),
        (lambda: Kernel("k", ("x",), None, abs), "a buffer of k is None"),
        (lambda: Kernel(None, ("x",), "y", abs), "the name of a kernel is None"),
        (lambda: Kernel("k", ("x",), "y", abs, stream=np.array(["a", "b"])), "the stream is an array"),
        (lambda: AllReduce(["x"]), "the buffer of an all_reduce is of type list"),
        (lambda: AllReduce("x", communicator=["w"]), "communicator of the all_reduce of x is of type list"),
        (lambda: AllReduce("x", communicator=None), "communicator of the all_reduce of x is None"),
        (lambda: Record(["e"]), "the event of a Record is of type list"),
        (lambda: Wait({}), "the event of a Wait is of type dict"),
        (lambda: Wait(None), "the event of a Wait is None"),
        (lambda: run([[DOUBLE]], [{"x": None}]), "arrays of numbers"),
        (lambda: run([[DOUBLE]], [{"x": 1j}]), "arrays of numbers"),
        (lambda: run([[DOUBLE]], [{1: 1.0}]), "arrays of numbers"),
        *(
            (lambda bad=bad: run([[Kernel("k", ("x",), "y", bad)]], [{"x": np.ones(2)}]), words)
            for bad, words in (
                (lambda: 1, "function of k fails with TypeError .* takes 1 array,"),
                (lambda x: 1 / 0, "function of k fails with ZeroDivisionError 'division by zero'"),
                (lambda x: x.sort(), "function of k fails with ValueError .* changes none of them"),
                (lambda x: "text", "function of k returns 'text'"),
                (lambda x: None, "function of k returns None"),
                (lambda x: [[1], [1, 2]], "function of k returns of type list"),
                (lambda x: x + 1j, "function of k returns an array"),
            )
        ),
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
