"""From NCCL's debug log to how the ranks are connected, in words that need no knowledge of NCCL."""

import os
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from labkit.errors import InputRefused
from labkit.evidence.hang.joined import join
from labkit.evidence.hang.records import Evidence, Interface
from labkit.evidence.hang.signature import ranks_said
from labkit.evidence.hang.text import read_text
from labkit.evidence.hang.topology_findings import DISTANCES, TopologyFinding, find
from labkit.evidence.hang.topology_lines import CUT_AFTER, Lines, read_lines
from labkit.evidence.sweep_source import check_readable, text_of
from labkit.spec.rule import counted, listed
from labkit.units import format_size

_SHOWN = 8  # hosts, rings, sizes that are listed before "and more"
# The first word of a transport, and what carries the data there.
TRANSPORTS = {
    "P2P/CUMEM": "GPU to GPU inside a host, over NVLink or PCIe",
    "P2P/IPC": "GPU to GPU inside a host, over NVLink or PCIe",
    "P2P/direct pointer": "GPU to GPU inside one process, over NVLink or PCIe",
    "P2P/indirect": "GPU to GPU inside a host, through a third GPU",
    "P2P": "GPU to GPU inside a host, over NVLink or PCIe",
    "SHM": "through the host's memory",
    "NET/Socket": "over the network by TCP, through the CPUs",
    "NET/IB": "over InfiniBand or RoCE cards",
    "NET/IBext": "over InfiniBand cards, by a plugin",
    "NET": "over the network, by a plugin",
    "COLL": "reduction inside the switches (SHARP)",
    "NVLS": "reduction inside the NVSwitch",
}


@dataclass(frozen=True, slots=True, repr=False)
class Topology:
    """How one job is connected, as its log says; what the log does not say is empty or None.

    ``version``: of NCCL or RCCL; ``hosts``: host -> its ranks, empty where no line tells them; ``processes``:
    host -> number of processes; ``n_ranks``: of the largest communicator; ``channels``: how many rings carry
    data side by side; ``rings``: channel -> ranks in the order of the ring; ``rings_cut``: NCCL printed the
    first 20 ranks alone; ``trees``: channel -> rank -> (parent, children); ``transports``: name -> directed
    links (channels counted apart); ``networks``: chosen ones; ``interfaces``; ``algorithms``: (operation,
    bytes, algorithm, protocol, channels, times); ``distances``: (host, GPU, card) -> path; ``direct``:
    whether the network reads GPU memory itself (GPUDirect RDMA), None where no network link is printed.
    """

    version: str
    hosts: dict[str, tuple[int, ...]]
    processes: dict[str, int]
    n_ranks: int | None
    channels: int | None
    rings: dict[int, tuple[int, ...]]
    rings_cut: bool
    trees: dict[int, dict[int, tuple[int | None, tuple[int, ...]]]]
    transports: dict[str, int]
    networks: tuple[str, ...]
    interfaces: tuple[Interface, ...]
    algorithms: tuple[tuple, ...]
    distances: dict[tuple[str, str, str], str]
    direct: bool | None
    nvls: bool
    sharp: bool
    findings: tuple[TopologyFinding, ...]

    def __repr__(self):
        lines = [pair for part in (self._where(), self._shape(), self._paths()) for pair in part]
        lines += [("finding", one.message) for one in self.findings]
        return "\n".join(f"{name:<11} {words}" for name, words in lines)

    def _where(self):
        yield "library", self.version or "not named in this log"
        hosts = []
        for host in list(self.processes)[:_SHOWN]:
            ranks = self.hosts.get(host, ())
            hosts.append(f"{host}: {ranks_said(ranks) if ranks else _processes_said(self.processes[host])}")
        more = len(self.processes) - _SHOWN
        yield "hosts", "; ".join(hosts) + (f"; {more} more" if more > 0 else "") or "none named"
        if self.networks:
            yield "network", f"{listed(self.networks, 'or')} between hosts"
        for purpose, words in _PURPOSES.items():
            names = sorted({one.name for one in self.interfaces if one.purpose == purpose})
            if names:
                shown = ", ".join(names[:_SHOWN]) + (
                    f", {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
                )
                yield "", f"{shown}: {words}"

    def _shape(self):
        if self.channels is not None:
            yield "channels", f"{self.channels}: so many rings or trees carry the data side by side"
        for channel, ring in sorted(self.rings.items())[:2]:
            cut = f" ... (cut by NCCL after {CUT_AFTER} ranks)" if self.rings_cut else f" -> {ring[0]}"
            yield f"ring {channel}", " -> ".join(map(str, ring)) + cut
        if len(self.rings) > 2:
            yield "", f"{len(self.rings) - 2} more rings"
        for channel, tree in sorted(self.trees.items())[:1]:
            yield f"tree {channel}", _tree_said(tree)

    def _paths(self):
        for name, links in sorted(self.transports.items()):
            yield "links", f"{links} by {name}: {_carrier(name)}"
        if self.direct is not None:
            how = "reads and writes GPU memory itself" if self.direct else "goes through the host's memory"
            yield "", f"the network {how} ({'' if self.direct else 'no '}GPUDirect RDMA)"
        if self.nvls:
            yield "NVLS", "the NVSwitch can add up by itself inside a host"
        if self.sharp:
            yield "SHARP", "the InfiniBand switches can add up by themselves"
        for kind, pairs in sorted(Counter(self.distances.values()).items()):
            yield "distance", f"{counted(pairs, 'GPU and card')} at {kind}: {DISTANCES.get(kind, 'unknown')}"
        for operation, size, algorithm, protocol, channels, times in self.algorithms[:_SHOWN]:
            on = f" on {counted(channels, 'channel')}" if channels else ""
            again = f", {times} times" if times > 1 else ""
            yield "chosen", f"{operation} of {format_size(size)}: {algorithm} with {protocol}{on}{again}"


_PURPOSES = {
    "bootstrap": "where ranks find each other at the start (TCP)",
    "socket": "carries the data, by TCP",
    "ib": "cards that carry the data",
}


def read_topology(source: str | os.PathLike | Iterable[str | os.PathLike]) -> Topology:
    """How the ranks of a job are connected, from its log at NCCL_DEBUG=INFO.

    ``source``: a path, a text with its line ends, or paths of several logs of one job. Channels and paths are
    printed by the subsystems INIT and GRAPH, algorithms by TUNING. Refused: what cannot be read, is no text,
    or has no line of NCCL that tells any of this.
    """
    told, evidence = Lines(), Evidence()
    given = [source] if isinstance(source, str | os.PathLike) else source
    if isinstance(given, bytes) or not isinstance(given, Iterable):
        raise InputRefused(f"a topology is read from paths or text, not from {type(source).__name__}")
    names = []
    for one in given:
        text, path = text_of(one, "a topology")
        names.append(path or "the text")
        check_readable(text, names[-1], "the log of a job at NCCL_DEBUG=INFO")
        evidence.add(read_text(text, names[-1]))
        _add(told, read_lines(text))
    join(evidence)
    known = (told.versions, told.networks, told.rings, told.trees, told.links, told.tuned, told.distances)
    if not any((*known, told.direct, evidence.communicators, evidence.interfaces)):
        what = listed(names[:3], "and") if names else "the list"
        raise InputRefused(
            f"{what} has no line of NCCL that tells how ranks are connected; run the job with "
            "NCCL_DEBUG=INFO and NCCL_DEBUG_SUBSYS=INIT,GRAPH,TUNING"
        )
    return _topology(told, evidence)


def _add(told: Lines, other: Lines) -> None:
    for name in Lines.__slots__:
        kept, more = getattr(told, name), getattr(other, name)
        if isinstance(more, bool):
            setattr(told, name, kept or more)
        elif name in ("versions", "networks", "plugins"):
            for host, values in more.items():
                kept[host] |= values
        else:
            kept.update(more)


def _topology(told: Lines, evidence: Evidence) -> Topology:
    transports = Counter(_transport(via) for *_, via in told.links)
    networked = [via for *_, via in told.links if via.startswith("NET/")]
    sizes = [one.group.size for one in evidence.communicators if one.group.size]
    n_ranks = max(sizes, default=None)
    lengths = {len(ring) for ring in told.rings.values()}
    interfaces = _unique(evidence.interfaces)
    algorithms = tuple(
        (*key, times) for key, times in sorted(told.tuned.items(), key=lambda item: item[0][:2])
    )
    versions = sorted({one for names in told.versions.values() for one in names})
    return Topology(
        version=" and ".join(versions),
        hosts=_hosts(evidence),
        processes=dict(sorted(Counter(host for host, _ in told.processes).items())),
        n_ranks=n_ranks,
        channels=max(told.channels, default=None),
        rings=told.rings,
        rings_cut=n_ranks is not None and lengths == {CUT_AFTER} and n_ranks > CUT_AFTER,
        trees=told.trees,
        transports=dict(transports),
        networks=tuple(sorted({one for names in told.networks.values() for one in names})),
        interfaces=tuple(interfaces),
        algorithms=algorithms,
        distances=dict(told.distances),
        direct=any("GDRDMA" in via for via in networked) if networked else None,
        nvls=told.nvls,
        sharp=told.sharp,
        findings=tuple(find(told, evidence, set(transports))),
    )


def _transport(via: str) -> str:
    """The part of a transport's name that tells what carries the data."""
    if via.startswith("NET/"):
        return "/".join(via.split("/")[:2]).split("(")[0]
    return next((name for name in TRANSPORTS if via.startswith(name)), via.split("/")[0])


def _carrier(name: str) -> str:
    return TRANSPORTS.get(name) or TRANSPORTS.get(name.split("/")[0], "unknown")


def _hosts(evidence: Evidence) -> dict[str, tuple[int, ...]]:
    ranks: dict[str, set[int]] = {}
    for one in evidence.communicators:
        if one.host and one.rank is not None:
            ranks.setdefault(one.host, set()).add(one.rank)
    return {host: tuple(sorted(ranks[host])) for host in sorted(ranks, key=lambda host: min(ranks[host]))}


def _processes_said(count: int) -> str:
    return "1 process" if count == 1 else f"{count} processes"


def _unique(interfaces: list[Interface]) -> list[Interface]:
    """Each interface of each host once, whichever of its processes named it."""
    seen = {(one.host, one.purpose, one.name, one.address): one for one in reversed(interfaces)}
    return sorted(seen.values(), key=lambda one: (one.host, one.purpose, one.name))


def _tree_said(tree: dict[int, tuple[int | None, tuple[int, ...]]]) -> str:
    roots = [rank for rank, (up, _) in sorted(tree.items()) if up is None]
    parts = [
        f"{rank} adds up {' and '.join(map(str, downs))}"
        for rank, (_, downs) in sorted(tree.items())
        if downs
    ]
    root = f"root {roots[0]}; " if roots else ""
    return root + "; ".join(parts[:4]) + (f"; {len(parts) - 4} more" if len(parts) > 4 else "")
