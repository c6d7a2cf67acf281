"""The AllToAll of expert parallel: who sends how much to whom, and how long the fullest port takes.

An expert layer makes four exchanges per micro-batch: dispatch and combine, forward and backward ("GShard"
2020, section 3). The way back carries the transposed matrix of the way there, and takes as long.
"""

from dataclasses import replace

import numpy as np

from labkit.collectives import collective_cost
from labkit.collectives.place import place
from labkit.errors import InputRefused
from labkit.spec import Cluster, Link
from labkit.spec.checks import noun, whole
from labkit.strategies.checks import numbers, places, single
from labkit.strategies.experts import Routing
from labkit.units import plain

EXCHANGES = 4  # per expert layer and micro-batch: dispatch and combine, forward and backward
FORWARDS = 3  # expert compute of forward and backward together, in forwards: two products for each one


def token_matrix(routing: Routing, seats) -> np.ndarray:
    """Kept choices from each source rank (row) to each rank that holds an expert (column), diagonal included.

    ``seats``: the rank of each expert, from ``place_experts``. A token with two experts on one rank is sent
    there twice, as the plain payload of top-k x tokens counts it.
    """
    seats = _seats(routing, seats)
    n = routing.ranks
    source = np.broadcast_to(np.arange(n)[:, None, None], routing.chosen.shape)
    pairs = (source * n + seats[routing.chosen])[routing.kept]
    return np.bincount(pairs, minlength=n * n).reshape(n, n)


def row_matrix(routing: Routing, seats) -> np.ndarray:
    """Rows that really travel: the tokens themselves, or with a capacity the whole buffers.

    Buffers of one size for every expert, filled or not, make the exchange even: static shapes, paid for with
    padding when the factor is above what the tokens need.
    """
    seats = _seats(routing, seats)
    if routing.capacity is None:
        return token_matrix(routing, seats)
    each = np.bincount(seats, minlength=routing.ranks) * routing.capacity
    return np.broadcast_to(each, (routing.ranks, routing.ranks))


def exchange_seconds(sent, link_or_cluster: Link | Cluster):
    """Seconds of one AllToAll in which rank i sends ``sent[i, j]`` bytes to rank j; shape (..., n, n).

    Sends go straight to their destinations, in the n - 1 rounds of the ``pairwise`` algorithm, and no port
    waits for another: latency is that of the rounds, and bytes take as long as on the fullest port, in the
    fuller of its two directions. Inside a node a rank has a port of its own, across it shares its node's. An
    even matrix costs exactly ``collective_cost("all_to_all", "pairwise", ...)``; one whose fullest port
    carries x times the even bytes costs that with a link x times as slow. What stays on a rank (the diagonal)
    costs nothing. Refused: a matrix that is not square or has a negative entry.

    >>> exchange_seconds([[5e9, 3e9], [1e9, 0]], Link(0.0, 1e9))
    3.0
    """
    sent = _square(sent)
    n = sent.shape[-1]
    total = sent.sum(axis=(-2, -1))
    even = np.broadcast_to((total / n**2)[..., None, None], sent.shape)
    near, far = (
        np.divide(full, usual, out=np.ones_like(full), where=usual > 0)
        for full, usual in zip(_fullest(sent, link_or_cluster), _fullest(even, link_or_cluster), strict=True)
    )
    slow = _slower(link_or_cluster, near, far)
    return collective_cost("all_to_all", "pairwise", total / n, n, slow).seconds


def _slower(link_or_cluster: Link | Cluster, near, far) -> Link | Cluster:
    """The same machine with links so many times as slow inside and across."""

    def slowed(link, times):
        # What carries nothing takes no time to speak of, and a bandwidth stays finite.
        return replace(link, bandwidth=link.bandwidth / np.maximum(times, 1e-30))

    if isinstance(link_or_cluster, Link):
        return slowed(link_or_cluster, near)
    cluster = link_or_cluster
    return replace(cluster, intra=slowed(cluster.intra, near), inter=slowed(cluster.inter, far))


def _fullest(sent: np.ndarray, link_or_cluster: Link | Cluster) -> tuple[np.ndarray, np.ndarray]:
    """Most bytes in one direction of a rank's own port inside a node, and of a node's network port."""
    ranks = np.arange(sent.shape[-1])
    domain, port = place(link_or_cluster).where(ranks)
    together = domain[:, None] == domain
    inside = np.where(together & (ranks[:, None] != ranks), sent, 0.0)
    across = np.where(together, 0.0, sent)
    of_port = (port[:, None] == np.unique(port)).astype(float)
    near = np.maximum(inside.sum(axis=-1), inside.sum(axis=-2))
    far = np.maximum(across.sum(axis=-1) @ of_port, across.sum(axis=-2) @ of_port)
    return near.max(axis=-1), far.max(axis=-1)


def leaving_share(sent, domain: int = 8):
    """Share of all bytes, those that stay on their rank included, that leave a fast-link domain.

    With an even load over d domains it is (d - 1)/d: the jump of an AllToAll at the second node.

    >>> [leaving_share(np.ones((n, n))) for n in (8, 16, 32)]
    [0.0, 0.5, 0.75]
    """
    sent = _square(sent)
    domain = whole(domain, "the ranks of a fast-link domain")
    home = np.arange(sent.shape[-1]) // domain
    total = sent.sum(axis=(-2, -1))
    if not np.all(total > 0):
        raise InputRefused("nothing is sent, so no share of it leaves; give a matrix with some bytes")
    return plain(np.where(home[:, None] != home, sent, 0.0).sum(axis=(-2, -1)) / total)


def layer_seconds(rows, row_bytes, row_flops, rate, link_or_cluster: Link | Cluster) -> tuple:
    """(exchange, compute) seconds of one expert layer and micro-batch, forward and backward, nothing hidden.

    ``rows``: what travels from rank to rank, shape (..., n, n), from ``row_matrix``; ``row_bytes``: hidden x
    bytes per element; ``row_flops``: forward operations of one row in one expert; ``rate``: FLOP/s that a
    rank reaches. Both parts wait for the fullest rank: four exchanges, and three forwards of its rows.
    """
    rows = _square(rows)
    row_bytes = single(row_bytes, "the bytes of a row", zero=True)
    row_flops = single(row_flops, "the FLOPs of a row", zero=True)
    rate = numbers(rate, "the FLOP/s of a rank")
    fullest = rows.sum(axis=-2).max(axis=-1)
    exchange = EXCHANGES * np.asarray(exchange_seconds(rows * row_bytes, link_or_cluster))
    return plain(exchange), plain(FORWARDS * fullest * row_flops / rate)


def _seats(routing: Routing, seats) -> np.ndarray:
    noun(routing, Routing, "the routing")
    return places(seats, "the ranks of the experts", routing.experts, routing.ranks)


def _square(sent) -> np.ndarray:
    sent = numbers(sent, "what a rank sends another", zero=True)
    if sent.ndim < 2 or sent.shape[-1] != sent.shape[-2]:
        raise InputRefused(
            f"an exchange needs a square matrix of 0 or more, a row for each sender and a column for each "
            f"receiver; got the shape {sent.shape}"
        )
    return sent
