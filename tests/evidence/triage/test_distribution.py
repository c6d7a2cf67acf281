"""Step-time distributions: what is said, of cases whose cause is known."""

import numpy as np
import pytest
from pytest import approx

from labkit.errors import InputRefused
from labkit.evidence.triage import distribution

RANKS, STEPS = 4, 400


def job(kind, seed=0, measured="work"):
    """Steps of 0.8 s, half of them (or every tenth) 0.8 s longer for one reason; times of ranks beside it."""
    rng = np.random.default_rng(seed)
    scatter = 1 + 0.01 * rng.standard_normal((STEPS, RANKS))
    work = 0.5 * scatter
    slow = rng.random(STEPS) < 0.5
    if kind == "periodic":
        slow = np.arange(STEPS) % 10 == 9
    rank = {"one rank": np.full(STEPS, 2), "changing ranks": rng.integers(0, RANKS, STEPS)}.get(kind)
    if kind in ("all together", "periodic"):
        work[slow] += 0.8
    elif rank is not None:
        work[slow, rank[slow]] += 0.8
    steps = work.max(axis=1) + 0.3 + (0.8 * slow if kind == "the exchange" else 0)
    if measured == "arrivals":
        work = work + np.concatenate([[0], np.cumsum(steps)[:-1]])[:, None]
    return steps, slow, work


@pytest.mark.parametrize("kind", ["one rank", "changing ranks", "all together", "the exchange"])
def test_the_cause_of_slow_steps_is_found_from_own_work(kind):
    steps, slow, work = job(kind)
    found = distribution(steps, work)
    assert found.cause == kind and found.bimodal
    assert found.slow == tuple(np.flatnonzero(slow))
    assert "look at" in found.of("slow_steps").message
    if kind == "one rank":
        assert "rank 2 is the last in 100 % of" in found.of("slow_steps").message


@pytest.mark.parametrize(
    ("kind", "says"),
    [
        ("one rank", "one rank"),
        ("changing ranks", "changing ranks"),
        ("all together", None),
        ("the exchange", None),
    ],
)
def test_arrivals_tell_who_is_late_and_not_what_all_share(kind, says):
    steps, _, arrivals = job(kind, measured="arrivals")
    found = distribution(steps, arrivals=arrivals)
    assert found.cause == says
    assert (found.of("cannot_be_told") is None) == (says is not None)


def test_steps_alone_do_not_tell_a_straggler():
    steps, _, _ = job("one rank")
    alone = distribution(steps)
    assert alone.cause is None and "step times alone do not tell" in alone.of("cannot_be_told").message
    table = distribution(np.tile(steps[:, None], RANKS))
    assert "would be whoever is late" in table.of("cannot_be_told").message
    assert table.summary == alone.summary


def test_ranks_whose_steps_differ_do_not_meet():
    steps = np.tile([1.0, 1.0, 1.2], (50, 1))
    found = distribution(steps)
    assert "16.7 % apart: they do not meet" in found.of("ranks_apart").message  # 0.2 / 1.2
    assert found.summary.mean == approx(1.2)  # a step is as long as its longest rank's
    assert distribution(np.tile([1.0, 1.0, 1.04], (50, 1))).of("ranks_apart") is None  # within 5 %


def test_ranks_apart_in_every_step_are_a_late_rank():
    work = np.tile([0.5, 0.5, 0.5, 0.6], (50, 1))
    found = distribution(np.full(50, 0.7), work)
    assert "16.7 % apart, rank 3 is the last in 100 % of 50 steps" in found.of("late_rank").message
    assert found.last.rank == 3 and found.last.seconds == approx(0.1)
    even = distribution(np.full(50, 0.7), np.tile([0.5, 0.5, 0.5, 0.52], (50, 1)))
    assert even.of("late_rank") is None


def test_the_guide_s_example():
    found = distribution([0.8] * 50 + [1.6] * 50)
    assert found.summary.mean == approx(1.2) and found.summary.p99 == found.summary.longest == 1.6
    says = found.of("modes").message
    assert "50 % around 800 ms, 50 % around 1.6 s" in says and "the length of no step" in says
    assert "33.3 % of the time" in says  # 1 - 0.8 / 1.2
    assert "800 ms up to step 50, 1.6 s from there on" in found.of("switch").message


def test_periods_are_said_for_each_kind_of_slow_steps():
    steps, _, work = job("periodic")
    found = distribution(steps, work)
    assert found.period == 10 and found.cause == "all together"
    assert "come back every 10 steps: saving, evaluation" in found.of("period").message
    assert "alternating lengths" in distribution([0.8, 1.6] * 50).of("period").message
    assert distribution(job("one rank")[0]).period is None


def test_drift_is_said_where_it_adds_up_to_more_than_the_limit():
    times = np.linspace(1, 1.2, 1000)
    assert "steps get longer: 18.2 % of the median per 1000 steps" in distribution(times).of("drift").message
    assert distribution(np.linspace(1, 1.03, 1000)).of("drift") is None
    assert "shorter" in distribution(times[::-1]).of("drift").message


def test_a_tail_and_too_few_steps():
    tail = distribution([1.0] * 95 + [2.0] * 4 + [3.0])
    assert not tail.bimodal and tail.slow == (95, 96, 97, 98, 99)
    assert "P99 is 2 times the median, the longest step 3 times" in tail.of("tail").message
    assert "too few" in distribution([1.0] * 19).of("too_few").message


def test_the_report_in_lines():
    lines = repr(distribution([1.0] * 30)).splitlines()
    assert lines == ["30 steps: mean 1 s, median 1 s, P99 1 s, longest 1 s"]


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (dict(steps="x"), "step times have the shape|step times are a list"),
        (dict(steps=np.ones((2, 2, 2))), "have the shape"),
        (dict(steps=[]), "step times have the shape"),
        (dict(steps=[1.0, 0.0]), "step times are a list"),
        (dict(steps=np.ones((30, 4)), work=np.ones((30, 3))), "own work of the ranks has the shape"),
        (dict(steps=np.ones(30), work=np.ones((29, 4))), "own work"),
        (dict(steps=np.ones(30), arrivals=-np.ones((30, 4))), "arrivals of the ranks are seconds"),
        (dict(steps=np.ones(30), work=np.ones((30, 1))), "two ranks or more"),
        (dict(steps=np.ones(30), limits=5), "the limits"),
    ],
)
def test_refused(given, says):
    with pytest.raises(InputRefused, match=says):
        distribution(**given)
