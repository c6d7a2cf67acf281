"""What of tensor parallel's communication hides: worked out by hand, and bounds that hold always."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labkit.errors import InputRefused
from labkit.strategies.tensor_overlap import beside_weight_gradients, half_batches, in_chunks, in_turn
from labkit.strategies.timeline import TRANSFER

SECONDS = st.floats(0.01, 100)


def link(alpha, per_tensor):
    return lambda share: alpha + share * per_tensor


@given(SECONDS, SECONDS, SECONDS, st.integers(1, 6))
def test_forward_in_turn_hides_nothing(compute, alpha, per_tensor, blocks):
    t = in_turn(compute, link(alpha, per_tensor), blocks)
    assert t.span == pytest.approx(blocks * (compute + alpha + per_tensor))
    assert t.coverage == pytest.approx(0, abs=1e-9)


@given(SECONDS, SECONDS, SECONDS, SECONDS, st.integers(1, 8), st.integers(1, 5))
def test_chunks_expose_the_longer_of_the_two_and_one_piece_of_the_other(
    before, product, alpha, whole, chunks, blocks
):
    """A pipeline of two stages: before + c pieces of the slower + one piece of the faster."""
    piece, travel = product / chunks, alpha + whole / chunks
    each = before + chunks * max(piece, travel) + min(piece, travel)
    assert in_chunks(before, product, link(alpha, whole), chunks, blocks).span == pytest.approx(blocks * each)


@given(SECONDS, SECONDS, SECONDS, st.integers(1, 6))
def test_half_batches_leave_the_ends(compute, alpha, whole, blocks):
    """2 x blocks halves on the slower stream, and one half of the faster at the end or the start."""
    half, travel = compute / 2, alpha + whole / 2
    t = half_batches(compute, link(alpha, whole), blocks)
    assert t.span == pytest.approx(2 * blocks * max(half, travel) + min(half, travel))


@given(SECONDS, SECONDS, SECONDS, st.integers(1, 6))
def test_backward_hides_as_long_as_the_weight_gradient(d_input, d_weight, whole, blocks):
    t = beside_weight_gradients(d_input, d_weight, link(0, whole), blocks)
    assert t.span == pytest.approx(blocks * (d_input + max(d_weight, whole)))
    assert t.coverage == pytest.approx(min(1, d_weight / whole), abs=1e-9)


@given(SECONDS, SECONDS, st.integers(1, 8), st.integers(1, 5))
@settings(max_examples=50)
def test_a_stream_does_one_thing_at_a_time_and_work_is_kept(product, whole, chunks, blocks):
    t = in_chunks(1.0, product, link(0.5, whole), chunks, blocks)
    for stream in (t.kind == TRANSFER, t.kind != TRANSFER):
        times = sorted(zip(t.start[stream], t.stop[stream], strict=True))
        assert all(a[1] <= b[0] + 1e-9 for a, b in pairwise(times))
    assert t.busy[0] == pytest.approx(blocks * (1 + product))
    assert t.communication[0] == pytest.approx(blocks * (chunks * 0.5 + whole))


def test_more_chunks_stop_paying_when_latency_counts():
    spans = [in_chunks(0, 1.0, link(0.1, 1.0), chunks).span for chunks in (1, 2, 4, 16)]
    assert spans[1] < spans[0] and spans[2] < spans[1] and spans[3] > spans[2]


@pytest.mark.parametrize(
    "call",
    [
        lambda: in_chunks(1, 1, link(0, 1), 0),
        lambda: half_batches(1, link(0, 1), 0),
        lambda: beside_weight_gradients(1, 1, link(0, 1), 1.5),
    ],
)
def test_refused(call):
    with pytest.raises(InputRefused, match="number of"):
        call()
