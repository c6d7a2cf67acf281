"""Rules of memory on real questions: sets of shards, sharding over nobody, its traffic, checkpoints."""

import numpy as np
import pytest

from labkit.spec import Plan
from labkit.spec.rules_memory import layers_per_checkpoint, nothing_to_shard, shard_ranks, sharded_gradients
from tests.spec.plan_cases import broken, gpus, impossible, shape


@pytest.mark.parametrize(
    ("fields", "message", "values"),
    [
        ({"dp": 64, "shard_ranks": 24}, "dp 64 x cp 1 = 64 ranks: 64 mod 24 = 16", [16, 32, None]),
        ({"dp": 8, "cp": 8, "shard_ranks": 128}, "dp 8 x cp 8 = 64 ranks: 64 mod 128 = 64", [64, None]),
        ({"tp": 64, "shard_ranks": 8}, "dp 1 x cp 1 = 1 rank: 1 mod 8 = 1", [1, None]),
    ],
)
def test_sets_of_shards_are_of_one_size(fields, message, values):
    plan = Plan(zero=3, **fields)
    found = broken(shape(hidden=8192, heads=64), gpus(64), plan)["shard ranks"]
    assert found.message == f"shard_ranks = {plan.shard_ranks} does not divide {message}"
    assert found.severity == "impossible" and [way["shard_ranks"] for way in found.options] == values


def test_hybrid_sharding_inside_a_node_is_no_problem():
    hybrid = Plan(dp=64, zero=3, shard_ranks=8, global_batch=256, micro_batch=4)
    assert impossible(shape(), gpus(64), hybrid) == set()


def test_sharding_over_one_rank_is_told():
    """Planner case D3: tp = 8 on 8 cards with ZeRO-2 leaves dp = 1, so nothing is sharded."""
    found = broken(shape(), gpus(8), Plan(tp=8, zero=2))["nothing to shard"]
    assert found.message == (
        "zero = 2 with dp x cp = 1 shards nothing: each rank keeps all of its states, as with zero = 0"
    )
    assert found.severity == "advice" and found.options == ({"dp": 2}, {"zero": 0})
    alone = broken(shape(), gpus(8), Plan(dp=8, zero=2, shard_ranks=1))["nothing to shard"]
    assert "zero = 2 with shard_ranks = 1 shards nothing" in alone.message
    assert alone.options == ({"shard_ranks": None}, {"zero": 0})


def test_context_parallel_ranks_share_states_and_tensor_parallel_ranks_experts():
    assert "nothing to shard" not in broken(shape(), gpus(8), Plan(cp=8, zero=1))
    sparse = shape(experts=8, top_k=2)
    whole = Plan(tp=8, etp=1, zero=1)  # all 8 ranks hold all of the experts
    assert "nothing to shard" not in broken(sparse, gpus(8), whole)
    assert "nothing to shard" in broken(sparse, gpus(8), whole.changed(ep=8))


@pytest.mark.parametrize(
    ("zero", "m", "units"), [(2, 16, "17"), (3, 16, "48"), (2, 2, "3"), (3, 2, "6"), (2, 32, "33")]
)
def test_sharded_gradients_are_reduced_for_every_micro_batch(zero, m, units):
    """Claim 4.1-d: m + 1 and 3 m, where stage 1 has 2, in units of S(N-1)/N a step."""
    plan = Plan(tp=2, dp=2, pp=2, zero=zero, micro_batch=1, accumulation=m)
    found = broken(shape(), gpus(8), plan)["sharded gradients"]
    assert f": {units} units of S(N-1)/N a step, not the 2 of zero = 1" in found.message
    assert ("gathers parameters twice" in found.message) == (zero == 3)
    assert found.message.endswith(", and some frameworks refuse it with a pipeline")
    assert found.severity == "advice" and found.options == ({"zero": 1},)


@pytest.mark.parametrize(
    "fields",
    [
        {"zero": 1, "dp": 8, "accumulation": 16},
        {"zero": 3, "dp": 8, "accumulation": 1},
        {"zero": 2, "tp": 8, "accumulation": 16},
    ],
)
def test_sharded_gradients_once_a_step_are_no_problem(fields):
    assert "sharded gradients" not in broken(shape(), gpus(8), Plan(**fields))


def test_no_pipeline_is_not_spoken_of():
    found = broken(shape(), gpus(8), Plan(dp=8, zero=3, accumulation=4))["sharded gradients"]
    assert "pipeline" not in found.message


def test_checkpoints_do_not_reach_beyond_a_stage():
    name, plan = "layers per checkpoint", Plan(pp=4, accumulation=16, recompute="full")
    found = broken(shape(), gpus(4, node=4), plan.changed(recompute_every=16))[name]
    assert found.message == (
        "recompute_every = 16 is more than the 8 layers of a stage: "
        "it keeps one checkpoint a stage, as 8 does"
    )
    assert found.options == ({"recompute_every": 1}, {"recompute_every": 8})
    assert name not in broken(shape(), gpus(4, node=4), plan.changed(recompute_every=8))
    chunks = broken(shape(), gpus(4, node=4), plan.changed(v=4, recompute_every=8))[name]
    assert "the 2 layers of a virtual stage" in chunks.message
    uneven = plan.changed(stage_layers=(7, 8, 9, 8), recompute_every=9)
    assert name not in broken(shape(), gpus(4, node=4), uneven)
    assert (
        "the 9 layers of"
        in broken(shape(), gpus(4, node=4), uneven.changed(recompute_every=10))[name].message
    )


@pytest.mark.parametrize("recompute", ["none", "selective"])
def test_layers_per_checkpoint_need_full_recompute(recompute):
    plan = Plan(dp=8, recompute=recompute, recompute_every=4)
    found = broken(shape(), gpus(8), plan)["layers per checkpoint"]
    assert found.message == (
        f"recompute_every = 4 does nothing with recompute='{recompute}', which keeps no checkpoints of layers"
    )
    assert found.options == ({"recompute_every": 1}, {"recompute": "full", "recompute_every": 4})
    longer = broken(shape(), gpus(8), plan.changed(recompute_every=40))["layers per checkpoint"]
    assert longer.options[1] == {"recompute": "full", "recompute_every": 32}


def test_masks_of_arrays():
    model, place = shape(), gpus(64)
    dp = np.array([1, 8, 64])
    plans = Plan(
        tp=64 // dp, dp=dp, zero=2, accumulation=np.array([4, 1, 4]), shard_ranks=np.array([1, 3, 8])
    )
    assert shard_ranks(model, place, plans).tolist() == [False, True, False]
    assert nothing_to_shard(model, place, plans).tolist() == [True, False, False]
    assert sharded_gradients(model, place, plans).tolist() == [False, False, True]
    every = Plan(pp=np.array([1, 4, 4]), recompute="full", recompute_every=np.array([16, 16, 8]))
    assert layers_per_checkpoint(model, place, every).tolist() == [False, True, False]
