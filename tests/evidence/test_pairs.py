"""Slow nodes and links from the bandwidth of pairs: known faults, found with few measurements."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labkit.errors import InputRefused
from labkit.evidence.pairs import slow_pairs

GB = 1e9


def names(n):
    return [f"node{i}" for i in range(n)]


def cluster(nodes, slow_nodes=(), slow_links=(), fast=80 * GB, slow=40 * GB):
    """What a measurement of each pair would say."""
    slow_links = {frozenset(pair) for pair in slow_links}

    def rate(a, b):
        return slow if {a, b} & set(slow_nodes) or frozenset((a, b)) in slow_links else fast

    return rate


def hunt(nodes, rate, **more):
    """Measures what the report asks for until it asks for nothing; the report, and how many measurements."""
    measured, rounds = {}, 0
    report = slow_pairs(nodes, measured, **more)
    while report.next_pairs:
        used = [node for pair in report.next_pairs for node in pair]
        assert len(used) == len(set(used)), "pairs of one round share a node"
        assert not {frozenset(pair) for pair in report.next_pairs} & {frozenset(pair) for pair in measured}
        measured |= {pair: rate(*pair) for pair in report.next_pairs}
        report, rounds = slow_pairs(nodes, measured, **more), rounds + 1
        assert rounds < 50
    return report, len(measured), rounds


def test_no_fault_takes_a_pair_less_than_there_are_nodes():
    nodes = names(16)
    report, measurements, rounds = hunt(nodes, cluster(nodes))
    assert (measurements, rounds) == (15, 4) and not report.slow_nodes and not report.slow_links
    assert repr(report).endswith("no pair is slow")


@pytest.mark.parametrize("n", [4, 7, 16, 33])
def test_one_slow_node_is_found_with_few_pairs(n):
    nodes = names(n)
    for bad in nodes:
        report, measurements, _ = hunt(nodes, cluster(nodes, slow_nodes=[bad]))
        assert report.slow_nodes == (bad,) and not report.slow_links and not report.suspects
        assert measurements <= n + 2


def test_two_groups_of_nodes_half_of_them_slow():
    """Case E13: same hardware list, 80 GB/s among some nodes and 40 wherever one of the others takes part."""
    nodes = names(8)
    report, _, _ = hunt(nodes, cluster(nodes, slow_nodes=nodes[4:]))
    assert report.slow_nodes == tuple(nodes[4:]) and not report.suspects


def test_two_groups_of_nodes_slow_towards_each_other():
    """Every node is sound; what lies between the groups is not."""
    nodes = names(8)
    rate = cluster(nodes, slow_links=[(a, b) for a in nodes[:4] for b in nodes[4:]])
    found, measurements, _ = hunt(nodes, rate)
    assert found.groups == (tuple(nodes[:4]), tuple(nodes[4:])) and measurements <= 10
    every = {(a, b): rate(a, b) for i, a in enumerate(nodes) for b in nodes[:i]}
    report = slow_pairs(nodes, every)
    assert report.groups == (tuple(nodes[:4]), tuple(nodes[4:])) and not report.slow_nodes
    assert len(report.slow_links) == 16
    assert "slow between groups: node0, node1, node2, node3 | node4" in repr(report)


def test_a_single_slow_link_convicts_no_node():
    nodes = names(6)
    report, _, _ = hunt(nodes, cluster(nodes, slow_links=[("node0", "node1")]))
    assert report.slow_links == (("node0", "node1"),) and not report.slow_nodes and not report.groups
    assert "slow link: node0 - node1, both sound towards others" in repr(report)


def test_a_slow_pair_alone_is_bisected_with_sound_nodes():
    """One slow pair says nothing of which of the two it is."""
    report = slow_pairs(["a", "b", "c", "d"], {("a", "b"): 80 * GB, ("c", "d"): 40 * GB})
    assert report.suspects == ("c", "d") and not report.slow_nodes
    assert {frozenset(pair) for pair in report.next_pairs} == {frozenset("ac"), frozenset("bd")}


def test_all_alike_is_told_apart_by_the_expected_bandwidth_only():
    nodes = names(4)
    slow = cluster(nodes, fast=40 * GB)
    assert hunt(nodes, slow)[0].slow_nodes == ()
    report = slow_pairs(nodes, {("node0", "node1"): 40 * GB, ("node2", "node3"): 40 * GB}, expected=80 * GB)
    assert report.suspects == tuple(nodes) and len(report.next_pairs) == 2
    end, _, _ = hunt(nodes, slow, expected=80 * GB)
    assert end.suspects == tuple(nodes) and "suspect" in repr(end)


def test_a_pair_measured_twice_counts_as_its_better_measurement():
    twice = {("a", "b"): 40 * GB, ("b", "a"): 80 * GB}
    assert not slow_pairs(["a", "b"], twice).suspects


@settings(max_examples=60, deadline=None)
@given(st.integers(4, 24), st.data())
def test_slow_nodes_are_found_wherever_most_are_sound(n, data):
    nodes = names(n)
    bad = data.draw(st.lists(st.sampled_from(nodes), unique=True, max_size=(n - 1) // 2 - 1))
    report, measurements, _ = hunt(nodes, cluster(nodes, slow_nodes=bad))
    first = zip(nodes[0::2], nodes[1::2], strict=False)
    if any(a not in bad and b not in bad for a, b in first):
        assert set(report.slow_nodes) == set(bad) and not report.slow_links and not report.suspects
        assert measurements <= 2 * n
    else:  # the fastest pair is a slow one: only an expected bandwidth tells
        assert not report.slow_nodes or set(report.slow_nodes) == set(bad)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.booleans(), min_size=2, max_size=12).filter(lambda side: len(set(side)) == 2))
def test_groups_are_found_where_neighbours_stand_beside_each_other(side):
    nodes = names(2 * len(side))
    here = [node for i, node in enumerate(nodes) if side[i // 2]]
    there = [node for node in nodes if node not in here]
    rate = cluster(nodes, slow_links=[(a, b) for a in here for b in there])
    report, measurements, _ = hunt(nodes, rate)
    assert set(map(frozenset, report.groups)) == {frozenset(here), frozenset(there)}
    assert not report.slow_nodes and not report.suspects and measurements <= 3 * len(nodes)


def test_a_slow_node_beside_two_groups_is_slow_towards_both():
    nodes = names(9)
    groups = nodes[:4], nodes[4:8]
    rate = cluster(nodes, slow_nodes=nodes[8:], slow_links=[(a, b) for a in groups[0] for b in groups[1]])
    report, _, _ = hunt(nodes, rate)
    assert report.slow_nodes == ("node8",) and report.groups == tuple(map(tuple, groups))


@settings(max_examples=60, deadline=None)
@given(st.integers(4, 24), st.data())
def test_with_an_expected_bandwidth_two_sound_nodes_are_enough(n, data):
    nodes = names(n)
    bad = data.draw(st.lists(st.sampled_from(nodes), unique=True, max_size=n - 3))
    report, _, _ = hunt(nodes, cluster(nodes, slow_nodes=bad), expected=80 * GB)
    assert set(report.slow_nodes) == set(bad) and not report.suspects and not report.slow_links


@pytest.mark.parametrize(
    ("nodes", "measured", "more", "says"),
    [
        ("ab", {}, {}, "2 to 4,096 nodes"),
        (["a"], {}, {}, "2 to 4,096 nodes"),
        (["a", 2], {}, {}, "name of a node is 2"),
        (["a", "a"], {}, {}, "'a' is named twice"),
        (["a", "b"], [("a", "b", 1)], {}, "of type list"),
        (["a", "b"], {("a", "c"): 1.0}, {}, "'a' and 'c'; give two of the nodes"),
        (["a", "b"], {("a", "a"): 1.0}, {}, "give two of the nodes"),
        (["a", "b"], {"ab": 1.0}, {}, "give two of the nodes"),
        (["a", "b"], {("a", "b"): 0}, {}, "bandwidth between a and b is 0"),
        (["a", "b"], {("a", "b"): "80"}, {}, "bandwidth between a and b is '80'"),
        (["a", "b"], {}, {"share": 2}, "use 0 to 1"),
        (["a", "b"], {}, {"expected": -1}, "expected bandwidth"),
    ],
)
def test_refused(nodes, measured, more, says):
    with pytest.raises(InputRefused, match=says):
        slow_pairs(nodes, measured, **more)
