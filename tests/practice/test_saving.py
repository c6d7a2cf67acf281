"""Saving: sizes and times against sums by hand, the closed form of the stall against the timeline."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pytest import approx

from labkit.errors import InputRefused
from labkit.planner.states import FP32, FP32_GRADIENTS
from labkit.practice.save_timeline import CARD, HOST, save_timeline, stalls
from labkit.practice.saving import (
    ASYNCHRONOUS,
    OVERLAPPED,
    SYNCHRONOUS,
    WAYS,
    checkpoint_bytes,
    copy_seconds,
    host_bytes,
    stall_seconds,
    stall_share,
    write_seconds,
)
from labkit.strategies.timeline import TRANSFER

SECONDS = st.floats(0.01, 50)


def test_13b_by_hand():
    """14 bytes each, 36 s at 5 GB/s, 5.7 s by 32 writers; 11.4 GB a card over 16, 91 GB a host of eight."""
    size = checkpoint_bytes(13e9)
    assert size == 182e9
    assert write_seconds(size, 5e9) == approx(36.4)
    assert write_seconds(size, 1e9, 32) == approx(5.7, abs=0.02)
    assert copy_seconds(size, 16, 25e9) == approx(0.46, abs=0.006)
    assert copy_seconds(size, 16, 5e9) == approx(2.3, abs=0.03)
    assert size / 16 == approx(11.4e9, rel=0.003) and host_bytes(size, 16) == 91e9


def test_gradients_are_not_saved():
    assert checkpoint_bytes(1.0, FP32_GRADIENTS) == 14 and checkpoint_bytes(1.0, FP32) == 12


def test_the_file_system_limits_many_writers():
    assert write_seconds(182e9, 1e9, 1024, 100e9) == approx(1.82)
    assert write_seconds(182e9, 1e9, 32, 100e9) == write_seconds(182e9, 1e9, 32)


def test_a_host_with_few_cards_holds_no_more_than_the_checkpoint():
    assert host_bytes(10.0, 4) == 10.0


@given(st.sampled_from(WAYS), SECONDS, st.integers(1, 12), st.floats(0, 50), st.floats(0, 200))
def test_the_stall_in_the_long_run_is_the_timelines(way, step, every, copy, write):
    line = save_timeline(way, 12 * every + 1, step, every, copy, write)
    between = np.diff(line.start[(line.lane == HOST) & (line.kind == TRANSFER)])
    expected = stall_seconds(way, step, every, copy, write)
    assert between[-1] - every * step == approx(expected, abs=1e-6)


@given(st.sampled_from(WAYS), SECONDS, st.integers(1, 8), st.floats(0, 50), st.floats(0, 200))
def test_copies_and_writes_take_turns(way, step, every, copy, write):
    """A copy starts when the write before it has ended; a write when its copy has."""
    line = save_timeline(way, 5 * every + 1, step, every, copy, write)
    moved = line.kind == TRANSFER
    writes = np.stack([line.start, line.stop])[:, moved & (line.lane == HOST)]
    assert np.all(writes[0, 1:] >= writes[1, :-1] - 1e-9)
    if way != SYNCHRONOUS:
        copies = np.stack([line.start, line.stop])[:, moved & (line.lane == CARD)]
        assert np.all(writes[0] == copies[1]) and np.all(copies[0, 1:] >= writes[1, :-1])


def test_the_update_waits_for_the_copy_and_not_for_the_write():
    """A copy of half a step beside the next step costs nothing, one of three steps costs two."""
    assert stalls(save_timeline(OVERLAPPED, 5, 1.0, 2, 0.5, 1.5)) == []
    assert stalls(save_timeline(OVERLAPPED, 10, 1.0, 4, 3.0, 0.5)) == [2.0, 2.0]
    assert stalls(save_timeline(ASYNCHRONOUS, 9, 1.0, 4, 3.0, 0.5)) == [3.0, 3.0]


def test_a_write_longer_than_the_interval_is_waited_for():
    assert stalls(save_timeline(ASYNCHRONOUS, 7, 1.0, 2, 0.5, 10.0)) == [0.5, 8.5, 8.5]
    assert stall_seconds(ASYNCHRONOUS, 1.0, 2, 0.5, 10.0) == 8.5


def test_no_way_is_worse_than_the_one_before():
    copy, write = np.meshgrid(np.linspace(0, 5, 11), np.linspace(5, 100, 20))
    waits = [stall_seconds(way, 1.0, 30, copy, write) for way in WAYS]
    assert np.all(waits[1] <= waits[0] + 1e-12) and np.all(waits[2] <= waits[1] + 1e-12)


def test_arrays_and_single_numbers_agree():
    writes = np.array([1.0, 40.0, 400.0])
    many = stall_seconds(np.array([ASYNCHRONOUS]), 1.0, 30, 0.3, writes)
    assert many.tolist() == [stall_seconds(ASYNCHRONOUS, 1.0, 30, 0.3, one) for one in writes.tolist()]
    shares = stall_share(ASYNCHRONOUS, 1.0, 30, 0.3, writes)
    assert shares.tolist() == [stall_share(ASYNCHRONOUS, 1.0, 30, 0.3, one) for one in writes.tolist()]


def test_refused():
    with pytest.raises(InputRefused, match="use synchronous, asynchronous or overlapped"):
        stall_seconds("lazy", 1.0, 30, 0.3, 1.0)
    with pytest.raises(InputRefused, match="writers is 0"):
        write_seconds(1e9, 1e9, 0)
    with pytest.raises(InputRefused, match="steps is 1000000"):
        save_timeline(SYNCHRONOUS, 10**6, 1.0, 2, 0.0, 1.0)
