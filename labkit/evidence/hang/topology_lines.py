"""The lines in which NCCL says how it connects its ranks: channels, rings, trees, transports, distances.

Formats were read in src/init.cc, src/graph/{search,topo,paths,connect}.cc, src/transport/*.cc and
src/enqueue.cc of NCCL 2.4 to 2.29. Lines of every rank repeat each other; what one says twice counts once.
"""

import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

from labkit.evidence.hang.lines import LONGEST

_HEAD = re.compile(r"([A-Za-z0-9][\w.-]{0,252}):(\d{1,9}):\d{1,9} \[-?\d{1,4}\] (?:NCCL )?INFO ")
_VERSION = re.compile(r"\b([NR]CCL) version\s*:?\s*(\d[\w.+-]{0,60})")
_RING = re.compile(r"Channel (\d{1,4})(?:/(\d{1,4}))? :((?:\s+\d{1,7}){2,})\s*$")
_LINK = re.compile(
    r"(?:Channel|Ring) (\d{1,4})\S{0,10} : (\d{1,7})(?:\[\w{1,12}\])? -> (\d{1,7})(?:\[\w{1,12}\])? "
    r"(?:\[(?:send|receive)\] )?via (\S.{0,100})"
)
_TREE = re.compile(r"\[(\d{1,4})\] (-?[\d/-]{1,40})->(\d{1,7})->(-?[\d/-]{1,40})")
_CHANNELS = re.compile(r"\b(\d{1,4}) coll channels")
_TUNED = re.compile(
    r"(\w{1,30}): (\d{1,19}) Bytes -> Algo (\w{1,20}) proto (\w{1,10})"
    r"(?: channel\{Lo\.\.Hi\}=\{(\d{1,4})\.\.(\d{1,4})\})?(?: time ([\d.]{1,20}))?"
)
_OLD_DISTANCE = re.compile(r"CUDA Dev (\d{1,4})\[\d{1,4}\], (\S{1,20}) NIC distance :\s*((?:[A-Z]{2,4}\s*)+)")
_GDR = re.compile(
    r"GPU Direct RDMA (Disabled|Enabled) for GPU (\w{1,20}) / HCA (\w{1,20}) "
    r"\(distance (\d{1,3}) [<>=]{1,2} (\d{1,3})\)"
)
_NODE = re.compile(r"^(\s*)(?:\+ \w{2,4}\[[\d.]{1,12}\] - )?([A-Z]{2,4}/[\w-]{1,40})(?: \(.{0,60}\))?\s*$")
_PATHS = re.compile(r"^(GPU/[\w-]{1,40}) :")
_PATH = re.compile(r"(NET/[\w-]{1,40}) \(\d{1,3}/[\d.]{1,20}/([A-Z0-9]{2,4})\)")
_PLUGIN = re.compile(
    r"NET/OFI Initializing (aws-ofi-nccl \S{1,40})|Loaded net plugin (.{1,60}?) \(v?\d{1,3}\)"
)
# Algorithms and protocols were numbers until 2.23 (nccl_common.h).
_ALGORITHMS = ("TREE", "RING", "COLLNET_DIRECT", "COLLNET_CHAIN", "NVLS", "NVLS_TREE", "PAT")
_PROTOCOLS = ("LL", "LL128", "SIMPLE")
CUT_AFTER = 20  # ranks of a ring that NCCL prints at most: MAXWIDTH in src/graph/rings.cc


@dataclass(slots=True)
class Lines:
    """What the lines of one log say; versions, networks and plugins by host, "" where none is told."""

    versions: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    networks: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    plugins: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    processes: set[tuple[str, str]] = field(default_factory=set)
    channels: set[int] = field(default_factory=set)
    rings: dict[int, tuple[int, ...]] = field(default_factory=dict)
    trees: dict[int, dict[int, tuple[int | None, tuple[int, ...]]]] = field(default_factory=dict)
    links: set[tuple[int, int, int, str]] = field(default_factory=set)
    tuned: dict[tuple, int] = field(default_factory=dict)
    distances: dict[tuple[str, str, str], str] = field(default_factory=dict)
    behind: set[tuple[str, str, str]] = field(default_factory=set)  # host, PCIe switch, device
    direct: dict[tuple[str, str, str], tuple[bool, int, int]] = field(default_factory=dict)
    nvls: bool = False
    sharp: bool = False


def read_lines(text: str) -> Lines:
    """All lines of one text, sorted; what is none of them is passed over."""
    told, maps = Lines(), defaultdict(list)
    for host, pid, message in _messages(text):
        if host:
            told.processes.add((host, pid))
        if found := _VERSION.search(message):
            told.versions[host].add(f"{found[1]} {found[2]}")
        elif message.startswith("Using network "):
            told.networks[host].add(message[14:].strip())
        elif " via " in message:
            if found := _LINK.search(message):
                told.links.add((int(found[2]), int(found[3]), int(found[1]), found[4].strip()))
        elif found := _RING.match(message):
            told.rings.setdefault(int(found[1]), tuple(map(int, found[3].split())))
            told.channels.add(int(found[2]) if found[2] else int(found[1]) + 1)
        elif message.startswith("Trees "):
            _trees(told, message)
        elif "Bytes -> Algo" in message:
            if found := _TUNED.search(message):
                _tuned(told, found)
        else:
            _rest(told, host, message)
            _topology(told, maps[host, pid], host, message)
    return told


def _messages(text: str) -> Iterator[tuple[str, str, str]]:
    """Host, process and message of each line at level INFO; the version also stands in a line of its own."""
    for line in text.split("\n"):
        if " INFO " not in line and "CCL version" not in line:
            continue
        line = line[:LONGEST]
        head = _HEAD.search(line)
        while head:
            following = _HEAD.search(line, head.end()) if "INFO " in line[head.end() :] else None
            yield head[1], head[2], line[head.end() : following.start() if following else None].rstrip()
            head = following
        if not _HEAD.search(line) and "CCL version" in line:
            yield "", "", line


def _trees(told: Lines, message: str) -> None:
    """``children->rank->parent`` from 2.7 on, ``parent->rank->children`` before."""
    for channel, left, rank, right in _TREE.findall(message):
        children, parent = (left, right) if "/" in left or "/" not in right else (right, left)
        if message.count("/") == 0:
            children, parent = right, left
        ups = [int(one) for one in re.findall(r"-?\d{1,7}", parent)][:1]
        downs = tuple(int(one) for one in re.findall(r"-?\d{1,7}", children) if int(one) >= 0)
        up = ups[0] if ups and ups[0] >= 0 else None
        told.trees.setdefault(int(channel), {}).setdefault(int(rank), (up, downs))


def _tuned(told: Lines, found: re.Match) -> None:
    algorithm, protocol = found[3], found[4]
    if algorithm.isdigit():
        algorithm = _ALGORITHMS[int(algorithm)] if int(algorithm) < len(_ALGORITHMS) else algorithm
    if protocol.isdigit():
        protocol = _PROTOCOLS[int(protocol)] if int(protocol) < len(_PROTOCOLS) else protocol
    channels = int(found[6]) - int(found[5]) + 1 if found[5] else None
    key = (found[1], int(found[2]), algorithm.upper(), protocol.upper(), channels)
    told.tuned[key] = told.tuned.get(key, 0) + 1


def _rest(told: Lines, host: str, message: str) -> None:
    if found := _CHANNELS.search(message):
        told.channels.add(int(found[1]))
    elif found := _PLUGIN.search(message):
        told.plugins[host].add(found[1] or found[2])
    elif "NVLS multicast support is available" in message or message.startswith("Connected NVLS"):
        told.nvls = True
    elif found := _GDR.search(message):
        told.direct[host, found[2], found[3]] = (found[1] == "Enabled", int(found[4]), int(found[5]))
    elif found := _OLD_DISTANCE.search(message):
        for card, kind in enumerate(found[3].split()):
            told.distances[host, f"GPU {found[1]}", f"{found[2]} {card}"] = kind
    if "/SHARP" in message or "coll plugin SHARP" in message:
        told.sharp = True


def _topology(told: Lines, stack: list[tuple[int, str]], host: str, message: str) -> None:
    """NCCL's picture of the machine: who sits behind which switch, and the paths from GPU to card."""
    if _PATHS.match(message):
        gpu = _PATHS.match(message)[1]
        for card, kind in _PATH.findall(message):
            told.distances[host, gpu, card] = kind
    elif node := _NODE.match(message):
        depth = len(node[1])
        if "+" not in message:
            stack.clear()  # a CPU: its children follow
            depth = -1
        while stack and stack[-1][0] >= depth:
            stack.pop()
        switches = [name for _, name in stack if name.startswith("PCI/")]
        stack.append((depth, node[2]))
        told.behind.update((host, switch, node[2]) for switch in switches)
