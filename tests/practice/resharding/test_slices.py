"""Slices assembled from overlapping slices: exact for any shapes and degrees."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from labkit.errors import InputRefused
from labkit.practice.resharding import assemble, cuts, overlaps

DEGREES = st.integers(1, 40)


def test_thirteen_elements_from_three_shards_to_four():
    row = np.arange(13)
    shards = np.split(row, cuts(13, 3)[1:-1])
    assert [len(one) for one in shards] == [5, 5, 3]
    assert [one.tolist() for one in assemble(shards, 4)] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11], [12]]


@given(st.integers(1, 300), DEGREES, DEGREES, st.sampled_from([(), (3,), (2, 2)]))
def test_any_degrees_restore_every_element(length, source, target, inner):
    whole = np.random.default_rng(0).standard_normal((length, *inner))
    shards = np.split(whole, cuts(length, source)[1:-1])
    there = assemble(shards, target)
    assert [len(one) for one in there] == np.diff(cuts(length, target)).tolist()
    assert np.array_equal(np.concatenate(there), whole)
    back = assemble(there, source)
    assert all(np.array_equal(a, b) for a, b in zip(back, shards, strict=True))


@given(
    st.lists(st.integers(0, 9), min_size=1, max_size=8),
    st.integers(1, 12),
    st.sampled_from([np.int8, np.float32]),
)
def test_uneven_shards_and_empty_ones(sizes, target, kind):
    whole = np.arange(sum(sizes)).astype(kind)
    if not whole.size:
        return
    made = assemble(np.split(whole, np.cumsum(sizes)[:-1]), target)
    assert np.array_equal(np.concatenate(made), whole) and made[0].dtype == kind


@given(st.integers(1, 500), DEGREES, DEGREES)
def test_every_element_is_read_once(length, source, target):
    old, new = cuts(length, source), cuts(length, target)
    read = overlaps(old, new)
    assert read.length.sum() == length and np.all(read.length > 0)
    assert np.all(old[read.source] <= read.start) and np.all(read.stop <= old[read.source + 1])
    assert np.all(new[read.target] <= read.start) and np.all(read.stop <= new[read.target + 1])


@given(st.integers(1, 60), st.integers(1, 5), DEGREES)
def test_heads_are_never_cut_apart(heads, width, parts):
    ends = cuts(heads * width, parts, unit=width)
    assert np.all(ends % width == 0) and ends[0] == 0 and ends[-1] == heads * width
    assert np.all(np.diff(ends) >= 0)


def test_refused():
    with pytest.raises(InputRefused, match="no multiple of 3"):
        cuts(13, 2, unit=3)
    with pytest.raises(InputRefused, match="cuts of the same whole"):
        overlaps(cuts(13, 3), cuts(12, 3))
    with pytest.raises(InputRefused, match="ascending"):
        overlaps(np.array([0, 5, 3]), cuts(3, 3))
    with pytest.raises(InputRefused, match="give a list of arrays"):
        assemble([np.ones(2), np.ones((2, 2))], 2)
    with pytest.raises(InputRefused, match="give a list of arrays"):
        assemble([], 2)
