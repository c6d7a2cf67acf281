"""Recompute: bytes kept, the best group, the compute it costs, and recursion (claims 4.2-b, 4.2-e, 4.2-f)."""

from math import ceil, log2

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from labkit.errors import InputRefused
from labkit.planner.recompute import (
    best_every,
    break_even_share,
    checkpointed_bytes,
    closed_form_every,
    extra_compute,
    recursive_recompute,
)
from labkit.presets import model

LAYER, BOUNDARY = 34.0, 2.0  # s b h of a layer with fused attention, and of its input
COUNTS, SIZES = st.integers(1, 200), st.floats(0.5, 100)


@pytest.mark.parametrize(
    ("every", "bytes_kept"),
    [
        (1, 32 * 2 + 34 - 2),
        (4, 8 * 2 + 4 * 34 - 2),
        (5, 7 * 2 + 5 * 34 - 2),  # the seventh checkpoint covers two layers
        (32, 32 * 34),  # one checkpoint for all: everything is computed again at once
        (100, 32 * 34),
    ],
)
def test_what_a_stack_keeps_by_hand(every, bytes_kept):
    assert checkpointed_bytes(32, every, BOUNDARY, LAYER) == bytes_kept


def test_a_pipeline_keeps_the_inputs_of_every_micro_batch_and_one_group():
    assert checkpointed_bytes(8, 2, BOUNDARY, LAYER, in_flight=4) == 4 * 4 * 2 + 2 * 34 - 2
    assert checkpointed_bytes(0, 1, BOUNDARY, LAYER, in_flight=4) == 0
    many = checkpointed_bytes(np.array([8, 16]), np.array([[1], [4]]), BOUNDARY, LAYER, np.array([4, 1]))
    assert many.tolist() == [[4 * 8 * 2 + 32, 16 * 2 + 32], [4 * 2 * 2 + 134, 4 * 2 + 134]]


def test_a_part_of_a_layer_keeps_that_part_and_never_less_than_its_input():
    assert checkpointed_bytes(0.5, 4, BOUNDARY, LAYER) == 17
    assert checkpointed_bytes(1e-9, 4, BOUNDARY, LAYER) == BOUNDARY
    assert checkpointed_bytes(5e-324, 4, BOUNDARY, LAYER) >= 0  # divided by 4, it is no layer at all
    assert checkpointed_bytes(13.5, 1, BOUNDARY, LAYER) == 14 * 2 + 32
    assert checkpointed_bytes(4, 1, 34.0, 2.0) == 4 * 34  # inputs larger than what is kept: no less than them


@given(layers=COUNTS, every=COUNTS, boundary=SIZES, more=SIZES)
def test_recompute_never_keeps_more_than_everything_and_never_less_than_a_layer(
    layers, every, boundary, more
):
    layer = boundary + more
    held = checkpointed_bytes(layers, every, boundary, layer)
    assert layer * (1 - 1e-12) <= held <= layers * layer * (1 + 1e-12)


@given(layers=COUNTS, boundary=SIZES, more=SIZES, in_flight=st.integers(1, 64))
def test_the_best_group_is_found(layers, boundary, more, in_flight):
    layer = boundary + more
    held = [in_flight * ceil(layers / k) * boundary + k * layer for k in range(1, layers + 1)]
    found = best_every(layers, boundary, layer, in_flight)
    assert held[found - 1] == pytest.approx(min(held))
    # With a fraction of a layer allowed nothing is better than at the closed form.
    least = 2 * np.sqrt(in_flight * layers * boundary * layer)
    assert min(held) >= least * (1 - 1e-12)
    k = closed_form_every(layers, boundary, layer, in_flight)
    assert in_flight * layers * boundary / k + k * layer == pytest.approx(least)


def test_the_square_root_of_the_textbook_wants_a_boundary_as_large_as_a_layer():
    layers = np.array([16, 36, 64, 100])
    assert best_every(layers, 34.0, 34.0).tolist() == [4, 6, 8, 10]
    assert best_every(layers, BOUNDARY, LAYER).tolist() == [1, 2, 2, 2]  # one layer up to L = A = 34
    assert closed_form_every(layers, 1.0, 1.0).tolist() == [4, 6, 8, 10]
    assert closed_form_every(32, BOUNDARY, 114.0) == pytest.approx((2 * 32 / 114) ** 0.5)


def test_extra_compute_by_hand():
    of = model("guide-13b")
    h, s, layers, vocabulary = of.hidden, of.sequence, of.layers, of.vocabulary
    core, rest, head = 4 * s * h * layers, 24 * h**2 * layers, 2 * h * vocabulary
    assert extra_compute(of, "full") == pytest.approx((core + rest) / (3 * (core + rest + head)))
    assert extra_compute(of, "selective") == pytest.approx(core / (3 * (core + rest + head)))
    assert extra_compute(of, "none") == 0
    assert extra_compute(of, np.array(["full", "none"]), np.array([2048, 8192])).shape == (2,)


@given(extra=st.floats(0.01, 0.5), growth=st.floats(1.01, 64))
def test_at_the_break_even_both_steps_take_as_long(extra, growth):
    s = break_even_share(extra, growth)
    assert (1 - s) * (1 + extra) + s / growth == pytest.approx(1)
    assert s > extra / (1 + extra)  # even with an endless micro-batch: a quarter, where one third is repeated


def test_recursion_by_hand():
    """Four layers in halves: a forward keeps the input of the third; then 3, 4, 4's own, 3's own; 1, 2, 1."""
    four = recursive_recompute(4)
    assert (four.forwards, four.inputs) == (6, 3)
    assert recursive_recompute(1).forwards == 1 and recursive_recompute(1).held(BOUNDARY, LAYER) == LAYER


@pytest.mark.parametrize("power", range(1, 8))
def test_recursion_in_halves_holds_log_many_inputs_and_costs_log_many_forwards(power):
    found = recursive_recompute(2**power)
    assert found.inputs == 1 + log2(2**power)
    assert found.extra_forwards == (1 + power) / 2


@given(layers=st.integers(2, 200), parts=st.integers(2, 200))
def test_parts_for_every_layer_are_one_checkpoint_a_layer(layers, parts):
    flat = recursive_recompute(layers, layers)
    assert flat.extra_forwards == 1
    assert flat.held(BOUNDARY, LAYER) == checkpointed_bytes(layers, 1, BOUNDARY, LAYER)
    deep = recursive_recompute(layers, parts)
    assert deep.extra_forwards >= 1 and deep.inputs <= flat.inputs


@pytest.mark.parametrize(
    ("call", "given", "words"),
    [
        (checkpointed_bytes, (32, 0, 2.0, 34.0), "layers per checkpoint is 0; give a number above 0"),
        (checkpointed_bytes, (-1, 1, 2.0, 34.0), "the number of layers is -1; give a number from 0 up"),
        (best_every, (0, 2.0, 34.0), "the number of layers is 0; give a whole number"),
        (closed_form_every, (32, 0, 34.0), "bytes of a layer's input is 0"),
        (extra_compute, (model("guide-13b"), "half"), "recompute is 'half'; use none, selective or full"),
        (break_even_share, (1 / 3, 0.5), "give a growth of at least 1"),
        (best_every, (np.array([4, 8]), np.ones(3), 34.0), r"not layers \(2,\), boundary \(3,\)"),
        (recursive_recompute, (32, 1), "parts of a run of layers is 1; give a whole number from 2 up"),
    ],
)
def test_what_cannot_be_is_refused(call, given, words):
    with pytest.raises(InputRefused, match=words):
        call(*given)
