"""Which node, or which link, is slow: told from the bandwidth between pairs of nodes, with few measurements.

A collective over many nodes is as slow as its slowest link and does not say which. A pair at full bandwidth
clears both its nodes at once, so half as many measurements as nodes split them in sound and suspect; each
suspect is then measured against sound ones. Sound pairs must also join all sound nodes, so that nothing
between two groups of them is missed: in all about as many measurements as nodes, in log2 as many rounds.
Pairs of one round share no node, so that they can run at the same time.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from labkit.errors import InputRefused
from labkit.spec.checks import amount, label, shown
from labkit.strategies.checks import share as as_share
from labkit.units import format_rate

MOST_NODES = 4096


@dataclass(frozen=True, slots=True, repr=False)
class PairReport:
    """What pairs of nodes say. Bytes/s; nodes by name, in the order given.

    ``expected``: bandwidth of a sound pair; ``limit``: below it a pair is slow. ``slow_nodes``: slow towards
    two or more sound nodes, some of every group. ``slow_links``: pairs of sound nodes that are slow together;
    ``groups``: groups of sound nodes, where slow links lie between groups only. ``suspects``: nodes of slow
    pairs that nothing has cleared or convicted yet. ``next_pairs``: what to measure next, at the same time;
    empty when all is told.
    """

    expected: float | None
    limit: float | None
    slow_nodes: tuple[str, ...]
    slow_links: tuple[tuple[str, str], ...]
    groups: tuple[tuple[str, ...], ...]
    suspects: tuple[str, ...]
    next_pairs: tuple[tuple[str, str], ...]

    def __repr__(self):
        lines = []
        if self.limit is not None:
            lines = [
                f"slow is below {format_rate(self.limit)}; a sound pair has {format_rate(self.expected)}"
            ]
        lines += [f"slow node: {name}" for name in self.slow_nodes]
        if self.groups:
            lines.append(f"slow between groups: {' | '.join(_listed(group) for group in self.groups)}")
        else:
            lines += [f"slow link: {a} - {b}, both sound towards others" for a, b in self.slow_links]
        lines += [f"suspect: {_listed(self.suspects)}"] if self.suspects else []
        lines += [f"measure next, at once: {_pairs(self.next_pairs)}"] if self.next_pairs else []
        if self.limit is not None and len(lines) == 1:
            lines.append("no pair is slow")
        return "\n".join(lines)


def slow_pairs(
    nodes: Sequence[str],
    measured: Mapping[tuple[str, str], float],
    expected: float | None = None,
    share: float = 0.8,
) -> PairReport:
    """Names slow nodes and links from ``measured``: {(node, node): bytes/s}, and the pairs to measure next.

    ``nodes``: neighbours on a switch beside each other, so that the first round pairs them. ``expected``:
    bytes/s of a sound pair; left out, that of the fastest pair, which cannot tell when all are slow. A pair
    is slow below ``share`` of it. Of a pair measured in both orders the faster counts: other jobs only ever
    slow it down. With no measurement yet the report holds the first round. Refused: fewer than 2 nodes, names
    twice, pairs of other nodes, rates not above 0.

    >>> nodes = ["a", "b", "c", "d"]
    >>> slow_pairs(nodes, {}).next_pairs
    (('a', 'b'), ('c', 'd'))
    >>> slow_pairs(nodes, {("a", "b"): 80e9, ("c", "d"): 40e9}).next_pairs
    (('a', 'c'), ('b', 'd'))
    >>> slow_pairs(nodes, {("a", "b"): 80e9, ("c", "d"): 40e9, ("a", "c"): 80e9, ("b", "d"): 41e9})
    slow is below 64 GB/s; a sound pair has 80 GB/s
    slow node: d
    """
    nodes, rates = _checked(nodes, measured)
    share = as_share(share, "the share of the expected bandwidth below which a pair is slow")
    if expected is not None:
        expected = float(amount(expected, "the expected bandwidth of a pair, in bytes/s,", arrays=False))
    elif rates:
        expected = max(rates.values())
    if not rates:
        return PairReport(expected, None, (), (), (), (), _matching(nodes, nodes, set()))
    limit = share * expected
    slow = {pair for pair, rate in rates.items() if rate < limit}
    good = {node for pair in rates.keys() - slow for node in pair}
    sound, others = [n for n in nodes if n in good], [n for n in nodes if n not in good]
    joined = _joined(sound, rates.keys() - slow)
    group = {node: i for i, members in enumerate(joined) for node in members}
    towards: dict[str, set] = {node: set() for node in nodes}
    for a, b in map(tuple, slow):
        towards[a].add(b)
        towards[b].add(a)
    known = {n: [group[o] for o in towards[n] & good] for n in others}  # groups that it is slow towards
    convicted = [n for n in others if len(known[n]) >= 2 and len(set(known[n])) == len(joined)]
    still_open = [n for n in others if n not in convicted]
    links = _in_order(nodes, [pair for pair in slow if pair <= good])
    # A second sound partner for each, sound nodes among themselves, and last whoever lacks a group.
    following = _matching([n for n in still_open if len(known[n]) < 2], sound or nodes, set(rates))
    following += _between(joined, slow, {node for pair in following for node in pair})
    if not following:
        lacking = {n: [o for o in sound if group[o] not in known[n]] for n in still_open}
        following = _matching([n for n in lacking if lacking[n]], sound, set(rates), lacking)
    inside = any(group[a] == group[b] for a, b in links)
    return PairReport(
        expected,
        limit,
        tuple(convicted),
        links,
        () if following or inside or len(joined) < 2 else tuple(map(tuple, joined)),
        tuple(n for n in still_open if towards[n]),
        _in_order(nodes, following),
    )


def _in_order(nodes, pairs) -> tuple[tuple[str, str], ...]:
    """The pairs as the nodes are listed."""
    at = {node: i for i, node in enumerate(nodes)}
    return tuple(
        sorted((tuple(sorted(pair, key=at.get)) for pair in pairs), key=lambda p: (at[p[0]], at[p[1]]))
    )


def _matching(wanted, partners, done: set, only: dict | None = None) -> tuple[tuple[str, str], ...]:
    """Each of ``wanted`` with the first free partner (of ``only`` its own) not measured with it yet."""
    used, pairs = set(), []
    for node in wanted:
        choice = partners if only is None else only[node]
        free = (p for p in choice if p not in used and p != node and frozenset((node, p)) not in done)
        partner = None if node in used else next(free, None)
        if partner is not None:
            used |= {node, partner}
            pairs.append((node, partner))
    return tuple(pairs)


def _joined(sound: list[str], pairs) -> list[list[str]]:
    """The sound nodes in groups that sound pairs join."""
    group = {node: [node] for node in sound}
    for a, b in map(tuple, pairs):
        if group[a] is not group[b]:
            more, less = sorted((group[a], group[b]), key=len, reverse=True)
            more += less
            for node in less:
                group[node] = more
    order = {node: at for at, node in enumerate(sound)}
    found = {id(members): sorted(members, key=order.get) for members in group.values()}
    return sorted(found.values(), key=lambda members: order[members[0]])


def _between(joined: list[list[str]], slow, busy: set) -> tuple[tuple[str, str], ...]:
    """One more pair between groups, of nodes not busy, no group twice.

    Two slow pairs without a common node tell a slow path.
    """
    at = {node: i for i, group in enumerate(joined) for node in group}
    tried: dict[frozenset, set] = {}
    for pair in slow:
        if pair <= at.keys():
            tried.setdefault(frozenset(at[node] for node in pair), set()).update(pair)
    free, pairs = list(range(len(joined))), []
    while free:
        i = free.pop(0)
        for j in free:
            ends = tried.get(frozenset((i, j)), set())
            taken = ends | busy
            fresh = tuple(next((node for node in joined[k] if node not in taken), None) for k in (i, j))
            if len(ends) < 4 and None not in fresh:
                free.remove(j)
                pairs.append(fresh)
                break
    return tuple(pairs)


def _checked(nodes, measured) -> tuple[list[str], dict[frozenset, float]]:
    """The nodes as a list, and the rate of each pair whatever its order."""
    if isinstance(nodes, str) or not isinstance(nodes, Sequence) or not 2 <= len(nodes) <= MOST_NODES:
        raise InputRefused(f"pairs need the names of 2 to {MOST_NODES:,} nodes; give a list of them")
    nodes = [label(node, "the name of a node") for node in nodes]
    if len(set(nodes)) < len(nodes):
        twice = next(node for node in nodes if nodes.count(node) > 1)
        raise InputRefused(f"node {shown(twice)} is named twice; name each once")
    if not isinstance(measured, Mapping):
        raise InputRefused(f"the measured pairs are {shown(measured)}; give {{(node, node): bytes/s}}")
    known, rates = set(nodes), {}
    for pair, rate in measured.items():
        if not (isinstance(pair, tuple) and len(pair) == 2 and set(pair) <= known and pair[0] != pair[1]):
            raise InputRefused(f"a measured pair is {_said(pair)}; give two of the nodes, as ('a', 'b')")
        rate = float(amount(rate, f"the bandwidth between {pair[0]} and {pair[1]}", arrays=False))
        both = frozenset(pair)
        rates[both] = max(rate, rates.get(both, 0.0))
    return nodes, rates


def _said(pair) -> str:
    return " and ".join(map(shown, pair)) if isinstance(pair, tuple) and len(pair) <= 4 else shown(pair)


def _listed(names, most: int = 8) -> str:
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def _pairs(pairs) -> str:
    return _listed(tuple(f"{a} - {b}" for a, b in pairs))
