"""Ranks on a cluster: how rings run, what share of the bytes crosses, and what another rank order costs."""

from dataclasses import replace

import numpy as np

from labkit.collectives.algorithms import rings
from labkit.collectives.cost import Cost, collective_cost
from labkit.collectives.place import check_ranks, place
from labkit.collectives.replay import replay
from labkit.collectives.sends import Trace
from labkit.errors import InputRefused
from labkit.spec import Cluster


def ring_orders(n: int, cluster: Cluster) -> list[list[int]]:
    """The order of ranks in each ring that ``trace(op, "ring", n, cluster)`` runs, one ring per network port.

    >>> from labkit.spec import Gpu, Link
    >>> c = Cluster("pair", Gpu("g", 80e9, {}, 0.5), 2, 4, Link(2e-6, 450e9), Link(5e-6, 25e9), 2)
    >>> ring_orders(8, c)
    [[0, 1, 2, 3, 4, 5, 6, 7], [2, 3, 0, 1, 6, 7, 4, 5]]
    """
    at = place(cluster)
    return rings.ring_orders(int(check_ranks(n, at)), at)


def crossing_share(trace: Trace, cluster: Cluster) -> float:
    """Share of all bytes sent that cross from one domain to another, counted on the trace."""
    # One byte per piece, so that the count is free of rounding.
    found = replay(trace, float(trace.parts), cluster)
    total = found.sent.sum()
    return float(found.crossing / total) if total else 0.0


def placed(trace: Trace, order) -> Trace:
    """The same algorithm with its place i played by rank ``order[i]``: what another rank order costs.

    For replay and pictures. The proof still holds for an all_reduce alone: the other operations have a root
    or blocks that would have to move along.
    """
    order = np.asarray(order)
    if sorted(order.tolist()) != list(range(trace.n)):
        raise InputRefused(
            f"an order of {trace.n} ranks must name each of 0 .. {trace.n - 1} once; correct it"
        )
    return replace(trace, src=order[trace.src], dst=order[trace.dst])


def bit_reversed(n: int) -> np.ndarray:
    """Ranks with the bits of their number reversed, an order for ``placed``.

    Exchanges that met their neighbours first now meet the farthest first.

    >>> bit_reversed(8).tolist()
    [0, 4, 2, 6, 1, 5, 3, 7]
    """
    n = int(check_ranks(n))
    bits = n.bit_length() - 1
    if n != 1 << bits:
        raise InputRefused(
            f"bits can be reversed for a power of two of ranks only, not for {n}; use {1 << bits}"
        )
    ranks = np.arange(n)
    return sum((((ranks >> i) & 1) << (bits - 1 - i) for i in range(bits)), start=0 * ranks)


def flat_against_hierarchical(op: str, size, n, cluster: Cluster) -> dict[str, Cost]:
    """The same operation as one ring through one port of each domain, one ring per port, and hierarchical.

    Refused for operations that have no ring over all ranks: those with a root, and all_to_all.
    """
    if op not in ("all_reduce", "reduce_scatter", "all_gather"):
        raise InputRefused(f"{op} has no ring over all ranks; use all_reduce, reduce_scatter or all_gather")
    one_port = replace(cluster, nics_per_node=cluster.gpus_per_node / cluster.domain)
    return {
        "one ring": collective_cost(op, "ring", size, n, one_port),
        "one ring per port": collective_cost(op, "ring", size, n, cluster),
        "hierarchical": collective_cost(op, "hierarchical", size, n, cluster),
    }
