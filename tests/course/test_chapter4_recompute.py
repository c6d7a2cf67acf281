"""Section 4.2's tables: figures worked out apart, and published ones."""

import pytest

from labkit.course import chapter4_recompute as kept
from labkit.course import chapter4_recompute_price as price
from labkit.presets import model

TABLES = [
    kept.sequence_table,
    kept.half_table,
    kept.published_table,
    kept.published_gib_table,
    kept.group_table,
    kept.square_root_table,
    kept.recursion_table,
    kept.stack_table,
    price.pairs_table,
    price.share_table,
    price.ways_table,
    price.utilisation_table,
    price.threshold_table,
    price.changes_table,
    price.replay_table,
]


@pytest.mark.parametrize("made", TABLES, ids=lambda made: made.__name__)
def test_every_table_has_full_rows_that_fit_a_page(made):
    table = made()
    assert len(table.rows) >= 2 and {len(row) for row in table.rows} == {len(table.heads)}
    assert max(len(line) for line in repr(table).split("\n")) <= 150


@pytest.mark.parametrize("name", ["gpt3-13b", "llama2-70b"])
@pytest.mark.parametrize("fused", [True, False])
def test_half_is_half(name, fused):
    of, states = model(name), 26e9
    s = kept.half_at(of, states, fused=fused)
    # Between two sequences that can be, because a sequence is a whole number.
    below, above = (of.layers * kept.layer_of(of, int(s) + more, fused=fused).kept for more in (0, 1))
    assert below <= states <= above


def test_scores_lead_beyond_34_h_over_5_a_and_later_under_tensor_parallel():
    assert kept.scores_lead_at(model("gpt3-13b")) == pytest.approx(34 * 5120 / (5 * 40))
    assert kept.scores_lead_at(model("gpt3-13b"), tp=8) == pytest.approx(13 * 5120 / (5 * 40 / 8))
    split = kept.scores_lead_at(model("gpt3-13b"), tp=8, sequence_parallel=True)
    assert split == pytest.approx(34 * 5120 / (5 * 40))


def test_a_share_of_compute_solves_its_step():
    for step, samples, rest in ((1.12, 2, 1), (1.12, 4, 1), (1.12, 2, 0.5), (1.12, 1, 0.25)):
        c = price.compute_share(step, samples, rest)
        assert samples * 4 / 3 * c + rest * (1 - c) == pytest.approx(step)
    assert price.compute_share(1.12, 2, 1) == pytest.approx(0.12 / (5 / 3))
    assert price.compute_share(1.12, 4, 1) == pytest.approx(0.12 / (13 / 3))


def test_the_published_steps_have_the_published_utilisation():
    """MFU 41.5, 51.4, 56.0 and 56.3 % are printed for selective recompute (table 5)."""
    rows = [row for row in price.utilisation_table().rows if row[1] == "selective"]
    assert [float(row[3].split()[0]) for row in rows] == pytest.approx([41.5, 51.4, 56.0, 56.3], abs=0.3)


def test_a_real_stack_agrees_with_the_formula_in_every_row():
    for row in kept.stack_table().rows:
        assert row[2] == row[3] and row[4] in ("", "yes")


def test_full_recompute_of_a_measured_layer():
    """Table 4 prints 39 % and 7 % of overhead."""
    extra = {row[0]: float(row[4].split()[0]) for row in price.ways_table().rows}
    assert extra["full"] == pytest.approx(39, abs=0.5) and extra["selective"] == pytest.approx(7, abs=0.5)
