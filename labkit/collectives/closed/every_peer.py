"""Every rank sends to every other one directly: n-1 rounds of size/n, to rank + k or to rank XOR k."""

import numpy as np

from labkit.collectives.levels import ceil_log2
from labkit.collectives.place import Place, uses_xor


def shift(size, n, at: Place):
    """Round k: i sends to i+k, receives from i-k.

    Shifts k and n-k load the ports alike. With m = min(k, n-k), the fullest port carries
    min(m, sharing, n - domain) messages, and some message stays inside while m < domain.
    """
    block = size / n
    flat = (n - 1) * at.near(block)
    if at.is_flat:
        return flat, n - 1
    most = np.minimum(at.sharing, n - at.domain)
    far_rounds = np.maximum(0.0, n - 1 - 2 * (at.domain - 1))
    near = at.near(block)
    seconds = far_rounds * at.far(most * block)
    # Two shifts (k and n-k) for each smaller load, the rest of the mixed rounds with the largest.
    for load in range(1, max(1, int(np.max(most)))):
        seconds = seconds + np.where(load < most, 2 * np.maximum(near, at.far(load * block)), 0.0)
    mixed = n - 1 - far_rounds - 2 * (most - 1)
    seconds = seconds + mixed * np.maximum(near, at.far(most * block))
    return np.where(n > at.domain, seconds, flat), n - 1


def pairwise(size, n, at: Place):
    """Partner rank XOR k where n (and the domain) are powers of two, else ``shift``.

    With XOR a round is all inside (k < domain) or all across, every GPU of a domain sharing its ports.
    """
    block = size / n
    inside = np.minimum(n, at.domain)
    xor = (inside - 1) * at.near(block) + (n - inside) * at.far(at.sharing * block)
    return np.where(uses_xor(n, at), xor, shift(size, n, at)[0]), n - 1


def barrier(n, at: Place):
    """Dissemination (Hensgen et al. 1988): ceil(log2 n) shifts by 1, 2, 4, ... of an empty message."""
    rounds = ceil_log2(n)
    seconds = np.zeros(np.broadcast_shapes(np.shape(n), np.shape(at.alpha), np.shape(at.domain)))
    for step in range(int(np.max(rounds))):
        # Some message of a shift stays inside under the same condition as in `shift`.
        stays = np.minimum(2.0**step, n - 2.0**step) < at.domain
        crossing = np.where(n > at.domain, at.far_alpha, 0.0)
        seconds = seconds + np.where(step < rounds, np.maximum(np.where(stays, at.alpha, 0.0), crossing), 0.0)
    return seconds, rounds
