"""Memory questions from public reports, answered: cases D1 to D13 of the planner's list."""

from dataclasses import replace

import numpy as np
import pytest

from labkit.planner.activations import layer_activations
from labkit.planner.conventions import USUAL, Conventions
from labkit.planner.loading import loading_advice, loading_bytes
from labkit.planner.memory import ACTIVATIONS, STATES, memory
from labkit.planner.states import (
    FP32_ACCUMULATION,
    FP32_GRADIENTS,
    MIXED,
    Recipe,
    bytes_by_state,
    state_bytes,
)
from labkit.presets import cluster, model
from labkit.spec import Plan, Transformer, problems
from labkit.units import GiB

NODE = cluster("a100", nodes=8)
BARE = Conventions(logit_bytes=4.0, workspace=0.0, communicator=0.0, slack=0.0)


@pytest.mark.parametrize(
    ("recipe", "whole", "sharded", "printed"),
    [(MIXED, 2, 14, 26.25), (Recipe(accumulation=4), 2, 18, 29.75), (FP32_GRADIENTS, 2, 16, 28.0)],
)
def test_d1_an_estimate_of_stage_2_names_its_convention(recipe, whole, sharded, printed):
    """DeepSpeed issue 4076: 7 B on 8 ranks take 26.25 GB, or 29.75 with an fp32 copy of the gradients."""
    assert state_bytes(7e9, 8, 2, recipe) == 7e9 * (whole + sharded / 8) == printed * 1e9
    shape = model("llama2-7b")
    plan = Plan(dp=8, zero=2, vocabulary_multiple=0)
    held = memory(shape, NODE, plan, replace(BARE, recipe=recipe)).sum(STATES)[0]
    assert held == pytest.approx(shape.parameters * (whole + sharded / 8))


def test_d1_what_the_old_formula_forgot():
    """4 P + 16 P/N: the 16-bit gradients of stage 2 stand whole, as if the stage were 1."""
    old = 4 * 7e9 + 16 * 7e9 / 8
    assert old == 42e9
    each = bytes_by_state(8, 2, FP32_ACCUMULATION)
    assert old - state_bytes(7e9, 8, 2, FP32_ACCUMULATION) == 7e9 * 2 * (1 - 1 / 8) == 12.25e9
    assert each["gradients"] == (2 + 4) / 8
    assert state_bytes(7e9, 8, 1) == 7e9 * (4 + 12 / 8) == 38.5e9  # the report: no estimate of stage 1 at all


def test_d3_one_data_parallel_rank_shards_nothing():
    """DeepSpeed issue 237: tp 8 on 8 V100 leaves dp = 1; dp 2 and 4 leave 28.8 and 17.6 GiB of states."""
    shape = Transformer("27.5 B", 60, 6144, 48, 50257, 1024)
    place = replace(NODE, nodes=1, gpu=replace(NODE.gpu, memory=32 * GiB))
    asked = Plan(tp=8, zero=2, micro_batch=8)
    found = memory(shape, place, asked)
    assert found.sum(STATES) == pytest.approx(memory(shape, place, asked.changed(zero=0)).sum(STATES))
    assert found.sum(STATES)[0] == pytest.approx(55e9, rel=0.01) and not found.fits
    said = {problem.rule: problem.message for problem in problems(shape, place, asked)}
    assert "zero = 2 with dp x cp = 1 shards nothing" in said["nothing to shard"]
    wider = memory(shape, place, Plan(tp=8, dp=np.array([2, 4]), zero=2, micro_batch=8))
    assert wider.sum(STATES)[..., 0] / GiB == pytest.approx([28.8, 17.6], rel=0.01)
    assert not wider.fits[0]


def test_d5_host_memory_while_a_checkpoint_is_loaded():
    """DeepSpeed pull request 1525: 10 B on 256 ranks, 525 MB a file, 8 ranks a node."""
    found = loading_bytes(525e6, 256)
    assert found["every file"] == 525e6 * 256 * 8 == 1.0752e12
    masters = bytes_by_state(256, 1)["optimizer_states"] * 10e9  # of a file as 12 bytes a parameter make it
    assert loading_bytes(masters, 256)["master weights"] == pytest.approx(8 * 40e9, rel=0.01)
    assert "keep the master weights alone (361 GB)" in loading_advice(1e12, 525e6, 256)
    # Issue 1111, resuming on more ranks a node: as many times the checkpoint as there are ranks.
    whole = 12 * 10e9
    assert [loading_bytes(whole / 4, 4, ranks)["every file"] for ranks in (1, 8)] == [whole, 8 * whole]


@pytest.mark.parametrize("ep", [1, 2, 8])
def test_d7_tokens_of_experts_are_not_divided_by_ep(ep):
    """Megatron-LM pull request 6782: a rank has top_k s b rows whatever ep, more where routing is uneven."""
    shape = Transformer("e", 1, 1024, 8, 32000, 2048, ffn=4096, gated=True, experts=8, top_k=2, dropout=False)
    plan, rows = Plan(dp=8, ep=ep, micro_batch=4), 2 * 2048 * 4
    kept = layer_activations(shape, plan).kept
    once = layer_activations(replace(shape, top_k=1), plan).kept
    assert kept - once == rows / 2 * (4 * 1024 + 6 * 4096)  # in and out, and three of the width, in 16 bits
    fullest = layer_activations(shape, plan, imbalance=8.0 / 2).kept  # the tokens of 8 ranks chose one expert
    assert fullest - kept == 3 * rows * (4 * 1024 + 6 * 4096)
    peaks = [
        memory(shape, NODE, plan, replace(USUAL, imbalance=load)).sum(ACTIVATIONS)[0] for load in (1, 1.5, 2)
    ]
    assert peaks == sorted(set(peaks))


def test_d9_communicators_of_the_groups_that_are_used():
    """NCCL issue 964: 688 MB a group of more than two A100; a group of one rank needs none."""
    shape = model("mixtral-8x7b")

    def groups(**fields):
        found = memory(shape, NODE, Plan(**fields)).parts["communicators"]
        return found[0] / USUAL.communicator

    assert groups() == 0
    assert groups(tp=8) == groups(pp=8, accumulation=8) == groups(dp=8) == 1
    assert groups(tp=2, pp=2, dp=2, accumulation=8) == 3
    # tp, cp, pp, dp x cp, the experts' exchange (4 ranks) and the replicas of an expert (2)
    assert groups(tp=2, cp=2, pp=2, dp=2, ep=4, etp=1, accumulation=8) == 6
    assert 0.5e9 <= USUAL.communicator <= 1e9


QWEN3_30B = Transformer(
    "Qwen3-30B-A3B",
    layers=48,
    hidden=2048,
    heads=32,
    vocabulary=151936,
    sequence=4096,
    kv_heads=4,
    head_dim=128,
    ffn=768,
    gated=True,
    tied=False,
    experts=128,
    top_k=8,
    norm="rms",
    bias=False,
    qk_norm=True,
    dropout=False,
)


@pytest.mark.parametrize("imbalance", [1.0, 38801 / 32768])
def test_d11_an_expert_model_that_was_measured(imbalance):
    """PithTrain pull request 18: pp 4 and ep 8 on 32 H100, 62.3 GiB on stage 0 and 58.0 GiB on stage 1.

    From its repository: sequences of 4096, micro-batches of 1, a global batch of 1024; no recompute; fp32
    parameters, of which the 16-bit copies stay gathered; gradients stay whole and 16-bit through the
    pipeline; all but experts are spread over the 8 data-parallel ranks. DualPipeV folds the stages as zb-v
    does and keeps one chunk more, 2 p + 1 of them. The fullest layer got 38,801 rows for a mean of 32,768.
    """
    place = cluster("h100", nodes=4)
    plan = Plan(pp=4, dp=8, ep=8, v=2, schedule="zb-v", zero=1, micro_batch=1, global_batch=1024)
    found = memory(QWEN3_30B, place, plan, Conventions(imbalance=imbalance))
    assert plan.ranks == 32 and plan.accumulation == 128 and found.fullest == 0
    chunk = found.parts["in_flight"] / (2 * 4 - 2)
    used = (found.total + (1 + USUAL.slack) * chunk + place.gpu.reserve) / GiB
    # On the card, as the driver counts. The run's own estimate is 7 % above on stage 0.
    assert used[0] == pytest.approx(62.3, rel=0.07)
    assert used[1] == pytest.approx(58.0, rel=0.07 if imbalance > 1 else 0.13)


def test_d13_layers_that_stage_3_gathers_are_not_sharded():
    """7 B in 32 layers, one prefetched: two layers stand whole, 0.82 GiB, beside the shards and the head."""
    shape, plan = model("llama2-7b"), Plan(dp=8, zero=3)
    two = 2 * 2 * shape.layer_parameters
    assert two / GiB == pytest.approx(0.82 * shape.parameters / 7e9, rel=0.05)  # less the embedding's part
    head = 2 * (4096 * 32000 + 4096)
    assert memory(shape, NODE, plan, BARE).parts["gathered"][0] == pytest.approx(two + head)
    none_ahead = memory(shape, NODE, plan.changed(prefetch=0), BARE).parts["gathered"][0]
    assert none_ahead == pytest.approx(two / 2 + head)
    assert memory(shape, NODE, Plan(dp=1, zero=3), BARE).parts["gathered"][0] == 0
