"""Verdicts on made-up evidence: each kind of hang once, its twin that must not be taken for it beside it."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from labkit.evidence.hang.read import hang_of
from labkit.evidence.hang.records import (
    SCHEDULED,
    STARTED,
    Communicator,
    Evidence,
    Group,
    Interface,
    Note,
    Source,
    Wait,
)
from tests.evidence.hang.made import ROW, call, dumps, group, watchdog

WAITS = ("all_reduce", 4, STARTED)


def facts(hang):
    return hang.verdict, hang.absent, hang.ahead, hang.suspects


def test_two_ranks_one_call_more_is_decided_but_nobody_is_blamed():
    """The minimal dump of flight_recorder.md, section 3."""
    hang = hang_of(dumps(2, [[*ROW[:1], ROW[0], WAITS], [ROW[0], ROW[0]]]))
    assert facts(hang) == ("missing_rank", (1,), (0,), ())
    assert hang.first.sequence == 3 and hang.first.group == "0 (default_pg)"
    assert "rank 1 left it out or rank 0 made one too many" in hang.reason


@pytest.mark.parametrize("odd", range(4))
def test_of_four_the_one_that_does_not_come_is_the_suspect(odd):
    lists = [[*ROW] if rank == odd else [*ROW, WAITS] for rank in range(4)]
    hang = hang_of(dumps(4, lists))
    assert facts(hang) == ("missing_rank", (odd,), tuple({0, 1, 2, 3} - {odd}), (odd,))
    assert f"rank {odd}" in hang.next_step


@pytest.mark.parametrize("odd", range(4))
def test_of_four_the_one_that_calls_alone_is_the_suspect_though_the_others_are_behind(odd):
    lists = [[*ROW, WAITS] if rank == odd else [*ROW] for rank in range(4)]
    hang = hang_of(dumps(4, lists))
    assert facts(hang) == ("missing_rank", tuple({0, 1, 2, 3} - {odd}), (odd,), (odd,))
    assert "branch on the rank" in hang.reason


@pytest.mark.parametrize("odd", range(4))
@pytest.mark.parametrize(
    "entry, differs",
    [
        (("all_gather", 4, STARTED), ("operation",)),
        (("all_reduce", 5, STARTED), ("number of elements",)),
    ],
)
def test_the_minority_is_suspected_wherever_it_stands(odd, entry, differs):
    lists = [[*ROW, entry if rank == odd else WAITS] for rank in range(4)]
    hang = hang_of(dumps(4, lists))
    assert (hang.verdict, hang.first.sequence, hang.suspects) == ("mismatch", 4, (odd,))
    assert hang.findings[0].differs[: len(differs)] == differs


def test_one_to_one_has_no_suspect():
    hang = hang_of(dumps(2, [[WAITS], [("all_gather", 4, STARTED)]]))
    assert (hang.verdict, hang.suspects) == ("mismatch", ())


@pytest.mark.parametrize("aspect", ["dtype", "root"])
def test_data_type_and_root_count_as_well(aspect):
    of, value = group(3), {"dtype": "bfloat16", "root": 1}[aspect]
    evidence = dumps(3, [[("broadcast", 4, STARTED)]] * 3)
    evidence.calls = [replace(one, root=0) for one in evidence.calls]
    evidence.calls[2] = replace(evidence.calls[2], **{aspect: value})
    hang = hang_of(evidence)
    assert (hang.verdict, hang.suspects, hang.findings[0].differs) == ("mismatch", (2,), (aspect,))
    assert of == hang.findings[0].group


def test_another_shape_of_the_same_count_is_no_mismatch():
    """A library gets a count and a type: [2, 2] and [4] pair."""
    evidence = dumps(2, [[("all_reduce", 4)], [("all_reduce", 4)]])
    evidence.calls[0] = replace(evidence.calls[0], sizes_in=((2, 2),))
    assert hang_of(evidence).verdict == "healthy"


def test_uneven_all_to_all_and_gather_are_no_mismatch():
    lists = [[("all_to_all", 4 + rank), ("scatter", 10 * (rank == 0))] for rank in range(3)]
    assert hang_of(dumps(3, lists)).verdict == "healthy"


def test_swapped_calls_are_an_order():
    one, other = ("all_reduce", 4, STARTED), ("all_gather", 8, SCHEDULED)
    hang = hang_of(dumps(4, [[other, one] if rank == 2 else [one, other] for rank in range(4)]))
    assert (hang.verdict, hang.first.sequence, hang.suspects) == ("order", 1, (2,))


def test_a_call_too_many_is_named_where_the_rest_agrees():
    extra = [("barrier", 1, STARTED), *ROW]
    hang = hang_of(dumps(3, [extra, [*ROW], [*ROW]]))
    assert (hang.verdict, hang.suspects) == ("mismatch", (0,))
    assert "without the barrier of [1] float of rank 0 the calls after it agree" in hang.reason


def test_all_called_and_nobody_ended_is_the_network():
    hang = hang_of(dumps(3, [[*ROW, WAITS]] * 3))
    assert facts(hang) == ("stall", (), (0, 1, 2), ())
    assert "nccl-tests" in hang.next_step


def test_states_of_different_moments_are_no_difference():
    """One dump was taken earlier: what others completed, all must have called."""
    early = [*ROW[:2], ("all_reduce", 16, STARTED)]
    assert hang_of(dumps(3, [early, [*ROW], [*ROW]])).verdict == "healthy"
    older = [[*ROW[:1]], [*ROW], [*ROW]]
    assert hang_of(dumps(3, older)).verdict == "healthy"


def test_gloo_leaves_every_entry_scheduled_and_that_is_no_stall():
    assert hang_of(dumps(3, [[*ROW]] * 3, states=False)).verdict == "healthy"
    hang = hang_of(dumps(3, [[*ROW], [*ROW], [*ROW[:2]]], states=False))
    assert facts(hang) == ("missing_rank", (2,), (0, 1), (2,))


def test_without_the_dump_of_a_rank_two_readings_are_left_and_both_are_named():
    hang = hang_of(dumps(4, [[*ROW, WAITS]] * 4, missing=(3,)))
    assert (hang.verdict, hang.findings[0].unknown) == ("undecided", (3,))
    assert "rank 3 did not call it, or all called it alike and the network" in hang.reason
    assert "of rank 3" in hang.next_step


def test_unknown_ranks_can_turn_a_majority():
    lists = [[*ROW, WAITS], [*ROW, WAITS], [*ROW]] + [[]] * 5
    hang = hang_of(dumps(8, lists, missing=range(3, 8)))
    assert facts(hang) == ("missing_rank", (2,), (0, 1), ())
    assert "rank" in hang.findings[0].decide


def test_a_stray_call_is_found_by_its_line():
    """Planner case F5: a barrier in rank 0's branch pairs with the others' next one; the hang comes later."""
    barrier = [("barrier", 1, "completed", line) for line in (5, 20, 20)]
    stray = [*barrier[:1], *barrier[1:], ("barrier", 1, STARTED, 20)]
    others = [("barrier", 1, "completed", 20)] * 3
    hang = hang_of(dumps(3, [stray, others, others]))
    assert facts(hang) == ("missing_rank", (1, 2), (0,), (0,))
    assert "since call 1 they come from different lines" in hang.reason and "train.py:5" in hang.reason


def test_groups_with_the_same_number_are_not_compared():
    """Planner case F15: sequence numbers of different groups say nothing about each other."""
    one, other = Group("a", (0, 1)), Group("b", (2, 3))
    evidence = dumps(2, [[*ROW]] * 2, of=one)
    evidence.groups.append(other)
    evidence.calls += [call(rank, other, 1, "broadcast", 99, order=0) for rank in (2, 3)]
    evidence.sources += [Source(f"dump_{rank}", "dump", rank) for rank in (2, 3)]
    hang = hang_of(evidence)
    assert hang.verdict == "healthy" and len(hang.findings) == 2


def test_the_same_name_with_other_ranks_is_another_group():
    one, other = Group("x", (0, 1)), Group("x", (2, 3))
    evidence = dumps(2, [[*ROW]] * 2, of=one)
    evidence.calls += [call(rank, other, 1, "broadcast", 99, order=0) for rank in (2, 3)]
    assert {finding.verdict for finding in hang_of(evidence).findings} == {"healthy"}


def test_two_groups_called_in_opposite_order_wait_in_a_circle():
    """Planner case F13: no mismatch in either group."""
    a, b = Group("a", (0, 1)), Group("b", (0, 1))
    evidence = Evidence(groups=[a, b], calls_recorded=True, states_recorded=True)
    for rank, (first, second) in enumerate([(a, b), (b, a)]):
        evidence.sources.append(Source(f"dump_{rank}", "dump", rank))
        evidence.calls += [
            call(rank, first, 1, state=STARTED, order=0),
            call(rank, second, 1, state=SCHEDULED, order=1),
        ]
    hang = hang_of(evidence)
    assert (hang.verdict, hang.ahead) == ("circular_wait", (0, 1))
    assert "NCCL_LAUNCH_ORDER_IMPLICIT" in hang.next_step


def test_each_absent_where_the_other_waits_is_a_circle_too():
    a, b = Group("a", (0, 1)), Group("b", (0, 1))
    evidence = Evidence(groups=[a, b], calls_recorded=True, states_recorded=True)
    for rank, of in enumerate((a, b)):
        evidence.sources.append(Source(f"dump_{rank}", "dump", rank))
        evidence.calls.append(call(rank, of, 1, state=STARTED, order=0))
    assert hang_of(evidence).verdict == "circular_wait"


def test_the_group_that_explains_the_other_is_the_verdict():
    """Rank 1 is absent in group b because it waits in group a, where rank 2 is absent."""
    a, b = Group("a", (1, 2)), Group("b", (0, 1))
    evidence = Evidence(groups=[b, a], calls_recorded=True, states_recorded=True)
    evidence.sources += [Source(f"dump_{rank}", "dump", rank) for rank in range(3)]
    evidence.calls += [call(0, b, 1, state=STARTED, order=0), call(1, a, 1, state=STARTED, order=0)]
    hang = hang_of(evidence)
    assert (hang.verdict, hang.findings[0].group.name, hang.absent) == ("missing_rank", "a", (2,))


def test_a_rank_that_came_after_the_limit_lacked_nothing_but_time():
    evidence = dumps(2, [[("all_reduce", 4, STARTED)]] * 2)
    evidence.calls = [
        replace(one, created=int(1e9 * (1 + 700 * one.rank)), limit=600.0) for one in evidence.calls
    ]
    hang = hang_of(evidence)
    assert (hang.verdict, hang.suspects) == ("timeout_too_short", (1,))
    early = [replace(one, created=int(1e9 * (1 + 300 * one.rank))) for one in evidence.calls]
    evidence.calls = early
    assert hang_of(evidence).verdict == "stall"


def test_watchdogs_that_all_wait_for_the_same_leave_the_missing_rank_or_the_network():
    unsized = Group("1")
    hang = hang_of(watchdog(unsized, [(rank, 1580, "all_reduce", 9, 1582, 1579) for rank in (0, 2, 3, 4)]))
    assert (hang.verdict, hang.first.sequence, hang.ahead) == ("undecided", 1580, (0, 2, 3, 4))
    assert "a rank that is not on record did not call it" in hang.reason


def test_queues_beyond_the_stuck_call_are_no_difference():
    """Ranks queue ahead by different amounts: only the call that does not end counts."""
    waits = [(0, 8, "all_reduce", 4, 11, 7), (1, 8, "all_reduce", 4, 9, 7)]
    assert hang_of(watchdog(Group("0", size=2), waits)).verdict == "stall"


def test_different_calls_in_unnamed_groups_are_not_compared_as_counts():
    """Old messages name no group: two numbers may be of two groups."""
    waits = [(0, 8, "all_reduce", 4, None, None), (1, 12, "broadcast", 4, None, None)]
    hang = hang_of(watchdog(Group(""), waits))
    assert hang.verdict == "undecided" and not hang.suspects


def test_queue_lengths_name_who_stopped_first():
    """Heartbeat messages without any number: rank 0 has issued 19 fewer."""
    of = Group("0")
    waits = [Wait(rank, of, "log", pending=84 if rank == 0 else 103) for rank in range(3)]
    hang = hang_of(Evidence(waits=waits, ranks={0, 1, 2}))
    assert facts(hang) == ("missing_rank", (0,), (1, 2), (0,))
    assert "19 calls fewer" in hang.reason


def test_a_process_that_is_gone_explains_the_waiting():
    evidence = watchdog(Group("0"), [(rank, 5, "all_reduce", 4, 5, 4) for rank in (0, 1, 2)])
    evidence.ranks.add(3)
    evidence.notes.append(Note("out of memory", "CUDA out of memory", "log:7", rank=3))
    hang = hang_of(evidence)
    assert facts(hang) == ("missing_rank", (3,), (0, 1, 2), (3,))


def test_loading_that_takes_longer_than_the_limit():
    of = Group("")
    evidence = watchdog(of, [(6, None, "all_reduce", 4, None, None)])
    evidence.notes.append(Note("loading", "35 % of 208 GB", "log:1", elapsed=1801.0, seconds=3434.0))
    hang = hang_of(evidence)
    assert hang.verdict == "timeout_too_short" and "to go when the limit passed" in hang.reason


def test_the_end_of_a_log_is_no_end_of_the_calls():
    evidence = dumps(2, [[*ROW], [*ROW[:2]]], states=False)
    evidence.sources = [Source("a.log", "log")]
    hang = hang_of(evidence)
    assert (hang.verdict, hang.absent, hang.suspects) == ("undecided", (1,), ())
    assert "or the log ends there" in hang.reason


def _bootstrap(host, name, address):
    return Interface("bootstrap", name, address, host, 1, f"{host}.log:1")


def _began(host, rank, completed=False, size=2, destroyed=False):
    of = Group("0xabc", size=size)
    return Communicator(of, host, 10 + rank, 0, rank, True, completed, destroyed, f"{host}.log:9")


def test_a_bridge_on_two_hosts_with_one_address_reaches_nobody():
    evidence = Evidence(interfaces=[_bootstrap(f"node{k}", "docker0", "172.17.0.1") for k in (1, 2)])
    hang = hang_of(evidence)
    assert hang.verdict == "wrong_interface" and "NCCL_SOCKET_IFNAME" in hang.next_step


def test_the_loopback_of_a_job_on_one_host_is_fine():
    evidence = Evidence(
        interfaces=[_bootstrap("node1", "lo", "127.0.0.1")] * 2,
        communicators=[_began("node1", rank, completed=True) for rank in (0, 1)],
    )
    assert hang_of(evidence).verdict == "undecided"


def test_different_networks_count_only_when_the_ranks_did_not_connect():
    two = [_bootstrap("node1", "eth0", "10.0.0.1"), _bootstrap("node2", "eno1", "192.168.3.4")]
    assert hang_of(Evidence(interfaces=two)).verdict == "undecided"
    refused = Note("connection", "connect to 192.168.3.4 failed: no route to host", "node1.log:9")
    assert hang_of(Evidence(interfaces=two, notes=[refused])).verdict == "wrong_interface"


def test_a_communicator_that_never_came_up():
    joined = Note("no rendezvous", "1/2 clients joined", "log:3")
    hang = hang_of(Evidence(communicators=[_began("node1", 0)], notes=[joined]))
    assert (hang.verdict, hang.absent) == ("never_formed", (1,))
    cut = hang_of(Evidence(communicators=[_began("node1", 0)]))
    assert cut.verdict == "undecided" and "or the log ends before it did" in cut.reason


def test_a_log_of_a_start_without_calls_says_which_filter_would_show_them():
    hang = hang_of(Evidence(communicators=[_began("n", rank, completed=True) for rank in (0, 1)]))
    assert hang.verdict == "undecided" and "filter does not name them" in hang.reason
    assert "NCCL_DEBUG_SUBSYS=INIT,COLL" in hang.next_step
    ended = [_began("n", rank, completed=True, destroyed=True) for rank in (0, 1)]
    assert hang_of(Evidence(communicators=ended)).verdict == "healthy"


def test_a_warning_of_a_mismatch_is_a_hint_only():
    note = Note("mismatch", "Mismatched collective detected", "log:1", ranks=(11,))
    hang = hang_of(Evidence(notes=[note]))
    assert (hang.verdict, hang.suspects) == ("undecided", ())
    assert "or a network error" in hang.reason


def test_a_stall_behind_another_groups_open_call_is_not_claimed():
    """Rank 3 left no dump: the call of all is open, and what two ranks queued after it says nothing."""
    world, pair = group(4), Group("1", (0, 1))
    evidence = dumps(4, [[WAITS]] * 4, of=world, missing=(3,))
    evidence.groups.append(pair)
    evidence.calls += [call(rank, pair, 1, "all_reduce", 8, SCHEDULED, order=1) for rank in (0, 1)]
    hang = hang_of(evidence)
    assert (hang.verdict, hang.findings[0].group) == ("undecided", world)
    assert {one.verdict for one in hang.findings} == {"undecided"}
    assert "either it stands behind that" in hang.findings[1].reason


def test_nothing_at_all_is_undecided_and_says_what_to_record():
    hang = hang_of(Evidence())
    assert (hang.verdict == "undecided" and "TORCH_FR_BUFFER_SIZE" in repr(hang)) or "recorder" in repr(hang)


ENTRIES = st.tuples(
    st.sampled_from(["all_reduce", "all_gather", "barrier"]),
    st.integers(1, 3),
    st.sampled_from(["completed", STARTED]),
)


@given(st.lists(st.lists(ENTRIES, max_size=6), min_size=2, max_size=4), st.booleans())
def test_any_record_gets_a_verdict_with_a_reason_and_a_next_step(lists, states):
    hang = hang_of(dumps(len(lists), lists, states=states))
    assert hang.reason and hang.next_step and not set(hang.absent) & set(hang.ahead)
    assert set(hang.suspects) <= set(range(len(lists)))
    assert repr(hang)


@given(st.permutations(range(4)), st.lists(ENTRIES, min_size=1, max_size=5), st.integers(0, 3))
def test_the_verdict_follows_the_ranks_when_they_are_renamed(order, common, kind):
    """No rank is assumed innocent: rename the ranks, and the suspects are renamed with them."""
    odd = [*common[:-1]] if kind == 0 else [*common, WAITS]
    lists = [odd if rank == 0 else list(common) for rank in range(4)]
    plain = hang_of(dumps(4, lists))
    renamed = hang_of(dumps(4, [lists[order.index(rank)] for rank in range(4)]))
    assert renamed.verdict == plain.verdict
    assert renamed.suspects == tuple(sorted(order[rank] for rank in plain.suspects))
