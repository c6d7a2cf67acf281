"""``collective_cost``: what a collective costs by the lock-step alpha-beta model, in closed form.

A round costs the slowest of its links, alpha + bytes / bandwidth; ranks send and receive at once (full
duplex); all sends of a round start together. This is Hockney's model applied to dependent rounds, as in
Thakur, Rabenseifner and Gropp, *Optimization of Collective Communication Operations in MPICH* (2005). It
knows no congestion inside the switch, no copy or reduction time, and no protocol change.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from labkit.collectives.closed import every_peer, exchange, hierarchical, rings, trees
from labkit.collectives.names import check_pair, takes_segments
from labkit.collectives.place import Place, check_ranks, check_whole_domains, place
from labkit.collectives.shares import shares
from labkit.errors import InputRefused
from labkit.spec import Cluster, Link
from labkit.spec.checks import floats
from labkit.units import plain


@dataclass(frozen=True, slots=True)
class Cost:
    """``seconds``, ``bytes_per_rank`` (the busiest rank's larger direction) and ``steps`` (rounds)."""

    seconds: Any
    bytes_per_rank: Any
    steps: Any


class Volume(NamedTuple):
    """Bytes over all ranks and both directions: ``least`` and ``busiest`` single one, and the ``mean``."""

    least: Any
    mean: Any
    busiest: Any


def collective_cost(op, algorithm, size, n, link_or_cluster: Link | Cluster, segments=None) -> Cost:
    """Seconds, bytes of the busiest rank, and rounds of one collective; everything numeric broadcasts.

    ``size``: S in bytes, the size column of nccl-tests (all_gather and reduce_scatter: the full tensor;
    all_to_all: what one rank holds). ``n``: ranks, filling the cluster's domains in order. ``segments``:
    pieces in which trees, double trees and chains (ring broadcast and reduce) pipeline the message: 1 =
    textbook whole message (a binomial tree), more = pipelined (a binary tree), None = the cheapest number;
    other algorithms pay no heed to it. Chunks are the smooth S/n. n = 1 costs nothing. Refused: an unknown
    pair, n < 1 or more than the cluster has, a negative size, segments < 1, hierarchical without a Cluster
    or with a partly filled domain.

    >>> from labkit.spec import Link
    >>> collective_cost("all_reduce", "ring", 8e9, 8, Link(0.0, 50e9))
    Cost(seconds=0.28, bytes_per_rank=14000000000.0, steps=14.0)
    """
    size, n, at = _checked(op, algorithm, size, n, link_or_cluster)
    segments = _pieces(op, algorithm, size, n, at, segments)
    seconds, steps = _closed_form(op, algorithm, size, n, at, segments)
    # n = 1 goes through the same formulas, whose counts of rounds are then zero.
    several = n > 1
    seconds = np.where(several, seconds, 0.0)
    steps = np.where(several, steps, 0.0)
    carried = shares(op, algorithm, n, at, segments).busiest * size
    return Cost(*_together(seconds, carried, steps))


def volume(op, algorithm, size, n, segments=1, link_or_cluster: Link | Cluster | None = None) -> Volume:
    """Bytes in one direction of one rank: least, mean and busiest over the 2n directions of n ranks.

    The mean is what all ranks send together over n, and equals what they receive; the busiest is what
    ``collective_cost`` reports. Rooted collectives have a least of 0: a broadcast's root receives nothing.
    Without a cluster the ranks share one flat link (hierarchical needs the cluster).

    >>> volume("broadcast", "linear", 1e6, 5)
    Volume(least=0.0, mean=800000.0, busiest=4000000.0)
    """
    size, n, at = _checked(op, algorithm, size, n, _FLAT if link_or_cluster is None else link_or_cluster)
    found = shares(op, algorithm, n, at, _pieces(op, algorithm, size, n, at, segments))
    least, mean, busiest = found.least * size, found.total / n * size, found.busiest * size
    return Volume(*_together(least, mean, busiest))


_FLAT = Link(0.0, 1.0)  # bytes on a flat link are the same whatever its rate


def busiest_bytes(op, algorithm, size, n):
    """Bytes of the busiest rank, as ``volume`` counts them on a flat link, of whole messages.

    >>> busiest_bytes("all_reduce", "ring", 8e9, 8)
    14000000000.0
    """
    size, n, at = _checked(op, algorithm, size, n, _FLAT)
    return plain(shares(op, algorithm, n, at, np.asarray(1.0)).busiest * size)


def best_segments(op, algorithm, size, n, link_or_cluster: Link | Cluster):
    """The whole number of segments with which the closed form is cheapest; 1 where the algorithm takes none.

    >>> from labkit.spec import Link
    >>> best_segments("broadcast", "ring", 1e9, 64, Link(5e-6, 50e9))
    498.0
    """
    size, n, at = _checked(op, algorithm, size, n, link_or_cluster)
    return plain(_pieces(op, algorithm, size, n, at, None))


def _checked(op, algorithm, size, n, link_or_cluster):
    check_pair(op, algorithm)
    at = place(link_or_cluster)
    n = check_ranks(n, at)
    size = floats(size)
    if not ((size >= 0) & np.isfinite(size)).all():
        raise InputRefused(
            "the message size must be 0 bytes or more, and finite; correct the negative or missing one"
        )
    if algorithm == "hierarchical":
        check_whole_domains(n, at)
    return size, n, at


def _pieces(op, algorithm, size, n, at, segments):
    """``segments`` checked, or the best whole number for None."""
    if segments is not None:
        segments = floats(segments)
        if not ((segments >= 1) & (segments == np.floor(segments)) & np.isfinite(segments)).all():
            raise InputRefused("segments must be a whole number of at least 1; use 1 for the whole message")
        return segments
    if not takes_segments(op, algorithm):
        return np.asarray(1.0)
    form, candidates = _PIPELINED[algorithm]
    whole = trees.binomial(size, n, at) if algorithm == "tree" else form(size, n, at, 1.0)
    cheapest, best = whole[0], np.ones_like(whole[0])
    for stationary in candidates(size, n, at):
        # A segment has at least one byte: this bounds the number where latency is zero.
        below = np.clip(np.floor(stationary), 2, np.maximum(np.floor(size), 2))
        for candidate in (below, below + 1):
            seconds, _ = form(size, n, at, candidate)
            best, cheapest = np.where(seconds < cheapest, candidate, best), np.minimum(seconds, cheapest)
    return best


# Cost in `segments`, and the numbers one of which, rounded down or up, is best. More than one segment down
# a tree runs down a binary one: a binomial root would have to send every segment log2 n times.
_PIPELINED = {
    "ring": (rings.chain, rings.chain_candidates),
    "tree": (trees.binary, trees.binary_candidates),
    "double_tree": (trees.double_binary, trees.double_binary_candidates),
}


def _closed_form(op, algorithm, size, n, at: Place, segments):
    seconds, steps = _one_way(op, algorithm, size, n, at, segments)
    # These all_reduces are a reduce and a broadcast over the same tree, one after the other.
    if op == "all_reduce" and algorithm in ("linear", "tree", "double_tree"):
        return 2 * seconds, 2 * steps
    return seconds, steps


def _one_way(op, algorithm, size, n, at: Place, segments):
    """Seconds and steps; an operation and its mirror image (broadcast and reduce, ...) cost the same."""
    if op == "send_recv":
        inside, _, _ = at.spread(n)
        crossing = np.where(n > inside, at.far(size), 0.0)
        return np.maximum(np.where(inside > 1, at.near(size), 0.0), crossing), np.ones_like(n)
    if op == "barrier":
        return every_peer.barrier(n, at)
    if op == "all_to_all":
        form = {
            "linear": every_peer.shift,
            "pairwise": every_peer.pairwise,
            "hierarchical": hierarchical.all_to_all,
        }
        return form[algorithm](size, n, at)
    if op in ("scatter", "gather"):
        return (
            trees.linear(size, n, at, 1 / n) if algorithm == "linear" else trees.binomial_scatter(size, n, at)
        )
    if algorithm == "linear":
        return trees.linear(size, n, at)
    if algorithm == "tree":
        whole, pipelined = trees.binomial(size, n, at), trees.binary(size, n, at, segments)
        return tuple(np.where(segments == 1, *pair) for pair in zip(whole, pipelined, strict=True))
    if takes_segments(op, algorithm):
        return _PIPELINED[algorithm][0](size, n, at, segments)
    if op in ("broadcast", "reduce"):
        return hierarchical.broadcast(size, n, at)
    if op == "all_reduce":
        form = {
            "ring": rings.ring_all_reduce,
            "recursive_doubling": exchange.recursive_doubling,
            "halving_doubling": exchange.halving_doubling,
            "hierarchical": hierarchical.all_reduce,
        }
    else:
        form = {
            "ring": rings.ring_pass,
            "recursive_doubling": exchange.gather,
            "halving_doubling": exchange.gather,
            "pairwise": every_peer.pairwise,
            "hierarchical": hierarchical.half,
        }
    return form[algorithm](size, n, at)


def _together(*values) -> list:
    """The values broadcast to one shape, as floats: Python ones, or arrays of their own (writable)."""
    return [plain(np.array(value, dtype=float)) for value in np.broadcast_arrays(*values)]
