"""A real job of a few processes: it finishes where the ranks agree, and is stopped where they do not."""

import multiprocessing

import pytest

from labkit.errors import InputRefused
from labkit.evidence.pipeline_job import run_job


@pytest.fixture(autouse=True)
def nothing_left_behind():
    yield
    assert multiprocessing.active_children() == []


def test_ranks_that_agree_finish_with_the_gradients_of_one_process():
    report = run_job((3, 3, 3))
    assert report.finished and report.equal
    assert repr(report) == (
        "ranks 0 to 2 have 3, 3, 3 micro-batches\nfinished: the gradients equal those of one process"
    )


def test_one_micro_batch_more_hangs_and_the_watchdog_says_who_waits_for_whom():
    report = run_job((3, 2, 2), limit=2)
    assert not report.finished
    assert repr(report).splitlines() == [
        "ranks 0 to 2 have 3, 2, 2 micro-batches",
        "stopped: nobody got any further for 2 s",
        "rank 0 waits for the gradient of micro-batch 2 from rank 1",
        "rank 1 waits for all ranks, before the optimizer",
        "rank 2 waits for all ranks, before the optimizer",
    ]


def test_a_rank_short_of_one_is_waited_for_from_both_sides():
    assert run_job((3, 2, 3), limit=2).waiting == (
        "the gradient of micro-batch 2 from rank 1",
        "all ranks, before the optimizer",
        "the activation of micro-batch 2 from rank 1",
    )


def test_exchanging_the_numbers_first_cures_it():
    report = run_job((3, 2), agree=True)
    assert report.finished and report.equal and report.ran == (2, 2)
    assert "exchange these numbers first, and run 2, 2" in repr(report)


@pytest.mark.parametrize(
    ("counts", "limit", "says"),
    [
        ((4,), 3, "2 to 4 ranks"),
        ((1, 1, 1, 1, 1), 3, "2 to 4 ranks"),
        ((4, 0), 3, "1 to 64"),
        ((4, 4), 0, "watchdog waits is 0"),
        ((4, 4), float("nan"), "watchdog waits is nan"),
    ],
)
def test_refused(counts, limit, says):
    with pytest.raises(InputRefused, match=says):
        run_job(counts, limit=limit)
