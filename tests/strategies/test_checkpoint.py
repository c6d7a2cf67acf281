"""A stack that drops and recomputes: same gradients, fewer bytes, one more forward (claims 4.2-b, 4.2-e)."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labkit.errors import InputRefused
from labkit.planner.recompute import best_every, checkpointed_bytes
from labkit.strategies.checkpoint import random_stack, stack_pass
from labkit.strategies.layer import saved_bytes, whole_layer

SMALL = dict(positions=8, heads=2, head_dim=4)


def sizes(stack):
    """Bytes of a layer's input, and of all that a layer keeps, from one layer alone."""
    x, d_output, layers = stack
    *_, saved = whole_layer(x, d_output, *layers[0])
    return saved_bytes([{"residual": x}]), saved_bytes(saved)


@settings(deadline=None, max_examples=40)
@given(layers=st.integers(1, 9), every=st.integers(1, 10))
def test_gradients_are_the_same_and_the_peak_is_the_formula(layers, every):
    stack = random_stack(layers, **SMALL)
    kept, again = stack_pass(*stack), stack_pass(*stack, every=every)
    assert np.array_equal(kept.output, again.output)
    assert np.array_equal(kept.input_gradient, again.input_gradient)
    assert len(again.gradients) == layers
    for one, other in zip(kept.gradients, again.gradients, strict=True):
        assert one.keys() == other.keys() and all(np.array_equal(one[name], other[name]) for name in one)
    boundary, layer = sizes(stack)
    assert kept.peak == layers * layer and again.peak == checkpointed_bytes(layers, every, boundary, layer)
    assert (kept.forwards, again.forwards) == (layers, 2 * layers)


def test_the_whole_stack_is_its_layers_one_after_the_other():
    x, d_output, layers = random_stack(3, **SMALL)
    outputs = [x]
    for weights, masks in layers:
        outputs.append(whole_layer(outputs[-1], d_output, weights, masks)[0])
    done, gradient = stack_pass(x, d_output, layers), d_output
    assert np.array_equal(done.output, outputs[-1])
    for (weights, masks), before, found in zip(
        reversed(layers), outputs[-2::-1], reversed(done.gradients), strict=True
    ):
        _, gradient, expected, _ = whole_layer(before, gradient, weights, masks)
        assert all(np.array_equal(found[name], expected[name]) for name in expected)
    assert np.array_equal(done.input_gradient, gradient)


def test_the_gradient_of_the_input_is_a_slope():
    x, d_output, layers = random_stack(4, **SMALL)
    done, step = stack_pass(x, d_output, layers, every=3), 1e-6
    way = np.random.default_rng(1).normal(size=x.shape)
    ends = [stack_pass(x + sign * step * way, d_output, layers).output for sign in (1, -1)]
    slope = ((ends[0] - ends[1]) / (2 * step) * d_output).sum()
    assert slope == pytest.approx((done.input_gradient * way).sum(), rel=1e-6)


def test_the_least_bytes_are_held_at_the_best_group():
    stack = random_stack(24, **SMALL)
    held = {every: stack_pass(*stack, every=every).peak for every in range(1, 13)}
    best = best_every(24, *sizes(stack))
    assert held[best] == min(held.values())
    beyond = [held[every] for every in (4, 6, 8, 12)]
    assert all(a < b for a, b in pairwise(beyond))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"every": 0}, "layers per checkpoint is 0; give a whole number from 1 up"),
        ({"layers": []}, "a stack has 1 to 256 layers"),
        ({"layers": [(1, 2, 3)]}, "a layer of a stack is a pair"),
        ({"d_output": np.ones((3, 3))}, "output gradient has the shape"),
    ],
)
def test_what_is_no_stack_is_refused(change, words):
    x, d_output, layers = random_stack(2, **SMALL)
    given = {"x": x, "d_output": d_output, "layers": layers, "every": 1} | change
    with pytest.raises(InputRefused, match=words):
        stack_pass(**given)
