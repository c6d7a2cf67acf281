"""Calibration finds back what was changed, stays in its ranges, and says what runs cannot tell."""

from dataclasses import replace

import numpy as np
import pytest

from labkit.errors import InputRefused
from labkit.evidence.calibrate import MODEL_ERROR, MeasuredStep, calibrate, constants_of
from labkit.planner.step import step_time
from labkit.presets import cluster, model
from labkit.spec import Plan

NODES = cluster("a100", nodes=4)
GPT = model("gpt3-13b")
PLANS = [
    Plan(tp=8, pp=1, dp=4, micro_batch=1, global_batch=64),
    Plan(tp=2, pp=4, dp=4, micro_batch=1, global_batch=64),
    Plan(tp=1, pp=8, dp=4, micro_batch=1, global_batch=64, recompute="full"),
    Plan(tp=32, pp=1, dp=1, micro_batch=4, global_batch=64),
]


def slower(name, factor):
    """The cluster with one constant changed, as the truth that runs are measured on."""
    (constant,) = (one for one in constants_of(NODES) if one.name == name)
    return constant.write(NODES, constant.read(NODES) * factor)


def measured(truth, plans=PLANS):
    return [MeasuredStep(GPT, plan, step_time(GPT, truth, plan).total) for plan in plans]


def test_runs_as_predicted_move_nothing():
    found = calibrate(measured(NODES), NODES)
    assert np.abs(found.residuals).max() < 1e-9
    assert all(one.after == pytest.approx(one.before) for one in found.constants)


def test_a_slower_gpu_is_found_by_one_run_already():
    truth = slower("kernels.product", 0.85)
    (run,) = measured(truth, PLANS[:1])
    found = calibrate([run], NODES)
    assert abs(found.before[0]) > 0.08 and abs(found.residuals[0]) < 0.04
    # A plan that was not run is predicted better, too.
    other = Plan(tp=4, pp=2, dp=4, micro_batch=2, global_batch=64)
    wanted = step_time(GPT, truth, other).total
    before, after = (step_time(GPT, there, other).total for there in (NODES, found.cluster))
    assert abs(after / wanted - 1) < 0.7 * abs(before / wanted - 1)


def test_a_slow_network_shows_in_the_plans_that_use_it():
    across = [Plan(tp=16, dp=2, micro_batch=1, global_batch=8), Plan(dp=32, zero=1, global_batch=32)]
    found = calibrate(measured(slower("inter.bandwidth", 0.5), PLANS[:1] + across), NODES)
    by_name = {one.name: one for one in found.constants}
    network = by_name["inter.bandwidth"]
    assert network.told and network.after < 0.65 * network.before
    assert by_name["kernels.product"].after == pytest.approx(by_name["kernels.product"].before, rel=0.1)


def test_what_runs_cannot_tell_is_named():
    inside = Plan(tp=8, pp=1, dp=1, micro_batch=4, global_batch=4)
    found = calibrate([MeasuredStep(GPT, inside, step_time(GPT, NODES, inside).total)], NODES)
    by_name = {one.name: one for one in found.constants}
    assert not by_name["inter.bandwidth"].told and not by_name["inter.alpha"].told
    assert "not told by these runs" in repr(found)


def test_no_constant_leaves_its_range():
    runs = [replace(run, seconds=20 * run.seconds) for run in measured(NODES)]
    found = calibrate(runs, NODES)
    for constant, moved in zip(constants_of(NODES), found.constants, strict=True):
        assert constant.low * (1 - 1e-9) <= moved.after <= constant.high * (1 + 1e-9)
    assert any(one.at_edge for one in found.constants) and "at the edge" in repr(found)


@pytest.mark.parametrize("factor", [0.88, 1.15, 3.0])
def test_no_other_constants_inside_the_ranges_fit_better(factor):
    # At 0.88 the share of peak ends at its edge, and the others take over what it cannot explain.
    runs = [replace(run, seconds=factor * run.seconds) for run in measured(NODES, PLANS[:2])]
    found = calibrate(runs, NODES)
    known = {one.name: one for one in constants_of(NODES)}

    def cost(cluster):
        moves = [np.log(one.read(cluster) / one.read(NODES)) / one.spread for one in known.values()]
        left = [np.log(step_time(GPT, cluster, run.plan).total / run.seconds) for run in runs]
        return np.sum(np.square(moves)) + np.sum(np.square(left)) / MODEL_ERROR**2

    least = cost(found.cluster)
    for moved in found.constants:
        one = known[moved.name]
        for change in (0.97, 1.03):
            value = min(max(moved.after * change, one.low), one.high)
            assert cost(one.write(found.cluster, value)) >= least * (1 - 1e-3), moved.name


def test_the_order_of_runs_does_not_matter():
    runs = measured(slower("kernels.product", 0.9))
    one, other = calibrate(runs, NODES), calibrate(runs[::-1], NODES)
    for a, b in zip(one.constants, other.constants, strict=True):
        assert a.after == pytest.approx(b.after, rel=1e-4)


def test_refusals():
    for runs in ([], None, ["run"]):
        with pytest.raises(InputRefused):
            calibrate(runs, NODES)
    rates = replace(NODES, inter=replace(NODES.inter, bandwidth=np.array([1e10, 2e10])))
    with pytest.raises(InputRefused, match="a calibration takes single numbers"):
        calibrate(measured(NODES, PLANS[:1]), rates)
    with pytest.raises(InputRefused, match="64 ranks"):
        calibrate([MeasuredStep(GPT, Plan(dp=64), 1.0)], NODES)
    with pytest.raises(InputRefused):
        MeasuredStep(GPT, Plan(), 0.0)
