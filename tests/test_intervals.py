"""The interval algebra against counting: end points on a small grid, each cell of it looked at on its own."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from labkit.errors import InputRefused
from labkit.intervals import intersection, intervals, length, subtract, union

GRID = 24
pairs = st.lists(st.tuples(st.integers(0, GRID), st.integers(0, GRID)).map(sorted), max_size=8)


def made(blocks):
    return intervals([a for a, _ in blocks], [b for _, b in blocks])


def cells(blocks):
    """Which unit cells of the grid the blocks cover."""
    return np.array([any(a <= cell < b for a, b in blocks) for cell in range(GRID)], dtype=bool)


@given(pairs)
def test_a_set_is_sorted_and_apart_and_covers_what_was_given(blocks):
    found = made(blocks)
    assert np.all(found[:, 0] < found[:, 1]) and np.all(found[1:, 0] > found[:-1, 1])
    assert (cells(found.tolist()) == cells(blocks)).all()
    assert length(found) == cells(blocks).sum()


@given(pairs, pairs)
def test_union_intersection_and_subtraction_are_those_of_the_cells(one, other):
    a, b = made(one), made(other)
    in_a, in_b = cells(one), cells(other)
    for combine, expected in ((union, in_a | in_b), (intersection, in_a & in_b), (subtract, in_a & ~in_b)):
        found = combine(a, b)
        assert (cells(found.tolist()) == expected).all()
        assert (intervals(found[:, 0], found[:, 1]) == found).all()


@given(st.lists(st.tuples(st.floats(-1e3, 1e3), st.floats(-1e3, 1e3)).map(sorted), max_size=8), st.data())
def test_lengths_add_up_and_end_points_are_never_computed(blocks, data):
    half = data.draw(st.integers(0, len(blocks)))
    a, b = made(blocks[:half]), made(blocks[half:])
    assert length(union(a, b)) == pytest.approx(length(a) + length(b) - length(intersection(a, b)), abs=1e-9)
    assert length(a) == pytest.approx(length(subtract(a, b)) + length(intersection(a, b)), abs=1e-9)
    given_ends = {end for block in blocks for end in block}
    assert {*union(a, b).ravel(), *subtract(a, b).ravel()} <= given_ends


def test_touching_intervals_are_one_and_empty_ones_are_dropped():
    assert intervals([0, 1, 7], [1, 2, 7]).tolist() == [[0, 2]]
    assert intervals([], []).shape == (0, 2)


@pytest.mark.parametrize("columns", [([1], [0]), ([0, 1], [2]), ([0], [np.inf]), ([np.nan], [1])])
def test_refused(columns):
    with pytest.raises(InputRefused):
        intervals(*columns)
