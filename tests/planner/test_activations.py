"""Activations of a layer: the published formula (claims 4.2-a, 4.2-d)."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from labkit.errors import InputRefused
from labkit.planner.activations import layer_activation_bytes, layer_activations
from labkit.planner.in_flight import in_flight
from labkit.planner.states import FP32_GRADIENTS, state_bytes
from labkit.spec import Plan, Transformer
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


# Layers, hidden, heads, plan and GiB: activations with tensor parallel alone and as in "present work" of
# Korthikanti et al. (2022), figure 1, and of parameters with optimizer states; models of table 3.
FIGURE_1 = {
    "22B": (48, 6144, 64, {"tp": 8, "micro_batch": 4}, 59.25, 9.5625, 45.5625),
    "175B": (96, 12288, 96, {"tp": 8, "pp": 8, "v": 3}, 66.84375, 12.3515625, 45.5625),
    "530B": (105, 20480, 128, {"tp": 8, "pp": 35, "v": 3}, 114.0234375, 23.076171875, 31.640625),
    "1T": (128, 25600, 160, {"tp": 8, "pp": 64}, 131.25, 26.5625, 32.958984375),
}


@pytest.mark.parametrize("size", FIGURE_1)
def test_figure_1_of_korthikanti_to_the_printed_digits(size):
    """Transformer layers alone: all of them in flight on the first stage, times 1 + (p - 1)/(p v)."""
    layers, hidden, heads, how, baseline, present, states = FIGURE_1[size]
    shape = Transformer(size, layers, hidden, heads, 51200, 2048)
    plan = Plan(**how, accumulation=512, fused_attention=False)
    both = plan.changed(sequence_parallel=True, recompute="selective")
    for one, printed in ((plan, baseline), (both, present)):
        kept = in_flight(one, 0) * layers / one.pp * layer_activations(shape, one).kept / 2**30
        assert kept == pytest.approx(printed, rel=1e-12)
    matrices = 12 * layers * hidden**2 / (plan.tp * plan.pp)
    assert state_bytes(matrices, recipe=FP32_GRADIENTS) / 2**30 == pytest.approx(states, rel=1e-12)


@pytest.mark.parametrize("gated", [False, True])
@pytest.mark.parametrize("kv_heads", [8, 2])
def test_what_a_layer_keeps_is_a_sum_of_tensors(gated, kv_heads):
    """Bytes of a position by hand: norms and inputs 8 h, masks 2 h, q, k, v, output, MLP."""
    shape = Transformer("x", 1, 1024, 8, 1000, 64, kv_heads=kv_heads, ffn=2816, gated=gated)
    kv = 128 * kv_heads
    row = 10 * 1024 + 2 * (1024 + 2 * kv) + 2 * 1024 + (6 if gated else 4) * 2816
    assert layer_activations(shape, Plan()).kept == 64 * row
    split = 10 * 1024 / 2 + (row - 10 * 1024) / 2
    assert layer_activations(shape, Plan(tp=2, sequence_parallel=True)).kept == 64 * split
    # Ranks beyond the kv heads hold copies: one head each.
    few = layer_activations(shape, Plan(tp=8, replicate_kv=True)).kept / 64
    copied = 2 * 2 * 128 * max(kv_heads / 8, 1)
    assert few == 10 * 1024 + (2 * 2 * 1024 + (6 if gated else 4) * 2816) / 8 + copied


def test_options_of_a_layer():
    shape = Transformer("x", 1, 1024, 8, 1000, 64)
    plain = layer_activations(shape, Plan()).kept
    without = layer_activations(replace(shape, dropout=False), Plan()).kept
    assert plain - without == 64 * 2 * 1024  # two masks
    stored = Plan(fused_attention=False)
    assert layer_activations(shape, stored).kept - plain == 64 * 5 * 8 * 64
    bare = layer_activations(replace(shape, dropout=False), stored).kept
    assert bare - without == 64 * 2 * 8 * 64  # softmax alone
    assert layer_activations(shape, stored.changed(recompute="selective")).kept == plain
    # Recompute of the whole layer makes the scores again, all of them.
    full = layer_activations(shape, stored.changed(recompute="full"))
    assert (full.kept, full.boundary) == (layer_activations(shape, stored).kept, 64 * 2 * 1024)
    rotated = layer_activations(shape, Plan(), packed_qkv=True).kept
    assert rotated - plain == 64 * 2 * 2 * 1024
    learned = replace(shape, learned_positions=64)
    assert layer_activations(learned, Plan(), packed_qkv=True).kept == plain
    normed = layer_activations(replace(shape, qk_norm=True), Plan()).kept
    assert normed - plain == 64 * 2 * 2 * 1024
    ring, exchange = (
        layer_activations(shape, Plan(cp=2, context=how)).kept for how in ("ring", "all_to_all")
    )
    assert ring == plain / 2
    assert exchange - ring == 32 * 2 * 1024


def test_experts_cut_by_tensor_parallel_keep_the_rows_of_all():
    shape = Transformer("x", 1, 1024, 8, 1000, 64, experts=16, top_k=2, gated=True, ffn=512)
    whole = layer_activations(shape, Plan(ep=4, etp=1)).kept
    rows = 2 * (4 * 1024 + 6 * 512) + 8 * 16
    assert whole == 64 * (10 * 1024 + 8 * 1024 + rows)
    sequence = {"tp": 2, "sequence_parallel": True}
    own = layer_activations(shape, Plan(**sequence, etp=1)).kept
    assert own == whole / 2  # each rank sends its own half of the tokens
    cut = layer_activations(shape, Plan(**sequence, etp=2)).kept
    assert cut == 64 * (10 * 1024 / 2 + 8 * 1024 / 2 + 2 * (4 * 1024 + 6 * 512 / 2) + 8 * 16 / 2)
