"""Trees from ``ranks[0]``, linear, binomial, binary and double binary; reductions are their mirror images."""

from labkit.collectives.sends import Send


def linear(ranks, blocks):
    """The root sends to one rank after another: n-1 rounds."""
    for p in range(1, len(ranks)):
        for chunk in blocks[p]:
            yield Send(p - 1, ranks[0], ranks[p], chunk, False)


def binomial(ranks, blocks):
    """Ranks that have the message double each round; rank p + 2**t gets what its subtree p + 2**t .. needs.

    A whole-message broadcast has the same chunks in every block; a scatter has block p for place p.
    """
    n = len(ranks)
    rounds = (n - 1).bit_length()
    for step in range(rounds):
        distance = 2 ** (rounds - 1 - step)
        for p in range(0, n - distance, 2 * distance):
            subtree = blocks[p + distance : p + 2 * distance]
            for chunk in dict.fromkeys(chunk for block in subtree for chunk in block):
                yield Send(step, ranks[p], ranks[p + distance], chunk, False)


def binary(ranks, segments):
    """Pipelined: place p feeds 2p+1 and 2p+2, one segment per round."""
    for p in range(1, len(ranks)):
        depth = (p + 1).bit_length() - 1
        for segment in range(segments):
            yield Send(depth - 1 + segment, ranks[(p - 1) // 2], ranks[p], segment, False)


def double_binary(ranks, segments):
    """Two trees over places 1 .. m, half the message each, fed by place 0 (Sanders, Speck and Traeff 2009).

    The first is in-order numbered: odd places are leaves. The second is its mirror (m even) or shifted by
    one (m odd), so that a place with children in one tree has none in the other.
    """
    m = len(ranks) - 1
    for tree in range(2):
        for p in range(1, m + 1):
            parent, depth = in_order_parent(p, m), in_order_depth(p, m)
            src, dst = (place if tree == 0 else _in_second_tree(place, m) for place in (parent, p))
            for segment in range(segments):
                yield Send(depth - 1 + segment, ranks[src], ranks[dst], tree * segments + segment, False)


def in_order_parent(p: int, m: int) -> int:
    """Parent of place p in the in-order binary tree over 1 .. m; 0, the source, for its root.

    >>> [in_order_parent(p, 6) for p in range(1, 7)]
    [2, 4, 2, 0, 6, 4]
    """
    lowest = p & -p
    parent = (p ^ lowest) | (lowest << 1)
    return parent if parent <= m else p ^ lowest


def in_order_depth(p: int, m: int) -> int:
    """Hops from the source."""
    hops = 0
    while p:
        p, hops = in_order_parent(p, m), hops + 1
    return hops


def _in_second_tree(p: int, m: int) -> int:
    if p == 0:
        return 0
    return p % m + 1 if m % 2 else m + 1 - p
