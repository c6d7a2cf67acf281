"""``trace``: the sends of any (operation, algorithm) pair, for any number of ranks."""

import numpy as np

from labkit.collectives.algorithms import exchange, hierarchical, rings, trees
from labkit.collectives.names import check_pair, takes_segments
from labkit.collectives.place import Place, check_ranks, check_whole_domains, place, uses_xor
from labkit.collectives.sends import Send, Trace, after, chunk_count, from_sends, mirror
from labkit.errors import InputRefused
from labkit.spec import Cluster, Link

# A reduction runs the sends of its counterpart backwards; a gather those of a scatter.
_MIRRORED = {"reduce": "broadcast", "reduce_scatter": "all_gather", "gather": "scatter"}
_FLAT = Link(0.0, 1.0)


def trace(op, algorithm, n, link_or_cluster: Link | Cluster | None = None, segments: int = 1) -> Trace:
    """The rounds of sends of one collective among ``n`` ranks, root rank 0.

    On a cluster trees join domain leaders first, and rings are as many as the ports (``ring_orders``); on a
    Link, or with None, all ranks are alike. ``segments`` as in ``collective_cost``, but a number:
    ``best_segments`` tells the best one. Refused: what ``collective_cost`` refuses.

    >>> trace("all_reduce", "ring", 4)
    Trace(op='all_reduce', algorithm='ring', n=4, parts=4, chunks=4)
    >>> trace("broadcast", "tree", 4).sends()[0]
    Send(round=0, src=0, dst=2, chunk=0, reduce=False)
    """
    check_pair(op, algorithm)
    at = place(link_or_cluster if link_or_cluster is not None else _FLAT)
    n = int(check_ranks(n, at))
    if segments is None or segments < 1 or segments != int(segments):
        raise InputRefused(
            f"segments must be a whole number of at least 1, not {segments}; use 1 for the whole message"
        )
    segments = int(segments) if takes_segments(op, algorithm) else 1
    if algorithm == "hierarchical":
        check_whole_domains(np.asarray(float(n)), at)
    parts, sends = _sends(op, algorithm, n, at, segments)
    return from_sends(op, algorithm, n, parts, chunk_count(op, n, parts), sends)


def _domains(n, at: Place) -> list[list[int]]:
    step = int(at.domain)
    return [list(range(first, min(first + step, n))) for first in range(0, n, step)]


def _sends(op, algorithm, n, at, segments) -> tuple[int, list[Send]]:
    """(number of pieces of the message, sends)."""
    if algorithm == "ring" and op in ("all_reduce", "all_gather", "reduce_scatter"):
        return _ring(op, n, at)
    if op == "reduce" and algorithm == "hierarchical":
        domains = _domains(n, at)
        return len(domains[0]), hierarchical.reduce(domains)
    if op in _MIRRORED:
        parts, sends = _sends(_MIRRORED[op], algorithm, n, at, segments)
        return parts, mirror(sends, reduce=op != "gather")
    if op == "all_reduce":
        return _all_reduce(algorithm, n, at, segments)
    if op == "all_gather":
        if algorithm == "pairwise":
            xor = bool(uses_xor(float(n), at))
            return n, list(exchange.every_peer(n, xor, lambda src, dst: src))
        return n, hierarchical.all_gather(
            _domains(n, at)
        ) if algorithm == "hierarchical" else exchange.all_gather(n)
    if op == "all_to_all":
        if algorithm == "hierarchical":
            return n, hierarchical.all_to_all(_domains(n, at))
        xor = algorithm == "pairwise" and bool(uses_xor(float(n), at))
        return n, list(exchange.every_peer(n, xor, lambda src, dst: src * n + dst))
    if op == "scatter":
        return n, _scatter(algorithm, n, at)
    if op == "send_recv":
        return 1, [Send(0, src, (src + 1) % n, src, False) for src in range(n)] if n > 1 else []
    if op == "barrier":
        return n, exchange.dissemination(n)
    return _broadcast(algorithm, n, at, segments)


def _ring(op, n, at):
    laid = rings.ring_blocks(n, at)
    phases = []
    if op != "all_gather":
        phases.append([send for order, blocks in laid for send in rings.ring_reduce_scatter(order, blocks)])
    if op != "reduce_scatter":
        phases.append([send for order, blocks in laid for send in rings.ring_all_gather(order, blocks)])
    return n * len(laid), after(*phases)


def _all_reduce(algorithm, n, at, segments):
    if algorithm == "recursive_doubling":
        return 1, exchange.recursive_doubling(n)
    if algorithm == "halving_doubling":
        return exchange.power_below(n), exchange.halving_doubling(n)
    if algorithm == "hierarchical":
        gather = hierarchical.all_gather(_domains(n, at))
        return n, after(mirror(gather, reduce=True), gather)
    parts, sends = _broadcast(algorithm, n, at, segments)
    return parts, after(mirror(sends, reduce=True), sends)


def _broadcast(algorithm, n, at, segments):
    """(pieces, sends) from rank 0."""
    ranks = list(range(n))
    if algorithm == "linear":
        return 1, list(trees.linear(ranks, [[0]] * n))
    if algorithm == "ring":
        return segments, list(rings.chain_broadcast(ranks, segments))
    if algorithm == "hierarchical":
        domains = _domains(n, at)
        return len(domains[0]), hierarchical.broadcast(domains)
    if algorithm == "double_tree":
        return 2 * segments, _two_level(lambda members: trees.double_binary(members, segments), n, at)
    if segments == 1:
        return 1, _two_level(lambda members: trees.binomial(members, [[0]] * len(members)), n, at)
    return segments, _two_level(lambda members: trees.binary(members, segments), n, at)


def _two_level(tree, n, at) -> list[Send]:
    """``tree`` over the first rank of every domain, then over the members of all domains at once."""
    domains = _domains(n, at)
    inside = [send for members in domains for send in tree(members)]
    return after(list(tree([members[0] for members in domains])), inside)


def _scatter(algorithm, n, at) -> list[Send]:
    if algorithm == "linear":
        return list(trees.linear(list(range(n)), [[rank] for rank in range(n)]))
    domains = _domains(n, at)
    across = list(trees.binomial([members[0] for members in domains], domains))
    inside = [send for members in domains for send in trees.binomial(members, [[rank] for rank in members])]
    return after(across, inside)
