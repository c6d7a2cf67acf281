"""Recursive doubling and halving (Thakur, Rabenseifner and Gropp 2005), and exchange with every peer."""

from labkit.collectives.sends import Send, after, mirror


def power_below(n: int) -> int:
    """The largest power of two that is at most n.

    >>> power_below(1), power_below(12)
    (1, 8)
    """
    return 1 << (n.bit_length() - 1)


def fold(n: int, chunks) -> list[Send]:
    """The ranks above the largest power of two P add their data to rank - P first."""
    power = power_below(n)
    return [Send(0, power + j, j, chunk, True) for j in range(n - power) for chunk in chunks]


def recursive_doubling(n: int) -> list[Send]:
    """all_reduce: in each round partners at distance 1, 2, 4, ... swap all they have and both add."""
    power = power_below(n)
    distances = [2**t for t in range(power.bit_length() - 1)]
    swaps = [Send(t, i, i ^ d, 0, True) for t, d in enumerate(distances) for i in range(power)]
    fold_in = fold(n, [0])
    return after(fold_in, swaps, mirror(fold_in, reduce=False))


def doubling_gather(blocks) -> list[Send]:
    """all_gather of 2**t ranks: partners at distance n/2, ..., 2, 1 swap all blocks they hold."""
    held = [list(block) for block in blocks]
    sends, distance, step = [], len(blocks) // 2, 0
    while distance:
        sends += [Send(step, i, i ^ distance, chunk, False) for i in range(len(held)) for chunk in held[i]]
        held = [held[i] + held[i ^ distance] for i in range(len(held))]
        distance, step = distance // 2, step + 1
    return sends


def halving_doubling(n: int) -> list[Send]:
    """all_reduce: fold, reduce_scatter by halving (neighbours first), all_gather by doubling, hand back."""
    power = power_below(n)
    gather = doubling_gather([[i] for i in range(power)])
    fold_in = fold(n, range(power))
    return after(fold_in, mirror(gather, reduce=True), gather, mirror(fold_in, reduce=False))


def all_gather(n: int) -> list[Send]:
    """all_gather of any n: folded ranks give their block to rank - P, and get all the others back last.

    Backwards in time (``mirror``) it is the reduce_scatter by recursive halving, which goes here by the names
    of its counterpart: ``recursive_doubling`` and ``halving_doubling`` are the same sends.
    """
    power = power_below(n)
    extra = range(n - power)
    give = [Send(0, power + j, j, power + j, False) for j in extra]
    core = doubling_gather([[i, i + power] if i + power < n else [i] for i in range(power)])
    back = [Send(0, j, power + j, chunk, False) for j in extra for chunk in range(n) if chunk != power + j]
    return after(give, core, back)


def every_peer(n: int, xor: bool, chunk_of):
    """n-1 rounds; in round k rank i sends to i XOR k, or to i+k; ``chunk_of(src, dst)`` names what."""
    for k in range(1, n):
        for src in range(n):
            dst = src ^ k if xor else (src + k) % n
            yield Send(k - 1, src, dst, chunk_of(src, dst), False)


def dissemination(n: int) -> list[Send]:
    """barrier: at distance 1, 2, 4, ... each rank tells the next whom it knows to have arrived."""
    known = [{i} for i in range(n)]
    sends, distance, step = [], 1, 0
    while distance < n:
        sends += [
            Send(step, i, (i + distance) % n, chunk, False) for i in range(n) for chunk in sorted(known[i])
        ]
        known = [known[i] | known[(i - distance) % n] for i in range(n)]
        distance, step = distance * 2, step + 1
    return sends
