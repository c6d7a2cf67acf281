"""What overlap costs and where it stops paying, against sums by hand and against the timelines."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from labkit.errors import InputRefused
from labkit.strategies.contention import break_even, break_even_beside, overlap_gain
from labkit.strategies.timeline import FORWARD, TRANSFER
from labkit.strategies.two_streams import Task, two_streams

SECONDS, FACTOR = st.floats(0.01, 100), st.floats(1, 4)


def test_by_hand():
    """8 s hidden beside 20 s of kernels: worth it below 1.4."""
    assert overlap_gain(8.0, 20.0, 1.3) == pytest.approx(2)
    assert overlap_gain(8.0, 20.0, 1.5) == pytest.approx(-2)
    assert break_even(8.0, 20.0) == 1.4
    assert break_even(np.array([1.0, 10.0]), 10.0).tolist() == [1.1, 2.0]
    assert break_even(1.0, 0.0) == np.inf


@given(SECONDS, SECONDS)
def test_nothing_is_won_at_the_break_even(hidden, beside):
    assert overlap_gain(hidden, beside, break_even(hidden, beside)) == pytest.approx(
        0, abs=1e-9 * hidden + 1e-9
    )


@given(SECONDS, FACTOR)
def test_beside_alone_it_is_the_gain_of_the_timeline(seconds, slow_down):
    """A collective hidden under longer computing: h of it slow down h/s of that."""
    tasks = [Task(TRANSFER, 0, seconds), Task(FORWARD, 0, 2 * seconds)]
    saved = 3 * seconds - two_streams(tasks, slow_down).span
    assert saved == pytest.approx(overlap_gain(seconds, seconds / slow_down, slow_down))
    assert saved == pytest.approx(seconds / slow_down)


@given(st.floats(1.01, 4))
def test_both_slowed(slowed):
    """Side by side for one second: 1/r of communication, 1/s of computing; break-even where they make 1."""
    assert 1 / slowed + 1 / break_even_beside(slowed) == pytest.approx(1)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: overlap_gain(1, 1, 0.9), "at least 1 times"),
        (lambda: overlap_gain(-1, 1), "hidden communication is -1"),
        (lambda: overlap_gain(np.ones(2), np.ones(3)), "arrays of an overlap must broadcast"),
        (lambda: break_even(1, -1), "computing beside it is -1"),
        (lambda: break_even_beside(0.5), "slow-down is 0.5"),
    ],
)
def test_refused(call, words):
    with pytest.raises(InputRefused, match=words):
        call()
