"""Lengths of sequences and what batches they become, by hand."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pytest import approx

from labkit.errors import InputRefused
from labkit.practice.allocator import WAYS, batches, draw_lengths


def test_four_ways_by_hand():
    lengths = [5, 30, 100, 60]
    assert batches(lengths, 2, 128).padding == approx(1 - 195 / (2 * 32 + 2 * 104))
    assert batches(lengths, 2, 128, "padded").padding == approx(1 - 195 / 512)
    assert batches(lengths, 2, 128, "buckets", 2).shapes == ((2, 64), (2, 128))
    packed = batches(lengths, 2, 128, "packed")  # 5 + 30 + 60 in the first row, 100 in the second
    assert packed.shapes == ((2, 128),) and packed.padding == approx(1 - 195 / 256)


def test_a_last_batch_that_is_not_full_is_left_out():
    assert batches([8, 8, 8], 2, 16).shapes == ((2, 8),)
    assert batches([8, 8, 8], 2, 16, "packed").shapes == ((2, 16),)


lists = st.lists(st.integers(1, 512), min_size=4, max_size=60)


@given(lengths=lists, rows=st.integers(1, 4), buckets=st.integers(1, 8))
def test_more_shapes_less_padding(lengths, rows, buckets):
    found = {way: batches(lengths, rows, 512, way, buckets) for way in WAYS}
    assert found["as they come"].padding <= found["buckets"].padding <= found["padded"].padding
    assert len(set(found["padded"].shapes)) == len(set(found["packed"].shapes)) == 1
    assert len(set(found["buckets"].shapes)) <= buckets
    # Full batches need no more rows packed than padded; the last one packed may be nearly empty.
    assert len(found["packed"].shapes) <= len(found["padded"].shapes) + 1
    assert all(0 <= one.padding < 1 for one in found.values())


def test_drawn_lengths():
    lengths = draw_lengths(4001, 1000, 8192, 0.8, seed=3)
    assert np.median(lengths) == approx(1000, rel=0.05) and lengths.max() <= 8192 and lengths.min() >= 1
    assert np.log(lengths[lengths < 8192]).std() == approx(0.8, rel=0.05)
    assert set(draw_lengths(9, 700, 8192, 0.0).tolist()) == {700}
    assert draw_lengths(9, 700, 512, 0.0).tolist() == [512] * 9


@pytest.mark.parametrize(
    "wrong",
    [
        {"lengths": []},
        {"lengths": [0, 4]},
        {"lengths": [1.5, 4]},
        {"lengths": [[1, 2], [3, 4]]},
        {"lengths": "5"},
        {"lengths": None},
        {"lengths": [5]},
        {"lengths": [200, 5]},
        {"rows": 0},
        {"longest": "128"},
        {"way": "folded"},
        {"buckets": 0},
    ],
)
def test_refused(wrong):
    with pytest.raises(InputRefused) as refused:
        batches(**{"lengths": [5, 30, 100, 60], "rows": 2, "longest": 128, **wrong})
    assert "\n" not in str(refused.value)
