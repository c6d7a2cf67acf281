"""Two runs side by side, the nearest earlier run, and the statistics of step times."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pytest import approx

from labkit.errors import InputRefused
from labkit.evidence.step_times import summary
from labkit.presets import cluster, model
from labkit.spec import Plan, StepTime
from tests.evidence.run_cases import CASE, PREDICTED

MODEL, NODES, PLAN = CASE


def test_summary_by_hand():
    """98 quick steps and two slow ones: the median sees neither, P99 is the first of them."""
    found = summary([1.0] * 98 + [2.0, 5.0])
    assert (found.count, found.median, found.p99, found.shortest, found.longest) == (100, 1.0, 2.0, 1.0, 5.0)
    assert found.mean == approx(1.05) and found.spread == 4.0


@given(st.lists(st.floats(1e-6, 1e6), min_size=1, max_size=400))
def test_at_least_99_of_100_steps_take_no_longer_than_p99(times):
    found = summary(times)
    assert found.p99 in times and sum(time <= found.p99 for time in times) >= 0.99 * len(times)
    below = [time for time in times if time < found.p99]
    assert len(below) < 0.99 * len(times)
    assert found.shortest <= found.median <= found.p99 <= found.longest
    assert summary(sorted(times)) == summary(times[::-1])


@pytest.mark.parametrize("times", [[], [0.0], [-1.0], [math.inf], [math.nan], 1.0, "1", None, [[1.0]], ["a"]])
def test_no_step_times(times):
    with pytest.raises(InputRefused, match="step times are a list of seconds"):
        summary(times)


def test_compare(run_log):
    run_log.record(*CASE, [1.0, 1.0, 1.5], PREDICTED)
    run_log.record(MODEL, NODES, PLAN.changed(micro_batch=2), [0.8, 0.8, 0.8], StepTime(compute=0.7, tp=0.2))
    found = run_log.compare(1, 2)
    assert found.settings == ("plan micro_batch: 1 and 2", "plan accumulation: 32 and 16")
    assert (found.of("median").a, found.of("median").b) == (1.0, 0.8)
    assert found.of("median").change == approx(-0.2) and found.of("longest").a == 1.5
    tokens = 64 * MODEL.sequence / 32  # of a step on a GPU
    assert found.of("tokens a second and GPU").b == approx(tokens / 0.8)
    assert found.of("predicted").a == approx(0.9 + 1 / 3) and found.of("predicted").b == approx(0.9)
    assert found.of("predicted tp").change == approx(1.0)
    assert found.of("predicted / measured").b == approx(0.9 / 0.8)
    assert found.of("predicted data").change is None  # 0 in both


def test_compare_without_predictions(run_log):
    run_log.record(*CASE, [1.0])
    run_log.record(*CASE, [1.0], PREDICTED)
    assert run_log.compare(1, 2).settings == ()
    assert (
        run_log.compare(1, 2).of("predicted").a is None
        and run_log.compare(1, 2).of("predicted").change is None
    )
    assert "predicted" not in [one.quantity for one in run_log.compare(1, 1).quantities]
    with pytest.raises(InputRefused, match="has no run 3"):
        run_log.compare(1, 3)


def test_nearest(run_log):
    for tp, dp in ((8, 2), (4, 4), (2, 8)):
        run_log.record(MODEL, NODES, PLAN.changed(tp=tp, dp=dp), [1.0])
    found = run_log.nearest(MODEL, NODES, PLAN.changed(tp=8, dp=4))
    assert found.run.number == 2 and found.distance == 1.0 and found.differences == ("plan tp: 4 and 8",)
    # tp 4 to 16; dp 4 to 8, and with it half as many micro-batches of the same global batch; zero.
    found = run_log.nearest(MODEL, NODES, PLAN.changed(tp=16, dp=8, zero=1))
    assert found.run.number == 2 and found.distance == approx(math.sqrt(4 + 1 + 1 + 1))
    found = run_log.nearest(MODEL, NODES, PLAN.changed(tp=16, dp=1))
    assert found.run.number == 1 and found.distance == approx(math.sqrt(3))


def test_the_same_case_is_nearest_and_the_latest_of_several(run_log):
    for _ in range(3):
        run_log.record(*CASE, [1.0])
    found = run_log.nearest(*CASE)
    assert (found.run.number, found.distance, found.differences) == (3, 0.0, ())


def test_same_model_first_then_same_cluster(run_log):
    run_log.record(model("gpt3-13b"), NODES, PLAN, [1.0])
    run_log.record(MODEL, cluster("a100", 4), PLAN, [1.0])
    run_log.record(MODEL, cluster("h100", 16), PLAN.changed(dp=8, zero=1), [1.0])
    found = run_log.nearest(*CASE)
    assert found.run.number == 3 and "cluster nodes: 16 and 4" in found.differences
    assert run_log.nearest(model("gpt3-13b"), *CASE[1:]).run.number == 1
    assert run_log.nearest(MODEL, cluster("a100", 1), PLAN).run.number == 2
    assert (
        run_log.nearest(model("llama2-7b"), *CASE[1:]).differences[0] == "model name: gpt3-13b and llama2-7b"
    )


@given(st.sampled_from([1, 2, 4, 8]), st.sampled_from([1, 2, 4]), st.sampled_from([0, 1, 3]))
def test_a_distance_is_that_of_both_ways_round(tp, pp, zero):
    from labkit.evidence.runs_compare import _Case, _distance

    here, there = _Case(*CASE), _Case(MODEL, NODES, Plan(tp=tp, pp=pp, zero=zero))
    assert _distance(here, there) == _distance(there, here) and _distance(here, here) == 0.0


@pytest.mark.parametrize("wrong", [(None, NODES, PLAN), (MODEL, None, PLAN), (MODEL, NODES, "tp=8")])
def test_nearest_of_what_is_no_case(run_log, wrong):
    run_log.record(*CASE, [1.0])
    with pytest.raises(InputRefused):
        run_log.nearest(*wrong)
