"""Rings and chains: seconds and rounds of the lock-step alpha-beta model, ``size`` in bytes."""

import numpy as np

from labkit.collectives.place import Place, ring_count


def ring_pass(size, n, at: Place):
    """Once around (all_gather or reduce_scatter): n-1 rounds of size/n (Patarasuk and Yuan 2009).

    Across domains ``ring_count`` rings share the data; each enters a domain by another port. A GPU carries
    every ring inside its domain, less the one that leaves there. So the busiest GPU carries all rings, but
    one less where each GPU is an exit.
    """
    if at.is_flat:
        return (n - 1) * at.near(size / n), n - 1
    _, domains, _ = at.spread(n)
    rings = ring_count(n, at)
    chunk = size / (rings * n)
    carried = np.where((domains > 1) & (rings == at.domain), rings - 1, rings)
    inside = np.where(carried > 0, at.near(carried * chunk), 0.0)
    across = np.where(domains > 1, at.far(chunk), 0.0)
    return (n - 1) * np.maximum(inside, across), n - 1


def ring_all_reduce(size, n, at: Place):
    """reduce_scatter and all_gather around the ring: 2(n-1) rounds of size/n."""
    seconds, steps = ring_pass(size, n, at)
    return 2 * seconds, 2 * steps


def chain(size, n, at: Place, segments):
    """Pipelined chain in rank order: (n-2+k)(alpha + size/(k B)) on a flat link.

    Link j is busy in rounds j .. j+k-1. The boundary links lie ``domain`` apart, so one of them is busy in
    (domains-2) min(domain, k) + k rounds, and links inside fill the others; with k = 1 a round
    has only one busy link.
    """
    rounds = np.where(n > 1, n - 2 + segments, 0.0)
    if at.is_flat:
        return rounds * at.near(size / segments), rounds
    _, domains, last = at.spread(n)
    crossing = np.where(domains > 1, (domains - 2) * np.minimum(at.domain, segments) + segments, 0.0)
    pipelined = np.where((domains > 1) & (last == 1), rounds - 1, rounds)
    inside = np.where(at.domain == 1, 0.0, np.where(segments == 1, n - domains, pipelined))
    near, far = at.near(size / segments), at.far(size / segments)
    both = crossing + inside - rounds
    seconds = both * np.maximum(near, far) + (crossing - both) * far + (inside - both) * near
    return seconds, rounds


def chain_candidates(size, n, at: Place):
    """Segment numbers one of which, rounded down or up, is best for a chain.

    They are the stationary points and the ends of the smooth pieces of its cost. On a piece the cost is
    C + A k + D / k, least at sqrt(D / A). Pieces meet at k = 1, at k = 2, at the domain size, and where the
    near and the far hop cost the same.
    """
    if at.is_flat:
        return [_root((n - 2) * size, at.alpha * at.bandwidth)]
    _, domains, _ = at.spread(n)
    cost_of = [(at.alpha, 1 / at.bandwidth), (at.far_alpha, 1 / at.far_bandwidth)]
    (near_alpha, near_beta), (far_alpha, far_beta) = cost_of
    tie = size * (far_beta - near_beta)
    found = [np.full_like(size + n, 2.0), at.domain + 0 * size, _ratio(tie, near_alpha - far_alpha)]
    # A lone rank in the last domain is fed by a far hop after all near ones are done.
    found.append(_root(size * ((n - 3) * near_beta + far_beta), near_alpha))
    for slow_alpha, slow_beta in cost_of:
        # k >= domain: (domains-2) domain + k rounds with a crossing, the other rounds near only.
        crossing = (domains - 2) * at.domain
        quiet = np.where(domains > 1, n - 2 - crossing, n - 2)
        moving = np.where(domains > 1, crossing, 0.0)
        found.append(_root(size * (moving * slow_beta + quiet * near_beta), slow_alpha))
        # k < domain: (domains-1) k rounds with a crossing, n - 2 - (domains-2) k near only.
        rise = (domains - 1) * slow_alpha - (domains - 2) * near_alpha
        found.append(_root(size * (n - 2) * near_beta, rise))
    return found


def _ratio(above, below):
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(below != 0, above / below, np.inf)


def _root(above, below):
    return np.sqrt(np.maximum(_ratio(np.maximum(above, 0), below), 0))
