"""Who sits where, how rings run, what crosses."""

from dataclasses import replace

import numpy as np
import pytest

from labkit.collectives import (
    bit_reversed,
    collective_cost,
    crossing_share,
    flat_against_hierarchical,
    placed,
    prove,
    ring_orders,
    trace,
)
from labkit.collectives.place import place
from labkit.errors import InputRefused
from tests.collectives.collective_cases import machine

TWO_BY_EIGHT = machine(2, 8, 8)


@pytest.mark.parametrize(
    ("op", "algorithm", "share"),
    [
        ("all_reduce", "ring", 0.125),
        ("all_reduce", "recursive_doubling", 0.25),
        ("all_reduce", "hierarchical", 1 / 15),
        ("all_reduce", "halving_doubling", 1 / 15),
        ("all_to_all", "pairwise", 8 / 15),
        ("all_to_all", "linear", 8 / 15),
    ],
)
def test_share_that_crosses_as_3_2_g_counts_it(op, algorithm, share):
    assert crossing_share(trace(op, algorithm, 16, TWO_BY_EIGHT), TWO_BY_EIGHT) == pytest.approx(share)


def test_the_order_of_halving_decides_its_share():
    farthest_first = placed(trace("all_reduce", "halving_doubling", 16), bit_reversed(16))
    prove(farthest_first)
    assert crossing_share(farthest_first, TWO_BY_EIGHT) == pytest.approx(8 / 15)


def test_alternating_ranks_make_every_hop_of_a_ring_cross():
    interleaved = np.arange(16).reshape(2, 8).T.ravel()
    assert crossing_share(placed(trace("all_reduce", "ring", 16), interleaved), TWO_BY_EIGHT) == 1


@pytest.mark.parametrize("cluster", [machine(2, 4, 4), machine(3, 4, 2), machine(2, 8, 3), machine(4, 6, 4)])
def test_each_port_serves_one_ring_in_and_one_out(cluster):
    orders = ring_orders(cluster.n_gpus, cluster)
    assert len(orders) == cluster.nics_per_node
    leaving, entering = [], []
    for order in map(np.array, orders):
        assert sorted(order) == list(range(cluster.n_gpus))
        domain, port = place(cluster).where(order)
        crosses = domain != np.roll(domain, -1)
        assert crosses.sum() == cluster.nodes
        leaving += port[crosses].tolist()
        entering += np.roll(port, -1)[crosses].tolist()
    assert len(set(leaving)) == len(leaving)
    assert len(set(entering)) == len(entering)


def test_one_ring_against_one_per_port_against_two_levels():
    costs = flat_against_hierarchical("all_reduce", 1e9, 16, TWO_BY_EIGHT)
    assert costs["one ring"].seconds > 7 * costs["one ring per port"].seconds
    assert costs["hierarchical"] == collective_cost("all_reduce", "hierarchical", 1e9, 16, TWO_BY_EIGHT)
    with pytest.raises(InputRefused, match="no ring over all ranks"):
        flat_against_hierarchical("broadcast", 1e9, 16, TWO_BY_EIGHT)


def test_more_ports_than_gpus_and_less_than_one():
    _, port = place(machine(1, 4, 8)).where(np.arange(4))
    assert port.tolist() == [0, 1, 2, 3]
    _, port = place(machine(1, 4, 0.5)).where(np.arange(4))
    assert port.tolist() == [0, 0, 0, 0]


def test_an_order_names_each_rank_once():
    with pytest.raises(InputRefused, match=r"name each of 0 \.\. 3 once"):
        placed(trace("all_reduce", "ring", 4), [0, 1, 2, 2])
    with pytest.raises(InputRefused, match="power of two"):
        bit_reversed(6)
    with pytest.raises(InputRefused, match="at least 1, not 0"):
        bit_reversed(0)
    assert bit_reversed(1).tolist() == [0]


def test_a_group_has_its_share_of_the_ports_whatever_the_domain():
    rack = replace(machine(36, 4, 4), domain=72)
    group = rack.group(18)
    assert (group.nodes, group.gpus_per_node, group.domain, group.nics_per_node) == (2, 18, 18, 18)
    with pytest.raises(InputRefused, match=r"a fast-link domain of 72 GPUs is 73; .* from 1 to 72"):
        rack.group(73)
