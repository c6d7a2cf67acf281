"""Who waits in what: a rank that is missed here waits there, and what holds them all is the verdict."""

from dataclasses import replace

import pytest

from labkit.evidence.hang.read import hang_of
from labkit.evidence.hang.records import COMPLETED, SCHEDULED, STARTED, Evidence, Group, Source, Wait
from tests.evidence.hang.made import call, dumps, group, watchdog

WORLD, PAIR = group(4), Group("1", (0, 1), description="tp")
OPEN = ("all_reduce", 4, STARTED)


def job(calls, groups=(WORLD, PAIR), ranks=4):
    """Dumps with states: ``calls[rank]`` is a list of (group, sequence, operation, state, more)."""
    evidence = Evidence(groups=list(groups), calls_recorded=True, states_recorded=True)
    for rank in range(ranks):
        evidence.sources.append(Source(f"dump_{rank}", "dump", rank))
        evidence.ranks.add(rank)
        for order, (of, sequence, operation, state, *more) in enumerate(calls.get(rank, [])):
            about = more[0] if more else {}
            evidence.calls.append(call(rank, of, sequence, operation, 8, state, order=order, **about))
    return evidence


def test_a_pair_that_stalls_explains_why_the_others_miss_its_ranks():
    held = [(WORLD, 1, "all_reduce", COMPLETED), (PAIR, 1, "all_reduce", STARTED)]
    free = [(WORLD, 1, "all_reduce", COMPLETED), (WORLD, 2, "all_reduce", STARTED)]
    hang = hang_of(job({0: held, 1: held, 2: free, 3: free}))
    assert (hang.verdict, hang.findings[0].group, hang.suspects) == ("stall", PAIR, ())
    missed = next(one for one in hang.findings if one.group == WORLD)
    assert (missed.verdict, missed.suspects) == ("missing_rank", ())
    assert "ranks 0 and 1 wait in call 1 of group 1 (tp)" in missed.reason


def test_one_call_queued_ahead_in_a_pair_makes_no_circle():
    """Rank 2 never came to the call of all; rank 1 has queued the next one of its pair behind that."""
    first = (WORLD, 1, "all_reduce", COMPLETED)
    waits = [first, (WORLD, 2, "all_reduce", STARTED)]
    hang = hang_of(job({0: waits, 1: [*waits, (PAIR, 1, "all_reduce", SCHEDULED)], 2: [first], 3: waits}))
    assert (hang.verdict, hang.absent, hang.suspects) == ("missing_rank", (2,), (2,))


@pytest.mark.parametrize("operation", ["broadcast", "reduce"])
@pytest.mark.parametrize("after", [True, False])
def test_a_call_of_one_root_that_one_rank_has_not_ended_is_not_healthy(operation, after):
    """Others may leave such a call behind: rank 3 waits in it, and is not blamed for what comes next."""
    on = [(WORLD, 3, "all_reduce", STARTED)] if after else []
    done = [(WORLD, 1, "all_reduce", COMPLETED), (WORLD, 2, operation, COMPLETED), *on]
    hang = hang_of(job({0: done, 1: done, 2: done, 3: [*done[:1], (WORLD, 2, operation, STARTED)]}, (WORLD,)))
    assert (hang.verdict, hang.first.sequence, hang.ahead, hang.suspects) == ("undecided", 2, (3,), ())
    assert "rank 3 has not ended call 2" in hang.reason and "or the dumps were taken" in hang.reason


def test_roots_are_in_no_dump():
    open_ = [(WORLD, 1, "broadcast", STARTED)]
    hang = hang_of(job(dict.fromkeys(range(4), open_), (WORLD,)))
    assert hang.verdict == "undecided" and "different roots" in hang.reason
    known = job({rank: [(*open_[0], {"root": 0})] for rank in range(4)}, (WORLD,))
    assert hang_of(known).verdict == "stall"


def test_a_rank_that_gave_up_one_call_earlier_is_no_part_of_a_stall():
    rows = [
        (rank, 12 if rank == 2 else 13, "all_gather", 4, 13, 11 if rank == 2 else 12) for rank in range(4)
    ]
    hang = hang_of(watchdog(group(4), rows))
    assert (hang.verdict, hang.suspects) == ("undecided", ())
    assert "rank 2 gave up in call 12" in hang.reason and "ranks 0, 1 and 3 gave up in call 13" in hang.reason


def transfer(operation, sequence, peer, state=STARTED):
    return WORLD, sequence, operation, state, {"peer": peer}


@pytest.mark.parametrize("first, then", [("recv", "send"), ("send", "recv")])
@pytest.mark.parametrize("queued", [True, False])
def test_both_sides_send_or_receive_first(first, then, queued):
    """The counterparts stand behind, or were never reached."""
    calls = {
        rank: [transfer(first, 1, 1 - rank), *([transfer(then, 2, 1 - rank, SCHEDULED)] if queued else [])]
        for rank in (0, 1)
    }
    hang = hang_of(job(calls, (WORLD,)))
    assert (hang.verdict, hang.ahead, hang.suspects) == ("circular_wait", (0, 1), ())
    assert f"rank 0 in {first}" in hang.reason
    together = {rank: [transfer(first, 1, 1 - rank), transfer(then, 1, 1 - rank)] for rank in (0, 1)}
    assert hang_of(job(together, (WORLD,))).verdict == "stall"  # one launch: neither stands behind the other


def test_three_ranks_receive_from_each_other_in_a_ring():
    hang = hang_of(job({rank: [transfer("recv", 1, (rank + 1) % 3)] for rank in range(3)}, (WORLD,)))
    assert (hang.verdict, hang.ahead) == ("circular_wait", (0, 1, 2))


def test_an_open_transfer_that_fell_out_of_a_ring_makes_no_mismatch_of_the_next():
    evidence = job({0: [transfer("send", 8, 1)], 1: [transfer("recv", 7, 0)]}, (WORLD,))
    evidence.calls = [replace(one, order=9, sizes_in=((100 + one.rank,),)) for one in evidence.calls]
    hang = hang_of(evidence)
    assert hang.verdict == "undecided" and "a ring has lost those before" in hang.reason
    evidence.calls = [replace(one, order=0) for one in evidence.calls]
    assert hang_of(evidence).verdict == "mismatch"


def test_the_rank_that_still_has_the_open_call_is_not_the_one_that_is_late():
    """Rings of the others lost call 2, in which all wait for rank 3, of which there is no dump."""
    of = group(5)
    evidence = dumps(5, [[("all_reduce", 4), *[OPEN] * 9]] * 5, of=of, missing=(3,))
    lost = [one for one in evidence.calls if one.sequence <= 2 if one.rank == 2]
    evidence.calls = [*lost, *(one for one in evidence.calls if one.sequence > 2 and one.rank != 2)]
    hang = hang_of(evidence)
    assert hang.suspects == () and "rank 2 waits in call 2" in hang.reason


def test_a_watchdog_in_a_receive_is_held_against_no_collective():
    """PyTorch counts transfers and collectives apart: RECV 9 is not after ALLREDUCE 4."""
    for of in (group(4), Group("")):
        evidence = watchdog(of, [(rank, 4, "all_reduce", 8, None, None) for rank in (1, 2, 3)])
        waits = call(0, of, 9, "recv", 64, state="", line=0)
        evidence.waits.append(Wait(0, of, "log:0", waits, 600.0, 600.0))
        hang = hang_of(evidence)
        assert hang.suspects == () and "ranks 0, 1, 2 and 3 wait" not in hang.reason
        assert "rank 0 wait in call 4" not in hang.reason and "ranks 0 to 3" not in hang.reason


def test_a_rank_without_sizes_joins_no_two_that_differ():
    evidence = dumps(3, [[OPEN], [OPEN], [("all_reduce", 8, STARTED)]])
    evidence.calls[0] = replace(evidence.calls[0], sizes_in=None)
    hang = hang_of(evidence)
    assert (hang.verdict, hang.first.sequence) == ("mismatch", 1)
    assert "call all_reduce of [4] float" in hang.reason


def test_dumps_that_nobody_gave_up_for_may_be_of_a_job_that_runs():
    evidence = dumps(4, [[("all_reduce", 4)], *[[("all_reduce", 4), OPEN]] * 3])
    assert "take them once more" in hang_of(evidence).reason
    evidence.waits.append(Wait(1, evidence.groups[0], "log", waited=600.0, limit=600.0))
    assert "take them once more" not in hang_of(evidence).reason


def test_messages_without_a_group_blame_nobody():
    """PyTorch 1.12: three ranks of one group and one of another may each be right."""
    rows = [(rank, 4, "all_gather" if rank == 3 else "all_reduce", 8, None, None) for rank in range(4)]
    hang = hang_of(watchdog(Group(""), rows))
    assert (hang.verdict, hang.suspects) == ("mismatch", ()) and "may be calls of two" in hang.reason
    assert hang_of(watchdog(group(4), rows)).suspects == (3,)


def test_a_rank_that_calls_alone_is_not_blamed_where_all_others_wait_elsewhere():
    """Ranks 0 to 2 of the world wait for transfers from outside of it; rank 3 went on as it should."""
    waits = {rank: [(WORLD, 1, "all_reduce", COMPLETED), transfer("recv", 1, rank + 4)] for rank in range(3)}
    pairs = group(8, "9")
    for rank in range(3):
        waits[rank][1] = (pairs, *waits[rank][1][1:])
    alone = [(WORLD, 1, "all_reduce", COMPLETED), (WORLD, 2, "all_reduce", STARTED)]
    hang = hang_of(job({**waits, 3: alone}, (WORLD, pairs)))
    world = next(one for one in hang.findings if one.group == WORLD)
    assert (world.verdict, world.absent, world.suspects) == ("missing_rank", (0, 1, 2), ())
