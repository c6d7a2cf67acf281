"""The made-up hang: what its ranks call, which calls meet, and where the reader sees it."""

import pytest

from labkit.course.made_hang import ABSENT, FAULTS, MORE, NETWORK, OMITTED, SHAPE, STEP, SWAPPED, made_hang
from labkit.errors import InputRefused
from labkit.evidence.hang.read import hang_of


def found(*args, **settings):
    job = made_hang(*args, **settings)
    return job, hang_of(job.evidence)


def test_a_call_left_out_shows_where_operations_first_differ():
    """Gathers are alike, so rank 1's pair with those of other layers until its sum meets a gather."""
    job, hang = found(4, OMITTED, rank=1, at=2)
    assert job.mixed == (1, 2) and job.stuck == 3
    assert (hang.verdict, hang.first.sequence, hang.suspects) == ("mismatch", 4, (1,))


def test_left_out_among_the_last_it_is_a_call_short():
    job, hang = found(4, OMITTED, rank=1, at=6)
    assert [len(calls) for calls in job.calls] == [9, 8, 9, 9] and job.mixed == (5, 6, 7)
    assert (hang.verdict, hang.absent, hang.ahead, hang.suspects) == ("missing_rank", (1,), (0, 2, 3), (1,))


def test_one_more_makes_the_others_wait():
    job, hang = found(4, MORE, rank=1, at=2)
    assert job.stuck == 1 and not job.mixed
    assert (hang.verdict, hang.suspects) == ("mismatch", (1,))


def test_swapped_calls_that_look_alike_end_with_wrong_data():
    job, hang = found(4, SWAPPED, rank=1, at=1)
    assert job.stuck is None and job.mixed == (0, 1)
    assert hang.verdict == "healthy"


def test_swapped_calls_that_differ_are_told_as_an_order():
    _, hang = found(4, SWAPPED, rank=1, at=4)
    assert (hang.verdict, hang.first.sequence, hang.suspects) == ("order", 4, (1,))


def test_the_other_faults():
    assert found(4, SHAPE, rank=2, at=5)[1].findings[0].differs == ("number of elements",)
    assert found(4, ABSENT, rank=2, at=5)[1].absent == (2,)
    stall = found(4, NETWORK, at=5)[1]
    assert (stall.verdict, stall.suspects, stall.absent) == ("stall", (), ())


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("at", range(1, len(STEP) + 1))
def test_two_ranks_blame_nobody_and_more_blame_the_one(fault, at):
    assert found(2, fault, rank=1, at=at)[1].suspects == ()
    for n in (3, 8):
        assert found(n, fault, rank=n - 1, at=at)[1].suspects in ((), (n - 1,))


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("ahead", range(4))
def test_how_far_hosts_run_ahead_does_not_move_the_difference(fault, ahead):
    _, hang = found(4, fault, rank=1, at=4, ahead=ahead)
    _, other = found(4, fault, rank=1, at=4, ahead=0)
    assert hang.first.sequence == other.first.sequence


@pytest.mark.parametrize(
    "wrong",
    [{"n": 1}, {"n": 9}, {"n": "four"}, {"fault": "sleeps"}, {"fault": 3}, {"rank": 4}, {"rank": None},
     {"at": 0}, {"at": 10}, {"ahead": 4}, {"ahead": 0.5}],
)  # fmt: skip
def test_refused(wrong):
    with pytest.raises(InputRefused):
        made_hang(**wrong)
