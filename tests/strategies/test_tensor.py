"""Tensor parallel on real matrices: equal to the unsplit layer, and the collectives that it takes."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labkit.errors import InputRefused
from labkit.planner.traffic import Workload, tensor_parallel
from labkit.strategies.communicator import sent_per_rank, tally
from labkit.strategies.layer import BLOCKS, KEEP, norm, random_layer, saved_bytes, whole_layer
from labkit.strategies.tensor import RECOMPUTE, split_layer, split_mlp, split_weights

SMALL = dict(positions=8, heads=8, head_dim=2, ffn=24)


def largest_difference(a, b):
    return max(np.abs(a[name] - b[name]).max() for name in a)


def joined(parts, sequence_parallel):
    return np.concatenate(parts) if sequence_parallel else parts[0]


# ---- the layer itself: its gradients against finite differences


@pytest.mark.parametrize("kv_heads", [8, 2])
def test_the_gradients_of_the_unsplit_layer_are_those_of_finite_differences(kv_heads):
    x, d_output, weights, masks = random_layer(**SMALL, kv_heads=kv_heads)

    def loss(x, weights):
        return (whole_layer(x, d_output, weights, masks)[0] * d_output).sum()

    _, d_x, gradients, _ = whole_layer(x, d_output, weights, masks)
    draw, step = np.random.default_rng(1), 1e-6
    for name, exact in [("x", d_x), *gradients.items()]:
        array = x if name == "x" else getattr(weights, name)
        at = tuple(draw.integers(0, size) for size in array.shape)
        value = array[at]
        array[at] = value + step
        above = loss(x, weights)
        array[at] = value - step
        below = loss(x, weights)
        array[at] = value
        assert exact[at] == pytest.approx((above - below) / (2 * step), rel=1e-6, abs=1e-7), name


def test_one_position_of_one_head_by_hand():
    """With one position attention returns its value: out = x + value product + MLP of the sum."""
    x, d_output, w, _ = random_layer(positions=1, heads=1, kv_heads=1, head_dim=2)
    masks = [np.ones((1, 2), bool)] * 2
    after = x + norm(x, w.attention_gain) @ w.value @ w.output / KEEP
    wide = norm(after, w.mlp_gain) @ w.up
    active = wide / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (wide + 0.044715 * wide**3)))
    assert whole_layer(x, d_output, w, masks)[0] == pytest.approx(after + active @ w.down / KEEP)


# ---- split equals unsplit


@st.composite
def splits(draw):
    """A small layer and a way to split it."""
    t = draw(st.sampled_from([1, 2, 3, 4, 8]))
    copies = draw(st.sampled_from([c for c in (1, 2, 4, 8) if t % c == 0]))
    kv_heads = t // copies * draw(st.sampled_from([1, 2]) if copies == 1 else st.just(1))
    heads = np.lcm(kv_heads, t) * draw(st.integers(1, 2))
    layer = dict(
        positions=t * draw(st.integers(1, 3)),
        heads=int(heads),
        kv_heads=int(kv_heads),
        head_dim=draw(st.integers(1, 3)),
        ffn=t * draw(st.integers(1, 3)),
        seed=draw(st.integers(0, 99)),
    )
    how = dict(
        sequence_parallel=draw(st.booleans()),
        recompute=draw(st.sampled_from(RECOMPUTE)),
        keep_inputs=draw(st.booleans()),
    )
    return layer, t, how


@given(splits())
@settings(max_examples=60, deadline=None)
def test_split_equals_unsplit(case):
    layer, t, how = case
    inputs = random_layer(**layer)
    output, d_x, gradients, _ = whole_layer(*inputs)
    split = split_layer(*inputs, t, **how)
    for parts, whole in ((split.outputs, output), (split.input_gradients, d_x)):
        assert joined(parts, how["sequence_parallel"]) == pytest.approx(whole, rel=1e-9, abs=1e-9)
        if not how["sequence_parallel"]:
            assert all(np.array_equal(part, parts[0]) for part in parts)
    assert set(split.gradients) == set(gradients)
    assert largest_difference(split.gradients, gradients) < 1e-9


@pytest.mark.parametrize("t", [2, 4, 8])
def test_a_layer_of_some_size_is_equal_to_twelve_digits(t):
    inputs = random_layer(positions=64, heads=16, kv_heads=4, head_dim=8)
    output, d_x, gradients, _ = whole_layer(*inputs)
    for sequence_parallel in (False, True):
        split = split_layer(*inputs, t, sequence_parallel=sequence_parallel)
        assert np.abs(joined(split.outputs, sequence_parallel) - output).max() < 1e-12
        assert np.abs(joined(split.input_gradients, sequence_parallel) - d_x).max() < 1e-12
        assert largest_difference(split.gradients, gradients) < 1e-11


def test_kv_heads_are_split_or_copied():
    _, _, weights, _ = random_layer(heads=8, kv_heads=2, head_dim=4)
    two, four = split_weights(weights, 2), split_weights(weights, 4)
    assert [part.kv_heads for part in two] == [1, 1]
    assert [np.array_equal(four[rank].key, two[rank // 2].key) for rank in range(4)] == [True] * 4


# ---- what travels


@pytest.mark.parametrize(("recompute", "again"), [("none", 0), ("selective", 0), ("full", 2)])
def test_two_all_reduces_forward_and_two_backward(recompute, again):
    split = split_layer(*random_layer(**SMALL), 4, recompute=recompute)
    counted = tally(split.calls)
    assert counted.pop(("recompute", "all_reduce"), 0) == again
    assert counted == {("forward", "all_reduce"): 2, ("backward", "all_reduce"): 2}
    # Each of the full activation: 8 positions x 16 x 2 bytes, of which a ring sends 2 (t-1)/t.
    assert {call.size for call in split.calls} == {256.0}
    assert sent_per_rank(split.calls) == (4 + again) * 256 * 2 * 3 / 4


@pytest.mark.parametrize(("recompute", "per_layer"), [("none", 4), ("full", 6)])
def test_the_bill_of_one_layer_is_what_it_really_sent(recompute, per_layer):
    work = Workload(parameters=1, layers=1, hidden=16, sequence=8)
    (row,) = tensor_parallel(work, 4, per_layer=per_layer)
    calls = split_layer(*random_layer(**SMALL), 4, recompute=recompute).calls
    assert row.bytes_per_rank == sent_per_rank(calls) and row.count == len(calls)


def test_sequence_parallel_cuts_each_all_reduce_in_two_halves_of_equal_bytes():
    inputs = random_layer(**SMALL)
    plain = split_layer(*inputs, 4)
    kept = split_layer(*inputs, 4, sequence_parallel=True, keep_inputs=True)
    layer = [call for call in kept.calls if call.purpose != "gradients"]
    assert tally(layer) == {
        ("forward", "all_gather"): 2,
        ("forward", "reduce_scatter"): 2,
        ("backward", "all_gather"): 2,
        ("backward", "reduce_scatter"): 2,
    }
    assert sent_per_rank(layer) == sent_per_rank(plain.calls)


def test_sequence_parallel_that_saves_only_its_positions_gathers_two_inputs_again():
    inputs = random_layer(**SMALL)
    calls = split_layer(*inputs, 4, sequence_parallel=True).calls
    again = [call for call in calls if call.purpose == "gather again"]
    assert [call.collective for call in again] == ["all_gather", "all_gather"]
    layer = [call for call in calls if call.purpose != "gradients"]
    assert sent_per_rank(layer) == 5 / 4 * sent_per_rank(split_layer(*inputs, 4).calls)


def test_the_gains_are_summed_under_sequence_parallel_only():
    inputs = random_layer(**SMALL)
    gains = [c for c in split_layer(*inputs, 4, sequence_parallel=True).calls if c.purpose == "gradients"]
    assert [(call.collective, call.size) for call in gains] == [("all_reduce", 2 * 16 * 2.0)]


def test_copied_kv_heads_sum_their_gradients():
    calls = split_layer(*random_layer(**SMALL, kv_heads=2), 4).calls
    copies = [call for call in calls if call.purpose == "gradients"]
    assert [(call.collective, call.ranks) for call in copies] == [("all_reduce", 2)] * 2


def test_one_rank_talks_to_nobody():
    for sequence_parallel in (False, True):
        assert split_layer(*random_layer(**SMALL), 1, sequence_parallel=sequence_parallel).calls == []


# ---- what is saved, against Korthikanti et al. 2022, table 2, in units of s b h bytes


def saved_units(t, **how):
    """Bytes saved by the busiest rank in units of s h; MLP of 4 h, as many kv heads as heads."""
    positions, heads, head_dim = 16, 8, 4
    split = split_layer(*random_layer(positions, heads, heads, head_dim), t, **how)
    return max(split.saved) / (positions * heads * head_dim)


SCORES = 2 * 8 * 16 / 32  # 2 a s / h: probabilities alone; with a dropout on them the paper has 5 a s / h


@pytest.mark.parametrize("t", [1, 2, 4, 8])
def test_saved_bytes_are_the_published_ones(t):
    assert saved_units(t) == 10 + 24 / t + SCORES / t
    assert saved_units(t, sequence_parallel=True) == 34 / t + SCORES / t
    assert saved_units(t, recompute="selective") == 10 + 24 / t
    assert saved_units(t, recompute="selective", sequence_parallel=True) == 34 / t
    assert saved_units(t, recompute="full") == 2
    assert saved_units(t, recompute="full", sequence_parallel=True) == 2 / t


def test_whole_inputs_kept_are_what_the_second_gather_saves():
    """Of the 10 that tensor parallel alone leaves whole, the inputs of both blocks are 4."""
    assert saved_units(8, sequence_parallel=True, keep_inputs=True, recompute="selective") == 4 + 30 / 8


def test_the_unsplit_layer_saves_34():
    *_, saved = whole_layer(*random_layer(16, 8, 8, 4))
    assert len(saved) == len(BLOCKS)
    assert saved_bytes(saved) / (16 * 32) == 34 + SCORES


# ---- which matrix first


def mlp(t=4):
    draw = np.random.default_rng(0)
    x, up, down = draw.normal(size=(6, 16)), draw.normal(size=(16, 64)), draw.normal(size=(64, 16))
    wide = x @ up
    right = 0.5 * wide * (1 + np.tanh(np.sqrt(2 / np.pi) * (wide + 0.044715 * wide**3))) @ down
    return (x, up, down, t), right


def test_columns_first_takes_one_all_reduce():
    inputs, right = mlp()
    output, calls = split_mlp(*inputs)
    assert np.abs(output - right).max() < 1e-11
    assert [call.collective for call in calls] == ["all_reduce"]


def test_rows_first_takes_a_second_one_four_times_as_wide():
    inputs, right = mlp()
    output, calls = split_mlp(*inputs, first="rows")
    assert np.abs(output - right).max() < 1e-11
    assert [(call.purpose, call.size) for call in calls] == [("between", 6 * 64 * 2.0), ("end", 6 * 16 * 2.0)]


def test_rows_first_without_it_is_wrong():
    inputs, right = mlp()
    output, calls = split_mlp(*inputs, first="rows", sum_between=False)
    assert len(calls) == 1
    assert np.abs(output - right).max() > 1


# ---- refusals


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (
            lambda: split_layer(*random_layer(**SMALL), 3),
            "8 heads, 8 kv heads and 24 ffn columns do not all split over 3 ranks",
        ),
        (lambda: split_layer(*random_layer(heads=12, kv_heads=3), 4), "12 heads, 3 kv heads and 192 ffn"),
        (lambda: split_layer(*random_layer(heads=8, ffn=12), 8), "12 ffn columns"),
        (lambda: split_layer(*random_layer(**SMALL), 0), "tensor-parallel degree"),
        (lambda: split_layer(*random_layer(**SMALL), 2, recompute="some"), "recompute is 'some'"),
        (
            lambda: split_layer(*random_layer(**{**SMALL, "positions": 6}), 4, sequence_parallel=True),
            "6 positions cannot be cut for 4 ranks",
        ),
        (lambda: random_layer(heads=8, kv_heads=3), "8 query heads cannot share 3 kv heads"),
        (lambda: split_mlp(*mlp()[0], first="diagonals"), "use columns or rows"),
        (lambda: split_mlp(*mlp(5)[0]), "use a divisor of both"),
    ],
)
def test_refused(call, words):
    with pytest.raises(InputRefused, match=words):
        call()
