"""What a gigabyte saved costs: bytes and seconds by hand, and the order that follows from the network."""

import numpy as np
import pytest

from labkit.errors import InputRefused
from labkit.planner.conventions import USUAL
from labkit.planner.savings import savings
from labkit.presets import cluster
from labkit.spec import Plan, Transformer

GPT = Transformer("gpt", 40, 5120, 40, 50257, 2048)
LAYERS = 40 * (12 * 5120**2 + 13 * 5120)
PLAN = Plan(dp=64, micro_batch=1, accumulation=16, fused_attention=False)


def table(name, plan=PLAN):
    return {one.option: one for one in savings(GPT, cluster(name, 8), plan)}


def test_bytes_sent_by_hand():
    """In units of 2 B x P x 63/64: 2, 2, m + 1 and 3 m."""
    rows, unit = table("a100"), 2 * LAYERS * 63 / 64
    assert [rows[f"stage {k}"].sent / unit for k in (1, 2, 3)] == pytest.approx([0, 15, 31])
    assert rows["full recompute"].sent == 0


def test_bytes_saved_by_hand():
    """12, 2 and 2 B a parameter less 1/64; stage 2 has one layer's gradient back, stage 3 two layers."""
    rows, parameters, layer = table("a100"), GPT.parameters, 2 * LAYERS / 40
    share, slack = 63 / 64, 1 + USUAL.slack  # the allocator's is part of the peak
    assert rows["stage 1"].saved / slack == pytest.approx(12 * parameters * share, rel=1e-3)
    assert rows["stage 2"].saved / slack == pytest.approx(2 * parameters * share - layer, rel=0.03)
    assert rows["stage 3"].saved / slack == pytest.approx(2 * parameters * share - 2 * layer, rel=0.03)
    scores = 40 * 5 * 40 * 2048**2
    assert rows["selective recompute"].saved / slack == pytest.approx(scores, rel=1e-6)


def test_recompute_by_hand():
    """Scores and context again: 4 s^2 h a layer. Full: the other 24 s h^2 too."""
    rows, rate = table("a100"), 312e12 * cluster("a100").gpu.reached
    assert rows["selective recompute"].seconds == pytest.approx(16 * 40 * 4 * 2048**2 * 5120 / rate)
    assert rows["full recompute"].seconds == pytest.approx(16 * 40 * 24 * 2048 * 5120**2 / rate)
    assert rows["full recompute"].exposed == rows["full recompute"].seconds


@pytest.mark.parametrize("name", ["a100", "h100", "cloud-25gbe"])
def test_stage_one_costs_no_bytes_and_comes_first(name):
    rows = table(name)
    assert rows["stage 1"].seconds == pytest.approx(0, abs=1e-9)
    assert min(rows.values(), key=lambda one: one.work_per_gb).option == "stage 1"


def test_the_network_decides_whether_stage_three_or_full_recompute_is_cheaper():
    fast, slow = table("a100"), table("cloud-25gbe")
    assert fast["stage 3"].exposed_per_gb < 0.05 * fast["full recompute"].exposed_per_gb
    assert slow["stage 3"].exposed_per_gb > 20 * slow["full recompute"].exposed_per_gb


def test_a_fused_attention_has_no_scores_to_drop():
    rows = table("a100", PLAN.changed(fused_attention=True))
    assert rows["selective recompute"].saved == 0 and rows["selective recompute"].work_per_gb == np.inf
    assert rows["selective recompute"].exposed_per_gb == np.inf


def test_one_plan_only():
    with pytest.raises(InputRefused, match="savings are those of one plan"):
        savings(GPT, cluster("a100", 8), Plan(dp=np.array([8, 64])))
