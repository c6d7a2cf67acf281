"""Why a plan cannot run: every reason, and a nearest plan that passes and fits."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labkit.errors import InputRefused
from labkit.planner.memory import memory
from labkit.planner.why_not import why_not
from labkit.presets import cluster, model
from labkit.spec import Plan, problems
from labkit.spec.rule import IMPOSSIBLE

GPT, NODES = model("gpt3-13b"), cluster("a100", 4)
ROUND = Plan(tp=4, pp=4, dp=2, micro_batch=2, global_batch=64)


def runs(model, cluster, plan, most=None):
    broken = [one for one in problems(model, cluster, plan) if one.severity == IMPOSSIBLE]
    return not broken and memory(model, cluster, plan).peak <= (most or cluster.gpu.usable)


def test_nothing_against_a_good_plan():
    found = why_not(GPT, NODES, ROUND)
    assert found.reasons == () and found.nearest == ROUND and found.changes == ()
    assert repr(found) == "nothing stands against this plan: it is possible and fits"


def test_the_guides_round_with_24_micro_batches():
    wanted = Plan(tp=4, pp=4, dp=2, accumulation=24, global_batch=64)
    found = why_not(GPT, NODES, wanted)
    assert len(found.reasons) == 1 and found.reasons[0].startswith("batch: a global batch of 64 sequences")
    # 64 / (2 x 24) = 1.33 lies between 1 (m = 32) and 2 (m = 16), by factors of 1.33 and 1.5.
    assert found.nearest == ROUND.changed(micro_batch=1, global_batch=64)
    assert found.changes == ("micro-batch 1.333 -> 1", "accumulation 24 -> 32")


def test_all_reasons_at_once():
    found = why_not(GPT, NODES, Plan(tp=16, dp=2, micro_batch=3, global_batch=64, zero=1), max_memory=20e9)
    assert [reason.split(":")[0] for reason in found.reasons] == ["heads", "batch", "memory"]
    assert runs(GPT, NODES, found.nearest, 20e9) and found.nearest.global_batch == 64
    assert len(repr(found).splitlines()) == 4


def test_what_does_not_fit_changes_as_little_as_possible():
    found = why_not(GPT, NODES, Plan(dp=32, micro_batch=2, global_batch=64))
    assert "memory: stage 0 takes " in found.reasons[0]
    (change,) = found.changes  # sharding alone is enough, whatever the stage
    assert change.startswith("zero 0 -> ")


def test_layers_that_do_not_divide_become_uneven_stages():
    found = why_not(GPT, NODES, Plan(pp=16, dp=2, micro_batch=2, global_batch=64))
    assert found.changes == ("stage layers equal -> uneven",)
    wrong = Plan(pp=8, dp=4, stage_layers=(5, 5, 5, 5, 5, 5, 5, 4), micro_batch=1, global_batch=64)
    found = why_not(GPT, NODES, wrong)
    assert found.reasons == ("layers: the stages hold 39 of 40 layers",)
    assert found.changes == ("stage layers uneven -> equal",)
    found = why_not(GPT, NODES, Plan(tp=4, pp=4, dp=2, stage_layers=(20, 10, 10), global_batch=64))
    assert found.reasons == ("layers: stage_layers has 3 numbers for 4 stages",)
    assert found.nearest.stage_layers is None and runs(GPT, NODES, found.nearest)
    kept = Plan(tp=4, pp=4, dp=2, stage_layers=(9, 10, 11, 10), accumulation=24, global_batch=64)
    assert why_not(GPT, NODES, kept).nearest.stage_layers == kept.stage_layers


def test_what_a_search_does_not_try_stays_where_it_can():
    wanted = Plan(tp=4, pp=4, dp=2, accumulation=24, global_batch=64, fused_attention=False, prefetch=3)
    nearest = why_not(GPT, NODES, wanted).nearest
    assert (nearest.fused_attention, nearest.prefetch) == (False, 3)
    # No set of 3 shards divides any dp x cp of 32 GPUs.
    nearest = why_not(GPT, NODES, ROUND.changed(shard_ranks=3)).nearest
    assert nearest.shard_ranks is None and runs(GPT, NODES, nearest)


def test_stages_of_a_pipeline_that_these_gpus_cannot_have():
    # Two virtual stages need a pipeline, and one GPU has none: the stages do not stay.
    one = replace(NODES, nodes=1, gpus_per_node=1, domain=1)
    small = replace(GPT, layers=2, hidden=256, heads=4, kv_heads=4, head_dim=64, ffn=1024)
    found = why_not(small, one, Plan(v=2, stage_layers=(0, 2), micro_batch=1, global_batch=4))
    assert [reason.split(":")[0] for reason in found.reasons] == ["interleaving"]
    assert (found.nearest.v, found.nearest.stage_layers) == (1, None) and runs(small, one, found.nearest)


def test_where_no_plan_runs():
    found = why_not(model("gpt3-175b"), cluster("v100", 1), Plan(tp=8, micro_batch=1, global_batch=8))
    assert found.nearest is None and found.changes == ()
    assert repr(found).endswith("no plan on these GPUs with this global batch is possible and fits")


@settings(max_examples=20)
@given(
    tp=st.sampled_from([1, 2, 3, 8, 16]),
    pp=st.sampled_from([1, 3, 4, 16, 64]),
    dp=st.sampled_from([1, 2, 5, 32]),
    v=st.sampled_from([1, 2, 3]),
    micro_batch=st.sampled_from([1, 3, 16]),
    batch=st.sampled_from([64, 60, 7]),
    zero=st.integers(0, 3),
    schedule=st.sampled_from(["1f1b", "gpipe", "zb-v"]),
    experts=st.booleans(),
)
def test_the_nearest_plan_passes_and_fits(tp, pp, dp, v, micro_batch, batch, zero, schedule, experts):
    shape = model("mixtral-8x7b") if experts else replace(GPT, layers=24)
    plan = Plan(tp=tp, pp=pp, dp=dp, v=v, micro_batch=micro_batch, global_batch=batch, zero=zero)
    plan = plan.changed(schedule=schedule, micro_batch=micro_batch, global_batch=batch)
    found = why_not(shape, NODES, plan)
    assert (not found.reasons) == runs(shape, NODES, plan)
    if found.nearest is not None:
        assert runs(shape, NODES, found.nearest) and found.nearest.global_batch == batch
        assert (found.nearest == plan) == (not found.reasons) == (not found.changes)


def test_refusals():
    with pytest.raises(InputRefused, match="max_memory, in bytes of a card, is -1"):
        why_not(GPT, NODES, ROUND, max_memory=-1)
    with pytest.raises(InputRefused, match="the plan is of type dict"):
        why_not(GPT, NODES, {"tp": 4})
