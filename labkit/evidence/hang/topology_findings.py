"""What stands out in NCCL's choice of network and paths, each with what to do about it."""

import re
from collections import defaultdict
from dataclasses import dataclass

from labkit.evidence.hang.records import Evidence, Interface
from labkit.evidence.hang.topology_lines import Lines
from labkit.spec.rule import listed

# The names of path types (src/graph/topo.h); their numbers differ by release, so those say little.
DISTANCES = {
    "LOC": "the same device",
    "NVL": "NVLink",
    "NVB": "NVLink through another GPU",
    "C2C": "the chip-to-chip link",
    "PIX": "one PCIe switch",
    "PXB": "several PCIe switches",
    "PXN": "NVLink to a GPU beside the card",
    "PHB": "the CPU's PCIe root",
    "NODE": "two PCIe roots of one CPU",
    "SYS": "the link between CPUs",
}


@dataclass(frozen=True, slots=True)
class TopologyFinding:
    """One observation: ``kind`` for programs, ``message`` for people.

    Kinds: ``network_not_found gdr_not_active gdr_disabled socket_beside_ib virtual_interface plugins_differ
    versions_differ networks_differ interfaces_differ subnets_differ host_memory``.
    """

    kind: str
    message: str


def find(told: Lines, evidence: Evidence, transports: set[str]) -> list[TopologyFinding]:
    """All findings; ``transports``: those that links use."""
    interfaces = evidence.interfaces
    found = [*_not_found(evidence), *_direct(told), *_socket(told, interfaces), *_virtual(interfaces)]
    for kind, what, by_host in (
        ("versions_differ", "NCCL", told.versions),
        ("plugins_differ", "network plugin", told.plugins),
        ("networks_differ", "network", told.networks),
    ):
        found += _differ(kind, what, by_host)
    found += _interfaces(interfaces)
    if any(one.startswith("SHM") for one in transports):
        message = (
            "GPUs of one host exchange data through its memory (SHM), not directly: on PCIe without peer "
            "access that is normal, between NVLinked GPUs it is not; see nvidia-smi topo -p2p r"
        )
        found.append(TopologyFinding("host_memory", message))
    return found


def _not_found(evidence: Evidence) -> list[TopologyFinding]:
    words = {
        note.words.removeprefix("Error: "): note.host for note in evidence.notes if note.kind == "no network"
    }
    return [
        TopologyFinding(
            "network_not_found",
            f"{host or 'a rank'}: {said.rstrip('.')}; check that the plugin is installed on every host and "
            "that LD_LIBRARY_PATH and NCCL_NET name it",
        )
        for said, host in sorted(words.items())
    ]


def _direct(told: Lines) -> list[TopologyFinding]:
    switches: dict[tuple[str, str], set[str]] = defaultdict(set)
    for host, switch, node in told.behind:
        switches[host, node].add(switch)
    near = []
    for (host, gpu, card), kind in sorted(told.distances.items()):
        shared = switches.get((host, gpu), set()) & switches.get((host, card), set())
        if kind == "PHB" and shared:
            near.append((host, gpu, card, min(shared)))
    found = []
    if near:
        host, gpu, card, switch = near[0]
        message = (
            f"{gpu} and {card} of {host} sit on one PCIe switch ({switch}), yet the path between them is "
            "PHB, through the CPU: GPUDirect RDMA is not active, so every byte for the network passes the "
            "CPU's memory; load nvidia-peermem (or use DMA-BUF) and switch ACS off on that switch"
        )
        found.append(TopologyFinding("gdr_not_active", message))
    off = sorted(key for key, (enabled, *_) in told.direct.items() if not enabled)
    on = {key[:2] for key, (enabled, *_) in told.direct.items() if enabled}
    lacking = [key for key in off if key[:2] not in on]
    if lacking:
        host, gpu, card = lacking[0]
        _, distance, level = told.direct[lacking[0]]
        message = (
            f"GPU {gpu} of {host} has no card near enough for GPUDirect RDMA (the nearest that is named: HCA "
            f"{card}, distance {distance}, allowed {level}): its data passes the CPU's memory; "
            "NCCL_NET_GDR_LEVEL=SYS allows it over any distance, which is not always faster"
        )
        found.append(TopologyFinding("gdr_disabled", message))
    return found


def _socket(told: Lines, interfaces: list[Interface]) -> list[TopologyFinding]:
    used = {one for names in told.networks.values() for one in names}
    cards = sorted({one.name for one in interfaces if one.purpose == "ib"})
    over_ib = sorted({one.name for one in interfaces if re.match(r"ib\d|ibp|hsn", one.name)})
    if "Socket" not in used or not (cards or over_ib):
        return []
    message = (
        f"the network is Socket (TCP) although the hosts have {listed(cards or over_ib, 'and')}: training "
        "will run several times slower; look for the line that says why NET/IB or the plugin gave up, for "
        "NCCL_IB_DISABLE=1, and for libibverbs in the container"
    )
    return [TopologyFinding("socket_beside_ib", message)]


def _virtual(interfaces: list[Interface]) -> list[TopologyFinding]:
    names = sorted({one.name for one in interfaces if one.virtual})
    if not names:
        return []
    hosts = sorted({one.host for one in interfaces if one.virtual})
    message = (
        f"{listed(hosts, 'and')} use {listed(names, 'and')}: no other host is reached through it; set "
        "NCCL_SOCKET_IFNAME to the interface of the cluster's network, or to ^docker,lo"
    )
    return [TopologyFinding("virtual_interface", message)]


def _differ(kind: str, what: str, by_host: dict[str, set[str]]) -> list[TopologyFinding]:
    every = sorted({one for names in by_host.values() for one in names})
    if len(every) < 2:
        return []
    parts = [f"{one} on {_hosts(host for host, names in by_host.items() if one in names)}" for one in every]
    message = f"more than one {what} in one log: {'; '.join(parts)}: install the same on all hosts"
    return [TopologyFinding(kind, message)]


def _hosts(names) -> str:
    names = sorted(name or "hosts that are not named" for name in names)
    return listed(names if len(names) <= 4 else [*names[:3], f"{len(names) - 3} more"], "and")


def _interfaces(interfaces: list[Interface]) -> list[TopologyFinding]:
    """Hosts that chose interfaces of other names, or of other subnets, for one purpose."""
    found = []
    sockets = [one for one in interfaces if one.purpose in ("bootstrap", "socket") and not one.virtual]
    by_host: dict[str, set[str]] = defaultdict(set)
    subnets: dict[str, dict[str, str]] = defaultdict(dict)
    for one in sockets:
        by_host[one.host].add(one.name)
        if subnet := _subnet(one.address):
            subnets[one.name][subnet] = one.host
    if by_host and not set.intersection(*by_host.values()):
        parts = [f"{', '.join(sorted(names))} on {host}" for host, names in sorted(by_host.items())]
        more = f" and {len(parts) - 4} more hosts" if len(parts) > 4 else ""
        message = f"hosts chose different interfaces: {'; '.join(parts[:4])}{more}; set NCCL_SOCKET_IFNAME"
        found.append(TopologyFinding("interfaces_differ", message))
    for name, nets in sorted(subnets.items()):
        if len(nets) > 1:
            parts = [f"{net} on {host}" for net, host in sorted(nets.items())][:4]
            message = (
                f"{name} is in different networks: {'; '.join(parts)}; where no route leads between them the "
                "ranks do not come together"
            )
            found.append(TopologyFinding("subnets_differ", message))
    return found


def _subnet(address: str) -> str:
    """The first two numbers of an IPv4 address: what the hosts of one cluster network share at least."""
    found = re.fullmatch(r"(\d{1,3}\.\d{1,3})\.\d{1,3}\.\d{1,3}", address)
    return f"{found[1]}.x.x" if found else ""
