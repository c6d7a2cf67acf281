"""Jobs of four real processes: the recordings, and the real thing where torch is installed."""

import multiprocessing

import numpy as np
import pytest
from pytest import approx

from labkit.errors import InputRefused
from labkit.evidence.triage import distribution, scaling_triage
from labkit.evidence.triage.scaling_job import CASES, recorded_steps, run_scaling_job
from tests.evidence.torch_jobs import needs_torch

CAUSES = {
    "one worker": "data_loading",
    "straggler": "late_ranks",
    "saving": "late_ranks",
    "contention": "contention",
}


@pytest.mark.parametrize("case", CASES)
def test_the_recording_is_whole_and_its_parts_fit_together(case):
    job = recorded_steps(case)
    assert job.step.shape == (60, 4) and job.alone.shape == (4,)
    assert job.work + job.exchange == approx(job.step, abs=2e-3)
    assert np.all(job.load <= job.work + 1e-6)
    assert np.all(np.diff(job.arrival, axis=0) > 0) and job.arrival.min() == 0


@pytest.mark.parametrize("case", CASES)
def test_the_triage_decides_every_recording(case):
    assert scaling_triage(recorded_steps(case).evidence()).cause.kind == CAUSES[case]


def test_one_worker_starves_one_rank_and_the_others_wait_for_it_in_the_collective():
    job = recorded_steps("one worker")
    load, inside = job.load.mean(axis=0), job.exchange.mean(axis=0)
    starved = int(load.argmax())
    assert np.delete(load, starved).max() < 0.1 * load[starved]
    assert inside.argmin() == starved and np.delete(inside, starved).min() > 5 * inside[starved]
    # 8 samples x 12 ms: what one worker needs for a batch is what every rank's step takes
    assert job.step.mean() == approx(0.096, rel=0.05)


def test_the_straggler_is_found_from_work_and_from_arrivals_and_not_from_steps():
    job = recorded_steps("straggler")
    for measured in ({"work": job.work}, {"arrivals": job.arrival}):
        found = distribution(job.step, **measured)
        assert found.cause == "one rank" and found.last.rank == 2
    alone = distribution(job.step)
    assert alone.bimodal and alone.cause is None and alone.of("cannot_be_told")


def test_saving_comes_back_every_tenth_step_and_is_rank_0():
    job = recorded_steps("saving")
    found = distribution(job.step, job.work)
    assert found.period == 10 and found.slow == (9, 19, 29, 39, 49, 59)
    assert found.cause == "one rank" and found.last.rank == 0 and found.last.share == 1


def test_contention_slows_the_shortest_rank_too():
    (calls,) = recorded_steps("contention").evidence().exchanges
    assert calls.expected == approx(recorded_steps("contention").alone.min())
    assert calls.transfer > 1.25 * calls.expected and calls.waiting < calls.transfer - calls.expected


@needs_torch
def test_a_real_job_of_now():
    job = run_scaling_job("straggler", steps=24)
    assert job.step.shape == (24, 4) and multiprocessing.active_children() == []
    slow = job.work[:, 2] > 0.15
    assert 0.2 < slow.mean() < 0.8
    assert np.median(job.step[slow].max(axis=1)) > np.median(job.step[~slow].max(axis=1)) + 0.05
    assert distribution(job.step, job.work).last.rank == 2


@pytest.mark.parametrize(("case", "steps"), [("fate", 10), ("straggler", 0), ("straggler", "x"), (None, 1)])
def test_refused(case, steps):
    with pytest.raises(InputRefused):
        run_scaling_job(case, steps)
    if case not in CASES:
        with pytest.raises(InputRefused, match="use one worker"):
            recorded_steps(case)
