"""The factors of nccl-tests, both ways."""

import numpy as np
import pytest

from labkit.collectives import ALGORITHMS, algbw, busbw, busbw_factor, node_factor, replay, trace
from labkit.errors import InputRefused
from tests.collectives.collective_cases import machine


@pytest.mark.parametrize(
    ("op", "factor"),
    [
        ("all_reduce", 1.75),
        *[(op, 0.875) for op in ("reduce_scatter", "all_gather", "all_to_all", "gather", "scatter")],
        *[(op, 1.0) for op in ("broadcast", "reduce", "send_recv")],
    ],
)
def test_factor_of_eight_ranks(op, factor):
    assert busbw_factor(op, 8) == factor
    assert algbw(op, 8, busbw(op, 8, 28e9)) == pytest.approx(28e9)


def test_the_7b_example():
    assert busbw("all_reduce", 8, 14e9 / 0.49) == pytest.approx(50e9)


def test_arrays_and_one_rank():
    assert busbw_factor("all_gather", np.array([1, 2, 4])).tolist() == [0, 0.5, 0.75]
    assert np.isnan(algbw("all_reduce", 1, 0.0))


def test_refusals():
    with pytest.raises(InputRefused, match="barrier"):
        busbw_factor("barrier", 8)
    with pytest.raises(InputRefused, match=next(iter(ALGORITHMS))):
        busbw_factor("allreduce", 8)
    with pytest.raises(InputRefused, match="whole number"):
        busbw_factor("all_reduce", 0)


# ---- what leaves a node


@pytest.mark.parametrize(("nodes", "per_node", "nics"), [(2, 4, 4), (2, 8, 4), (3, 4, 2), (4, 8, 8)])
@pytest.mark.parametrize(
    ("op", "algorithm"),
    [("all_reduce", "ring"), ("all_gather", "ring"), ("reduce_scatter", "ring"), ("all_to_all", "pairwise")],
)
def test_bytes_that_leave_a_node_are_those_of_the_trace(nodes, per_node, nics, op, algorithm):
    cluster, n = machine(nodes, per_node, nics), nodes * per_node
    size = 64.0 * n
    crossing = replay(trace(op, algorithm, n, cluster), size, cluster).crossing / nodes
    assert node_factor(op, n, per_node) == pytest.approx(crossing / size, rel=1e-12)


def test_nothing_leaves_a_single_node_and_arrays_are_taken():
    assert node_factor("all_to_all", 8, 8) == node_factor("all_reduce", 4, 8) == 0
    assert node_factor("all_to_all", np.array([8, 16, 32]), 8).tolist() == [0, 4, 6]


@pytest.mark.parametrize(
    ("op", "n", "per_node", "says"),
    [
        ("broadcast", 16, 8, "unequal amounts"),
        ("all_reduce", 12, 8, "not full"),
        ("all_reduce", 16, 0, "ranks of a node"),
        ("all_to_all", 16, "8", "ranks of a node"),
    ],
)
def test_what_leaves_a_node_refuses(op, n, per_node, says):
    with pytest.raises(InputRefused, match=says):
        node_factor(op, n, per_node)
