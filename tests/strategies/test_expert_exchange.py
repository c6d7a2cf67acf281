"""The uneven AllToAll: equal to labkit's where it is even, and gated by the fullest port where it is not."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from labkit.collectives import collective_cost
from labkit.errors import InputRefused
from labkit.planner.traffic import Workload, expert_parallel
from labkit.spec import Cluster, Gpu, Link
from labkit.strategies.expert_exchange import (
    exchange_seconds,
    layer_seconds,
    leaving_share,
    row_matrix,
    token_matrix,
)
from labkit.strategies.experts import drop_late, place_experts, popularity, route, tokens_per_rank

LINK = Link(5e-6, 50e9)


def nodes_of(gpus=8, ports=8, nodes=4):
    gpu = Gpu("card", 80e9, {"bf16": 1e15}, 0.5)
    return Cluster("nodes", gpu, nodes, gpus, Link(2e-6, 400e9), Link(8e-6, 50e9), ports)


# ---- time


@pytest.mark.parametrize("n", [1, 2, 3, 8, 13, 64])
def test_an_even_exchange_costs_what_the_pairwise_all_to_all_does(n):
    block = 3e6
    even = collective_cost("all_to_all", "pairwise", n * block, n, LINK).seconds
    assert exchange_seconds(np.full((n, n), block), LINK) == even


@pytest.mark.parametrize("ports", [1, 2, 8])
@pytest.mark.parametrize("n", [1, 2, 8, 12, 16, 24, 32])
def test_it_does_so_over_nodes_as_well(n, ports):
    block = 3e6
    even = collective_cost("all_to_all", "pairwise", n * block, n, nodes_of(ports=ports)).seconds
    assert exchange_seconds(np.full((n, n), block), nodes_of(ports=ports)) == even


def test_the_fullest_rank_sets_the_time():
    # rank 2 receives 4 + 5 GB, rank 0 sends 1 + 4 GB: 9 GB at 50 GB/s, two rounds of latency
    sent = np.array([[9, 1, 4], [2, 9, 5], [0, 1, 9]]) * 1e9
    assert exchange_seconds(sent, LINK) == pytest.approx(2 * 5e-6 + 9 / 50, rel=1e-12)
    assert exchange_seconds(sent.T, LINK) == pytest.approx(2 * 5e-6 + 9 / 50, rel=1e-12)


def test_across_nodes_the_fullest_port_sets_it():
    # 2 nodes of 2 GPUs with one port each. Port of node 0 sends 1 + 2 + 3 + 4 = 10 GB, node 1's 6 GB;
    # inside, rank 3 sends 8 GB to rank 2. One round inside, two across.
    sent = np.array([[0, 1, 1, 2], [1, 0, 3, 4], [3, 0, 0, 1], [1, 2, 8, 0]]) * 1e9
    seconds = exchange_seconds(sent, nodes_of(gpus=2, ports=1, nodes=2))
    assert seconds == pytest.approx(2e-6 + 8 / 400 + 2 * 8e-6 + 10 / 50, rel=1e-12)


def test_nothing_to_send_costs_the_rounds_alone():
    assert exchange_seconds(np.zeros((8, 8)), LINK) == pytest.approx(7 * 5e-6)
    assert exchange_seconds(1e9 * np.eye(8), LINK) == pytest.approx(7 * 5e-6)


MATRICES = arrays(float, (6, 6), elements=st.floats(0, 1e9))


@given(MATRICES, st.permutations(range(6)))
def test_never_faster_than_even_and_whatever_the_ranks_are_called(sent, order):
    np.fill_diagonal(sent, 0)
    np.fill_diagonal(sent, sent.sum() / 30)  # as much as stays at home of an even load
    even = exchange_seconds(np.full((6, 6), sent.sum() / 36), LINK)
    assert exchange_seconds(sent, LINK) >= even * (1 - 1e-9)
    assert exchange_seconds(sent[np.ix_(order, order)], LINK) == pytest.approx(exchange_seconds(sent, LINK))
    assert exchange_seconds(sent.T, LINK) == pytest.approx(exchange_seconds(sent, LINK), rel=1e-12)


@given(arrays(float, (3, 4, 4), elements=st.floats(0, 1e9)))
def test_many_matrices_at_once(sent):
    for machine in (LINK, nodes_of(gpus=2, ports=1)):
        assert exchange_seconds(sent, machine).tolist() == [exchange_seconds(one, machine) for one in sent]


# ---- bytes


@pytest.mark.parametrize(("nodes", "share"), [(1, 0), (2, 1 / 2), (3, 2 / 3), (4, 3 / 4)])
def test_what_leaves_the_node_jumps_at_the_second(nodes, share):
    """Case E5."""
    assert leaving_share(np.ones((8 * nodes, 8 * nodes)), 8) == pytest.approx(share, abs=1e-15)


def test_rows_are_counted_from_source_to_destination():
    routing = route(popularity(8, 1), ranks=4, tokens=30, top_k=2)
    seats = place_experts(8, 4, "round_robin")
    by_hand = np.zeros((4, 4), dtype=int)
    for rank in range(4):
        for expert in routing.chosen[rank].ravel():
            by_hand[rank, expert % 4] += 1
    assert token_matrix(routing, seats).tolist() == by_hand.tolist()
    assert token_matrix(routing, seats).sum(axis=1).tolist() == [60] * 4
    load = tokens_per_rank(routing.demand, seats, 4)
    assert token_matrix(routing, seats).sum(axis=0).tolist() == load.tolist()


def test_a_capacity_sends_whole_buffers_whatever_is_in_them():
    routing = drop_late(route(popularity(8, 2), ranks=4, tokens=32, top_k=2), 1.5)
    seats = place_experts(8, 4)
    rows = row_matrix(routing, seats)
    assert rows.tolist() == [[24] * 4] * 4  # 1.5 x 2 x 32 / 8 = 12 rows for each of two experts
    kept = token_matrix(routing, seats)
    assert np.all(kept <= rows) and 1 - kept.sum() / rows.sum() == pytest.approx(routing.padding)
    free = drop_late(routing, None)
    assert row_matrix(free, seats).tolist() == token_matrix(free, seats).tolist()


@pytest.mark.parametrize("factor", [1.0, 1.25, 2.0])
@pytest.mark.parametrize(("ranks", "top_k"), [(4, 1), (8, 2)])
def test_buffers_send_what_the_bill_of_the_planner_says(ranks, top_k, factor):
    hidden, tokens, layers = 512, 256, 3
    work = Workload(1e9, layers, hidden, sequence=tokens)
    (row,) = expert_parallel(work, ranks, top_k, capacity=factor)
    routing = drop_late(route(popularity(16, 1), ranks, tokens, top_k), factor)
    sent = row_matrix(routing, place_experts(16, ranks)) * hidden * 2.0
    leaves = sent.sum(axis=1) - sent.diagonal()
    assert 4 * layers * leaves == pytest.approx([row.bytes_per_rank] * ranks, rel=1e-12)
    exchange, _ = layer_seconds(sent, 1.0, 0.0, 1.0, LINK)
    assert layers * exchange == pytest.approx(row.seconds_on(LINK), rel=1e-12)


def test_a_layer_waits_for_the_fullest_rank_in_both_parts():
    rows = np.array([[10, 30], [10, 50]])  # rank 1 works on 80 rows and receives 30
    exchange, compute = layer_seconds(rows, 1e6, 1e9, 1e12, Link(0.0, 1e9))
    assert exchange == pytest.approx(4 * 30e6 / 1e9) and compute == pytest.approx(3 * 80 * 1e9 / 1e12)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: exchange_seconds(np.ones((2, 3)), LINK), r"square matrix .* \(2, 3\)"),
        (lambda: exchange_seconds(np.ones(3), LINK), "square matrix"),
        (lambda: exchange_seconds([[0, -1], [0, 0]], LINK), "from 0 up"),
        (lambda: exchange_seconds([[0, np.nan], [0, 0]], LINK), "from 0 up"),
        (lambda: exchange_seconds(np.ones((64, 64)), nodes_of()), "64 ranks do not fit"),
        (lambda: leaving_share(np.zeros((2, 2))), "nothing is sent"),
        (lambda: leaving_share(np.ones((2, 2)), 0), "fast-link domain"),
    ],
)
def test_refused(call, words):
    with pytest.raises(InputRefused, match=words):
        call()
