"""The proof passes what is right, catches what is not, and moves real numbers."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labkit.collectives import Send, from_sends, history, prove, run, trace
from labkit.errors import InputRefused
from tests.collectives.collective_cases import PAIRS, machine


def two_ranks(*sends, op="all_reduce"):
    return from_sends(op, "by hand", 2, 1, 1, sends)


def test_a_trace_written_by_hand_is_proved_too():
    assert prove(two_ranks(Send(0, 0, 1, 0, True), Send(0, 1, 0, 0, True))).messages == 2


@pytest.mark.parametrize(
    ("sends", "words"),
    [
        ([Send(0, 0, 1, 0, True)], r"rank 0 holds the contributions \[0\] to chunk 0"),
        (
            [Send(0, 0, 1, 0, True), Send(1, 1, 0, 0, True)],
            "round 1: rank 0 adds the contribution of rank 0 to chunk 0 a second time",
        ),
        ([Send(0, 0, 1, 0, False), Send(0, 1, 0, 0, True)], r"rank 1 holds the contributions \[0\]"),
    ],
)
def test_what_goes_wrong_is_named(sends, words):
    with pytest.raises(InputRefused, match=words):
        prove(two_ranks(*sends))


@pytest.mark.parametrize(
    ("op", "n", "parts", "chunks", "sends", "words"),
    [
        ("allreduce", 2, 1, 1, [], "'allreduce' is no operation; use one of all_reduce"),
        ("all_reduce", 0, 1, 1, [], "at least 1, not 0"),
        ("all_reduce", 2, 0, 0, [], "0 pieces; use at least 1"),
        ("all_gather", 2, 1, 1, [], "1 pieces; use 2 or a multiple"),
        ("all_to_all", 2, 2, 2, [], "has 4 chunks, not 2"),
        ("all_reduce", 2, 1, 1, [Send(0, 0, 2, 0, True)], "cannot send chunk 0 to rank 2; .* 0 .. 1"),
        ("all_reduce", 2, 1, 1, [Send(0, -1, 0, 0, True)], "round 0: rank -1 cannot send"),
        ("all_reduce", 2, 1, 1, [Send(1, 0, 1, 1, True)], "round 1: .* chunks 0 .. 0"),
        ("all_reduce", 2, 1, 1, [Send(-1, 0, 1, 0, True)], "rounds count from 0"),
    ],
)
def test_what_cannot_be_a_trace_is_refused(op, n, parts, chunks, sends, words):
    with pytest.raises(InputRefused, match=words):
        from_sends(op, "by hand", n, parts, chunks, sends)


@pytest.mark.parametrize(("op", "chunks"), [("all_to_all", 16), ("send_recv", 8)])
def test_messages_of_ones_own_may_be_cut_finer(op, chunks):
    """4 pieces among 4 or 2 ranks: chunk c is piece c mod 4 of rank c div 4, sent to whom it belongs."""
    n, parts = chunks // 4, 4
    sends = [Send(0, c // 4, c % 4 if op == "all_to_all" else 1 - c // 4, c, False) for c in range(chunks)]
    made = from_sends(op, "by hand", n, parts, chunks, [send for send in sends if send.src != send.dst])
    assert prove(made).rounds == 1


def test_nobody_sends_what_it_does_not_hold():
    early = from_sends("broadcast", "by hand", 3, 1, 1, [Send(0, 0, 1, 0, False), Send(0, 1, 2, 0, False)])
    with pytest.raises(InputRefused, match="round 0: rank 1 sends chunk 0 without holding any of it"):
        prove(early)


def test_two_stores_into_one_chunk_in_a_round_are_refused():
    with pytest.raises(InputRefused, match="rank 2 is sent chunk 0 twice"):
        prove(from_sends("reduce", "by hand", 3, 1, 1, [Send(0, 0, 2, 0, False), Send(0, 1, 2, 0, True)]))


@pytest.mark.parametrize(("op", "algorithm"), [pair for pair in PAIRS if pair[0] != "barrier"])
def test_dropping_any_one_send_breaks_the_proof(op, algorithm):
    whole = trace(op, algorithm, 6, machine(3, 2, 2) if algorithm == "hierarchical" else None)
    for lost in range(len(whole.round)):
        kept = np.arange(len(whole.round)) != lost
        columns = {name: getattr(whole, name)[kept] for name in ("round", "src", "dst", "chunk", "reduce")}
        # A broadcast by scatter and all_gather hands its root pieces that the root never gave away.
        to_holder = algorithm == "hierarchical" and op == "broadcast" and whole.dst[lost] == 0
        if to_holder:
            prove(replace(whole, **columns))
        else:
            with pytest.raises(InputRefused):
                prove(replace(whole, **columns))


@given(st.data())
@settings(max_examples=60)
def test_results_are_those_of_numpy(data):
    n = data.draw(st.integers(1, 9))
    length = data.draw(st.integers(0, 40))
    inputs = np.random.default_rng(data.draw(st.integers(0, 99))).integers(-99, 99, (n, length))
    pick = {
        op: data.draw(st.sampled_from([a for o, a in PAIRS if o == op and a != "hierarchical"]), label=op)
        for op, _ in PAIRS
    }
    total, blocks = inputs.sum(axis=0), np.array_split(np.arange(length), n)

    def moved(op):
        return [result.tolist() for result in run(trace(op, pick[op], n, segments=3), inputs)]

    everywhere = [total.tolist()] * n
    assert moved("all_reduce") == everywhere
    assert moved("reduce")[0] == total.tolist()
    assert moved("reduce_scatter") == [total[block].tolist() for block in blocks]
    own = np.concatenate([inputs[rank, block] for rank, block in enumerate(blocks)]).tolist()
    assert moved("all_gather") == [own] * n
    assert moved("gather")[0] == own
    assert moved("broadcast") == [inputs[0].tolist()] * n
    assert moved("scatter") == [inputs[0, block].tolist() for block in blocks]
    assert moved("all_to_all") == [inputs[:, block].ravel().tolist() for block in blocks]
    assert moved("send_recv") == [inputs[rank - 1].tolist() for rank in range(n)]


def test_history_shows_every_round_of_a_small_ring():
    states = [
        state[:, :, 0].tolist()
        for state in history(trace("all_reduce", "ring", 2), np.array([[1, 2], [10, 20]]))
    ]
    assert states == [[[1, 2], [10, 20]], [[11, 2], [10, 22]], [[11, 22], [11, 22]]]


def test_inputs_need_a_row_per_rank():
    with pytest.raises(InputRefused, match="4 rows"):
        run(trace("all_reduce", "ring", 4), np.zeros((3, 8)))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("all_reduce", "pairwise", 4), "use one of ring"),
        (("all_reduce", "hierarchical", 4), "needs a Cluster"),
        (("all_reduce", "hierarchical", 5, machine(3, 2, 2)), "use 4 or 6"),
        (("all_reduce", "ring", 7, machine(3, 2, 2)), "cluster has 6"),
        (("broadcast", "tree", 4, None, 0), "segments"),
        (("broadcast", "tree", 4, None, None), "segments"),
    ],
)
def test_a_trace_that_cannot_be_is_refused(arguments, words):
    with pytest.raises(InputRefused, match=words):
        trace(*arguments)
