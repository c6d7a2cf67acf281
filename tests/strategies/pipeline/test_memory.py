"""Micro-batches in flight: from the order, on the clock, and what each schedule is known for."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labkit.errors import InputRefused
from labkit.strategies.pipeline import (
    gpipe,
    interleaved,
    one_f_one_b,
    peak_in_flight,
    simulate,
    zb_h1,
    zb_h2,
    zb_v,
)
from tests.strategies.pipeline.pipeline_cases import computing, pipelines


def test_whole_backwards():
    assert peak_in_flight(one_f_one_b(4, 16)).tolist() == [4, 3, 2, 1]
    assert peak_in_flight(one_f_one_b(4, 16, warmup=2)).tolist() == [7, 5, 3, 1]
    assert peak_in_flight(one_f_one_b(4, 5, warmup=0)).tolist() == [1, 1, 1, 1]
    assert peak_in_flight(gpipe(4, 16)).tolist() == [16, 16, 16, 16]
    assert peak_in_flight(one_f_one_b(4, 2, warmup=2)).tolist() == [2, 2, 2, 1]


@pytest.mark.parametrize(("p", "v"), [(2, 2), (4, 2), (4, 4), (8, 3)])
def test_interleaving_holds_more_on_the_first_rank(p, v):
    """Claim 3.3-i: x (1 + (p - 1)/(p v)), 1.375 at 4, 2; "Korthikanti et al." 2022, section 4.2.3."""
    peaks = peak_in_flight(interleaved(p, 3 * p, v))
    assert peaks[0] / p == pytest.approx(1 + (p - 1) / (p * v))
    assert np.all(np.diff(peaks) < 0)


@pytest.mark.parametrize("p", [1, 2, 4, 8])
@pytest.mark.parametrize("rounds", [2, 3, 8])
def test_zero_bubble_schedules_hold_as_much_on_all_ranks(p, rounds):
    m = rounds * p
    assert peak_in_flight(zb_h1(p, m)).tolist() == [p] * p == [peak_in_flight(one_f_one_b(p, m))[0]] * p
    assert peak_in_flight(zb_h2(p, m)).tolist() == [2 * p - 1] * p
    assert peak_in_flight(zb_v(p, m)).tolist() == [p] * p


def test_what_the_input_gradient_frees_is_not_held_for_the_weight_gradient():
    """With nothing kept, ZB-H1 holds what 1F1B holds."""
    assert peak_in_flight(zb_h1(4, 16), kept=0.0).tolist() == [4, 3, 2, 1]
    assert peak_in_flight(zb_h1(4, 16), kept=0.5).tolist() == [4, 3.5, 3, 2.5]
    with pytest.raises(InputRefused, match=r"kept for the weight gradient is 1\.5"):
        peak_in_flight(zb_h1(4, 16), kept=1.5)


@given(pipelines(), st.sampled_from([0.0, 0.5, 1.0]))
@settings(max_examples=100)
def test_held_on_the_clock_is_never_negative_ends_at_none_and_peaks_as_the_order_says(pipeline, kept):
    order, times = pipeline
    run = simulate(order, *times)
    for rank, peak in enumerate(peak_in_flight(order, kept)):
        when, held = run.in_flight(rank, kept)
        assert np.all(np.diff(when) > 0)
        assert held.min() >= -1e-9
        assert abs(held[-1]) < 1e-9
        assert held.max() == pytest.approx(peak)


@given(pipelines(names=("GPipe", "1F1B")))
@settings(max_examples=50)
def test_held_is_begun_and_not_yet_finished(pipeline):
    """Counted another way: at the start of every operation, from the blocks themselves."""
    order, times = pipeline
    run = simulate(order, *times)
    blocks = computing(run)
    m = 1 + run.item.max()
    for rank, peak in enumerate(peak_in_flight(order)):
        begun = np.array([blocks["forward", k, rank][0] for k in range(m)])
        finished = np.array([blocks["backward", k, rank][1] for k in range(m)])
        held = [np.count_nonzero((begun <= now) & (now < finished)) for now in begun]
        assert max(held) == peak
