"""The guide's limits, and what they ask of each other."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pytest import approx

from labkit.errors import InputRefused
from labkit.evidence.limits import (
    GUIDE,
    PUBLISHED_PEAK,
    PUBLISHED_RATES,
    efficiency_needed,
    left_over,
    scaling_efficiency,
)


def test_limits_are_the_guides():
    assert GUIDE.efficiency_at(8) == 0.85 and GUIDE.efficiency_at(64) == 0.6
    assert (GUIDE.data, GUIDE.tensor, GUIDE.mfu, GUIDE.spread) == (0.10, 0.30, (0.40, 0.55), 0.05)


def test_between_and_beyond_what_the_guide_names():
    assert GUIDE.efficiency_at(1) == 1 and GUIDE.efficiency_at(16_384) == 0.6
    assert GUIDE.efficiency_at(16) == approx(0.85 - 0.25 / 3)  # a third of the way in log N
    assert GUIDE.efficiency_at(64, 16) == approx(0.6 / (0.85 - 0.25 / 3))
    assert GUIDE.efficiency_at(64, 64) == 1


@given(st.integers(1, 10**6), st.integers(1, 10**6), st.integers(1, 10**6))
def test_limits_of_two_bases_chain(a, b, c):
    assert GUIDE.efficiency_at(c, a) == approx(GUIDE.efficiency_at(b, a) * GUIDE.efficiency_at(c, b))


def test_arrays_agree_with_single_calls():
    gpus = np.array([1, 8, 24, 64, 500])
    assert GUIDE.efficiency_at(gpus).tolist() == [GUIDE.efficiency_at(int(n)) for n in gpus]
    rates = np.array([240.0, 160, 120])
    nodes = 8 * np.arange(1, 4)
    found = scaling_efficiency(rates, nodes, 240, 8)
    assert found.tolist() == [
        scaling_efficiency(r, int(n), 240, 8) for r, n in zip(rates, nodes, strict=True)
    ]


def test_the_thresholds_exclude_each_other():
    """Claim 5.4-f by hand: 0.842 x 0.7 x 0.9 = 0.530; 0.6 x 0.55 = 0.33; 0.40 / 0.55 = 0.727."""
    assert left_over(3 / 19, 0.3, 0.1) == approx(16 / 19 * 0.63)
    assert left_over(3 / 19, GUIDE.tensor, GUIDE.data) < GUIDE.efficiency_at(64)
    assert efficiency_needed(0.40, 0.55) == approx(0.7273, abs=1e-4)


def test_the_published_run_is_38_to_43_percent():
    assert [round(rate / PUBLISHED_PEAK, 3) for rate in PUBLISHED_RATES.values()] == [0.435, 0.404, 0.384]


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: GUIDE.efficiency_at(0.5), "from 1 up"),
        (lambda: GUIDE.efficiency_at("8"), "number of GPUs is '8'"),
        (lambda: GUIDE.efficiency_at(np.ones(2), np.ones(3)), "must broadcast"),
        (lambda: scaling_efficiency(0, 8, 240, 8), "the throughput is 0"),
        (lambda: scaling_efficiency(1, 8, None, 8), "throughput of the base"),
        (lambda: left_over(0.1, 1.5), "use 0 to 1"),
        (lambda: left_over(True), "a share is True"),
        (lambda: efficiency_needed(0.4, 0), "MFU of one GPU is 0"),
        (lambda: efficiency_needed("0.4", 0.5), "the MFU is '0.4'"),
    ],
)
def test_refused(call, says):
    with pytest.raises(InputRefused, match=says):
        call()
