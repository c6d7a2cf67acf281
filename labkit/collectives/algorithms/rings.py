"""Rings and chains."""

from labkit.collectives.place import Place, ring_count
from labkit.collectives.sends import Send


def ring_reduce_scatter(ranks, blocks):
    """n-1 rounds around ``ranks``: each passes on the block it has just added to; block p ends at place p."""
    n = len(ranks)
    for step in range(n - 1):
        for p in range(n):
            for chunk in blocks[(p - step - 1) % n]:
                yield Send(step, ranks[p], ranks[(p + 1) % n], chunk, True)


def ring_all_gather(ranks, blocks):
    """n-1 rounds around ``ranks``: each passes on the block it has just received, its own block p first."""
    n = len(ranks)
    for step in range(n - 1):
        for p in range(n):
            for chunk in blocks[(p - step) % n]:
                yield Send(step, ranks[p], ranks[(p + 1) % n], chunk, False)


def chain_broadcast(ranks, segments):
    """Each rank passes segment after segment to the next: n-2+k rounds."""
    for p in range(len(ranks) - 1):
        for segment in range(segments):
            yield Send(p + segment, ranks[p], ranks[p + 1], segment, False)


def unchunked_ring(ranks):
    """all_reduce of one whole message around a ring: one link works at a time (what chunks are for)."""
    n = len(ranks)
    for step in range(2 * (n - 1)):
        yield Send(step, ranks[step % n], ranks[(step + 1) % n], 0, step < n - 1)


def ring_orders(n: int, at: Place) -> list[list[int]]:
    """The order of ranks of each ring. Inside a domain there is one ring, in rank order.

    Across domains ring r enters every domain at the first GPU of port r, walks all its GPUs and leaves at the
    GPU before, which sits on another port. So each port serves one ring in and one ring out, as in NCCL.
    """
    rings = int(ring_count(float(n), at))
    domain_size, ports = (int(x) for x in (at.domain, at.ports))
    orders = []
    for ring in range(rings):
        entry = -(-ring * domain_size // ports) if rings > 1 else 0
        order = []
        for first in range(0, n, domain_size):
            members = list(range(first, min(first + domain_size, n)))
            order += members[entry:] + members[:entry]
        orders.append(order)
    return orders


def ring_blocks(n: int, at: Place) -> list[tuple[list[int], list[list[int]]]]:
    """(order, blocks) of each ring: ring r of R carries chunk owner * R + r of the block of every owner."""
    orders = ring_orders(n, at)
    return [(order, [[owner * len(orders) + r] for owner in order]) for r, order in enumerate(orders)]
