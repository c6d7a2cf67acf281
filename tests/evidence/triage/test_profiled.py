"""Traces of our own jobs through the triage; and what is left out."""

import pytest
from pytest import approx

from labkit.errors import InputRefused
from labkit.evidence.profile import read_profile
from labkit.evidence.triage import profile_evidence, scaling_triage
from labkit.presets.files import data_path

BUSBW = {"all_reduce": 1e9}


def profile(name):
    return read_profile(data_path(f"traces/{name}"))


def test_the_rank_that_comes_late_in_the_shipped_traces():
    found = profile("gloo-slow-rank")
    evidence = profile_evidence(found, BUSBW)
    assert scaling_triage(evidence).cause.kind == "late_ranks"
    assert "rank 2 late" in scaling_triage(evidence).cause.next_step and found.straggler == 2


def test_hidden_communication_is_no_cause_in_the_shipped_traces():
    assert scaling_triage(profile_evidence(profile("gloo-two-ranks"), BUSBW)).cause is None


def test_the_step_is_the_mean_of_all_and_calls_are_counted():
    found = profile("gloo-two-ranks")
    evidence = profile_evidence(found, BUSBW)
    totals = [step.total for steps in found.steps.values() for step in steps]
    assert evidence.seconds == approx(sum(totals) / len(totals))
    calls = sum(one.step is not None and one.transfer is not None for one in found.collectives)
    assert sum(one.count for one in evidence.exchanges) * 3 == calls  # of three steps
    assert all(one.every_rank for one in evidence.exchanges)


def test_without_a_baseline_there_is_nothing_to_expect():
    found = profile_evidence(profile("gloo-two-ranks"), workers=2)
    assert found.workers == 2 and all(one.expected is None for one in found.exchanges)
    assert [step.name for step in scaling_triage(found).unknown] == ["mapping", "volume"]
    late = scaling_triage(profile_evidence(profile("gloo-slow-rank"))).cause
    assert late.kind == "late_ranks" and "rank 2" in late.next_step  # waiting is told without a baseline


@pytest.mark.parametrize(
    ("given", "says"),
    [((3,), "the profile"), ((profile("gloo-two-ranks"), 5), "bus bandwidths")],
)
def test_refused(given, says):
    with pytest.raises(InputRefused, match=says):
        profile_evidence(*given)


def test_busbw_must_be_an_amount():
    with pytest.raises(InputRefused, match="bus bandwidth"):
        profile_evidence(profile("gloo-two-ranks"), {"all_reduce": "fast"})
