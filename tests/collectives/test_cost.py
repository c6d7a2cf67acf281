"""Known figures, and what is refused."""

import numpy as np
import pytest

from labkit.collectives import ALGORITHMS, busiest_bytes, collective_cost, crossover, volume
from labkit.errors import InputRefused
from labkit.spec import Link
from tests.collectives.collective_cases import LINK, machine


def seconds(op, algorithm, size, n, where=LINK, segments=None):
    return collective_cost(op, algorithm, size, n, where, segments).seconds


def test_the_7b_example_of_2_3_a():
    cost = collective_cost("all_reduce", "ring", 14e9, 8, Link(0.0, 50e9))
    assert cost.bytes_per_rank == 24.5e9
    assert cost.seconds == pytest.approx(0.49)


def test_broadcast_of_64_ranks_as_2_1_f_has_it():
    assert seconds("broadcast", "tree", 10e3, 64, segments=1) == pytest.approx(0.03e-3, rel=0.05)
    assert seconds("broadcast", "ring", 10e3, 64, segments=1) == pytest.approx(0.33e-3, rel=0.01)
    assert seconds("broadcast", "tree", 1e9, 64, segments=1) == pytest.approx(0.120, rel=0.001)
    assert seconds("broadcast", "ring", 1e9, 64) == pytest.approx(0.025, rel=0.02)
    both = seconds("scatter", "tree", 1e9, 64) + seconds("all_gather", "ring", 1e9, 64)
    assert both == pytest.approx(0.040, rel=0.01)


def test_latency_terms_of_2_2_j():
    assert [seconds("all_reduce", "ring", 0, n, Link(10e-6, 50e9)) for n in (8, 64)] == pytest.approx(
        [140e-6, 1260e-6]
    )
    assert seconds("all_reduce", "ring", 256e3, 8, Link(0, 50e9)) == pytest.approx(9e-6, rel=0.01)
    assert seconds("all_reduce", "ring", 256e3, 64, Link(0, 50e9)) == pytest.approx(10e-6, rel=0.01)


def test_a_port_per_gpu_gives_four_rings_their_hundred_gigabytes():
    two_by_four = machine(2, 4, 4, inter=Link(5e-6, 25e9))
    size = 8 * 2**30
    busbw = size * 2 * 7 / 8 / seconds("all_reduce", "ring", size, 8, two_by_four)
    assert busbw == pytest.approx(100e9, rel=0.001)
    alone = (
        size * 2 * 7 / 8 / seconds("all_reduce", "ring", size, 8, machine(2, 4, 1, inter=Link(5e-6, 25e9)))
    )
    assert alone == pytest.approx(25e9, rel=0.001)


def test_groups_that_share_a_node_share_its_ports():
    node = machine(4, 8, 8, inter=Link(0.0, 25e9))
    gradient = 12.85e9 * 2 / 8
    assert seconds("all_reduce", "ring", gradient, 4, node.group(1)) == pytest.approx(0.193, abs=5e-4)
    assert seconds("all_reduce", "ring", gradient, 4, Link(0.0, node.node_bandwidth)) == pytest.approx(
        0.024, abs=5e-4
    )


def test_coefficient_of_the_ring_tends_to_two():
    assert volume("all_reduce", "ring", 1.0, 16384).busiest == pytest.approx(2, abs=2e-4)


@pytest.mark.parametrize("op", [op for op in ALGORITHMS if op != "barrier"])
def test_busiest_bytes_are_those_of_the_volume(op):
    size, n = np.array([[1e3], [7e6]]), np.array([1, 2, 8, 13])
    for algorithm in ALGORITHMS[op]:
        if algorithm != "hierarchical":  # which needs a cluster
            assert np.array_equal(
                busiest_bytes(op, algorithm, size, n), volume(op, algorithm, size, n).busiest
            )
    assert busiest_bytes(op, ALGORITHMS[op][0], 1e6, 1) == 0


def test_rooted_operations_load_their_root():
    assert volume("reduce", "linear", 1.0, 8) == (0, 7 / 8, 7)
    assert volume("scatter", "linear", 1.0, 8) == (0, 7 / 64, 7 / 8)


@pytest.mark.parametrize(
    ("algorithm", "expected"),
    [("recursive_doubling", [8.8, 29.8, 145]), ("tree", [1.88, 11.4, 62.8])],
)
def test_crossovers_with_the_ring_of_2_2_i(algorithm, expected):
    found = crossover("all_reduce", algorithm, "ring", np.array([8, 64, 512]), LINK, segments=1)
    assert found / (LINK.alpha * LINK.bandwidth) == pytest.approx(expected, rel=0.005)


@pytest.mark.parametrize("segments", [1, None])
@pytest.mark.parametrize("where", [LINK, machine(2, 8, 4)])
@pytest.mark.parametrize(
    ("op", "first", "second"),
    [
        ("all_reduce", "recursive_doubling", "ring"),
        ("all_reduce", "tree", "halving_doubling"),
        ("broadcast", "tree", "ring"),
        ("broadcast", "tree", (("scatter", "tree"), ("all_gather", "ring"))),
    ],
)
def test_both_cost_the_same_at_a_crossover_and_change_places_there(op, first, second, where, segments):
    def difference(size):
        pairs = [[(op, way)] if isinstance(way, str) else way for way in (first, second)]
        one, other = (sum(seconds(*pair, size, 16, where, segments) for pair in way) for way in pairs)
        return (one - other) / one

    size = crossover(op, first, second, 16, where, segments)
    if size == np.inf:
        assert difference(1e3) <= 0 and difference(1e15) <= 1e-12
    elif size == 0:
        assert difference(1e3) >= 0 and difference(1e15) >= 0
    else:
        assert difference(size) == pytest.approx(0, abs=1e-9)
        assert difference(size / 1.5) < 0 < difference(size * 1.5)


def test_where_nothing_crosses():
    assert crossover("all_reduce", "linear", "tree", 8, LINK, 1) == 0
    assert crossover("all_reduce", "tree", "linear", 8, LINK, 1) == np.inf
    assert np.isnan(crossover("all_reduce", "ring", "ring", 8, LINK, 1))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("sum", "ring", 1, 2, LINK), "all_reduce"),
        (("all_to_all", "ring", 1, 2, LINK), "linear, pairwise, hierarchical"),
        (("all_reduce", "ring", 1, 0, LINK), "at least 1, not 0"),
        (("all_reduce", "ring", 1, 2.5, LINK), "whole number of at least 1, not 2.5"),
        (("all_reduce", "ring", 1, float("nan"), LINK), "whole number"),
        (("all_reduce", "ring", -1, 2, LINK), "message size"),
        (("all_reduce", "ring", 1, 48, machine(4, 8, 8)), "cluster has 32"),
        (("broadcast", "ring", 1, 4, LINK, 0), "segments"),
        (("all_reduce", "hierarchical", 1, 4, LINK), "needs a Cluster"),
        (("all_reduce", "hierarchical", 1, 12, machine(4, 8, 8)), "use 8 or 16"),
        (("all_reduce", "ring", 1, 4, "h100"), "neither a Link nor a Cluster"),
    ],
)
def test_bad_input_is_refused_in_one_sentence(arguments, words):
    with pytest.raises(InputRefused, match=words) as refusal:
        collective_cost(*arguments)
    assert "\n" not in str(refusal.value)


def test_every_operation_of_the_house_is_there():
    assert list(ALGORITHMS) == [
        *("all_reduce", "reduce_scatter", "all_gather", "all_to_all", "broadcast"),
        *("reduce", "scatter", "gather", "send_recv", "barrier"),
    ]
