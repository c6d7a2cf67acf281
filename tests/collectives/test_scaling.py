"""Chapter 1's scaling rows against sums done by hand."""

from dataclasses import replace

import numpy as np
import pytest

from labkit.collectives import bucket_count
from labkit.collectives.scaling import BACKWARD_SHARE, Setting, knee, scaling, what_it_takes
from labkit.errors import InputRefused
from labkit.spec import Cluster, Gpu, Link

GPU = Gpu("any", 80e9, {"bf16": 312e12}, 0.5)
ONE_PORT = Cluster("one port", GPU, 1, 8, Link(10e-6, 250e9), Link(10e-6, 25e9), 1)
STRONG = Setting(gradient=20e9, compute=2.0)


def by_hand(n, compute):
    """One step of the claim 1-e setting: compute plus a flat ring at the slowest link."""
    rate = 250e9 if n <= 8 else 25e9
    return compute + 2 * (n - 1) * 10e-6 + 2 * 20e9 * (n - 1) / n / rate


def test_the_guides_setting_comes_out_as_a_sum_by_hand():
    ranks = np.array([8, 16, 32, 64])
    rows = scaling(ranks, ONE_PORT, STRONG)
    steps = [by_hand(n, 2.0 * 8 / n) for n in ranks]
    assert rows.step == pytest.approx(steps, rel=1e-12)
    assert np.round(rows.throughput, 2).tolist() == [1.00, 0.86, 1.04, 1.17]


def test_weak_scaling_on_a_flat_ring_nearly_doubles():
    rows = scaling([32, 64], ONE_PORT, Setting(gradient=20e9, compute=1e-9, mode="weak"))
    bandwidth_limit = 2 * (31 / 32) / (63 / 64)
    assert rows.throughput[1] / rows.throughput[0] == pytest.approx(bandwidth_limit, rel=1e-3)


def test_terms_add_up_and_taper_is_contention():
    free = scaling([16, 64], ONE_PORT, STRONG)
    tapered = scaling([16, 64], ONE_PORT, Setting(gradient=20e9, compute=2.0, taper=0.5))
    assert free.contention.tolist() == [0.0, 0.0]
    assert tapered.contention[0] == 0.0
    assert tapered.contention[1] == pytest.approx(2 * 20e9 * 63 / 64 / 25e9, rel=1e-12)
    assert tapered.communication + tapered.compute == pytest.approx(tapered.step)


def test_overlap_hides_at_most_the_backward_pass():
    rows = scaling([64], ONE_PORT, Setting(gradient=20e9, compute=2.0, overlap=1.0))
    assert rows.exposed[0] == pytest.approx(rows.communication[0] - 2 / 3 * 0.25)


def test_buckets_multiply_latency_only():
    whole, cut = (scaling([64], ONE_PORT, Setting(20e9, 2.0, bucket=b)) for b in (None, 25e6))
    assert cut.latency[0] == pytest.approx(800 * whole.latency[0])
    assert cut.bandwidth[0] == pytest.approx(whole.bandwidth[0])


def test_a_last_bucket_counts_as_one():
    """20 GB in buckets of at most 3 GB are 7 of equal size, not 6.67."""
    whole, cut = (scaling([64], ONE_PORT, replace(STRONG, bucket=b)) for b in (None, 3e9))
    assert cut.latency[0] == pytest.approx(7 * whole.latency[0], rel=1e-12)
    assert bucket_count(20e9, 3e9) == 7


def test_knee_is_where_communication_passes_compute():
    found = knee(ONE_PORT, STRONG)
    assert found % 8 == 0
    rows = scaling([found - 8, found], ONE_PORT, STRONG)
    assert rows.communication[0] < rows.compute[0]
    assert rows.communication[1] >= rows.compute[1]


def test_communication_outgrows_the_backward_pass_long_before_all_of_compute():
    """Weak, 1.8 s of compute: 1.6 (1 - 1/N) s + 20 us (N - 1) passes 1.2 s at 16 ranks, 1.8 s at 10,016."""
    weak = Setting(gradient=20e9, compute=1.8, mode="weak")
    assert knee(ONE_PORT, weak, budget=BACKWARD_SHARE) == 16
    by_hand = next(n for n in range(16, 20_000, 8) if 1.6 * (1 - 1 / n) + 20e-6 * (n - 1) >= 1.8)
    assert knee(ONE_PORT, weak) == by_hand
    with pytest.raises(InputRefused, match="budget is 0"):
        knee(ONE_PORT, weak, budget=0)


def test_weak_scaling_may_have_no_knee():
    assert np.isnan(knee(ONE_PORT, Setting(gradient=20e9, compute=20.0, mode="weak"), largest=4096))


@pytest.mark.parametrize("lever", ["batch", "bandwidth", "gradient", "overlap"])
def test_every_lever_reaches_its_target_and_no_further(lever):
    setting = replace(STRONG, compute=8.0)
    factor = what_it_takes(ONE_PORT, setting, n=32, target=0.7)[lever]

    def efficiency(factor):
        """By hand: one input changed, on 32 ranks against the 8 of the reference."""
        compute = 8.0 * (factor if lever == "batch" else 1)
        size = 20e9 / (factor if lever == "gradient" else 1)
        ports = 25e9 * (factor if lever == "bandwidth" else 1)
        overlap = factor if lever == "overlap" else 0

        def step(n, rate):
            computing = compute * 8 / n
            sending = 2 * (n - 1) * 10e-6 + 2 * size * (n - 1) / n / rate
            return computing + max(0, sending - overlap * 2 / 3 * computing)

        return step(8, 250e9) / step(32, ports) * 8 / 32

    assert efficiency(1 if lever != "overlap" else 0) < 0.65
    assert efficiency(factor) == pytest.approx(0.7, rel=1e-5)
    assert efficiency(factor * (1 - 1e-4)) < 0.7


def test_a_lever_that_cannot_reach_its_target_says_so():
    assert np.isnan(what_it_takes(ONE_PORT, STRONG, n=1024, target=0.9)["overlap"])


def test_the_term_that_grew_is_named():
    assert scaling([8, 16], ONE_PORT, STRONG).grew() == ["bandwidth"]
    tapered = Setting(gradient=20e9, compute=2.0, taper=0.1)
    assert scaling([32, 64], ONE_PORT, tapered).grew() == ["contention"]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"mode": "elastic"}, "strong"),
        ({"overlap": 1.5}, "share"),
        ({"taper": 0.0}, "share"),
        ({"bucket": 0}, "size of a bucket, in bytes, is 0"),
        ({"compute": 0}, "more than 0 seconds"),
        ({"gradient": -1}, "from 0 up"),
        ({"reference": 0}, "at least 1, not 0"),
    ],
)
def test_senseless_settings_are_refused(change, says):
    with pytest.raises(InputRefused, match=says):
        Setting(**{"gradient": 20e9, "compute": 2.0, **change})


def test_a_scaling_curve_needs_whole_ranks():
    with pytest.raises(InputRefused, match="not nan"):
        scaling([8, float("nan")], ONE_PORT, STRONG)
