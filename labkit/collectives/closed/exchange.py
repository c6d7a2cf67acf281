"""Recursive doubling and halving: exchanges at distances that are powers of two (Thakur et al. 2005).

With n no power of two, the e = n - P ranks above the largest power of two P hand their data to a partner
first and get the result back last. Distances run so that the largest payload travels the shortest way: a
reduce_scatter starts with its neighbour, an all_gather ends with it.
"""

from functools import lru_cache

import numpy as np

from labkit.collectives.levels import bit_count, floor_log2, power_of_two
from labkit.collectives.place import Place, seat


def core(n):
    """(P, log2 P, e): largest power of two, its exponent, ranks above it."""
    levels = floor_log2(n)
    power = np.ldexp(1.0, levels)
    return power, levels, n - power


def most_gathered(n):
    """Blocks that rank 0, the busiest, sends while doubling: P-1 and those of folded ranks.

    Of e folded blocks, ceil(e / 2**s) go out in the round that leaves P / 2**s. Summed over s = 1 .. log2 P
    this is log2 P + (e-1) - (ones in the binary form of e-1), by Legendre's formula.
    """
    power, levels, extra = core(n)
    folded = levels + (extra - 1) - bit_count(np.maximum(extra - 1, 0))
    return power - 1 + np.where(extra > 0, folded, 0.0)


def recursive_doubling(size, n, at: Place):
    """all_reduce with the whole message in each of log2 P rounds, two more for folded ranks."""
    _, levels, extra = core(n)
    seconds = _or_counted(_doubling, "doubling", size, n, at)
    return seconds, levels + 2.0 * (extra > 0)


def _doubling(size, n, at: Place):
    power, levels, extra = core(n)
    inside = floor_log2(np.minimum(at.domain, power))
    exchange = inside * at.near(size) + (levels - inside) * at.far(at.sharing * size)
    return exchange + 2 * (extra > 0) * _fold(size, n, at)


def halving_doubling(size, n, at: Place):
    """all_reduce by halving and doubling: 2 log2 P rounds, 2(P-1)/P of the size; two more if folded."""
    _, levels, extra = core(n)
    seconds = _or_counted(_halving, "halving", size, n, at)
    return seconds, 2.0 * levels + 2.0 * (extra > 0)


def _halving(size, n, at: Place):
    power, levels, extra = core(n)
    width = np.minimum(at.domain, power)
    inside = floor_log2(width)
    near = inside * at.alpha + (1 - 1 / width) * size / at.bandwidth
    far = (levels - inside) * at.far_alpha + at.sharing * (1 / width - 1 / power) * size / at.far_bandwidth
    return 2 * (near + far) + 2 * (extra > 0) * _fold(size, n, at)


def gather(size, n, at: Place):
    """all_gather by doubling: log2 P rounds, two more for folded ranks.

    Backwards in time it is the reduce_scatter by recursive halving, which has the same cost and goes by the
    same two names, ``recursive_doubling`` and ``halving_doubling``.
    """
    _, levels, extra = core(n)
    steps = levels + 2.0 * (extra > 0)
    if at.is_flat:
        blocks = most_gathered(n) + np.where(extra > 0, n, 0.0)
        return steps * at.alpha + blocks / n * size / at.bandwidth, steps
    return _or_counted(_gather, "gather", size, n, at), steps


def _gather(size, n, at: Place):
    power, levels, extra = core(n)
    block = size / n
    total = (extra > 0) * (_fold(block, n, at) + _fold((n - 1) * block, n, at))
    ranks = at.sharing
    for level in range(int(np.max(levels))):
        # In this round the ranks of one residue modulo `modulus` = 2 * distance hold the same blocks.
        modulus = 2.0 ** (level + 1)
        near = at.near((power / modulus + np.ceil(extra / modulus)) * block)
        folded = np.floor(extra / modulus) * ranks + np.minimum(extra % modulus, ranks)
        far = at.far((ranks * power / modulus + folded) * block)
        total = total + np.where(level < levels, np.where(modulus / 2 < at.domain, near, far), 0.0)
    return total


def _fold(size, n, at: Place):
    """Folded ranks and their partners exchange ``size``; across, they share the first domain's ports."""
    return np.where(n <= at.domain, at.near(size), at.far(np.minimum(core(n)[2], at.sharing) * size))


def _or_counted(aligned, kind: str, size, n, at: Place):
    """``aligned`` where ranks 2**t apart are all inside or all across: one domain, or its size 2**s.

    Elsewhere (domains of 6 or 72) no formula says which exchanges cross; they are counted for each n.
    """
    seconds = aligned(size, n, at)
    ragged = (n > at.domain) & ~power_of_two(at.domain)
    if not ragged.any():
        return seconds
    n, domain, ports, ragged = np.broadcast_arrays(n, at.domain, at.ports, ragged)
    for case in {tuple(row) for row in np.stack([n, domain, ports], axis=-1)[ragged].tolist()}:
        counted = sum(
            np.maximum((near > 0) * at.near(near * size), (far > 0) * at.far(far * size))
            for near, far in _counted(kind, *map(int, case))
        )
        here = (n == case[0]) & (domain == case[1]) & (ports == case[2])
        seconds = np.where(here, counted, seconds)
    return seconds


@lru_cache(maxsize=4096)
def _counted(kind: str, n: int, domain: int, ports: int) -> tuple[tuple[float, float], ...]:
    """Per round: the largest share of the size through a rank's fast port and through a network port."""
    found = []
    for src, dst, share in _pattern(kind, n):
        (from_domain, from_port), (to_domain, to_port) = (seat(rank, domain, ports) for rank in (src, dst))
        across = from_domain != to_domain
        loads = [np.bincount(port[across], share[across]) for port in (from_port, to_port)]
        found.append((max(share[~across], default=0.0), max(max(load, default=0.0) for load in loads)))
    return tuple((float(near), float(far)) for near, far in found)


def _pattern(kind: str, n: int):
    """(source, destination, share of the size) of the messages of each round."""
    power, levels, extra = (int(x) for x in core(float(n)))
    first = np.arange(extra)
    ranks = np.arange(power)
    give = {"doubling": 1.0, "halving": 1.0, "gather": 1 / n}[kind]
    back = {"doubling": 1.0, "halving": 1.0, "gather": (n - 1) / n}[kind]
    if extra:
        yield first + power, first, np.full(extra, give)
    for level in reversed(range(levels)):
        distance = 2**level
        held = {
            "doubling": np.ones(power),
            "halving": np.full(power, 1 / (2 * distance)),
            "gather": (
                power // (2 * distance)
                + np.bincount(first % (2 * distance), minlength=2 * distance)[ranks % (2 * distance)]
            )
            / n,
        }[kind]
        # An all_reduce by halving makes every exchange twice: reducing outwards, gathering inwards.
        for _ in range(2 if kind == "halving" else 1):
            yield ranks, ranks ^ distance, held
    if extra:
        yield first, first + power, np.full(extra, back)
