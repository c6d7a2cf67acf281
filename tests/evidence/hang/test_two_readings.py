"""Evidence that fits two readings: both are named, nobody is blamed; beside it the twin that is decided."""

from dataclasses import replace

from labkit.evidence.hang.read import hang_of
from labkit.evidence.hang.records import COMPLETED, STARTED, Evidence, Frame, Group, Note, Source, Wait
from labkit.evidence.hang.waiting import open_calls
from tests.evidence.hang.made import call, dumps, group, watchdog


def log(evidence):
    """The same calls as lines of a log, which tells no states and may end anywhere."""
    evidence.sources = [Source("a.log", "log")]
    evidence.states_recorded = False
    evidence.calls = [replace(one, state="", frames=()) for one in evidence.calls]
    return evidence


def pairs(states=True):
    """Two groups of the same ranks; then rank 0 has called b and not yet a, rank 1 the other way round."""
    a, b = Group("a", (0, 1)), Group("b", (0, 1))
    evidence = Evidence(groups=[a, b], calls_recorded=True, states_recorded=states)
    for rank, of in enumerate((b, a)):
        evidence.sources.append(Source(f"dump_{rank}", "dump", rank))
        evidence.calls += [call(rank, one, 1, order=k) for k, one in enumerate((a, b))]
        evidence.calls.append(call(rank, of, 2, state=STARTED, order=2))
    return evidence


def test_logs_of_a_running_job_that_end_some_lines_apart_are_no_circle():
    """From dumps it is one: there the ranks stopped."""
    assert hang_of(pairs()).verdict == "circular_wait"
    hang = hang_of(log(pairs()))
    assert (hang.verdict, hang.suspects) == ("undecided", ())
    assert "either the groups wait for each other" in hang.reason and "or the logs end there" in hang.reason


def test_counters_without_entries_name_who_is_behind():
    """A dump may have pg_status and no entries."""
    of = group(4)
    evidence = Evidence(groups=[of], states_recorded=False)
    for rank in range(4):
        evidence.sources.append(Source(f"dump_{rank}", "dump", rank))
        enqueued = 6 if rank == 3 else 10
        evidence.waits.append(Wait(rank, of, "status", enqueued=enqueued, started=6, completed=6))
    hang = hang_of(evidence)
    assert (hang.verdict, hang.absent, hang.suspects, hang.first.sequence) == ("missing_rank", (3,), (3,), 7)
    evidence.waits = [replace(one, enqueued=10) for one in evidence.waits]
    alike = hang_of(evidence)
    assert alike.verdict == "undecided" and "either they differ, or the network" in alike.reason
    evidence.waits = [replace(one, completed=10) for one in evidence.waits]
    assert hang_of(evidence).verdict == "healthy"


def test_dumps_in_which_no_call_can_be_read_are_not_healthy():
    evidence = dumps(3, [[("all_reduce", 4)] * 3] * 3)
    evidence.calls = [replace(one, sequence=None) for one in evidence.calls]
    assert hang_of(evidence).verdict == "undecided"
    assert hang_of(dumps(3, [[]] * 3)).verdict == "undecided"


def test_a_call_left_out_of_a_program_that_repeats_itself_is_a_shift_and_no_swap():
    """Three sizes again and again: over three calls both make the same ones in another order."""
    sizes = [100 * (1 + k % 3) for k in range(20)]
    lists = [[("all_reduce", size) for size in sizes] for _ in range(8)]
    del lists[5][7]
    hang = hang_of(dumps(8, lists, states=False))
    assert (hang.verdict, hang.first.sequence, hang.suspects) == ("mismatch", 8, (5,))
    assert "without the all_reduce of [200] float of ranks 0 to 4, 6 and 7 the calls after it" in hang.reason
    swapped = [list(one) for one in [lists[0]] * 8]
    swapped[5][7:9] = reversed(swapped[5][7:9])
    assert hang_of(dumps(8, swapped, states=False)).verdict == "order"


def test_ranks_that_are_absent_because_they_wait_elsewhere_are_not_blamed():
    """gloo does not list who is in a group: rank 0 left out its call in the group of the even ranks."""
    world, even = Group("0", description="default_pg"), Group("5")
    evidence = Evidence(groups=[world, even], calls_recorded=True)
    for rank in range(8):
        evidence.sources.append(Source(f"dump_{rank}", "dump", rank))
        evidence.calls.append(call(rank, world, 1, "barrier", 1, state="", order=0))
        waits = (even, 1, "reduce_scatter") if rank in (2, 4, 6) else (world, 2, "all_reduce")
        evidence.calls.append(call(rank, *waits, 50, state="", order=1))
    hang = hang_of(evidence)
    assert (hang.verdict, hang.absent, hang.suspects) == ("undecided", (2, 4, 6), ())
    assert "ranks 2, 4 and 6 wait in call 1 of group 5" in hang.reason
    assert "who does not come there is late, or the network does not deliver there" in hang.reason


def test_a_rank_that_stopped_is_named_though_no_list_says_where_it_is_missed():
    """gloo again: rank 0 made the first barrier and nothing since; every other rank waits in some group."""
    world = Group("0", description="default_pg")
    evidence = Evidence(calls_recorded=True)
    for rank in range(8):
        evidence.sources.append(Source(f"dump_{rank}", "dump", rank))
        evidence.calls.append(call(rank, world, 1, "barrier", 1, state="", order=0))
        if rank:
            evidence.calls.append(call(rank, Group(f"tp_{rank // 2}"), 1, state="", order=1))
    assert sorted(open_calls(evidence)) == list(range(1, 8))
    hang = hang_of(evidence)
    assert (hang.verdict, hang.suspects) == ("undecided", ())
    assert "rank 0 called nothing after a call that the others have left behind" in hang.reason
    assert "rank 0" in hang.next_step


def test_a_rank_waits_in_the_first_call_that_has_not_ended():
    of = group(2)
    calls = [
        call(0, of, k + 1, state=state, order=k) for k, state in enumerate((COMPLETED, STARTED, STARTED))
    ]
    assert open_calls(Evidence(calls=calls, states_recorded=True))[0].sequence == 2
    assert open_calls(Evidence(calls=calls[:1], states_recorded=True)) == {}


def test_a_log_that_ends_inside_a_launch_of_several_calls_is_no_mismatch():
    evidence = log(dumps(4, [[("all_reduce", 8)] for _ in range(4)]))
    of = evidence.groups[0]
    for rank in range(4):
        for k in range(1 if rank == 2 else 3):
            evidence.calls.append(call(rank, of, 2, numel=100 + k, state="", line=0, order=1 + k))
    assert hang_of(evidence).verdict == "undecided"
    evidence.calls.append(call(2, of, 3, state="", line=0, order=4))  # it went on, with one call of the three
    assert hang_of(evidence).verdict == "mismatch"


def test_of_a_long_launch_the_calls_that_differ_are_named():
    evidence = dumps(3, [[]] * 3)
    of = evidence.groups[0]
    for rank in range(3):
        for k in range(500):
            numel = 7 if (rank, k) == (1, 321) else 4
            evidence.calls.append(call(rank, of, 1, numel=numel, state=STARTED, line=0, order=k))
    hang = hang_of(evidence)
    assert (hang.verdict, hang.suspects) == ("mismatch", (1,))
    assert hang.first.calls == {rank: f"all_reduce of [{7 if rank == 1 else 4}] float" for rank in range(3)}


def test_different_calls_given_up_on_in_groups_without_a_name():
    """PyTorch 1.12 names no group: call 5 and call 900 need not be of one."""
    of = Group("")
    late = [
        (rank, 900 if rank > 1 else 5, "all_gather" if rank > 1 else "all_reduce", 4, None, None)
        for rank in range(4)
    ]
    hang = hang_of(watchdog(of, late))
    assert (hang.verdict, hang.suspects) == ("undecided", ())
    assert "ranks 0 and 1 gave up in call 5" in hang.reason and "calls of different groups" in hang.reason
    counted = [
        (rank, 49 if rank == 2 else 50, "all_reduce", 4, 49 if rank == 2 else 50, 48 if rank == 2 else 49)
        for rank in range(4)
    ]
    assert hang_of(watchdog(group(4), counted)).absent == (2,)


def test_queues_of_four_lengths_have_no_majority():
    waits = [Wait(rank, Group("0"), "log", pending=10 + rank) for rank in range(4)]
    hang = hang_of(Evidence(waits=waits, ranks=set(range(4))))
    assert (hang.verdict, hang.ahead, hang.suspects) == ("missing_rank", (3,), ())
    assert (
        "rank 0 issued 3 calls fewer, rank 1 issued 2 calls fewer and rank 2 issued 1 call fewer"
        in hang.reason
    )


def test_a_majority_of_those_on_record_is_none_of_a_group_that_must_be_larger():
    """Rank 63 is one of at least 64."""
    of = Group("0", description="default_pg")
    here, back = ("all_reduce", 4, 50, 49), ("all_reduce", 4, 49, 48)
    rows = [(60, 50, *here), (61, 49, *back), (63, 50, *here)]
    hang = hang_of(watchdog(of, rows))
    assert (hang.verdict, hang.absent, hang.suspects) == ("missing_rank", (61,), ())
    assert "at least 64 ranks, of which 3 are on record" in hang.reason


def test_the_size_of_a_transfer_is_wrong_also_in_a_log_that_goes_on():
    of = group(2)
    evidence = log(dumps(2, [[("all_reduce", 4)]] * 2, of=of))
    evidence.calls += [call(0, of, 2, "send", 77, state="", line=0, order=1, peer=1)]
    evidence.calls += [call(1, of, 2, "recv", 99, state="", line=0, order=1, peer=0)]
    assert hang_of(evidence).verdict == "mismatch"
    evidence.calls[-1] = replace(evidence.calls[-1], dtype="uint8")  # as many bytes, perhaps
    assert hang_of(evidence).verdict == "undecided"


def test_a_difference_in_gloo_rings_that_went_round_may_not_be_the_first():
    lists = [[("all_reduce", 10 * (1 + k % 3)) for k in range(20)] for _ in range(4)]
    lists[0].insert(9, ("barrier", 1))
    evidence = dumps(4, lists, states=False)
    evidence.calls = [replace(one, state="") for one in evidence.calls if one.sequence > 15]
    hang = hang_of(evidence)
    assert (hang.verdict, hang.suspects) == ("mismatch", (0,)) and "the first on record" in hang.reason
    whole = dumps(4, lists, states=False)
    whole.calls = [replace(one, state="") for one in whole.calls]
    assert hang_of(whole).first.sequence == 10 and "first on record" not in hang_of(whole).reason


def test_a_stuck_call_from_different_lines_is_told():
    evidence = dumps(4, [[("all_reduce", 4, STARTED)]] * 4)
    evidence.calls[2] = replace(evidence.calls[2], frames=(Frame("save", "train.py", 55),))
    hang = hang_of(evidence)
    assert hang.verdict == "stall" and "yet they call it from different lines" in hang.reason
    assert "rank 2 from save (train.py:55)" in hang.reason


def test_a_process_that_ended_leaves_a_log_to_read_and_no_stack():
    evidence = watchdog(group(2), [(0, 5, "all_reduce", 4, 5, 4)])
    evidence.notes.append(Note("out of memory", "CUDA out of memory", "log_1:7", rank=1))
    hang = hang_of(evidence)
    assert hang.suspects == (1,) and "py-spy" not in hang.next_step and "log of rank 1" in hang.next_step


def test_calls_of_which_nothing_tells_the_rank():
    calls = [replace(call(0, group(2), 1), rank=None)] * 2
    hang = hang_of(Evidence(calls=calls, calls_recorded=True))
    assert (
        hang.verdict == "undecided" and "2 calls on record" in hang.reason and "rank_0.log" in hang.next_step
    )


def test_a_rank_that_has_not_used_a_group_is_absent_from_its_first_call():
    """Numbers of a dump begin with 1; a rank without a call in the group has made none of them."""
    hang = hang_of(dumps(4, [[], *[[("all_reduce", 4, STARTED)]] * 3]))
    assert (hang.verdict, hang.first.sequence, hang.absent) == ("missing_rank", 1, (0,))
    assert hang.first.calls[1].startswith("all_reduce of [4] float")
