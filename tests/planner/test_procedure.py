"""The ten-row table: a plan that runs, or one sentence; conditions against sums by hand."""

from dataclasses import replace

import pytest

from labkit import Gpu, Link, Plan, cluster, memory, model
from labkit.errors import InputRefused
from labkit.planner.decide import decide
from labkit.planner.procedure import CUTS, named, procedure
from labkit.presets import cluster_ids, model_ids
from labkit.spec import Cluster, Transformer
from labkit.spec.rules import allowed


def rows(found):
    return {row.number: row for row in found.rows}


@pytest.mark.parametrize("id", model_ids())
@pytest.mark.parametrize("machine", cluster_ids())
def test_the_plan_runs_or_one_sentence_says_why_not(id, machine):
    shape = model(id)
    shape = replace(shape, sequence=min(shape.sequence, 8192))
    found = 0
    for nodes, batch in ((1, 8), (16, 100)):
        there = cluster(machine, nodes=nodes)
        try:
            made = procedure(shape, there, batch)
        except InputRefused as refusal:
            assert "\n" not in str(refusal) and len(str(refusal)) < 500
            continue
        found += 1
        plan = made.plan
        assert allowed(shape, there, plan) and plan.ranks == there.n_gpus and plan.global_batch == batch
        held = memory(shape, there, plan)
        assert held.fits and held.peak == pytest.approx(made.memory.total)
        assert [row.number for row in made.rows] == list(range(1, 11))
    assert found or shape.parameters > 100e9


@pytest.mark.parametrize(
    ("id", "nodes", "batch"), [("llama2-70b", 8, 512), ("gpt3-175b", 64, 1536), ("mixtral-8x7b", 4, 256)]
)
def test_the_cut_is_that_of_the_four_steps(id, nodes, batch):
    shape, there = model(id), cluster("a100", nodes=nodes)
    found = procedure(shape, there, batch)
    same = decide(shape, there, batch, zero=found.plan.zero, recompute=found.plan.recompute)
    assert found.plan == same.plan and found.needs == same.needs


GPT = Transformer("gpt", 40, 5120, 40, 50304, 2048, learned_positions=2048)


def nodes(gigabytes, count=8):
    card = Gpu("card", gigabytes * 1e9, {"bf16": 312e12}, 0.5)
    return Cluster("nodes", card, count, 8, Link(2e-6, 235e9), Link(5e-6, 25e9), 8)


def test_which_rows_act_as_cards_shrink():
    """16 B x 12.85e9 = 206 GB: alone, then stage 1 (4 + 12/64), then 2, then cuts."""
    states = 16 * GPT.parameters
    by_size = {size: procedure(GPT, nodes(size), 512) for size in (400, 100, 60, 40)}
    assert [by_size[size].plan.zero for size in by_size] == [0, 1, 2, 1]
    assert [row.number for row in by_size[400].rows if row.holds][:2] == [1, 6]
    for size in (100, 60):
        assert rows(by_size[size])[2].holds and by_size[size].plan.dp == 64
        assert rows(by_size[size])[1].load == pytest.approx(
            (states + memory(GPT, nodes(size), Plan(dp=64, micro_batch=1, accumulation=8)).peak - states)
            / (size * 1e9)
        )
    cut = rows(by_size[40])
    assert not cut[1].holds and not cut[2].holds and "stage 1" in cut[2].action
    assert cut[5].holds or cut[4].holds


def test_conditions_by_hand():
    found = rows(procedure(GPT, nodes(100), 512))
    assert f"states {16 * GPT.parameters / 1e9:.0f} GB" in found[1].condition
    assert found[6].condition == "64 / (1 x 1) = 64 replicas"
    assert found[7].condition == "8 sequences a replica, in 8 micro-batches of 1" and found[7].holds
    assert found[10].condition == "1 x 1 x 64 = 64 GPUs; tp inside 8"
    few = rows(procedure(GPT, nodes(400), 64))
    assert not few[7].holds and "better 4" in few[7].action


def test_a_batch_that_cannot_reach_all_cards_lowers_dp():
    found = procedure(GPT, nodes(400), 32)
    assert found.plan.dp <= 32 and not rows(found)[1].holds
    assert rows(found)[7].action == f"not for more replicas: dp = {found.plan.dp}"
    assert "the batch asks" in rows(found)[4].action


def test_full_recompute_and_stage_three_come_last():
    tried = [(step["zero"], step["recompute"]) for step in CUTS]
    assert tried == sorted(tried, key=lambda one: (one[0], ("none", "selective", "full").index(one[1])))
    small = procedure(GPT, nodes(5.8), 512, fused_attention=False)
    assert small.plan.zero == 3 and rows(small)[8].holds and rows(small)[8].load > 1
    assert "stage 3" in rows(small)[8].action


def test_selective_recompute_only_where_scores_are_kept():
    modes = {
        fused: [procedure(GPT, nodes(size), 512, fused_attention=fused).plan.recompute for size in (12, 9, 6)]
        for fused in (True, False)
    }
    assert modes == {True: ["none", "none", "full"], False: ["none", "selective", "full"]}


def test_a_smaller_micro_batch_is_the_last_way_out():
    assert procedure(GPT, nodes(40), 512, 4).plan.micro_batch == 4
    assert procedure(GPT, nodes(8), 64, 64).plan.micro_batch < 64


def test_experts_are_spread():
    found = procedure(replace(model("mixtral-8x7b"), sequence=4096), cluster("h100", nodes=4), 256)
    assert found.plan.ep == 8 and rows(found)[9].holds and "ep = 8" in rows(found)[9].action


def test_refusals():
    with pytest.raises(InputRefused, match="does not fit 8 cards"):
        procedure(model("llama3.1-405b"), cluster("a100"), 64)
    with pytest.raises(InputRefused, match="cannot be shared evenly"):
        procedure(model("llama2-7b"), cluster("cloud-25gbe", nodes=4096), 7, max_memory=1e12)
    for wrong in (
        ("x", nodes(80), 8),
        (GPT, "x", 8),
        (GPT, nodes(80), 0),
        (GPT, nodes(80), 8, 1.5),
        (GPT, nodes(80), "8"),
    ):
        with pytest.raises(InputRefused):
            procedure(*wrong)
    with pytest.raises(InputRefused, match="max_memory"):
        procedure(GPT, nodes(80), 8, max_memory=-1)


def test_words():
    assert named(Plan(tp=2, pp=4, dp=8)) == "TP 2 x PP 4 x DP 8" and named(Plan()) == "one card"
    text = repr(procedure(GPT, nodes(40), 512))
    assert max(map(len, text.splitlines())) <= 110 and "PP 4 x DP 16" in text.splitlines()[0]
