"""Parts of a step by hand: compute, bubble, and what nothing hides."""

import numpy as np
import pytest

from labkit.errors import InputRefused
from labkit.planner.bill import step_bill
from labkit.planner.exposed import BUCKET, exposed_seconds
from labkit.spec import Cluster, Gpu, Link, Plan, Transformer

GUIDE = Transformer("guide", 32, 5120, 40, 50176, 2048)
HALF = Cluster(
    "half of peak", Gpu("c", 80e9, {"bf16": 312e12}, 0.5), 8, 8, Link(0.0, 235e9), Link(0.0, 50e9), 8
)


def test_exposed_time_of_a_plan_by_hand():
    plan = Plan(tp=8, pp=4, dp=2, micro_batch=4, global_batch=256)
    parts = exposed_seconds(GUIDE, HALF, plan)
    assert parts["compute"] == pytest.approx(GUIDE.model_flops(256) / 64 / 156e12)
    assert parts["bubble"] == pytest.approx(parts["compute"] * 3 / 32)
    assert parts["pipeline"] == pytest.approx(64 * 83_886_080 / 50e9)
    assert parts["context"] == parts["expert"] == 0
    # 1024 all_reduces of 83.9 MB in a layer, 32 + 96 at the ends and in the loss (16 kB each).
    activations = 1.75 * 83_886_080 / 235e9
    loss = 96 * 1.75 * 4 * 2048 * 4 / 235e9
    assert parts["tensor"] == pytest.approx((1024 + 32) * activations + loss)
    # Gradients over 50 GB/s hide under the last backward but for a bucket; the tied matrix does not hide.
    layer = (12 * 5120**2 + 7 * 5120) / 8 + 6 * 5120
    tied = 2 * 50176 * 5120 / 8
    gradients = 2 * (8 * layer + 2 * 5120) + tied
    assert parts["data"] == pytest.approx((gradients / np.ceil(gradients / BUCKET) + tied) / 50e9)


@pytest.mark.parametrize("zero", [1, 2, 3])
def test_what_sharding_exposes(zero):
    """Gradients hide under the last backward but for the last; weights of stages 1 and 2 under nothing."""
    plan = Plan(dp=64, micro_batch=1, accumulation=4, zero=zero)
    rows = {row.collective: row for row in step_bill(GUIDE, HALF, plan)}
    parts = exposed_seconds(GUIDE, HALF, plan)
    gather, scatter = (rows[name].seconds(HALF) for name in ("all_gather", "reduce_scatter"))
    if zero < 3:
        last = scatter / rows["reduce_scatter"].count
        hides = 2 / 3 * parts["compute"] / 4
        assert parts["data"] == pytest.approx(gather + max(scatter - hides, last))
    else:
        collectives = 3 * 32 * 4
        least = (gather + scatter) / collectives
        assert parts["data"] == pytest.approx(max(gather + scatter - parts["compute"], least))


def test_the_bubble_is_known_of_schedules_with_whole_backwards_alone():
    for schedule in ("zb-h1", "zb-v"):
        with pytest.raises(InputRefused, match="knows the bubble of 1F1B and GPipe"):
            exposed_seconds(GUIDE, HALF, Plan(pp=4, micro_batch=1, accumulation=8, schedule=schedule))
