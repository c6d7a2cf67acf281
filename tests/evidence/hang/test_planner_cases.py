"""Hangs that were reported in public (planner cases F1 to F15), each with its right answer."""

import math

from labkit.evidence.hang.read import hang_of
from labkit.evidence.hang.records import Evidence, Group, Note, Source, Wait
from labkit.evidence.hang.text import read_text
from tests.evidence.hang.made import call, dumps, group, watchdog

STARTED = "started"


def test_f1_rank_2_gathers_where_the_others_reduce():
    lists = [[("all_reduce", 9_984_512, STARTED)]] * 4
    lists[2] = [("all_gather", 59_205_120, STARTED)]
    hang = hang_of(dumps(4, lists))
    assert (hang.verdict, hang.suspects) == ("mismatch", (2,))


def test_f3_a_batch_without_pictures_makes_a_smaller_bucket():
    lists = [[("all_reduce", 195_812_480, STARTED)]] * 4
    lists[0] = [("all_reduce", 51_123_456, STARTED)]
    hang = hang_of(dumps(4, lists))
    assert (hang.verdict, hang.suspects) == ("mismatch", (0,))
    assert hang.findings[0].differs == ("number of elements",)


def test_f5_a_barrier_too_many_shows_by_its_line_alone():
    """It pairs with the others' next barrier; rank 0 hangs one barrier later, at the end."""
    saving, ending = ("barrier", 1, "completed", 40), ("barrier", 1, "completed", 90)
    stray = [("barrier", 1, "completed", 33), saving, ("barrier", 1, STARTED, 90)]
    hang = hang_of(dumps(4, [stray, *[[saving, ending]] * 3]))
    assert (hang.verdict, hang.absent, hang.suspects) == ("missing_rank", (1, 2, 3), (0,))
    assert "train.py:33" in hang.reason and "since call 1" in hang.reason


def test_f7_the_limit_is_that_of_the_group_that_fired():
    """30 minutes for the start, 10 by default for the sub-group; rank 0 reads 100 GB meanwhile."""
    default, sub = group(4), Group("3", (0, 1, 2, 3), description="sub")
    evidence = dumps(4, [[("all_reduce", 4)]] * 4, of=default)
    for rank in (1, 2, 3):
        one = call(rank, sub, 5001, "all_reduce", 64, STARTED, order=1, limit=600.0)
        evidence.calls.append(one)
        evidence.waits.append(Wait(rank, sub, "log", one, waited=600.0, limit=600.0))
    evidence.groups.append(sub)
    reading = "reading the checkpoint: 40 % after 10:00, 15:00 left"
    evidence.notes.append(Note("loading", reading, "log:9", rank=0, elapsed=600.0, seconds=900.0))
    hang = hang_of(evidence)
    assert (hang.verdict, hang.absent) == ("timeout_too_short", (0,))
    assert "3 (sub)" in str(hang.first) and "that of this group" in hang.reason and "600 s" in hang.reason
    assert "of new_group" in hang.next_step


def test_f9_the_rank_with_fewer_batches_is_absent():
    """1,001 samples over 8 ranks, 126 each by rounding up, 119 left for the last: the others wait for it."""
    share = math.ceil(1001 / 8)
    last = 1001 - 7 * share
    assert (share, last) == (126, 119)
    step = ("all_reduce", 64)
    lists = [[*[step] * last, ("all_reduce", 64, STARTED)] for _ in range(7)] + [[step] * last]
    hang = hang_of(dumps(8, lists))
    assert (hang.verdict, hang.first.sequence, hang.absent, hang.suspects) == (
        "missing_rank",
        120,
        (7,),
        (7,),
    )
    assert "drop_last" in hang.next_step and "Join" in hang.next_step


def test_f11_a_degenerate_record_is_unreadable_not_a_finding():
    text = (
        "[rank1]: RuntimeError: Detected mismatch between collectives on ranks. Rank 1 is running "
        "collective: CollectiveFingerPrint(SequenceNumber=412, OpType=ALLREDUCE, TensorShape=[1], "
        "TensorDtypes=Float, "
        "TensorDeviceTypes=TensorOptions(dtype=float (default), device=cuda)), but Rank 0 is running "
        "collective: CollectiveFingerPrint(SequenceNumber=0, OpType=GATHER).\n"
    )
    hang = hang_of(read_text(text, "job.log"))
    assert (hang.verdict, hang.suspects) == ("undecided", ())
    assert any("cannot be read" in warning for warning in hang.warnings)


def test_f13_transfers_and_sums_on_two_communicators_wait_for_each_other():
    """No mismatch in either: rank 0 has the transfer before the sum, rank 1 the sum before the transfer."""
    pair, world = Group("p2p", (0, 1)), Group("dp", (0, 1))
    evidence = Evidence(groups=[pair, world], calls_recorded=True, states_recorded=True)
    evidence.sources += [Source(f"dump_{rank}", "dump", rank) for rank in (0, 1)]
    evidence.calls += [
        call(0, pair, 1, "send", 8, STARTED, order=0, peer=1),
        call(0, world, 1, "all_reduce", 4, "scheduled", order=1),
        call(1, world, 1, "all_reduce", 4, STARTED, order=0),
        call(1, pair, 1, "recv", 8, "scheduled", order=1, peer=0),
    ]
    hang = hang_of(evidence)
    assert hang.verdict == "circular_wait" and not hang.suspects


def test_f15_messages_of_different_groups_are_not_compared():
    one, other = Group("1", (0, 1)), Group("2", (2, 3))
    evidence = watchdog(one, [(0, 40, "all_reduce", 8, 40, 39), (1, 40, "all_reduce", 8, 40, 39)])
    evidence.add(watchdog(other, [(2, 7, "all_gather", 99, 7, 6), (3, 7, "all_gather", 99, 7, 6)]))
    hang = hang_of(evidence)
    assert hang.verdict == "stall" and {one.verdict for one in hang.findings} == {"stall"}
