"""Closed forms equal what the traces count, and the traces do what they promise."""

from dataclasses import replace

import numpy as np
import pytest

from labkit.collectives import best_segments, collective_cost, prove, replay, trace, volume
from labkit.spec import Link
from tests.collectives.collective_cases import FLAT_PAIRS, LINK, PAIRS, machine, rank_counts, segment_choices

# 3x6 has domains that are no power of two; two have inter links faster than the intra link.
CLUSTERS = [
    machine(2, 2, 1),
    machine(2, 4, 2),
    machine(3, 4, 4),
    machine(2, 8, 4),
    machine(2, 8, 1),
    machine(3, 6, 4, inter=Link(1e-6, 900e9)),
    machine(2, 4, 4, inter=Link(1e-6, 900e9)),
    machine(2, 4, 0.5),
    machine(2, 4, 6),
    machine(4, 1, 1),
]


def assert_equal_to_trace(op, algorithm, n, where, segments):
    made = trace(op, algorithm, n, where, segments)
    prove(made)
    size = made.parts * 60_000
    counted = replay(made, size, where)
    cost = collective_cost(op, algorithm, size, n, where, segments)
    assert cost.steps == counted.rounds
    assert cost.seconds == pytest.approx(counted.seconds, rel=1e-9)
    assert cost.bytes_per_rank == pytest.approx(counted.busiest, rel=1e-12)
    assert volume(op, algorithm, size, n, segments, where) == pytest.approx(
        (counted.least, counted.mean, counted.busiest), rel=1e-12
    )


@pytest.mark.parametrize(("op", "algorithm"), FLAT_PAIRS)
def test_on_one_link_for_2_to_17_ranks(op, algorithm):
    for n in range(2, 18):
        for segments in segment_choices(op, algorithm):
            assert_equal_to_trace(op, algorithm, n, LINK, segments)


@pytest.mark.parametrize(("op", "algorithm"), PAIRS)
def test_link_by_link_on_clusters(op, algorithm):
    for cluster in CLUSTERS:
        for n in rank_counts(algorithm, cluster)[-5:]:
            for segments in segment_choices(op, algorithm)[:2]:
                assert_equal_to_trace(op, algorithm, n, cluster, segments)


# What a scatter passes on, or its root keeps, are single pieces: there the mean carries their rounding.
ROUNDED = {"scatter", "gather"}


@pytest.mark.parametrize(("op", "algorithm"), [pair for pair in FLAT_PAIRS if pair[0] not in ROUNDED])
@pytest.mark.parametrize("size", [7, 10, 1_000_003])
def test_mean_bytes_are_exact_for_sizes_that_n_does_not_divide(op, algorithm, size):
    for n in (2, 3, 4, 7, 8, 12, 17):
        sent = replay(trace(op, algorithm, n), size, LINK).sent.sum()
        assert volume(op, algorithm, size, n).mean * n == pytest.approx(sent, rel=1e-12)


@pytest.mark.parametrize("op", ["all_reduce", "all_gather", "reduce_scatter"])
@pytest.mark.parametrize("size", [7, 10, 1_000_003])
def test_single_ranks_of_a_ring_differ_by_two_chunk_roundings_at_most(op, size):
    for n in (2, 3, 4, 7, 8, 12, 17):
        counted = replay(trace(op, "ring", n), size, LINK)
        smooth = collective_cost(op, "ring", size, n, LINK).bytes_per_rank
        assert np.abs(counted.sent - smooth).max() <= 2
        assert np.abs(counted.received - smooth).max() <= 2


@pytest.mark.parametrize(("op", "algorithm"), FLAT_PAIRS)
def test_the_busiest_rank_differs_by_a_rounding_per_piece_at_most(op, algorithm):
    for n in (2, 3, 4, 7, 8, 12, 17):
        made = trace(op, algorithm, n)
        pieces = max(np.bincount(made.src).max(), np.bincount(made.dst).max())
        smooth = collective_cost(op, algorithm, 1_000_003, n, LINK, 1).bytes_per_rank
        assert abs(replay(made, 1_000_003, LINK).busiest - smooth) <= pieces


def test_ring_with_uneven_chunks_sends_what_the_issue_counts():
    assert sorted(replay(trace("all_reduce", "ring", 4), 10, LINK).sent) == [14, 15, 15, 16]
    seven = replay(trace("all_reduce", "ring", 8), 7, LINK).sent
    assert (seven.min(), seven.max(), seven.sum()) == (12, 13, 2 * 7 * 7)


@pytest.mark.parametrize(("op", "algorithm"), PAIRS)
def test_one_rank_costs_nothing(op, algorithm):
    cost = collective_cost(op, algorithm, 1e6, 1, machine(2, 4, 2))
    assert (cost.seconds, cost.bytes_per_rank, cost.steps) == (0, 0, 0)
    assert volume(op, algorithm, 1e6, 1, 1, machine(2, 4, 2)) == (0, 0, 0)
    prove(trace(op, algorithm, 1, machine(2, 4, 2)))
    if algorithm != "hierarchical":
        assert collective_cost(op, algorithm, np.array([0, 1e6]), 1, LINK).seconds.tolist() == [0, 0]


@pytest.mark.parametrize(("op", "algorithm"), PAIRS)
def test_arrays_agree_with_single_values_to_the_last_bit(op, algorithm):
    cluster = machine(16, 8, 4)
    n = np.array([2, 5, 8, 16, 24, 64, 128] if algorithm == "hierarchical" else [2, 5, 8, 11, 24, 64, 127])
    sizes = np.array([[1e2], [1e5], [3.3e7]])
    for segments in (None, 1):
        together = collective_cost(op, algorithm, sizes, n, cluster, segments)
        assert together.seconds.shape == together.bytes_per_rank.shape == together.steps.shape == (3, 7)
        for i, size in enumerate(sizes[:, 0].tolist()):
            for j, ranks in enumerate(n.tolist()):
                single = collective_cost(op, algorithm, size, ranks, cluster, segments)
                assert isinstance(single.seconds, float)
                assert single.seconds == together.seconds[i, j]
                assert single.bytes_per_rank == together.bytes_per_rank[i, j]


def test_links_broadcast_too():
    alpha, bandwidth = np.array([[1e-6], [5e-6]]), np.array([25e9, 50e9, 100e9])
    together = collective_cost("all_reduce", "double_tree", 1e7, 12, Link(alpha, bandwidth))
    assert together.seconds.shape == (2, 3)
    assert (
        together.seconds[1, 1]
        == collective_cost("all_reduce", "double_tree", 1e7, 12, Link(5e-6, 50e9)).seconds
    )


@pytest.mark.parametrize(
    ("op", "algorithm"),
    [("broadcast", "ring"), ("broadcast", "tree"), ("reduce", "double_tree"), ("all_reduce", "tree")],
)
@pytest.mark.parametrize(
    "where",
    [
        LINK,
        machine(6, 3, 1),
        machine(3, 4, 2, inter=Link(1e-6, 900e9)),
        machine(5, 1, 1, inter=Link(1e-6, 25e9)),
    ],
)
def test_best_number_of_segments_is_the_best_of_all(op, algorithm, where):
    every = np.arange(1, 2001)
    for n in (2, 3, 4, 5):
        for size in (1e3, 1e5, 1e6, 1e7):
            best = best_segments(op, algorithm, size, n, where)
            costs = collective_cost(op, algorithm, size, n, where, every).seconds
            assert best < every[-1], "the search in this test has to cover it"
            found = collective_cost(op, algorithm, size, n, where).seconds
            assert found == pytest.approx(costs.min(), rel=1e-12)
            assert found == pytest.approx(costs[int(best) - 1], rel=1e-12)


def test_65536_ranks_have_a_cost_everywhere():
    for op, algorithm in PAIRS:
        cost = collective_cost(op, algorithm, 1e9, 65_536, machine(8192, 8, 4))
        assert 0 < cost.seconds < 1e5
        assert cost.steps >= (1 if op == "send_recv" else 16)


@pytest.mark.parametrize(("op", "algorithm"), PAIRS)
def test_clusters_broadcast_too(op, algorithm):
    cases = [machine(2, 6, 1), machine(4, 6, 4, Link(5e-6, 50e9)), machine(3, 6, 2)]
    fields = zip(*((c.nodes, c.nics_per_node, c.inter.alpha, c.inter.bandwidth) for c in cases), strict=True)
    nodes, ports, alpha, bandwidth = map(np.array, fields)
    many = replace(cases[0], nodes=nodes, nics_per_node=ports, inter=Link(alpha, bandwidth))
    n = np.array([12, 24, 18])
    together = collective_cost(op, algorithm, 1e6, n, many).seconds
    singles = [collective_cost(op, algorithm, 1e6, int(k), c).seconds for k, c in zip(n, cases, strict=True)]
    assert together.tolist() == singles
