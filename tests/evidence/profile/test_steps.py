"""Steps as their marks tell them: repeated, within each other, very many; and what lies in each."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from labkit.evidence.profile import read_profile
from labkit.evidence.profile.steps import seconds_within
from labkit.intervals import intersection, intervals, length
from tests.evidence.profile.made import comm, compute, row, step, write


def read(tmp_path, events):
    return read_profile(write(tmp_path / "rank-0.json", events))


def micro(steps, name):
    return [round(1e6 * getattr(one, name), 6) for one in steps]


def test_a_number_that_occurs_again_is_a_step_of_its_own(tmp_path):
    twice = [step(1, 0, 100), compute(10, 20), step(1, 1000, 200), compute(1010, 50), comm(1060, 20)]
    profile = read(tmp_path, twice)
    assert profile.ranks[0].numbers == (1, 1)
    assert micro(profile.steps[0], "total") == [100, 200] and micro(profile.steps[0], "compute") == [20, 50]
    assert "rank 0: ProfilerStep#1 occurs more than once; each is a step of its own" in profile.warnings


def test_marks_of_the_host_and_of_the_gpu_are_one_step(tmp_path):
    over = row("ProfilerStep#1", 20, 100, cat="gpu_user_annotation")
    profile = read(tmp_path, [step(1, 0, 100), over, compute(30, 20)])
    assert micro(profile.steps[0], "total") == [100]
    assert not any("ProfilerStep" in one for one in profile.warnings)


@pytest.mark.parametrize("inner", [step(1, 50, 100), step(2, 10, 5), step(1, 0, 100), step(7, 20, 80)])
def test_a_step_within_another_is_left_out_and_counted(tmp_path, inner):
    profile = read(tmp_path, [step(1, 0, 100), inner, compute(10, 20)])
    assert micro(profile.steps[0], "total") == [100]
    assert "rank 0: 1 ProfilerStep inside of another left out" in profile.warnings


def test_marks_that_touch_or_overlap_by_rounding_are_all_steps(tmp_path):
    profile = read(tmp_path, [compute(0, 1)] + [step(n, 1.1 * n, 1.1 + 1e-9) for n in range(50)])
    assert len(profile.steps[0]) == 50 and not any("inside" in one for one in profile.warnings)


def test_steps_that_last_no_time_beside_an_overlap(tmp_path):
    profile = read(tmp_path, [step(1, 50, 0), comm(0, 10), compute(5, 20)])
    assert profile.ranks[0].overlap == pytest.approx(5e-6) and micro(profile.steps[0], "total") == [0]
    assert "nan" not in repr(profile)


def test_more_steps_than_anybody_profiles(tmp_path):
    profile = read(
        tmp_path, [step(n, 10 * n, 10) for n in range(10_002)] + [compute(100_001, 1), compute(3, 4)]
    )
    assert len(profile.steps[0]) == 10_000 and profile.steps[0][0].compute == pytest.approx(4e-6)
    assert any("only the first 10,000 of 10,002 ProfilerSteps are told" in one for one in profile.warnings)


PAIRS = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 10)), max_size=8)


@given(PAIRS, PAIRS)
def test_seconds_within_are_those_of_an_intersection(part, stretches):
    part = intervals([a for a, _ in part], [a + n for a, n in part])
    start, stop = (np.array([a + n * k for a, n in stretches], float) for k in (0, 1))
    found = seconds_within(part, start, stop)
    assert found.tolist() == [
        length(intersection(part, intervals([a], [b]))) for a, b in zip(start, stop, strict=True)
    ]
