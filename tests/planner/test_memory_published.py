"""The memory model against peaks that others measured: none that can be said is left out."""

from collections import Counter

import numpy as np
import pytest

from labkit.course.chapter4_memory import (
    SOURCES,
    errors,
    measured_table,
    modelled,
    outliers,
    reserved_over_allocated,
    scored,
    with_scores,
)
from labkit.planner.conventions import USUAL
from labkit.planner.in_flight import in_flight
from labkit.presets.measured import measured_peaks

CLOSE = 0.06  # of the median, the aim of the issue
# The rows that are further off than 12 %, with what is known of them.
SCORES = "recorded with attention scores stored, which no column of the row says"
PIECES = "the allocator had reserved far more than was allocated: the run with sequences of 4,096 has less"
UNKNOWN = "not known"
OUTLIERS = {
    "tp2_pp1_frozen_resume_torch_dist_te_8experts2parallel_groupedGEMM lts dgx_a100": SCORES,
    "tp2_pp1_resume_torch_dist_te_8experts2parallel_groupedGEMM lts dgx_a100": SCORES,
    "tp2_pp1_resume_torch_dist_te_8experts2parallel_top2router lts dgx_a100": SCORES,
    "tp2_pp1_resume_torch_dist_te_8experts2parallel_multi_dist_optimizer_instances lts dgx_a100": SCORES,
    "tp2_pp2_resume_torch_dist_cross_entropy_loss_fusion dev dgx_a100": SCORES,
    "tp1_pp4_resume_torch_dist_swiglu lts dgx_a100": SCORES,
    "tp1_pp4_resume_torch_dist_disable_bias_linear lts dgx_a100": SCORES,
    "tp1_pp4_resume_torch_dist_sequence_parallel lts dgx_a100": SCORES,
    "2k 256k baseline": PIECES,
    "tp2_zp_z3_resume_torch_dist_te_8experts2parallel_top2router dev dgx_h100": UNKNOWN,
}


def why(one):
    """What is known of a row that is far off."""
    (found,) = [reason for end, reason in OUTLIERS.items() if one.measured.label.endswith(end)] or ["new"]
    return found


def worst(found):
    """The five worst, for the message of a failure."""
    by_error = sorted(found, key=lambda one: -abs(one.error))[:5]
    return [f"{one.error:+.3f} {one.measured.label}" for one in by_error]


def test_nothing_is_left_out():
    peaks, not_scored = measured_peaks()
    assert [one.measured for one in scored()] == peaks
    assert Counter(one.measured.source for one in scored()) == {
        "simumax_b200": 15,
        "zero_bubble": 48,
        "vocab_parallelism": 16,
        "mcore_golden_values": 187,
    }
    assert len(not_scored) == 58


@pytest.mark.parametrize("source", SOURCES)
def test_the_median_error_of_each_source(source):
    found = [one for one in scored() if one.measured.source == source]
    assert np.median(np.abs(errors(source))) <= CLOSE, worst(found)


def test_the_median_error_of_all():
    assert len(errors()) == 266
    assert np.median(np.abs(errors())) <= CLOSE, worst(scored())
    assert abs(np.median(errors())) <= CLOSE / 2, "all of them are too high, or too low"


def test_of_single_runs_that_name_the_stage_each_is_close():
    found = [one for one in scored() if one.measured.source == "simumax_b200"]
    assert all(abs(one.error) <= CLOSE for one in found), worst(found)
    assert {one.measured.stage for one in found} == {0, 1}


def test_what_is_far_off_is_known():
    assert {one.measured.label: why(one) for one in outliers() if why(one) == "new"} == {}
    assert len(outliers()) == len(OUTLIERS)


def test_with_the_scores_stored_those_rows_are_right():
    found = [with_scores(one) for one in outliers() if why(one) == SCORES]
    assert len(found) == 8
    assert np.median([abs(one.error) for one in found]) < 0.02, worst(found)
    assert all(abs(one.error) < 0.1 for one in found), worst(found)


def test_the_uneven_pipeline_counts_its_chunks_one_by_one():
    """The last rank has one layer, in its first chunk: 4 micro-batches in flight at the loss, not 2.5."""
    found = [one for one in scored() if "account_for_embedding_loss_in_pipeline_split" in one.measured.label]
    for one in found:
        layers = one.measured.plan.stage_layers
        assert layers[3::4] == (1, 0)
        assert in_flight(one.measured.plan, np.arange(4), np.reshape(layers, (2, 4)))[3] == 4
    assert sum(abs(one.error) < 0.005 for one in found) >= 2


def test_a_longer_sequence_that_reserved_less_than_the_outlier():
    peaks = {one.measured.label: one.measured for one in scored()}
    short, long = peaks["2k 256k baseline"], peaks["4k 256k baseline"]
    assert modelled(short) < modelled(long)
    assert short.peak > long.peak


def test_the_allocators_slack_is_the_median_of_what_was_published():
    found = reserved_over_allocated()
    assert len(found) == 13  # of 17 runs four share the measurement of another
    assert round(float(np.median(found)) - 1, 2) == USUAL.slack


def test_the_table_says_the_same():
    *sources, whole = measured_table().rows
    assert [row[1:3] for row in sources] == [("15", "7"), ("48", "0"), ("16", "24"), ("187", "27")]
    assert whole[1:3] == ("266", "58")
    assert float(whole[3].split()[0]) == pytest.approx(100 * np.median(np.abs(errors())), rel=0.01)
