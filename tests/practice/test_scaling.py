"""Scaling curves: terms by hand, what always holds, and measured beside modelled."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pytest import approx

from labkit.errors import InputRefused
from labkit.planner.step import step_time
from labkit.practice.scaling import CAUSES, against, crossing, efficiency_lost, scaling_curve
from labkit.presets import cluster, model
from labkit.spec import Plan, StepTime

MODEL, NODES = model("gpt3-13b"), cluster("a100", 8)
PLAN = Plan(tp=8, micro_batch=1, global_batch=64)
CARDS = [8, 16, 32, 64]


def test_the_curve_is_that_of_single_steps():
    for mode in ("strong", "weak"):
        curve = scaling_curve(MODEL, NODES, PLAN, CARDS, mode)
        for i, n in enumerate(CARDS):
            batch = 64 if mode == "strong" else 8 * n
            step = step_time(MODEL, NODES, PLAN.changed(dp=n // 8, micro_batch=1, global_batch=batch))
            assert curve.batch[i] == batch and curve.throughput[i] == approx(step.tokens_per_s, rel=1e-9)
        assert curve.efficiency == approx(curve.throughput / curve.throughput[0] * 8 / np.array(CARDS))
        assert curve.speedup[0] == curve.efficiency[0] == 1


def test_strong_scaling_falls_below_weak():
    strong, weak = (scaling_curve(MODEL, NODES, PLAN, CARDS, mode) for mode in ("strong", "weak"))
    assert np.all(strong.efficiency[1:] < weak.efficiency[1:])
    assert np.all(np.diff(strong.efficiency) < 0) and weak.efficiency[-1] > 0.95


def test_where_a_replica_has_no_micro_batch_there_is_no_work():
    curve = scaling_curve(MODEL, NODES, PLAN.changed(global_batch=4, micro_batch=1), CARDS, "strong")
    assert curve.works.tolist() == [True, True, True, False] and np.isnan(curve.efficiency[-1])
    assert all(np.isnan(share[-1]) for share in curve.lost.values())
    with pytest.raises(InputRefused, match="cannot be shared evenly by 4 replicas"):
        scaling_curve(MODEL, NODES, PLAN.changed(global_batch=6, micro_batch=1), CARDS, "strong")


@settings(max_examples=15)
@given(
    tp=st.sampled_from([1, 2, 8]),
    pp=st.sampled_from([1, 2, 4]),
    zero=st.integers(0, 1),
    mode=st.sampled_from(["strong", "weak"]),
)
def test_what_is_lost_and_what_is_left_add_up_to_one(tp, pp, zero, mode):
    plan = Plan(tp=tp, pp=pp, zero=zero, micro_batch=1, global_batch=64)
    curve = scaling_curve(MODEL, NODES, plan, plan.ranks * 2 ** np.arange(5), mode)
    assert sum(curve.lost.values()) + curve.efficiency == approx(np.ones(5))
    assert set(curve.lost) == set(CAUSES) and all(share[0] == 0 for share in curve.lost.values())


def test_what_is_lost_inside_and_across_by_hand():
    """Per token and card: base 10, then 12.5 seconds; of the 2.5 more 2 across, 1 inside, 0.5 gained."""
    base = StepTime(compute=9, tp=1, tokens=1, gpus=1)
    step = StepTime(compute=8.5, tp=2, dp=2, tokens=4, gpus=4)
    lost = efficiency_lost(base, step, {"dp": True, "tp": False})
    assert lost == approx(
        {"compute": -0.04, "update": 0, "bubble": 0, "inside": 0.08, "across": 0.16, "waiting": 0}
    )
    assert sum(lost.values()) == approx(1 - 10 / 12.5)


def test_data_parallel_crosses_where_a_group_leaves_its_node():
    curve = scaling_curve(MODEL, NODES, Plan(tp=2, micro_batch=1, global_batch=32), [2, 4, 8, 16])
    assert curve.crosses["dp"].tolist() == [False, False, False, True]
    assert curve.lost["inside"][2] > 0 == curve.lost["across"][2] and curve.lost["across"][3] > 0
    assert crossing(Plan(tp=4, cp=4, dp=1), 8)["dp"]


def test_a_pipeline_loses_to_its_bubble_under_strong_scaling_alone():
    plan = Plan(tp=8, pp=2, micro_batch=1, global_batch=32)
    strong, weak = (scaling_curve(MODEL, NODES, plan, [16, 32, 64], mode) for mode in ("strong", "weak"))
    # p - 1 of m + p - 1: 1 of 33 at 32 micro-batches, 1 of 9 at 8.
    assert np.all(strong.lost["bubble"][1:] > 0.01) and np.abs(weak.lost["bubble"]).max() < 1e-9


def test_measured_against_modelled():
    curve = scaling_curve(MODEL, NODES, PLAN, CARDS)
    half = dict(zip(CARDS, (curve.throughput / 2).tolist(), strict=True))
    rows = against(curve, half)  # wrong by one factor everywhere: the same efficiency
    assert [row.unexplained for row in rows] == approx([0] * 4, abs=1e-12)
    rows = against(curve, {32: 10_000.0, 16: 8_000.0})
    assert [row.cards for row in rows] == [16, 32] and rows[1].measured_efficiency == 0.625
    assert rows[1].unexplained == approx(rows[1].modelled_efficiency - 0.625) and rows[0].unexplained == 0


@pytest.mark.parametrize(
    "wrong",
    [
        {"model": 1},
        {"cluster": None},
        {"plan": "tp 8"},
        {"plan": PLAN.changed(dp=np.array([1, 2]))},
        {"cards": []},
        {"cards": None},
        {"cards": "8"},
        {"cards": [8, 8]},
        {"cards": [16, 32]},
        {"cards": [8, 12]},
        {"cards": [8, 1.5]},
        {"cards": [[8, 16]]},
        {"cards": np.array([True])},
        {"cards": [8, [16]]},
        {"mode": "both"},
        {"mode": None},
    ],
)
def test_refused(wrong):
    with pytest.raises(InputRefused) as refused:
        scaling_curve(**{"model": MODEL, "cluster": NODES, "plan": PLAN, "cards": CARDS, **wrong})
    assert "\n" not in str(refused.value) and len(str(refused.value)) < 320


@pytest.mark.parametrize(
    "measured",
    [{}, None, {8: 1.0}, [8, 16], {8: 1.0, 24: 2.0}, {8: 1.0, 16: -1}, {8: 1, "16": 2}, {8: 1, 16: None}],
)
def test_measurements_refused(measured):
    with pytest.raises(InputRefused) as refused:
        against(scaling_curve(MODEL, NODES, PLAN, CARDS), measured)
    assert "\n" not in str(refused.value)


def test_splits_refused():
    step = StepTime(compute=1, tokens=1, gpus=1)
    for base, other, crosses in (
        (None, step, {}),
        (step, 5, {}),
        (StepTime(compute=1), step, {}),
        (step, StepTime(compute=1, tokens=5), {}),
        (step, step, None),
    ):
        with pytest.raises(InputRefused):
            efficiency_lost(base, other, crosses)
    with pytest.raises(InputRefused):
        crossing("plan", 8)
    with pytest.raises(InputRefused):
        against("curve", {8: 1.0, 16: 2.0})
