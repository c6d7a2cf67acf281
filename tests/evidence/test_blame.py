"""Who is blamed for a low utilisation and for uneven ranks, and in which order."""

import numpy as np
from pytest import approx

from labkit.evidence.health import HEALTHY, UNHEALTHY, UNKNOWN
from tests.evidence.health_cases import ALL, of, step

# ---- utilisation (5.4-e, 5.4-g)


def blamed(**measured):
    found = of("mfu", **measured)
    assert found.verdict == UNHEALTHY
    return found.look_at


def test_the_bubble_is_neither_loading_nor_kernels():
    """Round 1 of 5.5: a bubble of 3/19; 0.36 of the peak with it is 0.43 without."""
    found = of("mfu", **step(mfu=0.36, bubble=3 / 19), known=ALL)
    assert found.look_at.startswith("the pipeline bubble: not loading, not the kernels")
    assert "the pipeline bubble 15.8 % of the step; without them 42.8 %" in found.evidence


def test_waiting_and_recompute_come_before_loading_and_kernels_too():
    assert "waiting for other ranks" in blamed(**step(mfu=0.35, idle=0.2), known=ALL)
    late = dict(rank_work=[0.6, 0.6, 0.6, 1.0], known=("bubble", "data"))
    assert "waiting for other ranks" in blamed(**step(mfu=0.37), **late)
    assert "recompute" in blamed(**step(mfu=0.33, again=1 / 3), known=ALL)


def test_the_largest_of_them_is_named():
    assert "the pipeline bubble" in blamed(**step(mfu=0.32, bubble=0.2, idle=0.1), known=ALL)


def test_nobody_is_blamed_before_bubble_and_waiting_were_measured():
    says = blamed(**step(mfu=0.3))
    assert says.startswith("measure the pipeline bubble and waiting for other ranks first")
    assert blamed(**step(mfu=0.3), known=("bubble",)).startswith("measure waiting for other ranks first")


def test_loading_or_kernels_when_nothing_else_explains_it():
    assert blamed(**step(mfu=0.3), known=("bubble", "idle")).startswith("data loading or kernels")
    assert blamed(**step(mfu=0.3), known=ALL).startswith("the kernels")
    assert blamed(**step(mfu=0.3, data=0.3), known=ALL).startswith("data loading: ")


def test_exposed_communication_beyond_its_limit_comes_first():
    assert "the exposed communication first" in blamed(**step(mfu=0.3, dp=0.2, bubble=0.2), known=ALL)
    more = blamed(**step(mfu=0.2, dp=0.2, bubble=0.4), known=ALL)
    assert more.startswith("the pipeline bubble first, then the exposed communication")


def test_exposed_communication_within_every_limit_can_still_explain_it():
    says = blamed(**step(mfu=0.35, tp=0.1, dp=0.05, ep=0.1), known=ALL)
    assert says.startswith("the exposed communication: 25 % of the step in all")


def test_how_attention_is_counted_is_said():
    assert "attention counted: causal" in of("mfu", **step(), causal=True).evidence
    assert "attention counted: in full" in of("mfu", **step(), causal=False).evidence
    assert "not said" in of("mfu", **step()).evidence


def test_more_than_the_peak_is_a_wrong_count():
    found = of("mfu", **step(mfu=2.56))
    assert found.verdict == UNHEALTHY and "the count" in found.look_at


# ---- ranks (5.4-d, 5.4-h)


def test_equal_steps_of_ranks_say_nothing():
    found = of("rank_spread", rank_steps=[0.0368, 0.0372, 0.037, 0.037])
    assert found.verdict == UNKNOWN and "say nothing" in found.evidence
    assert "36.8 ms to 37.2 ms" in found.evidence


def test_own_work_tells_them_apart():
    found = of("rank_spread", rank_steps=[0.0368, 0.0372], rank_work=[0.0152, 0.0302])
    assert found.value == approx(15 / 30.2) and found.verdict == UNHEALTHY


def test_arrivals_are_held_against_the_step():
    found = of("rank_spread", **step(), rank_arrivals=[10.0, 10.08])
    assert found.value == approx(0.08)


def ranks(**more):
    found = of("rank_spread", **more)
    assert found.verdict == UNHEALTHY
    return found.look_at


def test_the_slow_rank_is_the_one_with_the_most_work_not_the_longest_collective():
    """Case H3: compute 100, 100, 100, 130 ms; the collective takes 40, 40, 40 and 10 ms."""
    work, collective = np.array([100, 100, 100, 130]), np.array([40, 40, 40, 10])
    assert np.ptp(work + collective) == 0
    found = of("rank_spread", rank_steps=(work + collective) / 1e3, rank_work=work / 1e3)
    assert "rank 3 is the last" in found.evidence and found.value == approx(30 / 130)


def test_three_causes_each_by_its_evidence():
    steady = np.tile([1.0, 1.0, 1.3, 1.3], (5, 1))
    assert ranks(rank_work=steady, rank_stage=[0, 0, 1, 1]).startswith("how the layers are divided: stage 1")
    one = np.tile([1.0, 1.0, 1.0, 1.3], (5, 1))
    experts = ranks(rank_work=one, rank_expert_tokens=[100, 100, 100, 300])
    assert experts.startswith("the experts: those of rank 3 were given 2 times")
    long = ranks(rank_work=one, rank_tokens=[90, 90, 90, 130], rank_expert_tokens=[9, 9, 9, 9])
    assert long.startswith("the samples: rank 3 had 1.3 times")
    assert ranks(rank_work=one).startswith("rank 3 itself")


def test_another_rank_each_time_means_samples():
    assert "another rank is the last each time" in ranks(rank_work=1 + 0.2 * np.eye(4))


def test_one_step_cannot_tell_whether_it_is_always_the_same_rank():
    assert ranks(rank_work=[1, 1, 1.3]).startswith("is it the same rank each step?")


def test_steps_that_jump():
    found = of("step_scatter", steps=[1.0] * 8 + [2.0] * 2)
    assert found.value == approx(1.0) and "saving checkpoints" in found.look_at
    assert of("step_scatter", steps=[1.0, 1.01]).verdict == HEALTHY
    assert of("step_scatter", steps=[1.0]) is None
