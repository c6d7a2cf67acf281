"""Gradient buckets under the backward pass: cases by hand, the recurrence against the events, limits."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labkit.collectives import collective_cost
from labkit.errors import InputRefused
from labkit.presets import model
from labkit.spec import Link, Transformer
from labkit.strategies.model_blocks import transformer_blocks
from labkit.strategies.overlap import Block, backward_seconds, best_bucket, step_seconds, step_timeline
from labkit.strategies.timeline import BACKWARD, FORWARD, TRANSFER
from labkit.units import MiB

THREE = [Block(1, 2, (4,)), Block(1, 2, (4,)), Block(1, 2, (4,))]


def rows(timeline, kind):
    """(item, start, stop) of one kind of block, by start."""
    chosen = timeline.kind == kind
    return sorted(
        zip(timeline.item[chosen], timeline.start[chosen], timeline.stop[chosen], strict=True),
        key=lambda row: row[1],
    )


# ---- by hand: three equal blocks, backward from 3 to 9 s, one bucket for each


def test_communication_bound():
    """Gradients at 5, 7, 9; all_reduces of 3 s one after the other: 5-8, 8-11, 11-14. Hidden: 5 to 9."""
    t = step_timeline(THREE, lambda size: 3 * size / 4, cap=4, first=4)
    assert rows(t, TRANSFER) == [(0, 5, 8), (1, 8, 11), (2, 11, 14)]
    assert rows(t, FORWARD) == [(0, 0, 1), (1, 1, 2), (2, 2, 3)]
    assert rows(t, BACKWARD) == [(2, 3, 5), (1, 5, 7), (0, 7, 9)]
    assert (t.communication[0], t.hidden[0], t.exposed[0]) == (9, 4, 5)
    assert t.coverage == 4 / 9 and t.span == 14


def test_computation_bound_shows_the_last_bucket_only():
    t = step_timeline(THREE, lambda size: size / 4, cap=4, first=4)
    assert rows(t, TRANSFER) == [(0, 5, 6), (1, 7, 8), (2, 9, 10)]
    assert t.exposed[0] == 1 and t.span == 10


def test_computing_beside_an_all_reduce_is_slower():
    """s = 2: beside an all_reduce of 3 s a block does 1.5 of its 2 s of work, and the rest at full pace."""
    t = step_timeline(THREE, lambda size: 3 * size / 4, cap=4, first=4, slow_down=2.0)
    assert rows(t, BACKWARD) == [(2, 3, 5), (1, 5, 8.5), (0, 8.5, 12)]
    assert rows(t, TRANSFER) == [(0, 5, 8), (1, 8.5, 11.5), (2, 12, 15)]


def test_one_bucket_hides_nothing():
    t = step_timeline(THREE, lambda size: 3 * size / 4, cap=100, first=100)
    assert t.coverage == 0 and t.span == 9 + 9


# ---- the recurrence equals the events


@st.composite
def steps(draw):
    seconds = st.floats(0.05, 5)
    gradients = st.lists(st.integers(1, 50), min_size=0, max_size=4).map(tuple)
    blocks = draw(st.lists(st.builds(Block, seconds, seconds, gradients), min_size=1, max_size=10))
    blocks.append(Block(0.0, 0.0, (draw(st.integers(1, 50)),)))
    cap, first = draw(st.integers(1, 200)), draw(st.integers(1, 50))
    latency, per_byte = draw(st.floats(0, 2)), draw(st.floats(0, 0.2))
    slow_down = draw(st.sampled_from([1.0, 1.1, 1.3, 2.0]))
    return blocks, lambda size: latency + per_byte * np.asarray(size), cap, first, slow_down


@given(steps())
@settings(max_examples=200)
def test_the_recurrence_is_the_event_by_event_step(step):
    assert step_seconds(*step) == pytest.approx(step_timeline(*step).span, rel=1e-9)


@given(steps())
@settings(max_examples=100)
def test_what_every_timeline_obeys(step):
    blocks, slow_down = step[0], step[-1]
    t = step_timeline(*step)
    sent, back = rows(t, TRANSFER), rows(t, BACKWARD)
    assert [item for item, *_ in sent] == list(range(len(sent)))
    for (_, _, stop), (_, start, _) in pairwise(sent):
        assert stop <= start + 1e-9  # one communication stream
    for (_, _, stop), (_, start, _) in pairwise(back):
        assert stop <= start + 1e-9  # one thing computed at a time
    compute = sum(block.forward + block.backward for block in blocks)
    assert compute - 1e-9 <= t.busy[0] <= compute * slow_down + 1e-9
    assert t.span == pytest.approx(t.busy[0] + t.exposed[0], rel=1e-9)
    assert 0 <= t.exposed[0] <= t.communication[0] + 1e-9
    # Slowing costs at most the hidden time itself, and never more than not overlapping at all.
    assert t.busy[0] - compute == pytest.approx(t.hidden[0] * (1 - 1 / slow_down), rel=1e-6, abs=1e-9)
    assert t.span <= compute + t.communication[0] + 1e-9


def test_many_sizes_and_links_at_once_are_each_alone():
    caps, n = np.array([1 * MiB, 25 * MiB, 400 * MiB]), np.array([8, 64])
    blocks = transformer_blocks(model("llama2-7b"), 2, 250e12)
    link = Link(5e-6, 25e9)

    def ring(ranks):
        return lambda size: collective_cost("all_reduce", "ring", size, ranks, link).seconds

    together = step_seconds(blocks, ring(n[:, None]), caps, slow_down=1.2)
    assert together.shape == (2, 3)
    for i, ranks in enumerate(n):
        for j, cap in enumerate(caps):
            alone = step_seconds(blocks, ring(ranks), cap, slow_down=1.2)
            assert together[i, j] == pytest.approx(alone, rel=1e-12)


def test_backward_seconds_by_hand():
    assert backward_seconds([2, 2, 2], [3, 3, 3]) == 2 + 9
    assert backward_seconds([2, 2, 2], [1, 1, 1]) == 6 + 1
    # s = 2, wire busy for 1 s more: the block does half a second of work in it, 1.5 s after it.
    assert backward_seconds([2, 2], [1, 0], slow_down=2.0) == 2 + 1 + 1.5


# ---- the best size


def test_the_optimum_grows_with_the_ranks_where_latency_counts():
    """Claim 3.1-j: a wire that is always busy pays its latency once for each bucket."""
    blocks, link = transformer_blocks(model("llama2-7b"), 1, 250e12), Link(5e-6, 25e9)
    n = np.array([8, 64, 512])[:, None]
    found = best_bucket(blocks, lambda size: collective_cost("all_reduce", "ring", size, n, link).seconds)
    assert found.best.shape == (3,) and np.all(np.diff(found.best) >= 0) and found.best[2] > 2 * found.best[0]
    assert np.all((found.low <= found.best) & (found.best <= found.high))
    assert found.seconds.shape == (3, found.caps.size)
    shortest = found.seconds.min(axis=1)
    at_best = step_seconds(
        blocks,
        lambda size: collective_cost("all_reduce", "ring", size, 512, link).seconds,
        found.best[2],
    )
    assert at_best == pytest.approx(shortest[2], rel=1e-12)


def test_both_ends_are_worse_than_the_optimum():
    blocks, link = transformer_blocks(model("llama2-7b"), 2, 250e12), Link(5e-6, 25e9)
    found = best_bucket(
        blocks, lambda size: collective_cost("all_reduce", "ring", size, 64, link).seconds, first=None
    )
    assert found.seconds[0] > 1.02 * found.seconds.min() and found.seconds[-1] > 1.02 * found.seconds.min()


def test_a_wire_without_latency_leaves_nothing_to_tune_below():
    found = best_bucket(THREE, lambda size: np.asarray(size) / 4, caps=np.array([1.0, 2.0, 4.0]), first=4)
    assert (found.low, found.high) == (1.0, 4.0)


# ---- a Transformer as blocks


@pytest.mark.parametrize("name", ["gpt3-13b", "llama2-7b", "llama3.1-8b", "bloom-176b", "mixtral-8x7b"])
def test_blocks_hold_every_parameter_and_every_flop_once(name):
    one = model(name)
    blocks = transformer_blocks(one, batch=2, flops_per_second=1e12, gradient_bytes=4)
    assert sum(sum(block.gradients) for block in blocks) == 4 * one.parameters
    seconds = sum(block.forward + block.backward for block in blocks)
    assert seconds == pytest.approx(one.model_flops(2) / 1e12)
    assert len(blocks) == 2 * one.layers + 2


def test_a_tied_head_leaves_its_gradient_to_the_embedding():
    shape = dict(layers=2, hidden=8, heads=2, vocabulary=100, sequence=16, qkv_bias=True, bias=False)
    tied, own = (Transformer("x", tied=tied, qk_norm=True, **shape) for tied in (True, False))
    assert 2 * 800 not in transformer_blocks(tied, 1, 1e9)[-1].gradients
    assert 2 * 800 in transformer_blocks(own, 1, 1e9)[-1].gradients
    for one in (tied, own):
        assert sum(sum(b.gradients) for b in transformer_blocks(one, 1, 1e9)) == 2 * one.parameters


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: Block(-1, 2, (4,)), "block's forward is -1"),
        (lambda: Block(1, float("inf"), (4,)), "block's backward is inf"),
        (lambda: step_timeline([], lambda size: size), "no block"),
        (lambda: step_timeline([Block(1, 0, (4,))], lambda size: size), "no block"),
        (lambda: step_timeline(THREE, lambda size: size, slow_down=0.9), "slow-down is 0.9"),
        (lambda: step_seconds(THREE, lambda size: size, caps=0), "cap is 0"),
        (lambda: transformer_blocks(model("llama2-7b"), 0, 1e12), "the batch is 0"),
    ],
)
def test_refused(call, words):
    with pytest.raises(InputRefused, match=words):
        call()
