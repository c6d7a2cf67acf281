"""Section 3.3's tables: unequal stages, memory and published rates, against sums by hand."""

import numpy as np
import pytest

from labkit.course import chapter3_pipeline as pipeline
from labkit.course import chapter3_stages as stages


@pytest.mark.parametrize(
    ("layers", "head", "wasted"),
    [
        ((8, 8, 8, 8), 0.0, 0.0),
        ((8, 8, 8, 8), 2.0, 1 - 8.5 / 10),
        ((8, 8, 9, 7), 2.0, 1 - 8.5 / 9),
        ((8, 8, 9, 7), 0.5, 1 - 8.125 / 9),
        ((10, 8, 8, 6), 2.0, 1 - 8.5 / 10),
    ],
)
def test_what_is_wasted_is_what_the_longest_stage_makes_the_others_wait(layers, head, wasted):
    assert stages.load(layers, head).wasted == pytest.approx(wasted, abs=1e-9)


def test_a_head_that_is_spread_wastes_nothing_and_leaves_the_plain_bubble():
    found = stages.load(head=2.0, spread=True)
    assert found.wasted == 0 and found.bubble == pytest.approx(3 / 19)


def test_memory_follows_m_for_gpipe_only():
    kept = stages.kept()
    m = np.array([4, 8, 64])
    assert np.diff(kept.gpipe(m)) == pytest.approx(kept.micro_batch * np.array([4, 56]))
    assert np.diff(kept.gpipe(m, recompute=True)) == pytest.approx(kept.boundary * np.array([4, 56]))
    assert np.ptp(kept.one_f_one_b(m)) == 0
    most = kept.most_with_gpipe()
    assert kept.gpipe(most) <= kept.card < kept.gpipe(most + 1)
    most = kept.most_with_gpipe(recompute=True)
    assert kept.gpipe(most, True) <= kept.card < kept.gpipe(most + 1, True)


def test_published_rates_are_met():
    errors = np.abs(pipeline.published_errors())
    assert len(errors) == 24 and np.median(errors) <= 1 and errors.max() <= 2


def test_interleaving_at_v_4_holds_less_than_at_v_2():
    """1 + (p - 1)/(p v): 1.375 and 1.1875."""
    assert [pipeline.interleaving(4, 16, v).peak_ratio for v in (1, 2, 4)] == [1, 1.375, 1.1875]


def test_every_simulated_bubble_is_the_formula():
    for p, m in ((2, 3), (5, 5), (8, 24)):
        assert pipeline.simulated_bubbles(p, m) == {f"{p - 1}/{m + p - 1}"}


@pytest.mark.parametrize(
    ("function", "says"),
    [
        (pipeline.bubble_table, "3/27"),
        (pipeline.schedules_table, "16, 16, 16, 16"),
        (pipeline.in_flight_table, "4, 3, 2, 1"),
        (pipeline.interleaving_table, "15 = 5x"),
        (pipeline.published_table, "24.3 %"),
        (stages.load_table, "15.5 %"),
        (stages.ends_table, "1.31 GB"),  # 128,256 x 5120 x 2 bytes
        (stages.memory_table, "too much"),
        (stages.traffic_table, "4.7 GB"),
        (stages.batch_table, "128"),
    ],
)
def test_tables_say_the_figure_that_matters(function, says):
    assert any(says in cell for row in function().rows for cell in row)


def test_the_rules_name_the_batch_that_4_p_asks_for():
    (row,) = stages.said_table(stages.few_micro_batches(4, 8, dp=2)).rows
    assert row[0] == "advice" and "32" in row[2]
