"""Drift, period and switch of step times."""

import numpy as np
import pytest
from pytest import approx

from labkit.errors import InputRefused
from labkit.evidence.triage.rhythm import drift, period, switch


@pytest.mark.parametrize("n", [40, 400, 4000])
def test_a_straight_line_s_slope_in_shares_of_the_median_per_1000_steps(n):
    times = 2 + 0.001 * np.arange(n)
    assert drift(times) == approx(1000 * 0.001 / np.median(times), rel=1e-9)
    assert drift(times[::-1]) == approx(-1000 * 0.001 / np.median(times), rel=1e-9)


@pytest.mark.parametrize("seed", range(20))
def test_scatter_is_no_drift(seed):
    rng = np.random.default_rng(seed)
    assert drift(1 + 0.1 * rng.standard_normal(500)) == 0
    assert drift(np.where(rng.random(500) < 0.5, 0.8, 1.6)) == 0


def test_slow_steps_do_not_bend_it():
    times = 1 + 1e-4 * np.arange(1000)
    slow = times.copy()
    slow[::50] = 30
    assert drift(slow) == approx(drift(times), rel=0.05)


def test_too_few_steps_have_none():
    assert np.isnan(drift([1.0, 2.0, 3.0]))


@pytest.mark.parametrize("every", [2, 3, 10, 100])
def test_equal_distances_are_a_period(every):
    assert period(every - 1 + every * np.arange(8)) == every


def test_a_period_may_wobble_or_miss_one():
    assert period([100, 198, 300, 401, 503, 599]) == 101
    assert period([10, 20, 30, 40, 60, 70, 80, 90]) == 10


@pytest.mark.parametrize("slow", [[], [5], [5, 10, 15], [1, 2, 3, 4, 5, 6], [0, 1, 5, 20, 21, 60]])
def test_no_period(slow):
    assert period(slow) is None


@pytest.mark.parametrize("seed", range(20))
def test_chance_has_no_period(seed):
    rng = np.random.default_rng(seed)
    for share in (0.02, 0.1, 0.5):
        assert period(np.flatnonzero(rng.random(1000) < share)) is None


def test_a_switch_is_where_the_kinds_part():
    assert switch(range(500, 1000), 1000) == 500
    assert switch(range(300), 1000) == 300
    assert switch([3, 77, *range(500, 1000)], 1000) == 500
    assert switch(range(0, 1000, 2), 1000) is None
    assert switch(range(9, 1000, 50), 1000) is None
    assert switch([], 1000) is None and switch(range(10), 10) is None


@pytest.mark.parametrize("wrong", ["x", None, [3, 2], [1.5], [[1]]])
def test_refused(wrong):
    with pytest.raises(InputRefused, match="rising whole numbers"):
        period(wrong)
