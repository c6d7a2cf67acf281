"""States per rank: claims 2.3-j, 1-f, 4.1-a."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from labkit.errors import InputRefused
from labkit.planner.memory import smallest_ranks, state_bytes


def test_published_stages():
    assert [state_bytes(13e9, 8, stage) / 1e9 for stage in range(4)] == pytest.approx([208, 71.5, 48.75, 26])
    assert [state_bytes(13e9, 64, stage) / 1e9 for stage in (1, 2, 3)] == pytest.approx(
        [54.4375, 28.84375, 3.25]
    )
    assert [state_bytes(7e9, 8, stage) / 1e9 for stage in range(3)] == pytest.approx([112, 38.5, 26.25])


def test_ten_billion_parameters_have_no_single_card_figure():
    assert state_bytes(10e9) == 160e9
    # Stage 1 at 3 ranks and stage 3 at 2 are exactly 80 GB: no room is left, so one rank more.
    assert [smallest_ranks(10e9, 80e9, stage) for stage in range(4)] == [math.inf, 4, 3, 3]


@given(parameters=st.floats(1e8, 1e11), memory=st.floats(1e10, 2e11), stage=st.integers(0, 3))
def test_the_fewest_ranks_fit_and_one_less_does_not(parameters, memory, stage):
    ranks = smallest_ranks(parameters, memory, stage)
    if math.isinf(ranks):
        assert state_bytes(parameters, 1e12, stage) >= memory * (1 - 1e-9)
    else:
        assert state_bytes(parameters, ranks, stage) <= memory * (1 + 1e-9)
        assert ranks == 1 or state_bytes(parameters, ranks - 1, stage) >= memory * (1 - 1e-9)


def test_arrays():
    assert state_bytes(13e9, np.array([8, 64]), 3).tolist() == [26e9, 3.25e9]
    assert state_bytes(13e9, 8, np.arange(4)).tolist() == [state_bytes(13e9, 8, stage) for stage in range(4)]
    assert smallest_ranks(np.array([1e9, 10e9]), 80e9, 1).tolist() == [1, 4]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((1e9, 8, 5), "stage 5"),
        ((1e9, 8, np.array([1, 5])), r"stage \[1 5\]"),
        ((1e9, 0, 1), "at least 1, not 0"),
        ((-1, 8, 1), "above 0"),
    ],
)
def test_states_that_cannot_be_are_refused(arguments, words):
    with pytest.raises(InputRefused, match=words):
        state_bytes(*arguments)
