"""Every second of the bill has its place, and only one."""

import numpy as np
import pytest

from labkit.planner.bill import step_bill
from labkit.planner.rank_parameters import most_layers
from labkit.planner.step_traffic import step_traffic
from labkit.presets import cluster
from labkit.spec import Plan, Transformer

NODES = cluster("h100", nodes=8)
LLAMA = Transformer(
    "llama", 32, 4096, 32, 128256, 8192, kv_heads=8, ffn=14336, gated=True, bias=False, dropout=False
)
MIXTRAL = Transformer(
    "mixtral", 32, 4096, 32, 32000, 4096, kv_heads=8, ffn=14336, gated=True, experts=8, top_k=2, bias=False
)
PLANS = [
    Plan(dp=64, global_batch=128, micro_batch=1),
    Plan(dp=64, zero=1, global_batch=128, micro_batch=1),
    Plan(dp=64, zero=2, global_batch=256, micro_batch=1),
    Plan(dp=64, zero=3, global_batch=128, micro_batch=1),
    Plan(dp=64, zero=3, shard_ranks=8, global_batch=128, micro_batch=1),
    Plan(tp=8, pp=4, dp=2, global_batch=64, micro_batch=1, recompute="full"),
    Plan(tp=8, pp=2, dp=4, global_batch=64, micro_batch=1, sequence_parallel=True, recompute="selective"),
    Plan(tp=4, cp=4, dp=4, global_batch=16, micro_batch=1, sequence_parallel=True),
    Plan(tp=4, cp=2, dp=8, global_batch=16, context="all_to_all", recompute="full"),
    Plan(tp=16, dp=4, global_batch=16, replicate_kv=True),
    Plan(pp=4, v=2, dp=16, global_batch=256, micro_batch=1),
]


@pytest.mark.parametrize("model", [LLAMA, MIXTRAL], ids=lambda model: model.name)
@pytest.mark.parametrize("plan", PLANS, ids=range(len(PLANS)))
def test_all_seconds_are_sorted_once(model, plan):
    if model.experts:
        plan = plan.changed(ep=2 if plan.dp % 4 else 4)
    rows = step_bill(model, NODES, plan, bucket=25e6)
    found = step_traffic(model, NODES, plan, rows)
    per_layer = sum(map(sum, (found.tensor, found.context, found.expert)))
    per_layer += found.again + 2 * found.gather + found.scatter
    ends = sum(map(sum, (found.first_end, found.last_end)))
    once = found.reduce + found.per_micro_batch + found.weights + found.late
    m, layers = plan.accumulation, most_layers(model, plan)
    whole = m * (layers * per_layer + ends) + found.hop * found.hops + once
    in_all = sum(row.seconds(NODES) for row in rows)
    # With a pipeline the two ends are on two ranks, and the bill has the busier one.
    apart = sum(found.first_end) * m if plan.pp > 1 else 0.0
    assert found.total == pytest.approx(in_all, rel=1e-12)
    assert in_all <= whole * (1 + 1e-9) and whole <= in_all + apart + 1e-9 * in_all


def test_passes_of_tensor_parallel():
    plain, full = (
        step_traffic(LLAMA, NODES, plan, step_bill(LLAMA, NODES, plan))
        for plan in (Plan(tp=8, dp=8, recompute=mode) for mode in ("none", "full"))
    )
    assert plain.tensor[0] == pytest.approx(plain.tensor[1])  # two all_reduces each way
    assert full.tensor[0] == pytest.approx(plain.tensor[0])
    assert full.tensor[1] == pytest.approx(2 * plain.tensor[1])  # and the two forward ones again


def test_a_ring_passes_a_block_once_more_backward():
    plan = Plan(cp=4, dp=16)
    found = step_traffic(LLAMA, NODES, plan, step_bill(LLAMA, NODES, plan))
    assert found.context[1] / found.context[0] == pytest.approx((3 + 4) / 3)


def test_gradients_travel_in_buckets():
    plan = Plan(dp=64, zero=1, micro_batch=1, accumulation=4)
    found = step_traffic(LLAMA, NODES, plan, step_bill(LLAMA, NODES, plan, bucket=25e6))
    assert found.pieces == np.ceil(2 * LLAMA.parameters / 25e6) and found.per_micro_batch == 0
    second = plan.changed(zero=2)
    each_time = step_traffic(LLAMA, NODES, second, step_bill(LLAMA, NODES, second, bucket=25e6))
    assert each_time.per_micro_batch == pytest.approx(4 * found.reduce)
    assert each_time.pieces == found.pieces
