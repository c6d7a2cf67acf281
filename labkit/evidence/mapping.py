"""Which rank runs where: read from what the launcher printed, checked, and put in order (claim 5.1-b)."""

import os
from dataclasses import dataclass, field

from labkit.errors import InputRefused
from labkit.evidence.mapping_text import Seat, read_seats
from labkit.evidence.sweep_source import check_readable, text_of
from labkit.spec.checks import label, noun, shown
from labkit.spec.rule import counted

_SHOWN = 8  # ranks or hosts that a sentence lists before it breaks off


@dataclass(frozen=True, slots=True)
class Mapping:
    """The host and the device of every rank, in rank order; ``source`` says what kind of listing it was.

    A device counts on its host, from 0; not given, the ranks of a host count them in order. ``warnings``:
    what the listing shows that should not be so. Refused: no hosts at all, and devices of another number.

    >>> Mapping(("a", "b", "a", "b"), (0, 0, 1, 1)).consecutive
    False
    """

    hosts: tuple[str, ...]
    devices: tuple[int, ...] = ()
    source: str = "given"
    warnings: tuple[str, ...] = field(default=(), compare=False)

    def __post_init__(self):
        for name in ("hosts", "devices", "warnings"):
            value = getattr(self, name)
            if not isinstance(value, tuple | list):
                raise InputRefused(f"{name} of a mapping is {shown(value)}; give a tuple, one value a rank")
            object.__setattr__(self, name, tuple(value))
        if not self.hosts:
            raise InputRefused("a mapping without ranks says nothing; name the host of every rank")
        for host in self.hosts:
            noun(host, str, "a host of a mapping")
        label(self.source, "the source of a mapping")
        if not self.devices:
            object.__setattr__(self, "devices", _by_order(self.hosts))
        if len(self.devices) != len(self.hosts):
            raise InputRefused(
                f"a mapping has {len(self.hosts)} hosts and {len(self.devices)} devices; give both for each "
                "rank, or hosts alone"
            )

    @property
    def ranks(self) -> int:
        """Ranks in all."""
        return len(self.hosts)

    @property
    def ranks_on(self) -> dict[str, list[int]]:
        """The ranks of each host; hosts in the order in which the ranks come to them."""
        found: dict[str, list[int]] = {}
        for rank, host in enumerate(self.hosts):
            found.setdefault(host, []).append(rank)
        return found

    @property
    def consecutive(self) -> bool:
        """Whether each host is full before the next one begins: what the guide checks by eye."""
        return all(ranks[-1] - ranks[0] == len(ranks) - 1 for ranks in self.ranks_on.values())

    @property
    def order(self) -> str:
        """``block``, where consecutive; ``cyclic``, where the ranks go round the hosts; else ``mixed``."""
        if self.consecutive:
            return "block"
        hosts = list(self.ranks_on)
        round_trip = all(host == hosts[rank % len(hosts)] for rank, host in enumerate(self.hosts))
        return "cyclic" if round_trip else "mixed"

    @property
    def block_order(self) -> list[int]:
        """The ranks host by host: rank i of a launch in block order sits where rank ``block_order[i]`` does.

        >>> Mapping(("a", "b", "a", "b")).block_order
        [0, 2, 1, 3]
        """
        return [rank for ranks in self.ranks_on.values() for rank in ranks]

    def in_order(self) -> "Mapping":
        """The same seats with the ranks numbered host by host."""
        order = self.block_order
        return Mapping(
            tuple(self.hosts[rank] for rank in order),
            tuple(self.devices[rank] for rank in order),
            "block order",
        )

    def __repr__(self) -> str:
        """The facts in one line."""
        hosts = counted(len(self.ranks_on), "host")
        return f"Mapping({counted(self.ranks, 'rank')} on {hosts}, {self.order} order, from {self.source})"


def read_mapping(path_or_text: str | os.PathLike) -> Mapping:
    """Where every rank runs, from a listing that may stand between other lines.

    Read are the print of labkit's bench, the device list at the head of an nccl-tests log, ``srun -l
    hostname``, ``mpirun --display-map`` (Open MPI 1.3 to 5.0), and a table of rank, host and device, with
    commas, tabs or blanks, under a head or in just these three columns. A ``str`` with a newline is the
    listing itself, anything else a path. Where devices are not told, the ranks of a host count them in order.
    Refused: a text without such a listing, missing ranks, and a rank on two hosts or devices.

    >>> read_mapping("job starts\\n0: nodeA\\n1: nodeB\\n3: nodeB\\n2: nodeA\\n")
    Mapping(4 ranks on 2 hosts, cyclic order, from srun -l hostname)
    """
    text, path = text_of(path_or_text, "a mapping")
    what = path or "the text"
    check_readable(text, what, "a listing of ranks and hosts")
    kind, seats = read_seats(text)
    if not seats:
        raise InputRefused(
            f"{what} names no rank and host; give the output of srun -l hostname, of mpirun --display-map, "
            "of labkit bench or of nccl-tests, or a table with the columns rank, host and device"
        )
    by_rank: dict[int, Seat] = {}
    for seat in seats:
        first = by_rank.setdefault(seat.rank, seat)
        if (first.host, first.local, first.device) != (seat.host, seat.local, seat.device):
            raise InputRefused(
                f"{what}: rank {seat.rank} is on {_seat(first)} in line {first.line} and on {_seat(seat)} in "
                f"line {seat.line}; give the listing of one launch"
            )
    missing = sorted({*range(max(by_rank) + 1)} - {*by_rank})
    if missing:
        said = f"rank {missing[0]} is" if len(missing) == 1 else f"ranks {_listed(missing)} are"
        raise InputRefused(
            f"{what}: {said} missing of 0 to {max(by_rank)}; give the whole listing, and look whether those "
            "processes came up"
        )
    ordered = [by_rank[rank] for rank in range(len(by_rank))]
    hosts = tuple(seat.host for seat in ordered)
    counted_devices = _by_order(hosts)
    devices = tuple(
        next(number for number in (seat.device, seat.local, by_count) if number is not None)
        for seat, by_count in zip(ordered, counted_devices, strict=True)
    )
    return Mapping(hosts, devices, kind, tuple(_warnings(ordered, Mapping(hosts, devices))))


def _seat(seat: Seat) -> str:
    number = seat.device if seat.device is not None else seat.local
    return seat.host if number is None else f"{seat.host}, device {number}"


def _by_order(hosts) -> tuple[int, ...]:
    """Devices of ranks that only name their hosts: those of a host count in rank order."""
    seen: dict[str, int] = {}
    found = []
    for host in hosts:
        found.append(seen.get(host, 0))
        seen[host] = found[-1] + 1
    return tuple(found)


def _warnings(seats: list[Seat], mapping: Mapping) -> list[str]:
    """What is wrong with a listing that can be read all the same."""
    says = []
    shared: dict[tuple[str, int], list[int]] = {}
    for seat, device in zip(seats, mapping.devices, strict=True):
        shared.setdefault((seat.host, device), []).append(seat.rank)
    twice = {place: ranks for place, ranks in shared.items() if len(ranks) > 1}
    if twice:
        (host, device), ranks = next(iter(twice.items()))
        more = f" ({len(twice) - 1} more devices are shared)" if len(twice) > 1 else ""
        says.append(
            f"ranks {_listed(ranks)} share device {device} of {host}{more}: bind each process to its own, "
            "by its local rank, before the group is formed"
        )
    counts = {host: len(ranks) for host, ranks in mapping.ranks_on.items()}
    if len(set(counts.values())) > 1:
        listed = _listed([f"{host} {count}" for host, count in counts.items()])
        says.append(f"the hosts have unequal numbers of ranks ({listed}): groups cannot fill all of them")
    astray = [
        host for host, ranks in mapping.ranks_on.items()
        if [mapping.devices[rank] for rank in ranks] != sorted(mapping.devices[rank] for rank in ranks)
    ]  # fmt: skip
    if astray:
        says.append(
            f"on {_listed(astray)} the devices do not follow the ranks: it costs nothing where all GPUs of a "
            "host are joined alike, and does where they are joined in pairs or share ports"
        )
    return says


def _listed(values: list) -> str:
    rest = len(values) - _SHOWN
    return ", ".join(map(str, values[:_SHOWN])) + (f" and {rest} more" if rest > 0 else "")
