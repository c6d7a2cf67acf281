"""Bytes over ranks, counted in both directions: the least, the mean and the busiest.

Counted on the sends of ``algorithms``, phase by phase; tests hold both equal. ``least`` and ``busiest`` look
at what a rank sends and at what it receives, each for itself.
"""

from typing import NamedTuple

import numpy as np

from labkit.collectives.closed.exchange import core, most_gathered
from labkit.collectives.levels import bits_below, ceil_log2
from labkit.collectives.place import Place


class Shares(NamedTuple):
    """Bytes / size (no unit): least and busiest direction of any rank, and all sends together."""

    least: object
    total: object
    busiest: object


def shares(op: str, algorithm: str, n, at: Place, segments) -> Shares:
    """Bytes / size of the whole collective, on ranks placed at ``at``; n = 1 moves nothing."""
    found = _SHARES[algorithm](op, n, at, segments)
    return Shares(*(np.where(n > 1, share, 0.0) for share in found))


def _even(share, n) -> Shares:
    return Shares(share, n * share, share)


def _ring(op, n, at, segments) -> Shares:
    if op in ("broadcast", "reduce"):
        return Shares(0.0, n - 1, 1.0)
    return _even((2 if op == "all_reduce" else 1) * (n - 1) / n, n)


def _linear(op, n, at, segments) -> Shares:
    if op == "all_to_all":
        return _even((n - 1) / n, n)
    if op == "send_recv":
        return _even(np.ones_like(n), n)
    if op == "all_reduce":
        return Shares(1.0, 2 * (n - 1), n - 1)
    share = 1 / n if op in ("scatter", "gather") else 1.0
    return Shares(0.0, (n - 1) * share, (n - 1) * share)


def _pairwise(op, n, at, segments) -> Shares:
    return _even((n - 1) / n, n)


def _doubling(op, n, at, segments) -> Shares:
    power, levels, extra = core(n)
    folded = extra > 0
    if op == "barrier":
        return _even(np.zeros_like(n), n)
    if op == "all_reduce":
        return Shares(np.where(folded, 1.0, levels), power * levels + 2 * extra, levels + 1.0 * folded)
    # A folded rank sends its own block only; its partner, the busiest, returns it everything else.
    busiest = (most_gathered(n) + np.where(folded, n - 1, 0.0)) / n
    return Shares(np.where(folded, 1.0, power - 1) / n, n - 1, busiest)


def _halving(op, n, at, segments) -> Shares:
    if op != "all_reduce":
        return _doubling(op, n, at, segments)
    power, _, extra = core(n)
    exchanged = 2 * (power - 1) / power
    return Shares(np.where(extra > 0, 1.0, exchanged), 2 * (n - 1), exchanged + (extra > 0))


def _tree(op, n, at, segments) -> Shares:
    inside, domains, last = at.spread(n)
    if op in ("scatter", "gather"):
        hops = (
            at.domain * bits_below(domains)
            - (at.domain - last) * (bits_below(domains) - bits_below(domains - 1))
            + (domains - 1) * bits_below(inside)
            + bits_below(last)
        )
        return Shares(0.0, np.where(domains > 1, hops, bits_below(n)) / n, (n - 1) / n)
    binomial = ceil_log2(domains) + ceil_log2(inside)
    root = np.minimum(domains - 1, 2) + np.minimum(inside - 1, 2)
    # In an all_reduce the other inner nodes add the hop up. The busiest of them are the first leader below
    # the root and the first rank below a leader.
    second = np.where(domains == 2, last, inside)
    leader = np.where(domains > 1, 1 + np.clip(domains - 3, 0, 2) + np.minimum(second - 1, 2), 0.0)
    member = np.where(inside > 1, 1 + np.clip(inside - 3, 0, 2), 0.0)
    pair = np.maximum(root, np.maximum(leader, member))
    return _rooted(op, n, np.where(segments == 1, binomial, pair if op == "all_reduce" else root))


def _double_tree(op, n, at, segments) -> Shares:
    inside, domains, last = at.spread(n)
    source = 1.0 * (domains > 1) + 1.0 * (inside > 1)
    if op != "all_reduce":
        return _rooted(op, n, source)
    # Up both trees is one size each way. No more than that has the source of all where there is one level, a
    # leaf of both trees in domains of even size, and a lone last leader; elsewhere the idlest rank has one
    # child and so half a size more.
    idle = (
        (domains == 1)
        | (at.domain == 1)
        | (inside % 2 == 0)
        | (last % 2 == 0)
        | ((last == 1) & (domains == 2))
    )
    busiest = np.maximum(_both_ways(domains) + (inside > 1), _both_ways(inside))
    return Shares(np.where(idle, 1.0, 1.5), 2 * (n - 1), busiest)


def _both_ways(ranks):
    """Busiest rank of a double tree that reduces, then broadcasts: up both trees, down to two children."""
    return np.select([ranks >= 4, ranks == 3, ranks == 2], [2.0, 1.5, 1.0], 0.0)


def _rooted(op, n, busiest) -> Shares:
    if op == "all_reduce":
        return Shares(1.0, 2 * (n - 1), busiest)
    return Shares(0.0, n - 1, busiest)


def _hierarchical(op, n, at, segments) -> Shares:
    inside, domains, _ = at.spread(n)
    if op == "all_to_all":
        return _even((inside - 1) / inside + (domains - 1) / domains, n)
    if op in ("broadcast", "reduce"):
        busiest = (2 * (inside - 1) + ceil_log2(domains)) / inside
        scattered = bits_below(inside) / inside + domains - 1 + domains * (inside - 1)
        # Ring all_gather hands everybody all other pieces, even the root, which has them.
        return Shares((inside - 1) / inside, scattered, busiest)
    return _ring(op, n, at, segments)


_SHARES = {
    "ring": _ring,
    "linear": _linear,
    "pairwise": _pairwise,
    "recursive_doubling": _doubling,
    "halving_doubling": _halving,
    "tree": _tree,
    "double_tree": _double_tree,
    "hierarchical": _hierarchical,
}
