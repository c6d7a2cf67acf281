"""The four steps: each case stops at its cause, in the guide's order, and says what was not measured."""

import numpy as np
import pytest
from pytest import approx

from labkit.errors import InputRefused
from labkit.evidence.mapping import Mapping
from labkit.evidence.measured import Measured
from labkit.evidence.triage import Exchange, ScalingEvidence, scaling_triage
from labkit.evidence.triage.scaling import COSTS, ORDER
from labkit.presets import cluster, model
from labkit.spec import Plan, StepTime

PLAN = Plan(tp=8, dp=2)
BLOCK, CYCLIC = Mapping(("a",) * 8 + ("b",) * 8), Mapping(("a", "b") * 8)
QUIET = StepTime(compute=0.9, dp=0.05, communication=0.4)
# 26 GB over 16 ranks at a busbw of 97.5 GB/s: 26e9 x 30/16 / 97.5e9 = 0.5 s.
BYTES = dict(operation="all_reduce", size=26e9, ranks=16, busbw=97.5e9)


def evidence(step=QUIET, known=("data",), **more):
    """A job without a cause, unless one is given."""
    more = {"mapping": BLOCK, "plan": PLAN} | more
    work = more.pop("rank_work", None)
    return ScalingEvidence(Measured(step, known=known, rank_work=work), **more)


def calls(seconds):
    return (Exchange(**BYTES, seconds=seconds),)


def stopped(**given):
    found = scaling_triage(evidence(**given))
    return found.cause and (found.cause.name, found.cause.kind)


LONG = StepTime(compute=0.4, dp=0.6, communication=1.0)  # 0.6 s exposed, more than computing could hide


def test_order_is_the_guide_s_and_by_cost():
    assert ORDER == ("data loading", "mapping", "coverage", "volume")
    costs = [(COSTS[name].rerun, COSTS[name].minutes) for name in ORDER]
    assert costs == sorted(costs) and len(set(costs)) == 4
    steps = scaling_triage(evidence(exchanges=calls(0.5))).steps
    assert tuple(step.name for step in steps) == ORDER
    assert [step.cost for step in steps] == [str(COSTS[name]) for name in ORDER]


def test_a_job_without_a_cause():
    found = scaling_triage(evidence(exchanges=calls(0.5)))
    assert found.cause is None and found.unknown == ()
    assert {step.answer for step in found.steps} == {"clear"}


def test_it_stops_at_the_first_cause():
    """All four at once: only the cheapest is asked for."""
    step = StepTime(compute=0.4, dp=0.5, data=0.1, communication=0.5)
    found = scaling_triage(evidence(step, mapping=CYCLIC, exchanges=calls(2.0), workers=1))
    assert len(found.steps) == 1 and found.cause.kind == "data_loading"
    found = scaling_triage(evidence(mapping=CYCLIC, exchanges=calls(2.0)))
    assert [step.name for step in found.steps] == ["data loading", "mapping"]


# ---- 1


def test_waiting_for_input_is_a_cause_from_five_percent_on():
    assert stopped(step=StepTime(compute=0.9, data=0.1)) == ("data loading", "data_loading")
    assert stopped(step=StepTime(compute=0.96, data=0.04)) is None


def test_one_rank_that_waits_for_input_counts_although_rank_0_does_not():
    loading = [[0.0, 0.0, 0.0, 0.3], [0.0, 0.0, 0.0, 0.5]]
    found = scaling_triage(evidence(loading=loading))
    assert found.cause.kind == "data_loading" and "400 ms of 950 ms" in found.cause.evidence


@pytest.mark.parametrize(("workers", "says"), [(1, "one loader worker"), (0, "loads itself")])
def test_few_workers_are_a_finding(workers, says):
    known = scaling_triage(evidence(StepTime(compute=0.5, data=0.5), workers=workers)).cause
    assert says in known.evidence and "one setting" in known.next_step
    unknown = scaling_triage(evidence(known=(), workers=workers, exchanges=calls(0.5)))
    assert unknown.cause.name == "data loading" and unknown.cause.answer == "differs"
    assert says in unknown.cause.evidence and "next(loader)" in unknown.cause.next_step


@pytest.mark.parametrize(
    ("given", "answer"),
    [
        (dict(step=StepTime(compute=0.61, dp=0.39)), "clear"),
        (dict(step=StepTime(compute=0.59, dp=0.41)), "differs"),
        (dict(step=None, counter=0.55), "differs"),
        (dict(step=None, counter=0.99), "cannot be told"),  # as kernels that wait for a starved peer
        (dict(step=None), "cannot be told"),
    ],
)
def test_the_guide_s_sixty_percent(given, answer):
    first = scaling_triage(evidence(known=(), **given)).steps[0]
    assert first.answer == answer
    assert ("starved peer" in first.evidence) == (given.get("counter") == 0.99)


# ---- 2


def test_groups_that_leave_their_host():
    found = scaling_triage(evidence(mapping=CYCLIC)).cause
    assert found.kind == "mapping" and "2 of 2 tp groups leave their host" in found.evidence
    assert "srun --distribution=block" in found.next_step


def test_a_degree_beyond_the_host_is_no_matter_of_order():
    found = scaling_triage(evidence(plan=Plan(tp=16))).cause
    assert found.kind == "mapping" and "does not fit a host" in found.next_step


def test_where_the_cost_is_known_it_decides():
    known = {"model": model("gpt3-13b"), "cluster": cluster("a100", 2)}
    plan = Plan(tp=8, dp=2, micro_batch=1, global_batch=64)
    found = scaling_triage(evidence(mapping=CYCLIC, plan=plan, **known))
    assert found.cause.kind == "mapping" and "block order saves" in found.cause.evidence
    endless = StepTime(compute=10_000.0)  # beside which no mapping counts
    assert scaling_triage(evidence(endless, mapping=CYCLIC, plan=plan, **known)).cause is None


# ---- 3


def test_exposed_communication_that_could_be_hidden():
    found = scaling_triage(evidence(StepTime(compute=0.7, dp=0.3, communication=0.35), known=("data",))).cause
    assert found.kind == "coverage" and "14.3 % of the communication hidden" in found.evidence
    assert "overlap switched on" in found.next_step


def test_hidden_time_is_no_cause_however_long():
    assert stopped(step=StepTime(compute=0.95, dp=0.05, communication=0.9), exchanges=calls(0.5)) is None


def test_the_duration_alone_never_says_coverage():
    """Claim 6.2-d: equal to what is expected, once hidden and once exposed."""
    hidden = scaling_triage(evidence(StepTime(compute=0.9, communication=0.5), exchanges=calls(0.5)))
    assert hidden.cause is None
    exposed = scaling_triage(evidence(StepTime(compute=0.9, dp=0.5, communication=0.5), exchanges=calls(0.5)))
    assert exposed.cause.kind == "coverage"


def test_what_computing_cannot_hide_is_left_to_step_4():
    found = scaling_triage(evidence(LONG))
    assert found.cause is None and [step.name for step in found.unknown] == ["volume"]
    assert "too short to hide it" in found.steps[2].evidence


# ---- 4


@pytest.mark.parametrize(
    ("seconds", "kind"),
    [
        (0.5, "volume"),
        (0.6, "volume"),
        ([0.55] * 16, "volume"),
        ([1.5] * 16, "contention"),
        ([1.5] * 15 + [0.5], "late_ranks"),
        ([[1.5] * 15 + [0.5], [1.4] * 15 + [0.6]], "late_ranks"),
    ],
)
def test_measured_against_expected(seconds, kind):
    assert stopped(step=LONG, exchanges=calls(seconds)) == ("volume", kind)


def test_the_rank_that_all_wait_for_is_named():
    found = scaling_triage(evidence(LONG, exchanges=calls([1.5] * 15 + [0.5]))).cause
    assert "rank 15 late" in found.next_step and "not the network" in found.next_step
    assert "2.88 times" in found.evidence  # (15 x 1.5 + 0.5) / 16 / 0.5


def test_one_rank_cannot_tell_waiting_from_contention():
    found = scaling_triage(evidence(LONG, exchanges=calls(1.5)))
    assert found.cause is None and "one rank cannot tell" in found.steps[3].evidence


def test_faster_than_its_baseline_is_no_verdict():
    found = scaling_triage(evidence(LONG, exchanges=calls(0.2)))
    assert found.cause is None and "faster than its baseline" in found.steps[3].evidence


def test_waiting_that_no_overlap_can_hide_is_no_matter_of_coverage():
    """0.3 s exposed of which 0.27 s are a mean rank's waiting: within the limit without it."""
    step = StepTime(compute=0.7, dp=0.3, communication=0.3)
    work = [0.4] * 9 + [0.7]  # the last minus the mean: 0.27 s
    found = scaling_triage(evidence(step, rank_work=work))
    assert found.steps[2].answer == "clear" and "up to 270 ms is waiting" in found.steps[2].evidence
    assert found.cause.kind == "late_ranks" and "rank 9" in found.cause.next_step


def test_waiting_that_is_hidden_is_no_cause():
    hidden = StepTime(compute=0.97, dp=0.03, communication=0.5)
    assert stopped(step=hidden, exchanges=calls([0.5] * 15 + [0.1])) is None


def test_members_have_the_numbers_of_the_job():
    one = Exchange("all_reduce", 1e9, 2, 1e9, [1.5, 0.5], members=(3, 11))
    assert one.last == 11
    with pytest.raises(InputRefused, match="name each of its ranks"):
        Exchange("all_reduce", 1e9, 2, 1e9, 1.0, members=(3,))


# ---- expected time (claim 6.2-e)


def test_expected_time_is_a_rank_s_traffic_over_busbw():
    one = Exchange(**BYTES, seconds=0.5)
    assert one.expected == approx(26e9 * 2 * 15 / 16 / 97.5e9)
    algbw = 97.5e9 / (2 * 15 / 16)
    assert one.expected == approx(26e9 / algbw)  # the same; total bytes over algbw would be 16 times that
    assert one.transfer is None and one.waiting is None and one.last is None


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (dict(seconds=0), "all above 0"),
        (dict(seconds=[1.0, 2.0]), "one for each rank"),
        (dict(seconds="x"), "all above 0"),
        (dict(seconds=1.0, size=0), "size of a collective"),
        (dict(seconds=1.0, ranks=1), "ranks of a collective"),
        (dict(seconds=1.0, busbw=-1), "bus bandwidth"),
        (dict(seconds=1.0, operation="barrier"), "barrier"),
        (dict(seconds=1.0, operation=3), "operation"),
        (dict(seconds=1.0, count=0), "calls"),
    ],
)
def test_an_exchange_refuses(given, says):
    with pytest.raises(InputRefused, match=says):
        Exchange(**(BYTES | given))


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (dict(measured=3), "measured of a step"),
        (dict(loading="x"), "waiting for input"),
        (dict(loading=[-1.0]), "waiting for input"),
        (dict(workers=-1), "loader workers"),
        (dict(workers="1"), "loader workers"),
        (dict(counter=99), "use 0 to 1"),
        (dict(mapping="a"), "the mapping"),
        (dict(plan=1), "the plan"),
        (dict(exchanges=3), "list of Exchange"),
        (dict(exchanges=[1]), "list of Exchange"),
    ],
)
def test_evidence_refuses(given, says):
    with pytest.raises(InputRefused, match=says):
        ScalingEvidence(**given)


def test_the_triage_refuses():
    with pytest.raises(InputRefused, match="evidence of a job"):
        scaling_triage(3)
    with pytest.raises(InputRefused, match="the mapping 16"):
        scaling_triage(evidence(plan=Plan(tp=8)))


def test_nothing_measured_names_what_to_measure():
    found = scaling_triage(ScalingEvidence())
    assert [step.name for step in found.unknown] == list(ORDER) and found.cause is None
    said = repr(found)
    for words in ("next(loader)", "labkit mapping FILE", "labkit profile PATH", "labkit sweep FILE"):
        assert words in said
    assert np.all([step.next_step for step in found.steps])
