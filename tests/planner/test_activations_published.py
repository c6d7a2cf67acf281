"""Activations against figures 1 and 7 of Korthikanti et al. (2022), whose formula this is."""

import pytest

from labkit.planner.activations import layer_activation_bytes
from labkit.planner.states import FP32_GRADIENTS, state_bytes
from labkit.presets import published
from labkit.units import GiB

ROWS = published("korthikanti_2022_memory")
each_row = pytest.mark.parametrize(
    "row", ROWS, ids=lambda row: f"{row['model']}-{row['recompute']}-{row['sequence_parallel']}"
)


def layer(row, **changes):
    names = ("sequence", "micro_batch", "hidden", "heads", "tp", "recompute")
    given = {name: row[name] for name in names} | {"sequence_parallel": bool(row["sequence_parallel"])}
    return layer_activation_bytes(**given | changes)


def test_all_models_and_techniques_are_there():
    assert len(ROWS) == 20 and {row["model"] for row in ROWS} == {"22B", "175B", "530B", "1T"}
    assert sum(row["activations_gib"] != "" for row in ROWS) == 8


@each_row
def test_figure_7_within_one_and_a_half_percent(row):
    share = layer(row) / layer(row, recompute="none", sequence_parallel=False)
    assert 100 * share == pytest.approx(row["percent"], rel=0.015)


@each_row
def test_figure_1_to_the_printed_digits(row):
    """The first stage keeps all layers of one micro-batch, with v chunks 1 + (p - 1)/(p v) times as much."""
    p, v = row["pp"], row["v"]
    weights = 12 * row["layers"] * row["hidden"] ** 2 / (row["tp"] * p)
    assert state_bytes(weights, recipe=FP32_GRADIENTS) / GiB == pytest.approx(row["states_gib"], rel=1e-12)
    if row["activations_gib"] != "":
        kept = row["layers"] * (1 + (p - 1) / (p * v) if v > 1 else 1)
        found = kept * layer(row) / GiB
        assert found == pytest.approx(row["activations_gib"], rel=1e-12)
