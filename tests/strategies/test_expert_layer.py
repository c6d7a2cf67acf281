"""Tokens really moved to their experts and back give what one rank with all experts gives."""

import numpy as np
import pytest

from labkit.collectives import run, trace
from labkit.strategies.expert_exchange import EXCHANGES, token_matrix
from labkit.strategies.expert_layer import split, unsplit
from labkit.strategies.experts import PLACEMENTS, drop_late, place_experts, popularity, route

HIDDEN, FFN, TOKENS, EXPERTS = 6, 10, 20, 12


def numbers(ranks, seed=0):
    """x, gradient, up, down."""
    rng = np.random.default_rng(seed)
    shapes = (ranks, TOKENS, HIDDEN), (ranks, TOKENS, HIDDEN), (EXPERTS, HIDDEN, FFN), (EXPERTS, FFN, HIDDEN)
    return [rng.standard_normal(shape) for shape in shapes]


@pytest.mark.parametrize("factor", [None, 1.0])
@pytest.mark.parametrize("how", PLACEMENTS)
@pytest.mark.parametrize(("ranks", "top_k", "skew"), [(1, 1, 0), (4, 2, 1), (6, 3, 2), (12, 12, 0.5)])
def test_split_equals_unsplit_forward_and_backward(ranks, top_k, skew, how, factor):
    routing = drop_late(route(popularity(EXPERTS, skew), ranks, TOKENS, top_k), factor)
    seats = place_experts(EXPERTS, ranks, how, routing.demand)
    whole, parts = unsplit(*numbers(ranks), routing), split(*numbers(ranks), routing, seats)
    for name in ("output", "input_gradient", "gate_gradient", "up_gradient", "down_gradient"):
        assert np.allclose(getattr(parts, name), getattr(whole, name), rtol=1e-12, atol=1e-12), name
    there = token_matrix(routing, seats)
    assert len(parts.exchanges) == EXCHANGES
    for rows, wanted in zip(parts.exchanges, (there, there.T, there, there.T), strict=True):
        assert rows.tolist() == wanted.tolist()


def test_the_layer_is_the_sum_over_a_tokens_experts():
    x, gradient, up, down = numbers(2)
    routing = route(popularity(EXPERTS, 1), 2, TOKENS, 2)
    output = unsplit(x, gradient, up, down, routing).output
    for rank, token in np.ndindex(2, TOKENS):
        parts = zip(routing.chosen[rank, token], routing.gates[rank, token], strict=True)
        by_hand = sum(gate * (np.maximum(x[rank, token] @ up[e], 0) @ down[e]) for e, gate in parts)
        assert output[rank, token] == pytest.approx(by_hand, rel=1e-9)


def test_gradients_are_those_of_small_steps():
    x, gradient, up, down = numbers(2, seed=1)
    routing = route(popularity(EXPERTS, 1), 2, TOKENS, 2)
    layer = unsplit(x, gradient, up, down, routing)

    def loss():
        return float((unsplit(x, gradient, up, down, routing).output * gradient).sum())

    used = int(routing.chosen[0, 0, 0])
    places = (x, (1, 3, 2), layer.input_gradient), (up, (used, 2, 4), layer.up_gradient)
    places += (down, (used, 4, 1), layer.down_gradient), (routing.gates, (0, 5, 1), layer.gate_gradient)
    for array, at, wanted in places:
        kept, step = array[at], 1e-6
        array[at] = kept + step
        above = loss()
        array[at] = kept - step
        below = loss()
        array[at] = kept
        assert (above - below) / (2 * step) == pytest.approx(wanted[at], rel=1e-4, abs=1e-6)


def test_a_token_that_found_no_room_comes_out_as_zero():
    routing = drop_late(route(popularity(EXPERTS, 3), 2, TOKENS, 1), 1)
    lost = ~routing.kept.any(axis=-1)
    output = unsplit(*numbers(2), routing).output
    assert routing.passed_by > 0.3 and np.all(output[lost] == 0) and np.all(output[~lost].any(axis=-1))


def test_buffers_of_one_size_travel_by_the_collective_of_chapter_2():
    """The dispatch of padded buffers is an ordinary AllToAll: its trace brings every row to its expert."""
    ranks = 4
    x, gradient, up, down = numbers(ranks)
    routing = drop_late(route(popularity(EXPERTS, 1), ranks, TOKENS, 1), 2)
    buffers = np.zeros((ranks, EXPERTS, routing.capacity, HIDDEN))
    slot = {}
    for rank, token in np.ndindex(ranks, TOKENS):
        expert = routing.chosen[rank, token, 0]
        if routing.kept[rank, token, 0]:
            row = sum(1 for r, e, _ in slot.values() if (r, e) == (rank, expert))
            slot[rank, token] = rank, expert, row
            buffers[rank, expert, row] = x[rank, token]
    exchange = trace("all_to_all", "pairwise", ranks)
    arrived = np.array(run(exchange, buffers.reshape(ranks, -1)))
    arrived = arrived.reshape(ranks, ranks, EXPERTS // ranks, routing.capacity, HIDDEN)
    weights = [w.reshape(ranks, 1, EXPERTS // ranks, *w.shape[1:]) for w in (up, down)]
    made = np.maximum(arrived @ weights[0], 0) @ weights[1]
    home = np.array(run(exchange, made.reshape(ranks, -1))).reshape(buffers.shape)
    output = np.zeros(x.shape)
    for (rank, token), place in slot.items():
        output[rank, token] = routing.gates[rank, token, 0] * home[place]
    assert np.allclose(output, unsplit(x, gradient, up, down, routing).output, atol=1e-12)
