"""Bubble rates of 1F1B and interleaved 1F1B that others computed from profiled times, from our own times.

The authors put one time per pass into their simulation, for all stages: their published scheduler takes the
middle stage's, and their table shows it (``test_the_table_is_that_of_equal_stages``). Ours is the middle
stage's as well: matrix products at the share of the peak that the A100 preset reaches; transfers over the
preset's links. Nothing is fitted to the table.
"""

import csv
from pathlib import Path

import numpy as np
import pytest

from labkit.planner.stage_times import pipeline_times
from labkit.presets import cluster
from labkit.spec.transformer import Transformer
from labkit.strategies.pipeline import interleaved, simulate

ROOT = Path(__file__).resolve().parents[2]
VOCABULARY = 50257  # GPT-2's; the paper states none, and the middle stage has no head


def table():
    lines = (ROOT / "data/published/zero_bubble_rates.csv").read_text("utf-8").splitlines()
    for row in csv.DictReader(line for line in lines if not line.startswith("#")):
        numbers = {key: int(value) for key, value in row.items() if key not in ("model", "bubble_rate")}
        yield {**row, **numbers, "bubble_rate": float(row["bubble_rate"])}


ROWS = list(table())


def model(row, layers):
    return Transformer(row["model"], layers, row["hidden"], row["heads"], VOCABULARY, row["sequence"])


def rate(row):
    """The row's bubble rate from a model whose end stages are as long as the middle ones, without a head."""
    p, v, m = row["p"], row["v"], row["m"]
    whole = model(row, row["layers"] + 2)
    times = pipeline_times(whole, cluster("a100"), p, v, micro_batch=row["micro_batch"], head="none")
    return simulate(interleaved(p, m, v), *times).bubble_rate


def test_the_published_rates():
    errors = np.array([100 * (rate(row) - row["bubble_rate"]) for row in ROWS])
    assert len(errors) == 24
    assert np.median(np.abs(errors)) <= 1.0
    assert np.abs(errors).max() <= 2.0


def test_the_table_is_that_of_equal_stages():
    """With equal stages one transfer time c explains the 1F1B rows of a model; with shorter ends none does.

    cost = (m + p - 1) T + (2 (p - 1) m/p + 2 (p - 2)) c in units of the middle stage's T, less what the two
    end stages of 14.6B would save, a third of T each.
    """
    rows = [row for row in ROWS if row["model"] == "14.6B" and row["v"] == 1]

    def spread(saved):
        transfers = []
        for row in rows:
            p, m = row["p"], row["m"]
            visible = m / (1 - row["bubble_rate"]) - (m + p - 1 - saved)
            transfers.append(visible / (2 * (p - 1) * m / p + 2 * (p - 2)))
        return max(transfers) / min(transfers)

    assert len(rows) == 3
    assert spread(saved=0) < 1.02
    assert spread(saved=2 / 3) > 1.15


def test_the_output_head_makes_the_last_stage_of_the_smallest_model_the_longest():
    row = ROWS[0]
    layers = np.full(row["p"], 3)
    layers[[0, -1]] = 2
    times = pipeline_times(
        model(row, row["layers"]), cluster("a100"), row["p"], micro_batch=row["micro_batch"], layers=layers
    )
    assert times.forward.argmax() == row["p"] - 1
    # A head is V/(12 h + 2 s) layers: its FLOPs 2 V h per token over 24 h^2 + 4 s h.
    in_layers = VOCABULARY / (12 * 2304 + 2 * 1024)
    assert times.forward[-1] / times.forward[1] == pytest.approx((2 + in_layers) / 3)
