"""Inside the domain first, so that only a share of the data crosses.

``domains`` is a list of lists of ranks, all equally long; ranks with the same index in their domain form a
column. A chunk is named by its rank (in an all_to_all: source * n + destination).
"""

from labkit.collectives.algorithms.rings import ring_all_gather
from labkit.collectives.algorithms.trees import binomial
from labkit.collectives.sends import Send, after, mirror


def all_gather(domains) -> list[Send]:
    """Rings among equal local indices across, then a ring inside every domain. Backwards: reduce_scatter."""
    columns = list(zip(*domains, strict=True))
    across = [send for column in columns for send in ring_all_gather(column, [[rank] for rank in column])]
    inside = [send for members in domains for send in ring_all_gather(members, columns)]
    return after(across, inside)


def _scatter_across_gather(domains) -> tuple[list[Send], list[Send], list[Send]]:
    """Scatter in the root's domain, a binomial tree down every column, ring all_gathers inside."""
    blocks = [[local] for local in range(len(domains[0]))]
    columns = enumerate(zip(*domains, strict=True))
    scatter = list(binomial(domains[0], blocks))
    across = [send for local, column in columns for send in binomial(column, [[local]] * len(column))]
    inside = [send for members in domains for send in ring_all_gather(members, blocks)]
    return scatter, across, inside


def broadcast(domains) -> list[Send]:
    """Scatter in the root's domain, down every column, all_gather inside; one chunk per local index."""
    return after(*_scatter_across_gather(domains))


def reduce(domains) -> list[Send]:
    """Backwards: reduce_scatter inside, up every column, gather in the root's domain.

    The gather stores: the root's domain has the other pieces reduced already, so that adding its own once
    more would count them twice.
    """
    scatter, across, inside = _scatter_across_gather(domains)
    return after(mirror(inside, reduce=True), mirror(across, reduce=True), mirror(scatter, reduce=False))


def all_to_all(domains) -> list[Send]:
    """Inside, each rank hands every local index what its column is to get; then it crosses in one message."""
    n, width, count = sum(map(len, domains)), len(domains[0]), len(domains)
    columns = list(zip(*domains, strict=True))
    inside = [
        Send(k - 1, src, members[(local + k) % width], src * n + dst, False)
        for k in range(1, width)
        for members in domains
        for local, src in enumerate(members)
        for dst in columns[(local + k) % width]
    ]
    across = [
        Send(k - 1, column[row], column[(row + k) % count], src * n + dst, False)
        for k in range(1, count)
        for column in columns
        for row in range(count)
        for src in domains[row]
        for dst in [column[(row + k) % count]]
    ]
    return after(inside, across)
