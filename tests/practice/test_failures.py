"""The checkpoint interval: Daly's published examples, the optimum found numerically, and the limits."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pytest import approx

from labkit.course.chapter6_saving import optimum
from labkit.errors import InputRefused
from labkit.practice.failures import (
    YEAR,
    daly_interval,
    job_mtbf,
    lost_share,
    parts_lost,
    reported_failures,
    young_interval,
)

MINUTE = 60.0


@pytest.mark.parametrize(("hours", "minutes"), [(24, 117), (6, 57), (0.25, 9.1)])
def test_dalys_own_examples(hours, minutes):
    """Figures 3 to 5 of the paper: saves of 5 min, restarts of 10 min."""
    assert daly_interval(5 * MINUTE, hours * 3600) / MINUTE == approx(minutes, rel=0.006)


def test_failures_of_a_job_add_up():
    assert job_mtbf(1.0, 1) == YEAR
    assert job_mtbf(2.0, 1000) == approx(YEAR / 2000)
    assert job_mtbf(reported_failures(), 16384) == approx(54 * 86400 / 419)


def test_young_is_the_root():
    assert young_interval(36.0, 5000.0) == approx(600.0)


@given(st.floats(1, 600), st.floats(3.0, 10_000))
def test_the_estimate_costs_next_to_no_more_than_the_numeric_optimum(save, times):
    mtbf = save * times
    best = lost_share(optimum(save, mtbf), save, mtbf)
    assert lost_share(daly_interval(save, mtbf), save, mtbf) <= best + 1e-4


@pytest.mark.parametrize("times", [1.0, 1.5])
def test_where_saves_are_as_long_as_the_time_between_failures(times):
    save = 100.0
    mtbf = save * times
    best = lost_share(optimum(save, mtbf), save, mtbf)
    assert lost_share(daly_interval(save, mtbf), save, mtbf) == approx(best, abs=1e-3)


def test_the_first_order_is_good_for_short_saves_and_young_too_long_for_long_ones():
    short, long = 10.0, 2000.0
    assert young_interval(short, 1e6) == approx(optimum(short, 1e6), rel=0.01)
    assert daly_interval(short, 1e6, order=1) == approx(optimum(short, 1e6), rel=0.01)
    assert young_interval(long, 1e4) > 1.2 * optimum(long, 1e4)


def test_the_restart_does_not_move_the_optimum():
    assert optimum(50.0, 1e4, 0.0) == approx(optimum(50.0, 1e4, 3000.0), rel=1e-3)


def test_parts_add_up_to_the_whole_where_all_are_small():
    parts = parts_lost(1e4, 20.0, 1e7, 300.0)
    assert sum(parts.values()) == approx(lost_share(1e4, 20.0, 1e7, 300.0), rel=0.01)


def test_at_the_optimum_saves_and_lost_work_cost_the_same():
    parts = parts_lost(young_interval(20.0, 1e7), 20.0, 1e7)
    assert parts["saves"] == approx(parts["lost work"], rel=0.01)


def test_a_late_checkpoint_costs_what_a_longer_restart_does():
    assert lost_share(1000.0, 1.0, 1e5, 60.0, 30.0) == approx(lost_share(1000.0, 1.0, 1e5, 90.0))


def test_simulated_failures_lose_what_the_formula_says():
    """Ten thousand intervals with random failures, counted second by second of the clock."""
    chance = np.random.default_rng(6)
    interval, save, mtbf, restart = 1000.0, 60.0, 5000.0, 120.0
    clock = 0.0
    for _ in range(10_000):
        need = interval + save
        while (fails := chance.exponential(mtbf)) < need:
            clock += fails
            while (again := chance.exponential(mtbf)) < restart:  # a restart may fail as well
                clock += again
            clock += restart
        clock += need
    assert 1 - 10_000 * interval / clock == approx(lost_share(interval, save, mtbf, restart), abs=0.005)


def test_a_hopeless_job_loses_all_and_nothing_overflows():
    assert lost_share(1e6, 1e3, 1.0, 1e6) == 1.0
    assert lost_share(np.array([1e-3, 1e9]), 1.0, 1e4).tolist()[1] == 1.0


def test_arrays_agree_with_single_numbers():
    mtbf = np.array([1e3, 1e5])
    assert daly_interval(600.0, mtbf).tolist() == [daly_interval(600.0, one) for one in mtbf.tolist()]
    assert lost_share(1e3, 10.0, mtbf).tolist() == [lost_share(1e3, 10.0, one) for one in mtbf.tolist()]


def test_refused():
    with pytest.raises(InputRefused, match="mean seconds between failures is 0"):
        young_interval(1.0, 0)
    with pytest.raises(InputRefused, match="order of the estimate is 3"):
        daly_interval(1.0, 10.0, order=3)
