"""Steps through the allocator: what is in use by hand, when memory runs out, and why."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pytest import approx

from labkit.errors import InputRefused
from labkit.practice.allocator import (
    ALLOCATORS,
    Job,
    batches,
    cause_of_failure,
    diagnose,
    draw_lengths,
    run_steps,
)
from labkit.units import GB

LARGE = 10**12
LENGTHS = draw_lengths(200, 1500, 8192)
MIXED = batches(LENGTHS, 2, 8192).shapes
BOTH = pytest.mark.parametrize("allocator", ALLOCATORS)


def test_activations_are_34_bytes_per_position_and_hidden_element():
    job = Job(layers=3, hidden=1024, vocabulary=1000)
    assert job.activation_bytes(2048) == 2048 * (3 * 34 * 1024 + 6 * 1000)
    assert job.gradient_bytes == 3 * 12 * 1024**2 * 2


@BOTH
def test_the_widest_moment_by_hand(allocator):
    """One layer of hidden 1024 at 4096 positions: 34 units of 4 MiB, 12 MiB of logits, 4 of their gradient.

    All logits and 2 bytes of gradient are the widest; backward has 34 + 8 + 2 units and 24 MiB at its most.
    """
    job = Job(layers=1, hidden=1024, vocabulary=512)
    history = run_steps([(2, 2048)] * 3, LARGE, job, allocator)
    mib = 2**20
    assert history.allocated[0] == 4 * mib * (34 + 2 + 8)  # beside a layer's activations, before they go
    assert history.allocated[1] == history.allocated[0] + 24 * mib  # gradients stand
    assert history.allocated[2] == history.allocated[0] and history.held.tolist() == [0, 0, 0]


@BOTH
@settings(max_examples=25)
@given(widths=st.lists(st.integers(1, 4000), min_size=1, max_size=12))
def test_what_always_holds(allocator, widths):
    history = run_steps([(1, width) for width in widths], LARGE, Job(layers=2, hidden=256), allocator)
    assert np.all(history.reserved >= history.allocated) and np.all(history.held == 0)
    assert np.all(np.diff(history.reserved) >= 0)  # nothing is given back while memory is left
    assert history.failed is None and diagnose(history).verdict == "none"
    assert sum(size for size, free in history.layout) <= history.reserved[-1]


def test_both_allocators_are_asked_for_the_same():
    plain, pages = (run_steps(MIXED, LARGE, allocator=name) for name in ALLOCATORS)
    assert np.abs(plain.allocated - pages.allocated).max() < 40e6  # rests that are not cut off
    assert plain.reserved[-1] > 1.3 * plain.allocated.max()
    assert pages.reserved[-1] < 1.03 * pages.allocated.max()


def test_one_shape_needs_no_more_than_it_uses():
    history = run_steps([(2, 4096)] * 20, LARGE, Job(accumulation=1))
    assert history.reserved[-1] == approx(history.allocated.max(), rel=1e-3)


# ---- why memory ran out


def test_causes_by_hand():
    """80 free of 100 in two pieces of 40; 20 free and 30 leaked; 20 free and 5 leaked."""
    assert cause_of_failure(100, 20, 100, 50, 0) == "fragmentation"
    assert cause_of_failure(100, 80, 100, 50, 30) == cause_of_failure(100, 20, 60, 50, 41) == "leak"
    assert cause_of_failure(100, 80, 100, 50, 5) == "long batch"


def test_fragmentation_is_a_failure_although_all_would_fit():
    most = run_steps(MIXED, LARGE).allocated.max()
    capacity = int(1.1 * most)
    history = run_steps(MIXED, capacity)
    found = diagnose(history)
    assert history.failed == len(history.allocated) > 10 and found.verdict == "fragmentation"
    allocated, reserved = history.at_failure
    assert allocated + history.asked <= capacity < reserved + history.asked and found.missing <= 0
    assert run_steps(MIXED, capacity, allocator="expandable segments").failed is None
    # A restart cures it: the same micro-batch runs, and the next ones.
    again = run_steps(MIXED[history.failed :], capacity)
    assert again.failed is None or again.failed > 3


def test_more_memory_may_fail_earlier():
    """A full device gives segments back, and so tidies up; with more room that comes later, and too late."""
    ran = {size: run_steps(MIXED, int(size * GB)).failed is None for size in (14, 15, 16, 17, 18)}
    assert ran[16] and not ran[17] and ran[18] and not ran[14]


def test_a_leak_is_what_is_held_between_micro_batches():
    job = Job(leak=10**8)
    history = run_steps(MIXED, 20 * 10**9, job, "expandable segments")
    found = diagnose(history)
    assert found.verdict == "leak" and np.all(np.diff(history.held) >= 10**8)
    assert found.grown > 10 * 10**8 and "memory snapshot" in found.remedy
    again = run_steps(MIXED[history.failed :], 20 * 10**9, job, "expandable segments")
    assert again.failed is None or again.failed > 3  # a restart cures it, too


def test_a_long_batch_fails_without_either():
    shapes = [(2, 1024)] * 30 + [(2, 8192)] + [(2, 1024)] * 5
    need = run_steps(shapes, LARGE, allocator="expandable segments").allocated.max()
    history = run_steps(shapes, int(0.8 * need), allocator="expandable segments")
    found = diagnose(history)
    assert history.failed == 30 and found.verdict == "long batch" and found.grown == 0 and found.missing > 0
    assert run_steps(shapes[31:], int(0.8 * need)).failed is None  # and a restart with other data cures it


@given(st.integers(2, 20), st.integers(0, 3))
@settings(max_examples=20)
def test_every_failure_has_one_cause(size, leak):
    history = run_steps(MIXED[:40], size * 10**9, Job(leak=leak * 10**8))
    found = diagnose(history)
    assert (found.verdict == "none") == (history.failed is None)
    pieces = history.at_failure[1] - history.at_failure[0]
    fits = history.failed is not None and found.missing <= 0
    assert (found.verdict == "fragmentation") == (fits and found.grown <= pieces)


@pytest.mark.parametrize(
    "wrong",
    [
        {"shapes": []},
        {"shapes": None},
        {"shapes": [(2,)]},
        {"shapes": [(2, 0)]},
        {"shapes": [8]},
        {"capacity": 0},
        {"capacity": "all"},
        {"job": 5},
        {"allocator": "buddy"},
    ],
)
def test_refused(wrong):
    with pytest.raises(InputRefused) as refused:
        run_steps(**{"shapes": [(2, 64)], "capacity": 10**9, **wrong})
    assert "\n" not in str(refused.value)
    with pytest.raises(InputRefused):
        diagnose(wrong)


@pytest.mark.parametrize("wrong", [{"layers": 0}, {"hidden": 1.5}, {"leak": -1}, {"accumulation": "2"}])
def test_jobs_refused(wrong):
    with pytest.raises(InputRefused):
        Job(**wrong)
