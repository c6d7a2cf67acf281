"""Chapter 1's scaling rows against sums done by hand."""

import numpy as np
import pytest

from labkit.collectives.scaling import Setting, knee, scaling, what_it_takes
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


def test_knee_is_where_communication_passes_compute():
    found = knee(ONE_PORT, STRONG)
    rows = scaling([found - 1, found], ONE_PORT, STRONG)
    assert rows.communication[0] < rows.compute[0]
    assert rows.communication[1] >= rows.compute[1]


def test_weak_scaling_may_have_no_knee():
    assert np.isnan(knee(ONE_PORT, Setting(gradient=20e9, compute=20.0, mode="weak"), largest=4096))


def test_every_lever_reaches_its_target_and_no_further():
    found = what_it_takes(ONE_PORT, STRONG, n=32, target=0.6)
    more = Setting(gradient=20e9, compute=2.0 * found["batch"])
    assert scaling([32], ONE_PORT, more).efficiency[0] == pytest.approx(0.6, rel=1e-6)
    assert found["gradient"] > 1
    assert np.isnan(what_it_takes(ONE_PORT, STRONG, n=1024, target=0.9)["overlap"])


def test_the_term_that_grew_is_named():
    assert scaling([8, 16], ONE_PORT, STRONG).grew() == ["bandwidth"]
    tapered = Setting(gradient=20e9, compute=2.0, taper=0.1)
    assert scaling([32, 64], ONE_PORT, tapered).grew() == ["contention"]


@pytest.mark.parametrize(
    ("change", "says"),
    [({"mode": "elastic"}, "strong"), ({"overlap": 1.5}, "share"), ({"taper": 0.0}, "share")],
)
def test_senseless_settings_are_refused(change, says):
    with pytest.raises(InputRefused, match=says):
        Setting(gradient=20e9, compute=2.0, **change)
