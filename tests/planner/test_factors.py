"""One more factor of 2: plans of the same GPUs and batch, and what they cost."""

import numpy as np
import pytest

from labkit.errors import InputRefused
from labkit.planner.factors import factor_two
from labkit.planner.step import step_time
from labkit.presets import cluster
from labkit.spec import Plan, Transformer

NODES = cluster("a100", nodes=8)
GUIDE = Transformer("guide", 32, 5120, 40, 50176, 2048)


def test_the_last_factor_two_keeps_gpus_and_batch_and_costs_what_its_plan_costs():
    plan = Plan(tp=2, pp=4, dp=8, micro_batch=1, global_batch=256, sequence_parallel=True)
    found = {one.name: one for one in factor_two(GUIDE, NODES, plan)}
    assert list(found) == ["TP", "PP", "DP"]
    for one in found.values():
        assert one.plan.ranks == 64 and one.plan.global_batch == 256
        assert 0 < one.exposed < one.seconds
        assert one.seconds == step_time(GUIDE, NODES, one.plan).total
    assert (found["TP"].plan.tp, found["PP"].plan.pp, found["DP"].plan) == (4, 8, plan)
    assert found["TP"].plan.accumulation == 2 * plan.accumulation
    assert found["TP"].bytes_per_card > 2 * found["DP"].bytes_per_card
    assert [found[name].smallest_batch for name in ("TP", "PP", "DP")] == [64, 128, 128]
    assert factor_two(GUIDE, NODES, Plan(tp=8, pp=8, dp=1, micro_batch=1)) == []


def test_arrays_are_refused():
    with pytest.raises(InputRefused, match="compares one plan with others"):
        factor_two(GUIDE, NODES, Plan(dp=np.array([2, 4])))
