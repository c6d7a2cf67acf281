"""Modes of step times: yes for the guide's two lengths, no for one mode of any shape."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pytest import approx

from labkit.errors import InputRefused
from labkit.evidence.triage.modes import LEAST, modes

ONE_MODE = {
    "normal": lambda rng, n: 1.2 + 0.1 * rng.standard_normal(n),
    "wide normal": lambda rng, n: np.abs(10 + 3 * rng.standard_normal(n)) + 0.01,
    "exponential": lambda rng, n: 0.2 + rng.exponential(1, n),
    "lognormal": lambda rng, n: rng.lognormal(0, 1, n),
    "gamma": lambda rng, n: 0.5 + rng.gamma(2, 1, n),
    "uniform": lambda rng, n: rng.uniform(1, 3, n),
    "heavy tails": lambda rng, n: np.abs(20 + rng.standard_t(2, n)) + 0.1,
    "rounded": lambda rng, n: np.round(1.2 + 0.1 * rng.standard_normal(n), 1),
    "rising": lambda rng, n: np.linspace(1, 2, n),
}


def two(rng, n, share, noise):
    return np.where(np.arange(n) < share * n, 1.6, 0.8) * (1 + noise * rng.standard_normal(n))


@pytest.mark.parametrize("n", [20, 50, 200, 1000, 5000])
@pytest.mark.parametrize("shape", ONE_MODE)
def test_one_mode_of_any_shape_is_one(shape, n):
    for seed in range(20):
        assert len(modes(ONE_MODE[shape](np.random.default_rng(seed), n))) == 1


@pytest.mark.parametrize("n", [20, 100, 1000])
def test_the_guide_s_two_lengths_are_two(n):
    low, high = modes([0.8, 1.6] * (n // 2))
    assert (low.seconds, high.seconds, low.share, high.share) == (0.8, 1.6, 0.5, 0.5)


@pytest.mark.parametrize(("share", "noise"), [(0.5, 0.1), (0.2, 0.05), (0.05, 0.05), (0.8, 0.05)])
def test_two_lengths_that_scatter_are_two(share, noise):
    low, high = modes(two(np.random.default_rng(3), 1000, share, noise))
    assert low.seconds == approx(0.8, rel=0.02) and high.seconds == approx(1.6, rel=0.02)
    assert high.share == approx(share, abs=0.01)


def test_a_few_far_steps_do_not_hide_two_modes():
    times = two(np.random.default_rng(0), 400, 0.5, 0.02)
    times[[5, 100, 300]] = 10.0
    low, high = modes(times)
    assert low.share + high.share == approx(397 / 400) and high.longest < 2


def test_three_lengths_are_three():
    assert [mode.seconds for mode in modes([0.8] * 50 + [1.6] * 30 + [3.2] * 20)] == [0.8, 1.6, 3.2]


def test_fewer_than_ten_steps_are_no_mode():
    assert len(modes([0.8] * 90 + [1.6] * (LEAST - 1))) == 1
    assert len(modes([0.8] * 90 + [1.6] * LEAST)) == 2


def test_lengths_within_five_percent_are_one():
    assert len(modes([1.0] * 50 + [1.04] * 50)) == 1
    assert len(modes([1.0] * 50 + [1.06] * 50)) == 2


@settings(max_examples=60, deadline=None)
@given(st.lists(st.floats(0.01, 100), min_size=1, max_size=120), st.floats(0.01, 100))
def test_the_unit_does_not_matter_and_shares_add_up_to_one_at_most(times, unit):
    found = modes(times)
    assert 0 < sum(mode.share for mode in found) <= 1 + 1e-9
    assert all(mode.shortest <= mode.seconds <= mode.longest for mode in found)
    order = [mode.seconds for mode in found]
    assert order == sorted(order)
    assert modes(times[::-1]) == found


@pytest.mark.parametrize("wrong", [[], [0.0], [-1.0], "x", None, [np.nan], [[1.0, 2.0]]])
def test_refused(wrong):
    with pytest.raises(InputRefused, match="step times are a list"):
        modes(wrong)
