"""The opening of chapter 4: its plan by part and stage, by hand, and what the tables claim."""

import pytest

from labkit.course import chapter4_memory
from labkit.course.chapter4_memory import example
from labkit.planner.memory import PARTS
from labkit.show.labs import memory_breakdown

HIDDEN, FFN, TOKENS, LAYERS = 5120, 13824, 4 * 4096, 10


def test_an_interior_stage_by_hand():
    parameters = (4 * HIDDEN**2 + 3 * HIDDEN * FFN) / 2 + 2 * HIDDEN  # matrices over tp = 2, norms whole
    kept = TOKENS * (16 * HIDDEN + 6 * FFN) / 2  # 8 h around, 8 h in attention, 6 f in the gated MLP
    backward = TOKENS * (2 * HIDDEN + 4 * FFN) / 2
    for zero, each in enumerate((16, 2 + 2 + 12 / 2)):
        tensors = LAYERS * (each * parameters + 3 * kept) + backward + 64 * 2**20  # stage 1 of 4: 3 in flight
        assert example(zero).total[1] == pytest.approx(1.05 * tensors + (2 + 1) * 688e6)


def test_the_plan_is_that_of_the_lab():
    shown, ours = memory_breakdown.compute().memory, example()
    assert {part: shown.parts[part].tolist() for part in PARTS} == {
        part: ours.parts[part].tolist() for part in PARTS
    }
    assert shown.capacity == ours.capacity


def test_it_fits_on_paper_and_not_on_the_card():
    found = example()
    assert found.fullest == 0
    assert found.total.mean() < found.allocated.max() < found.capacity < found.peak
    assert example(1).fits


def test_a_convention_decides_whether_it_fits():
    rows = chapter4_memory.conventions_table().rows
    assert [row[0] for row in rows] == ["2 + 2 + 12", "2 + 4 + 12", "2 + 2 + 4 + 12"]
    assert [row[-1] for row in rows] == ["yes", "yes", "no"]
    # Optimizer states are shared by two: 10, 12 and 14 bytes a parameter.
    states = [float(row[2].removesuffix(" GB")) for row in rows]
    assert states == pytest.approx([states[0] * each / 10 for each in (10, 12, 14)], rel=0.01)


def test_outliers_are_shown_with_the_reason_that_can_be_computed():
    rows = chapter4_memory.outliers_table().rows
    assert len(rows) == len(chapter4_memory.outliers())
    assert abs(float(rows[0][3].split()[0])) == max(abs(float(row[3].split()[0])) for row in rows)
    for _, measured, *pairs in rows:
        for modelled, error in (pairs[:2], pairs[2:]):
            assert float(error.split()[0]) == pytest.approx(
                100 * (float(modelled) / float(measured) - 1), abs=0.5
            )


def test_their_names_are_short_and_tell_them_apart():
    names = [row[0] for row in chapter4_memory.outliers_table().rows]
    assert len(set(names)) == len(names) and max(map(len, names)) <= 64
    assert not any(word in name for name in names for word in ("mcore", "torch", "_"))
