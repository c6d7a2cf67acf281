"""A real job of a few processes: its steps are equal on all ranks, whatever work each has."""

import multiprocessing

import numpy as np
import pytest
from pytest import approx

from labkit.errors import InputRefused
from labkit.evidence.health import UNHEALTHY, UNKNOWN, health
from labkit.evidence.measured import Measured
from labkit.evidence.slow_rank_job import recorded_job, run_slow_rank, spread


@pytest.fixture(scope="module")
def job():
    """Three processes, one of them with three times the work; the clock of a busy machine may wobble."""
    return run_slow_rank((1, 1, 3), steps=8)


def test_the_ranks_added_up_their_vectors(job):
    assert job.sums == (6, 6, 6) and job.step.shape == job.work.shape == (8, 3)


def test_steps_are_equal_and_own_work_is_not(job):
    steps, work = job.means
    assert spread(steps) < 0.1
    assert 1.8 < work[2] / work[:2].mean() < 5
    assert np.all(work <= 1.05 * steps)


def test_no_process_is_left_behind(job):
    assert multiprocessing.active_children() == []


# ---- the recording


def test_the_recording_is_of_four_ranks_one_with_twice_the_work():
    job = recorded_job()
    assert job.units == (1, 1, 1, 2) and job.step.shape == (20, 4)
    steps, work = job.means
    assert spread(steps) < 0.01
    assert work[3] / work[:3].mean() == approx(2, rel=0.1)
    assert repr(job).splitlines()[-1].startswith("spread of the ranks: steps 0.3")


def test_the_scorecard_cannot_tell_from_steps_and_tells_from_work():
    job = recorded_job()
    steps, _ = job.means
    assert health(Measured(rank_steps=steps)).of("rank_spread").verdict == UNKNOWN
    found = health(Measured(rank_steps=steps, rank_work=job.work)).of("rank_spread")
    assert found.verdict == UNHEALTHY and found.value == approx(0.5, abs=0.1)
    assert found.look_at.startswith("rank 3 itself") and "in 100 % of 20 steps" in found.evidence


@pytest.mark.parametrize(
    ("units", "steps", "says"),
    [
        ((1,), 8, "2 to 8 ranks"),
        ((1,) * 9, 8, "2 to 8 ranks"),
        (4, 8, "give a list of their work, not 4"),
        ((1, 0), 8, "work of a rank is 0"),
        ((1, "2"), 8, "work of a rank is '2'"),
        ((1, 65), 8, "to 64"),
        ((1, 1), 0, "number of steps is 0"),
        ((1, 1), 10**6, "to 200"),
    ],
)
def test_refused(units, steps, says):
    with pytest.raises(InputRefused, match=says):
        run_slow_rank(units, steps)
