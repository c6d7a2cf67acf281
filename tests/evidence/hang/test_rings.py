"""Rings that have gone round: what was overwritten is neither guessed nor taken as not called."""

from dataclasses import replace

from labkit.evidence.hang.read import hang_of
from labkit.evidence.hang.records import COMPLETED, SCHEDULED, STARTED, Wait
from tests.evidence.hang.made import ROW, call, dumps, group

WAITS = ("all_reduce", 4, STARTED)


def rings(kept, calls=30, states=None):
    """Dumps of a group that makes one call again and again: ``kept[rank]`` are the numbers on record.

    ``states``: of the calls from a number on; all before are completed.
    """
    lists = [[("all_reduce", 4)] * calls] * len(kept)
    evidence = dumps(len(kept), lists)
    evidence.calls = [one for one in evidence.calls if one.sequence in kept[one.rank]]
    if states:
        at, state = states
        evidence.calls = [replace(one, state=state) if one.sequence >= at else one for one in evidence.calls]
    return evidence


def test_rings_that_begin_at_different_calls_are_held_against_each_other_by_sequence():
    """Weak point 3 of the official analyzer: it aligns by a number that counts all groups."""
    evidence = dumps(3, [[*ROW, WAITS]] * 3)
    evidence.calls = [
        replace(one, order=one.order + 7 * one.rank) for one in evidence.calls if one.sequence > one.rank
    ]
    assert hang_of(evidence).verdict == "stall"


def test_the_first_absent_call_is_the_one_after_the_last_though_it_was_overwritten():
    """Ranks 0 and 1 run ahead by more than their rings hold; the rank that is behind stopped at call 12."""
    kept = [range(18, 29), range(20, 31), range(5, 13), range(19, 30)]
    hang = hang_of(rings(kept, states=(13, SCHEDULED)))
    assert (hang.verdict, hang.absent, hang.suspects) == ("missing_rank", (2,), (2,))
    assert hang.first.sequence == 13 and hang.first.calls == {}
    assert "call 13 of group 0 (default_pg), which is no longer on record" in hang.reason


def test_one_ring_that_reaches_back_names_the_absent_call_and_its_words():
    kept = [range(18, 29), range(10, 31), range(5, 13), range(19, 30)]
    hang = hang_of(rings(kept, states=(13, SCHEDULED)))
    assert hang.first.sequence == 13 and set(hang.first.calls) == {1}


def test_numbers_that_transfers_took_are_no_absent_calls():
    """Rank 1 stopped after call 5; numbers 6 to 8 are no collectives on the record of rank 0."""
    evidence = rings([[3, 4, 5, 9, 10], [3, 4, 5], [9, 10]], states=(9, SCHEDULED))
    hang = hang_of(evidence)
    assert (hang.first.sequence, hang.absent) == (9, (1,))


def test_a_call_that_a_rank_completed_was_made_by_all():
    """Rank 1's dump is older than the others': it cannot be absent from what has ended since."""
    evidence = rings([range(10, 22), range(4, 13), range(12, 22)], states=(21, STARTED))
    hang = hang_of(evidence)
    assert (hang.first.sequence, hang.absent) == (21, (1,))


def test_an_open_call_at_the_head_of_a_ring_leaves_what_came_before_it_undecided():
    """All wait in the same call, but the rings begin with open ones: where they parted is overwritten."""
    evidence = rings([range(20, 31)] * 3, states=(1, SCHEDULED))
    hang = hang_of(evidence)
    assert hang.verdict == "undecided" and "have lost calls before it" in hang.reason
    assert "TORCH_FR_BUFFER_SIZE" in hang.findings[0].decide
    whole = hang_of(rings([range(1, 31)] * 3, states=(1, SCHEDULED)))
    assert whole.verdict == "stall"


def test_a_difference_after_overwritten_open_calls_is_the_first_on_record_only():
    """The counters say that call 3 was the last to end; the rings begin at 20."""
    evidence = rings([range(20, 31)] * 3, states=(1, SCHEDULED))
    evidence.calls = [
        replace(one, operation="all_gather") if one.rank == 1 and one.sequence == 25 else one
        for one in evidence.calls
    ]
    evidence.waits = [Wait(rank, group(3), "status", enqueued=30, completed=3) for rank in range(3)]
    hang = hang_of(evidence)
    assert (hang.verdict, hang.first.sequence, hang.suspects) == ("mismatch", 25, (1,))
    assert "that is the first on record" in hang.reason
    whole = [*evidence.calls, *(call(r, group(3), 19, order=18) for r in range(3))]
    evidence.waits = [replace(one, completed=19) for one in evidence.waits]
    evidence.calls = sorted(whole, key=lambda one: (one.rank, one.order))
    assert "first on record" not in hang_of(evidence).reason


def test_a_group_that_fell_out_of_a_ring_is_not_taken_as_never_called():
    """Rank 1 last used group b long ago; that rank 0 still has a completed call of it is no difference."""
    other = replace(group(2), name="b")
    evidence = rings([range(10, 31)] * 2)
    evidence.groups.append(other)
    evidence.calls.append(call(0, other, 1, state=COMPLETED, order=8))
    assert hang_of(evidence).verdict in ("healthy", "undecided")
    assert "b" not in {one.group.name for one in hang_of(evidence).findings if one.verdict == "missing_rank"}
