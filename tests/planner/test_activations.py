"""Activations of a layer: the published formula (claims 4.2-a, 4.2-d)."""

import numpy as np
import pytest

from labkit.errors import InputRefused
from labkit.planner.activations import layer_activation_bytes
from labkit.strategies.layer import random_layer
from labkit.strategies.tensor import split_layer

SHAPE = dict(sequence=2048, micro_batch=4, hidden=5120, heads=40)
UNIT = 2048 * 4 * 5120  # s b h


def test_published_activations():
    scores = 5 * 40 * 2048 / 5120  # 5 a s / h = 80
    assert layer_activation_bytes(**SHAPE) == UNIT * (34 + scores)
    assert layer_activation_bytes(**SHAPE, tp=8) == UNIT * (10 + 24 / 8 + scores / 8)
    assert layer_activation_bytes(**SHAPE, tp=8, sequence_parallel=True) == UNIT * (34 + scores) / 8
    assert layer_activation_bytes(**SHAPE, recompute="full") == 2 * UNIT
    assert layer_activation_bytes(**SHAPE, tp=8, recompute="full") == 2 * UNIT


def test_sequence_parallel_at_eight_is_three_times_less():
    units = [
        layer_activation_bytes(**SHAPE, tp=8, sequence_parallel=sp, recompute="selective") / UNIT
        for sp in (False, True)
    ]
    assert units == [13, 4.25] and units[0] / units[1] == pytest.approx(3.06, abs=0.005)


def test_a_175b_layer_as_published():
    """Table 2's setting: a 96, s 2048, h 12288 makes 5 a s / h = 80; the paper says the scores are 70 %."""
    whole = layer_activation_bytes(2048, 1, 12288, 96)
    assert 1 - layer_activation_bytes(2048, 1, 12288, 96, recompute="selective") / whole == pytest.approx(
        0.70, abs=0.005
    )


@given(
    tp=st.sampled_from([1, 2, 4, 8]),
    recompute=st.sampled_from(["selective", "full"]),
    sequence_parallel=st.booleans(),
)
def test_activations_are_those_that_the_split_layer_really_keeps(tp, recompute, sequence_parallel):
    split = split_layer(
        *random_layer(16, 8, 8, 4), tp, recompute=recompute, sequence_parallel=sequence_parallel
    )
    assert set(split.saved) == {layer_activation_bytes(16, 1, 32, 8, tp, sequence_parallel, recompute)}


def test_activations_of_arrays():
    tp, recompute = np.array([1, 8]), np.array(["none", "full"])
    expected = [layer_activation_bytes(**SHAPE), layer_activation_bytes(**SHAPE, tp=8, recompute="full")]
    assert layer_activation_bytes(**SHAPE, tp=tp, recompute=recompute).tolist() == expected


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"hidden": 0}, "hidden of a layer is 0; give a number above 0"),
        ({"tp": 0}, "at least 1, not 0"),
        ({"recompute": "some"}, "recompute is 'some'; use none, selective or full"),
    ],
)
def test_activations_that_cannot_be_are_refused(change, words):
    with pytest.raises(InputRefused, match=words):
        layer_activation_bytes(**{**SHAPE, **change})
