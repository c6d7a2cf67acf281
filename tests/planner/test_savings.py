"""What a gigabyte saved costs: bytes and seconds by hand, and the order that follows from the network."""

from dataclasses import replace

import numpy as np
import pytest

from labkit.errors import InputRefused
from labkit.planner.conventions import USUAL, Conventions
from labkit.planner.savings import savings
from labkit.planner.states import FP32, FP32_GRADIENTS
from labkit.presets import cluster
from labkit.spec import Cluster, Gpu, Link, Plan, Transformer

GPT = Transformer("gpt", 40, 5120, 40, 50257, 2048)
LAYERS = 40 * (12 * 5120**2 + 13 * 5120)
PLAN = Plan(dp=64, micro_batch=1, accumulation=16, fused_attention=False)


HEAD = 50304 * 5120  # tied to the embedding
ALL = LAYERS + HEAD + 2 * 5120  # and the last norm
# Latency 0 inside and across, 2e11 and 8 x 2e10 bytes/s out of a rank and of a host.
FLAT = Cluster("c", Gpu("g", 80e9, {"bf16": 3e14}, 0.5), 8, 8, Link(0.0, 2e11), Link(0.0, 2e10), 8)


def table(nodes, plan=PLAN, **more):
    nodes = cluster(nodes, 8) if isinstance(nodes, str) else nodes
    return {one.option: one for one in savings(GPT, nodes, plan, **more)}


def test_bytes_sent_by_hand():
    """In units of 2 B x P x 63/64: 2, 2, m + 1 and 3 m."""
    rows, unit = table("a100"), 2 * ALL * 63 / 64
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
    # The scores of one layer come back for its backward, 7 a s with their gradients, and outgrow the loss:
    # 6 bytes a logit, 4 h, and the gradient of the head.
    rows_of_head = 50304
    loss = 2048 * (6 * rows_of_head + 4 * 5120) + 2 * 5120 * rows_of_head
    again = 2048 * (2 * 5120 + 7 * 40 * 2048) - loss
    assert rows["selective recompute"].saved / slack == pytest.approx(scores - again, rel=1e-9)


def test_recompute_by_hand():
    """Scores and context again: 4 s^2 h a layer. Full: the other 24 s h^2 too."""
    rows, rate = table("a100"), 312e12 * cluster("a100").gpu.reached
    assert rows["selective recompute"].seconds == pytest.approx(16 * 40 * 4 * 2048**2 * 5120 / rate)
    assert rows["full recompute"].seconds == pytest.approx(16 * 40 * 24 * 2048 * 5120**2 / rate)
    assert rows["full recompute"].exposed == pytest.approx(rows["full recompute"].seconds)


def test_uneven_stages_cost_what_the_one_with_most_layers_costs():
    """30 of 40 layers, the last norm and the head: 3 more scatters of 2 B, 31/32 of it. Recompute: 30."""
    plan = Plan(pp=2, dp=32, micro_batch=1, accumulation=4, stage_layers=(10, 30))
    rows, held = table(FLAT, plan), LAYERS * 30 / 40 + HEAD + 2 * 5120
    assert rows["stage 2"].sent == pytest.approx(3 * 2 * held * 31 / 32)
    again = sum(rows[f"{mode} recompute"].seconds for mode in ("selective", "full"))
    assert again == pytest.approx(4 * 30 * (24 * 2048 * 5120**2 + 4 * 2048**2 * 5120) / 1.5e14)
    even = table(FLAT, plan.changed(stage_layers=None))
    assert rows["full recompute"].seconds == pytest.approx(1.5 * even["full recompute"].seconds)


def test_hybrid_shards_follow_one_ring_over_all_ranks():
    """Plain: one all_reduce over 64. Stage 1: over 8 inside, and an eighth over 8 replicas, a port each."""
    plan = Plan(dp=64, shard_ranks=8, micro_batch=1, accumulation=4)
    rows, size = table(FLAT, plan), 2 * ALL
    plain = 2 * size * 63 / 64 / 1.6e11
    inside, across = size * 7 / 8 / 2e11, 2 * size / 8 * 7 / 8 / 2e10
    assert rows["stage 1"].seconds == pytest.approx(2 * inside + across - plain)
    assert rows["stage 1"].seconds == pytest.approx(0.190, abs=1e-3)
    # Inside twice the bytes over 8, between replicas an eighth twice: as many as plain data parallel sends.
    assert rows["stage 1"].sent == pytest.approx(size * (2 * 7 / 8 + 2 / 8 * 7 / 8 - 2 * 63 / 64))
    assert rows["stage 2"].seconds == pytest.approx(3 * inside)
    assert rows["stage 3"].seconds == pytest.approx((12 - 5) * inside)


def test_what_does_not_fit_under_its_layers_is_exposed():
    """Fast layers: of the last pass only the wire counts. Stage 1 then gathers the weights in the open."""
    quick = replace(FLAT, gpu=replace(FLAT.gpu, peak={"bf16": 3e22}))
    rows = table(quick, Plan(dp=64, micro_batch=1, accumulation=4))
    assert rows["stage 2"].exposed == pytest.approx(rows["stage 2"].seconds, rel=1e-3)
    assert rows["stage 3"].exposed == pytest.approx(rows["stage 3"].seconds, rel=1e-3)
    slow = replace(FLAT, gpu=replace(FLAT.gpu, peak={"bf16": 3e8}))
    rows, size = table(slow, Plan(dp=64, micro_batch=1, accumulation=4)), 2 * ALL
    one = size * 63 / 64 / 1.6e11
    # All but the last layer's share of an all_reduce hides, and half of that is a scatter.
    assert rows["stage 1"].exposed == pytest.approx(one - one / 40, rel=1e-4)
    assert rows["stage 2"].exposed == pytest.approx(3 * one / 40, rel=1e-4)
    # A micro-batch shows its first gather and its last scatter.
    assert rows["stage 3"].exposed == pytest.approx(4 * one / 40 - one, rel=1e-4)


def test_recompute_repeats_the_communication_inside_layers():
    plan = Plan(tp=8, dp=8, micro_batch=1, accumulation=4)
    rows, payload = table(FLAT, plan), 2 * 2048 * 5120
    sent = 2 * 40 * 4 * 2 * payload * 7 / 8  # two more all_reduces a layer and micro-batch
    assert rows["full recompute"].sent == pytest.approx(sent)
    alone = 4 * 40 * 24 * 2048 * 5120**2 / 8 / 1.5e14
    assert rows["full recompute"].seconds == pytest.approx(alone + sent / 2e11)


def test_bytes_follow_the_conventions():
    """Gradients in fp32 are scattered as 4 B; fp32 weights are gathered as 4 B too."""
    usual, wide = table(FLAT), table(FLAT, conventions=Conventions(FP32_GRADIENTS))
    assert wide["stage 2"].sent == pytest.approx(2 * usual["stage 2"].sent)
    assert wide["stage 3"].sent == pytest.approx(31 * 2 * ALL * 63 / 64)
    fp32 = table(FLAT, conventions=Conventions(FP32))
    assert fp32["stage 3"].sent == pytest.approx(2 * usual["stage 3"].sent)
    slack = table(FLAT, conventions=Conventions(slack=0.0))
    assert slack["stage 1"].saved == pytest.approx(usual["stage 1"].saved / (1 + USUAL.slack))


def test_one_rank_shards_nothing():
    rows = table(FLAT, Plan(micro_batch=1))
    assert all((rows[f"stage {k}"].sent, rows[f"stage {k}"].exposed) == (0, 0) for k in (1, 2, 3))


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


def test_one_plan_on_one_cluster_only():
    with pytest.raises(InputRefused, match=r"savings takes single numbers, and plan\.dp is an array"):
        table("a100", Plan(dp=np.array([8, 64])))
    with pytest.raises(InputRefused, match=r"and cluster\.gpu\.reached is an array"):
        table(replace(FLAT, gpu=replace(FLAT.gpu, reached=np.array([0.4, 0.5]))))
    with pytest.raises(InputRefused, match="the conventions is"):
        table(FLAT, conventions=FP32)
