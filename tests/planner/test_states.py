"""States per rank: claims 2.3-j, 1-f, 4.1-a."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from labkit.errors import InputRefused
from labkit.planner.states import (
    FP32,
    FP32_GRADIENTS,
    MIXED,
    Recipe,
    largest_model,
    smallest_ranks,
    state_bytes,
)


def test_published_stages():
    assert [state_bytes(13e9, 8, stage) / 1e9 for stage in range(4)] == pytest.approx([208, 71.5, 48.75, 26])
    assert [state_bytes(13e9, 64, stage) / 1e9 for stage in (1, 2, 3)] == pytest.approx(
        [54.4375, 28.84375, 3.25]
    )
    assert [state_bytes(7e9, 8, stage) / 1e9 for stage in range(3)] == pytest.approx([112, 38.5, 26.25])


def test_recipes():
    """Claims 3.1-g and 3.1-h: 16 and 18 bytes per parameter; 13 B: 208 and 234 GB; sharded 6 + 12/N."""
    assert [recipe.total for recipe in (MIXED, FP32_GRADIENTS, FP32)] == [16, 18, 16]
    assert state_bytes(13e9, recipe=FP32_GRADIENTS) == 234e9
    assert state_bytes(13e9, 8, 1, FP32_GRADIENTS) == 97.5e9
    assert state_bytes(1e9, 8, 3, Recipe(master=0, second_moment=0)) == 1e9
    assert smallest_ranks(10e9, 80e9, 1, FP32_GRADIENTS) == 7  # 60 GB kept, 120/n below 20


@given(
    memory=st.floats(1e9, 1e12),
    n=st.integers(1, 64),
    stage=st.integers(0, 3),
    recipe=st.sampled_from([MIXED, FP32_GRADIENTS, FP32]),
)
def test_the_largest_model_fills_the_memory(memory, n, stage, recipe):
    assert state_bytes(largest_model(memory, n, stage, recipe), n, stage, recipe) == pytest.approx(memory)


def test_one_billion_parameters_need_16_gb_and_80_gb_hold_five():
    assert state_bytes(1e9) == 16e9
    assert largest_model(80e9) == 5e9
    assert largest_model(np.array([80e9, 141e9]), recipe=FP32_GRADIENTS) == pytest.approx(
        [80e9 / 18, 141e9 / 18]
    )


@pytest.mark.parametrize("bytes_each", [dict(weights=-1.0), dict.fromkeys(("weights", "gradients"), 0.0)])
def test_recipes_that_cannot_be_are_refused(bytes_each):
    nothing = dict.fromkeys(("master", "first_moment", "second_moment"), 0.0)
    with pytest.raises(InputRefused, match="bytes per parameter"):
        Recipe(**bytes_each, **nothing)


def test_a_recipe_has_single_numbers():
    with pytest.raises(InputRefused, match="master of a recipe, in bytes per parameter, is an array"):
        Recipe(master=np.array([4.0, 0.0]))
    assert Recipe(master=np.float64(2.0)).total == 14


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
        ((1e9, 8, 5), "stage .* is 5; use 0, 1, 2 or 3"),
        ((1e9, 8, np.array([1, 5])), "stage .* is an array of 2 values"),
        ((1e9, 0, 1), "at least 1, not 0"),
        ((-1, 8, 1), "above 0"),
        ((np.ones(2), [8, 16, 64], 1), r"not parameters \(2,\), n \(3,\); reshape them"),
    ],
)
def test_states_that_cannot_be_are_refused(arguments, words):
    with pytest.raises(InputRefused, match=words):
        state_bytes(*arguments)


# ---- activations of one layer: Korthikanti et al. (2022), table 2
