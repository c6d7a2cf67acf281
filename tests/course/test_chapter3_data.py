"""What section 3.1's worked examples solve for, against sums by hand."""

import numpy as np
import pytest

from labkit.collectives import bucket_for_share, busbw, collective_cost
from labkit.course import chapter3_buckets as buckets
from labkit.course import chapter3_data as data
from labkit.spec import Link


def test_resnet_18_has_its_published_parameters():
    assert sum(buckets.resnet18_sizes()) == 4 * 11_689_512 and len(buckets.resnet18_sizes()) == 62
    assert "2,052,000, 38,297,600, 6,408,448" in repr(buckets.resnet18_table())


@pytest.mark.parametrize("m", [4, 16, 32])
@pytest.mark.parametrize("stage", range(4))
def test_what_is_left_to_hide_on_each_stage(m, stage):
    """Stage i begins its last backward i + 1 of them before the end: 2 (i + 1) of 3 (m + 3) parts."""
    assert data.left_to_hide(m, stage) == pytest.approx(1.8 * 2 * (stage + 1) / (3 * (m + 3)))


@pytest.mark.parametrize("n", [8, 64, 512])
def test_half_of_the_busbw_on_a_link_is_the_closed_form(n):
    assert buckets.half_busbw(buckets.HOP, n) == pytest.approx(bucket_for_share(0.5, n, buckets.HOP))


def test_half_of_the_busbw_on_a_cluster_is_half_of_what_a_large_message_reaches():
    machine = data.machine_of("a100", 64)

    def reached(size):
        return busbw(
            "all_reduce", 64, size / collective_cost("all_reduce", "ring", size, 64, machine).seconds
        )

    assert reached(buckets.half_busbw(machine, 64)) == pytest.approx(reached(1e15) / 2, rel=1e-6)


@pytest.mark.parametrize("coverage", [0.6, 0.8])
def test_the_batch_found_gives_that_coverage(coverage):
    found = buckets.sequences_for(coverage, 64, "a100")
    assert buckets.overlapped(found, 64).coverage == pytest.approx(coverage, abs=1e-4)


def test_a_coverage_that_no_batch_reaches_is_not_a_number():
    assert np.isnan(buckets.sequences_for(0.99, 8, "a100"))  # the embedding's gradient is ready last, whole


def test_the_slow_down_found_saves_that_share():
    assert buckets.saved(slow_down=buckets.slow_down_for(0.7)) == pytest.approx(0.7, abs=1e-4)
    assert buckets.saved() == pytest.approx(buckets.overlapped(2, 64).coverage)


def test_batch_norm_and_unequal_shards_are_the_exceptions():
    equal, unequal = (8, 8, 8, 8), (2, 6, 8, 16)
    assert data.gap(equal) < 1e-14 and data.gap(unequal, by_tokens=True) < 1e-14
    assert data.gap(unequal) > 0.01 and data.gap(equal, batch_norm=True) > 0.01


def test_the_default_cap_is_too_small_from_some_ranks_on():
    table = buckets.warning_table(ranks=(8, 64, 512), link=Link(5e-6, 50e9)).rows
    assert [row[1] for row in table] == ["2 MB", "16 MB", "128 MB"]
    assert ["25 MiB is below" in row[2] for row in table] == [False, False, True]
