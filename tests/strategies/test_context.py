"""Context parallel: ring and all_to_all attention equal the unsplit one, and what travels."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labkit.errors import InputRefused
from labkit.strategies.communicator import sent_per_rank, tally
from labkit.strategies.context import all_to_all_attention, chunks_of_ranks, ring_attention


def attention_by_rows(query, key, value):
    """Causal attention written row by row, without anything of labkit."""
    group = len(query) // len(key)
    out = np.zeros_like(query)
    for head, rows in enumerate(query):
        k, v = key[head // group], value[head // group]
        for i, row in enumerate(rows):
            weight = np.exp(k[: i + 1] @ row / np.sqrt(len(row)))
            out[head, i] = weight @ v[: i + 1] / weight.sum()
    return out


def some(heads=4, kv_heads=2, positions=16, d=3, seed=0):
    draw = np.random.default_rng(seed)
    return [draw.normal(size=(n, positions, d)) for n in (heads, kv_heads, kv_heads, heads)]


def assert_gradients(split, arrays):
    """A small step along each gradient's direction changes the loss as the gradient says."""
    *qkv, d_output = arrays
    draw, step = np.random.default_rng(1), 1e-6
    for i, gradient in enumerate(split.gradients):
        direction = draw.normal(size=gradient.shape)
        losses = []
        for sign in (1, -1):
            moved = [a + sign * step * direction if j == i else a for j, a in enumerate(qkv)]
            losses.append((attention_by_rows(*moved) * d_output).sum())
        slope = (losses[0] - losses[1]) / (2 * step)
        assert (gradient * direction).sum() == pytest.approx(slope, rel=1e-5, abs=1e-6)


@given(st.integers(1, 5), st.integers(1, 2), st.booleans(), st.sampled_from([(1, 1), (4, 1), (6, 3), (2, 2)]))
@settings(max_examples=40, deadline=None)
def test_the_ring_equals_unsplit_attention(cp, each, balanced, heads):
    arrays = some(*heads, positions=2 * cp * each)
    split = ring_attention(*arrays, cp, balanced)
    assert np.abs(split.output - attention_by_rows(*arrays[:3])).max() < 1e-12
    assert_gradients(split, arrays)


@pytest.mark.parametrize("cp", [1, 2, 4])
def test_the_all_to_all_equals_unsplit_attention(cp):
    arrays = some(heads=8, kv_heads=4)
    split = all_to_all_attention(*arrays, cp)
    assert np.abs(split.output - attention_by_rows(*arrays[:3])).max() < 1e-12
    assert_gradients(split, arrays)


def test_scores_far_from_zero_do_not_overflow():
    query, key, value, d_output = some()
    split = ring_attention(40 * query, 40 * key, value, d_output, 4)
    assert np.isfinite(split.output).all() and np.isfinite(split.gradients[0]).all()


@pytest.mark.parametrize("cp", [1, 2, 4, 8])
def test_zigzag_gives_all_ranks_equal_work_and_plain_chunks_do_not(cp):
    s = 16
    arrays = some(positions=s)
    balanced, plain = (ring_attention(*arrays, cp, how).work for how in (True, False))
    for work in (balanced, plain):
        assert work.shape == (cp, cp) and work.sum() == s * (s + 1) // 2
    assert (balanced == balanced[:, :1]).all()
    c = s // cp
    # In turn i rank r works on the block of rank r - i, all of it, if that lies in its past.
    assert plain[0].tolist() == [c * (c + 1) // 2] * cp
    assert all(plain[i].tolist() == [c * c if rank >= i else 0 for rank in range(cp)] for i in range(1, cp))


def test_balance():
    arrays = some(positions=64)
    assert ring_attention(*arrays, 4).balance == 1
    # On the critical path 136 + 3 x 256 pairs, while a rank has 2080 / 4 to do.
    assert ring_attention(*arrays, 4, balanced=False).balance == pytest.approx(520 / 904)


def test_what_the_ring_sends():
    heads, kv_heads, s, d, cp = 4, 2, 16, 3, 4
    calls = ring_attention(*some(heads, kv_heads, s, d), cp).calls
    assert tally(calls) == {
        ("forward", "send_recv"): cp - 1,
        ("backward", "send_recv"): cp - 1,
        ("backward, gradients", "send_recv"): cp,
    }
    block = 2 * kv_heads * s // cp * d * 2  # keys and values of a rank's positions, 2 bytes each
    assert {call.size for call in calls} == {block}
    assert sent_per_rank(calls) == (3 * cp - 2) * block


def test_what_the_all_to_all_sends():
    heads, kv_heads, s, d, cp = 8, 4, 16, 3, 4
    calls = all_to_all_attention(*some(heads, kv_heads, s, d), cp).calls
    assert tally(calls) == {("forward", "all_to_all"): 4, ("backward", "all_to_all"): 4}
    held = (2 * heads + 2 * kv_heads) * s // cp * d * 2  # query, key, value, output of a rank's positions
    assert sent_per_rank(calls) == 2 * held * (cp - 1) / cp


def test_each_rank_holds_an_early_and_a_late_chunk():
    assert chunks_of_ranks(2) == [(0, 3), (1, 2)]
    assert chunks_of_ranks(1) == [(0,)]
    assert chunks_of_ranks(3, balanced=False) == [(0,), (1,), (2,)]


@pytest.mark.parametrize("positions", [1, 7])
def test_one_rank_takes_any_number_of_positions(positions):
    arrays = some(positions=positions)
    split = ring_attention(*arrays, cp=1)
    assert split.output == pytest.approx(attention_by_rows(*arrays[:3]))
    assert split.calls == [] and split.work.tolist() == [[positions * (positions + 1) // 2]]


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: ring_attention(*some(), 3), "sequence of 16 cannot be cut in 6 equal chunks"),
        (lambda: ring_attention(*some(), 16), "32 equal chunks"),
        (lambda: ring_attention(*some(), 0), "context-parallel degree"),
        (lambda: all_to_all_attention(*some(), 4), "2 kv heads cannot be shared by 4 ranks"),
        (lambda: all_to_all_attention(*some(heads=6), 4), "6 heads cannot be shared by 4 ranks"),
    ],
)
def test_refused(call, words):
    with pytest.raises(InputRefused, match=words):
        call()
