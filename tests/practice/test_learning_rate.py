"""Learning rate and warm-up over the batch: sums by hand, and a toy on which the rules can be seen."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pytest import approx

from labkit.errors import InputRefused
from labkit.practice.learning_rate import (
    rate_factor,
    rate_for_noise,
    samples_needed,
    steps_needed,
    warm_ups,
)
from labkit.practice.noisy_quadratic import DIRECTIONS, METHODS, best_rate, loss_after


def test_64_to_512():
    assert rate_factor(64, 512) == 8 and rate_factor(64, 512, "square root") == approx(8**0.5)
    proportion, same, samples = warm_ups(2000, 100_000, 64, 512)
    assert proportion.steps == 16_000 and proportion.samples == 64 * 2000 * 64
    assert proportion.share == approx(16_000 / 12_500)  # longer than the run
    assert same.steps == 2000 and same.samples == 8 * 2000 * 64
    assert samples.steps == 250 and samples.samples == 2000 * 64 and samples.share == approx(0.02)


@given(st.integers(1, 10**6), st.integers(1, 10**6), st.integers(1, 10**6))
def test_there_and_back(a, b, c):
    for rule in ("linear", "square root"):
        assert rate_factor(a, b, rule) * rate_factor(b, c, rule) == approx(rate_factor(a, c, rule))
    there = warm_ups(500.0, 10_000.0, a, b)[2]
    assert warm_ups(there.steps, 10_000 * a / b, b, a)[2].steps == approx(500)
    assert steps_needed(a, c) * a / c == approx(samples_needed(a, c))  # steps x batch


def test_gains_end_past_the_critical_batch():
    """At the critical batch: twice the fewest steps, twice the fewest samples, half the highest rate."""
    assert steps_needed(1000, 1000) == samples_needed(1000, 1000) == 2 and rate_for_noise(1000, 1000) == 0.5
    assert steps_needed(64, 1e6) / steps_needed(512, 1e6) == approx(8, rel=1e-3)
    assert steps_needed(64, 10) / steps_needed(512, 10) < 1.2
    assert rate_for_noise(2, 1e6) / rate_for_noise(1, 1e6) == approx(2, rel=1e-5)


def test_arrays():
    batch = np.array([64, 512])
    assert rate_factor(64, batch).tolist() == [1, 8]
    assert warm_ups(2000, 100_000, 64, batch)[0].steps.tolist() == [2000, 16_000]
    assert steps_needed(batch, 64).tolist() == [2, 1.125]


@pytest.mark.parametrize(
    ("call", "given"),
    [
        (rate_factor, {"batch": 64, "new_batch": 512, "rule": "linear"}),
        (warm_ups, {"steps": 2000, "total_steps": 10_000, "batch": 64, "new_batch": 512}),
        (steps_needed, {"batch": 64, "critical": 512}),
        (samples_needed, {"batch": 64, "critical": 512}),
        (rate_for_noise, {"batch": 64, "critical": 512}),
        (loss_after, {"samples": 512, "batch": 8, "rate": 0.1, "method": METHODS[1], "noise": 8.0}),
        (best_rate, {"samples": 512, "batch": 64, "method": METHODS[0], "noise": 8.0}),
    ],
    ids=lambda part: getattr(part, "__name__", ""),
)
def test_every_argument_given_what_it_is_not(call, given):
    call(**given)
    for name in given:
        for wrong in ("", None, [8], True, 0, -1, np.nan, 1j, object(), np.array([1, -2]), "x" * 5000):
            with pytest.raises(InputRefused) as refused:
                call(**{**given, name: wrong})
            assert "\n" not in str(refused.value) and len(str(refused.value)) < 320


# ---- the toy


def drawn_loss(samples, batch, rate, sign, noise=8.0, runs=4000):
    """The same by drawing: many runs, step by step."""
    random = np.random.default_rng(1)
    curvature = 1 / np.arange(1, DIRECTIONS + 1)
    x = random.standard_normal((runs, DIRECTIONS))
    for _ in range(samples // batch):
        gradient = curvature * x + noise * np.sqrt(curvature / batch) * random.standard_normal(x.shape)
        x = x - rate * (np.sign(gradient) if sign else gradient)
    return 0.5 * (curvature * x**2).sum(axis=1).mean()


@pytest.mark.parametrize(("batch", "rate"), [(8, 0.05), (64, 0.3), (64, 0.02)])
def test_expected_losses_are_those_of_many_runs(batch, rate):
    assert loss_after(1024, batch, rate) == approx(drawn_loss(1024, batch, rate, sign=False), rel=0.02)
    by_sign = loss_after(1024, batch, rate / 4, "sign descent")
    assert by_sign == approx(drawn_loss(1024, batch, rate / 4, sign=True), rel=0.03)


def test_the_best_rate_goes_with_the_batch_and_with_its_root():
    power = {
        method: np.log2([best_rate(2**13, batch, method, 16.0) for batch in (16, 64)]) for method in METHODS
    }
    assert np.diff(power["gradient descent"]) / 2 == approx(1, abs=0.03)
    assert np.diff(power["sign descent"]) / 2 == approx(0.5, abs=0.03)


def test_each_rule_keeps_the_loss_and_the_other_rule_does_not():
    """64 to 512 samples, as many samples in all."""
    for method, rule, other in (
        ("gradient descent", "linear", "square root"),
        ("sign descent", "square root", "linear"),
    ):
        rate = best_rate(2**14, 64, method)
        before = loss_after(2**14, 64, rate, method)
        good, bad = (
            loss_after(2**14, 512, rate * rate_factor(64, 512, name), method) for name in (rule, other)
        )
        assert good < 1.15 * before < 1.4 * before < bad
        assert loss_after(2**14, 512, rate, method) > 1.4 * before  # the rate left as it was


def test_a_rate_that_diverges_has_an_endless_loss():
    assert loss_after(10**5, 1, 3.0) == np.inf


def test_the_toy_takes_no_more_steps_than_it_has_time_for():
    with pytest.raises(InputRefused, match="use 1 to"):
        loss_after(10**8, 1, 0.1)
    with pytest.raises(InputRefused, match="0 steps"):
        loss_after(4, 8, 0.1)
