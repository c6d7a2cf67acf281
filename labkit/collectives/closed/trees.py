"""Linear, binomial, pipelined binary and double binary trees.

Each function takes ``size`` in bytes and gives (seconds, rounds) of one direction: a broadcast, or the
reduction that runs the same tree backwards. On a cluster the tree first joins one leader per domain and then,
when those are done, runs inside every domain at once.

Convention: a rank with two children serves both in one round, for one alpha, as NCCL's tree kernels do; the
two messages share its port, so their bytes add up. Sanders, Speck and Traeff (2009) count on single-ported
machines, where each child costs a round and an alpha of its own: about twice as many rounds.
"""

import numpy as np

from labkit.collectives.levels import ceil_log2, floor_log2, power_of_two
from labkit.collectives.place import Place


def _two_level(phase, size, n, at: Place):
    """Seconds and rounds; ``phase(ranks)`` gives (rounds, bytes / size of the busiest port) of one level."""
    inside, domains, _ = at.spread(n)
    near_rounds, near_share = phase(inside)
    near = near_rounds * at.alpha + near_share * size / at.bandwidth
    if at.is_flat:
        return near, near_rounds
    far_rounds, far_share = phase(domains)
    return near + far_rounds * at.far_alpha + far_share * size / at.far_bandwidth, near_rounds + far_rounds


def linear(size, n, at: Place, share=1.0):
    """Root to one rank after another: n-1 rounds of ``share`` x size, all from the root's port."""
    inside, _, _ = at.spread(n)
    return (inside - 1) * at.near(share * size) + (n - inside) * at.far(share * size), n - 1


def binomial(size, n, at: Place):
    """Whole message each hop: ceil(log2 n) rounds (Thakur, Rabenseifner and Gropp 2005)."""
    return _two_level(lambda ranks: (ceil_log2(ranks), ceil_log2(ranks)), size, n, at)


def binomial_scatter(size, n, at: Place):
    """Binomial with halving payload: ceil(log2 n) rounds, (n-1)/n of the size leaves the root.

    Thakur, Rabenseifner and Gropp (2005) use it as the first half of their long-message broadcast.
    """
    inside, domains, _ = at.spread(n)
    if at.is_flat:
        return ceil_log2(n) * at.alpha + (n - 1) / n * size / at.bandwidth, ceil_log2(n)
    far = ceil_log2(domains) * at.far_alpha + (n - inside) / n * size / at.far_bandwidth
    near = ceil_log2(inside) * at.alpha + (inside - 1) / n * size / at.bandwidth
    return far + near, ceil_log2(domains) + ceil_log2(inside)


def _binary_tail(ranks):
    """Segments a port still carries when the root is done: 2 a level, 1 for a last level of one leaf."""
    depth = floor_log2(ranks)
    return np.where(ranks > 2, 2 * (depth - 1) - power_of_two(ranks), 0.0)


def binary(size, n, at: Place, segments):
    """Pipelined binary tree, node i feeding 2i+1 and 2i+2: k - 1 + floor(log2 n) rounds of two segments each.

    Both children are served in one round, for one alpha, and share the sender's port (the file's convention).
    With two ranks there is one child; with a power of two the deepest level is a single leaf, so the last
    round carries one segment. Sanders, Speck and Traeff (2009) derive this tree with two rounds a level.
    """

    def phase(ranks):
        rounds = (segments - 1 + floor_log2(ranks)) * (ranks > 1)
        return rounds, np.minimum(ranks - 1, 2) + _binary_tail(ranks) / segments

    return _two_level(phase, size, n, at)


def double_binary(size, n, at: Place, segments):
    """Two complementary binary trees, half the message each (Sanders, Speck and Traeff 2009; NCCL since 2.4).

    Rank 0 feeds both roots; the others are inner in one tree and leaf in the other, so no port carries more
    than one size/k per round: k - 1 + ceil(log2 n) rounds. Both children are served in one round, for one
    alpha, as NCCL's kernels do; the single-ported model of the paper charges two. When n - 1 is a power of
    two, each root has a single child; the round that only it fills (k = 1, or n = 3) carries half.
    """

    def phase(ranks):
        depth = ceil_log2(ranks)
        lone = (ranks > 2) & power_of_two(np.maximum(ranks - 1, 1)) & ((segments == 1) | (ranks == 3))
        rounds = np.where(ranks > 1, segments - 1 + depth, 0.0)
        return rounds, np.where(ranks > 1, 1 + (depth - 1 - 0.5 * lone) / segments, 0.0)

    return _two_level(phase, size, n, at)


def binary_candidates(size, n, at: Place):
    """The real-valued best number of segments of ``binary``: cost C + A k + D / k, so sqrt(D / A)."""
    return [_stationary(size, n, at, _binary_tail)]


def double_binary_candidates(size, n, at: Place):
    """The real-valued best number of segments of ``double_binary``."""

    def tail(ranks):
        return np.maximum(ceil_log2(ranks) - 1 - 0.5 * (ranks == 3), 0)

    return [_stationary(size, n, at, tail)]


def _stationary(size, n, at: Place, tail):
    inside, domains, _ = at.spread(n)
    falling, rising = size * tail(inside) / at.bandwidth, at.alpha * (inside > 1)
    if not at.is_flat:
        falling = falling + size * tail(domains) / at.far_bandwidth
        rising = rising + at.far_alpha * (domains > 1)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(falling > 0, np.sqrt(falling / rising), 1.0)
