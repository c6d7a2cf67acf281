"""The band of a healthy plateau, by algorithm and size; and the baseline record."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pytest import approx

from labkit import read_sweep
from labkit.errors import InputRefused
from labkit.evidence.baseline_record import BaselineRecord, baseline_record, hop_latency
from labkit.evidence.plateau import judge_plateau, plateau_band, share_at
from labkit.presets import sample_sweeps


def fit(name):
    return read_sweep(sample_sweeps()[name])[0].fit()


@pytest.mark.parametrize(
    ("algorithm", "n", "ceiling"),
    [
        ("ring", 8, 1.0),
        ("in_switch", 8, 14 / 9),  # a ring's 14/8 of the message against (8 + 1)/8
        ("in_switch", 2, 2 / 3),
        ("tree_over_two_nodes", 16, 15 / 8),  # a ring's 30/16 against the message once
    ],
)
def test_ceilings_by_hand(algorithm, n, ceiling):
    assert plateau_band(algorithm, n) == (0.75, approx(ceiling))


def test_the_lower_edge_falls_with_the_size():
    assert plateau_band("ring", 8, 9e6, 1e6)[0] == approx(0.75 * 0.9)
    assert plateau_band("ring", 8, 1e6, 1e6)[0] == approx(0.75 / 2)
    low, high = plateau_band("ring", np.array([2, 8]), np.array([1e6, np.inf]), 1e6)
    assert low == approx([0.375, 0.75]) and high == approx([1, 1])


@pytest.mark.parametrize(
    ("busbw", "nominal", "algorithm", "verdict"),
    [
        (235e9, 300e9, "ring", "healthy"),  # 8 A100: 78 %, a problem by the rule of 80 %
        (229e9, 300e9, "ring", "healthy"),  # the same at 1 GiB: 76 %
        (368e9, 450e9, "ring", "healthy"),  # 8 H100: 82 %
        (480e9, 450e9, "in_switch", "healthy"),  # 107 %
        (480e9, 450e9, "ring", "impossible"),
        (480e9, 900e9, "ring", "slow"),  # held against both directions: the usual mistake
        (5.4e9, 100e9, "ring", "slow"),
    ],
)
def test_published_nodes(busbw, nominal, algorithm, verdict):
    found = judge_plateau(busbw, nominal, algorithm, 8)
    assert found.verdict == verdict and found.share == approx(busbw / nominal)


def test_a_small_message_is_no_verdict_on_the_link():
    found = judge_plateau(50e9, 100e9, "ring", 8, size=2e6, half_power=2e6)
    assert found.verdict == "too_small" and "go on to 18 MB (9 x the half-power size)" in found.reason
    assert judge_plateau(30e9, 100e9, "ring", 8, 2e6, 2e6).verdict == "slow"


@given(st.floats(1, 1e12), st.floats(0, 1e12))
def test_shares(size, half):
    share = share_at(size, half)
    assert 0 < share <= 1 and (half == 0) <= (share == 1)
    assert share_at(2 * size, half) >= share
    assert share_at(half, half) == 0.5 if half else True


@pytest.mark.parametrize(
    "given",
    [
        {"algorithm": "nvls"},
        {"algorithm": None},
        {"n_ranks": 1},
        {"n_ranks": "8"},
        {"busbw": 0},
        {"busbw": [1e9, 2e9]},
        {"busbw": np.nan},
        {"nominal": np.inf},
        {"nominal": None},
        {"size": 0},
        {"size": "1 MB"},
        {"half_power": -1},
        {"half_power": np.nan},
    ],
)
def test_refusals(given):
    with pytest.raises(InputRefused) as refused:
        judge_plateau(**{"busbw": 1e9, "nominal": 2e9, "algorithm": "ring", "n_ranks": 8} | given)
    assert "\n" not in str(refused.value)


# ---- the record


@pytest.mark.parametrize(
    ("collective", "algorithm", "n", "steps"),
    [
        ("all_reduce", "ring", 8, 14),
        ("all_reduce", "ring", 64, 126),
        ("all_reduce", "tree", 64, 12),
        ("all_gather", "ring", 8, 7),
        ("send_recv", "linear", 2, 1),
    ],
)
def test_the_latency_of_a_hop_is_the_time_over_the_steps(collective, algorithm, n, steps):
    assert hop_latency(1e-3, collective, algorithm, n) == approx(1e-3 / steps)


def test_a_record_from_two_sweeps():
    found = baseline_record(fit("h100-8gpu-nvswitch"), fit("h100-2x8-infiniband"), "tree", "2026-03-01")
    assert (found.n_ranks, found.algorithm, found.day) == (16, "tree", "2026-03-01")
    assert found.inside == approx(480e9, rel=0.01) and found.across == approx(468e9, rel=0.01)
    assert found.latency == approx(29.4e-6 / 8, rel=0.01)
    assert "16 ranks, tree, 2026-03-01" in repr(found)


@pytest.mark.parametrize(
    "given",
    [
        {"inside": 0},
        {"across": None},
        {"latency": np.array([1e-6, 2e-6])},
        {"n_ranks": 1},
        {"algorithm": ""},
        {"day": "today"},
        {"day": None},
        {"day": 20260301},
    ],
)
def test_a_record_is_complete(given):
    good = dict(inside=1e9, across=1e9, latency=1e-6, n_ranks=8, algorithm="ring", day="2026-03-01")
    with pytest.raises(InputRefused):
        BaselineRecord(**good | given)


def test_a_sweep_that_starts_late_gives_no_record():
    """The guide's sweep, from 1 MB up, cannot tell the latency."""
    text = sample_sweeps()["h100-2x8-infiniband"].read_text(encoding="utf-8")
    late = [line for line in text.split("\n") if not line[:13].strip().isdigit() or int(line[:13]) >= 2**24]
    sweep = read_sweep("\n".join(late))[0]
    with pytest.raises(InputRefused, match="tells no latency of a hop"):
        baseline_record(fit("h100-8gpu-nvswitch"), sweep.fit(), "ring", "2026-03-01")
    for wrong in (None, sweep):
        with pytest.raises(InputRefused, match="give a LinkFit"):
            baseline_record(wrong, sweep.fit(), "ring", "2026-03-01")
