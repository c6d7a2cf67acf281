"""The scorecard: every figure against sums by hand, and who is blamed in which order."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pytest import approx

from labkit.errors import InputRefused
from labkit.evidence.health import CONFLICT, HEALTHY, UNHEALTHY, UNKNOWN, health
from labkit.evidence.limits import GUIDE
from labkit.evidence.measured import Measured, Throughput
from labkit.spec import StepTime
from tests.evidence.health_cases import of, step

FIVE = ["scaling_efficiency", "data_parallel_exposed", "tensor_parallel_exposed", "mfu", "rank_spread"]


def test_the_guides_five_come_first_whatever_is_known():
    assert [finding.metric for finding in health(Measured())] == FIVE
    full = Measured(**step(dp=0.1), rank_work=[1, 1], steps=[1, 1])
    assert [finding.metric for finding in health(full)] == [*FIVE, "step_scatter"]


def test_nothing_measured_is_told_what_to_measure_and_never_nan():
    for finding in health(Measured()):
        assert (
            finding.verdict == UNKNOWN and finding.value is None and "easure" in finding.look_at + "Measure"
        )
        assert math.isfinite(finding.threshold)
    assert "nan" not in repr(health(Measured())).lower()


def test_thresholds_and_verdicts():
    job = Measured(
        **step(mfu=0.5, tp=0.2, dp=0.05),
        throughput=Throughput(64 * 0.7, 64),
        base=Throughput(1, 1, "one card"),
        rank_work=[0.97, 1.0],
    )
    assert [finding.verdict for finding in health(job)] == [HEALTHY] * 5
    assert [finding.threshold for finding in health(job)] == [0.6, 0.10, 0.30, 0.40, 0.05]
    assert [finding.value for finding in health(job)] == approx([0.7, 0.05, 0.2, 0.5, 0.03])
    assert all(not finding.look_at and finding.evidence for finding in health(job))


def test_on_the_limit_is_healthy():
    assert of("data_parallel_exposed", **step(dp=0.1)).verdict == HEALTHY
    assert of("mfu", **step(mfu=0.4)).verdict == HEALTHY
    assert of("rank_spread", rank_work=[0.95, 1]).value == approx(0.05)


# ---- scaling efficiency (5.4-c)


def test_the_base_is_named_and_may_be_larger_than_one_card():
    found = of("scaling_efficiency", throughput=Throughput(700, 64), base=Throughput(200, 16, "TP 4 x PP 4"))
    assert found.value == approx((700 / 64) / (200 / 16)) and "TP 4 x PP 4" in found.evidence
    assert (
        found.threshold == approx(0.6 / GUIDE.efficiency_at(16)) and "same plan and batch" in found.evidence
    )


def test_the_throughput_of_a_step_is_taken_where_none_is_given():
    found = of("scaling_efficiency", **step(), base=Throughput(2e5 / 64, 1))
    assert found.value == approx(0.5)


def test_parts_of_a_replica_are_no_base():
    found = of("scaling_efficiency", throughput=Throughput(10, 12), base=Throughput(9, 8))
    assert found.verdict == UNKNOWN and "no whole number of replicas" in found.evidence


def test_low_efficiency_asks_for_cut_and_topology_but_a_slower_job_for_its_network():
    low = of("scaling_efficiency", throughput=Throughput(300, 16), base=Throughput(240, 8))
    slower = of("scaling_efficiency", throughput=Throughput(160, 16), base=Throughput(240, 8))
    assert "topology" in low.look_at and "the network, before anything else" in slower.look_at


# ---- shares (5.4-b)


def test_hidden_communication_fails_nothing_and_its_share_stands_beside():
    """40 % of a step, all of it hidden: the guide's ratio fails, and nothing is exposed."""
    hidden = StepTime(compute=1.0, communication=0.4)
    found = of("data_parallel_exposed", step=hidden)
    assert found.value == 0 and found.verdict == HEALTHY
    assert "400 ms, 40 % of the step, 100 % hidden" in found.evidence


def test_shares_whose_communication_nobody_measured_are_not_zero():
    bare = StepTime(compute=1.0)
    assert of("data_parallel_exposed", step=bare).verdict == UNKNOWN
    assert of("data_parallel_exposed", step=bare, known=("dp",)).value == 0


def test_late_ranks_are_blamed_before_the_network():
    found = of("data_parallel_exposed", **step(dp=0.2), rank_work=[0.5, 0.5, 0.5, 0.7])
    assert found.value == approx(0.2) and found.look_at.startswith("the late ranks")
    assert "150 ms of waiting" in found.evidence
    steady = of("data_parallel_exposed", **step(dp=0.2), rank_work=[0.7] * 4)
    assert "hidden" in steady.look_at and "waiting" not in steady.evidence


@pytest.mark.parametrize(("share", "says"), [(0.98, "not the buckets"), (0.3, "the size of the buckets")])
def test_bandwidth_or_latency_bound(share, says):
    found = of("data_parallel_exposed", **step(dp=0.5), bucket_share=share)
    assert says in found.look_at and f"{1 / share:.3g} times as fast" in found.look_at


def test_tensor_parallel_asks_for_the_node():
    assert "stays in a node" in of("tensor_parallel_exposed", **step(tp=0.4)).look_at
    waits = of("tensor_parallel_exposed", **step(tp=0.4), rank_arrivals=[0, 0, 0.3])
    assert waits.look_at.startswith("the late ranks")


# ---- limits against limits (5.4-f)


def test_an_efficiency_that_passes_with_an_mfu_that_cannot():
    """0.62 of a 55 % card is 34 %; the limits allow 0.6 x 55 % = 33 %; 40 % takes 0.727."""
    job = dict(throughput=Throughput(0.62 * 64, 64), base=Throughput(1, 1))
    found = of("implied_mfu", **step(mfu=0.62 * 0.55), **job, base_mfu=0.55)
    assert found.verdict == CONFLICT and found.value == approx(0.33) and "72.7 %" in found.look_at
    assert of("implied_mfu", **step(mfu=0.62 * 0.55), **job).value == approx(0.33)  # from both figures
    assert of("implied_mfu", **step(mfu=0.45), **job) is None


def test_shares_that_pass_and_leave_too_little():
    """Shares of one step add up: a bubble of 3/19, tensor 0.28 and data 0.10 leave 0.462."""
    found = of("implied_efficiency", **step(bubble=3 / 19, tp=0.28, dp=0.10))
    assert found.verdict == CONFLICT and found.value == approx(1 - 3 / 19 - 0.38)
    assert "15.8 % bubble" in found.evidence
    # A base that is a replica has bubble and tensor parallelism in it as well.
    base = dict(throughput=Throughput(60, 64), base=Throughput(16, 16))
    assert of("implied_efficiency", **step(bubble=3 / 19, tp=0.28, dp=0.10), **base) is None
    assert of("implied_efficiency", **step(tp=0.2, dp=0.05)) is None


# ---- the report, refusals, invariants


def test_the_report_reads():
    text = repr(health(Measured(throughput=Throughput(160, 16), base=Throughput(240, 8, "one node"))))
    lines = text.splitlines()
    assert (
        lines[0].split("  ")[0] == "scaling efficiency" and "33.3 %" in lines[0] and "unhealthy" in lines[0]
    )
    assert lines[1].startswith("    evidence: 160/s on 16 GPUs; base: one node, 240/s on 8")
    assert lines[2].startswith("    look at: the network")


@settings(max_examples=50)
@given(
    st.lists(st.floats(0, 10), min_size=5, max_size=5),
    st.floats(0.01, 1.5),
    st.lists(st.floats(0.01, 5), min_size=2, max_size=6),
)
def test_every_finding_is_whole(terms, mfu, work):
    compute, tp, dp, bubble, idle = terms
    total = sum(terms) + 0.1
    found = health(
        Measured(
            step=StepTime(
                compute=compute + 0.1, tp=tp, dp=dp, bubble=bubble, idle=idle, communication=tp + dp,
                tokens=10, gpus=8, peak=1e12, model_flops=mfu * total * 8e12,
            ),
            base=Throughput(10 / 8 / total, 1),
            rank_work=work,
        )
    )  # fmt: skip
    for finding in found:
        assert finding.verdict in (HEALTHY, UNHEALTHY, CONFLICT) and math.isfinite(finding.value)
        assert bool(finding.look_at) == (finding.verdict != HEALTHY) and finding.evidence
    assert "nan" not in repr(found) and "unknown" not in repr(found)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: health(StepTime(compute=1.0)), "give a Measured"),
        (lambda: health(Measured(), limits=0.4), "give a Limits"),
        (lambda: Throughput(0, 8), "throughput of a job"),
        (lambda: Throughput(1, 0.5), "number of GPUs"),
        (lambda: Throughput(1, 8, "two\nlines"), "name of a job"),
    ],
)
def test_refused_too(call, says):
    with pytest.raises(InputRefused, match=says):
        call()
