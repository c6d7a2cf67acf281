"""The start of a distributed job in the order of the guide (5.3), with what each step tells.

Device, process group, topology, barrier. All ranks gather the topology and rank 0 prints it: rank 0 does
not know where the others are, and a gather inside ``if rank == 0`` waits for ranks that never come.
"""

import os
import platform
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from time import perf_counter

from labkit.errors import InputRefused
from labkit.evidence import bench_device, bench_network
from labkit.evidence.bench_options import BenchOptions
from labkit.units import format_time

_ENVIRONMENT = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


@dataclass(frozen=True, slots=True)
class Place:
    """Where one rank runs: host, process, device and its name, its contexts, what the network was told."""

    host: str
    local_rank: int
    pid: int
    device: str
    name: str
    contexts: tuple[int, ...]
    told: str


@dataclass(frozen=True, slots=True)
class Group:
    """A started job: this rank, its device, and where all ranks are (``places``, by rank)."""

    rank: int
    backend: str
    device: object
    places: tuple[Place, ...]


def rank_in_job() -> int:
    """This process's rank as torchrun put it into the environment; refused where it did not."""
    if missing := [name for name in _ENVIRONMENT if name not in os.environ]:
        raise InputRefused(
            f"{', '.join(missing)} not set: start the bench with torchrun --nproc-per-node 4 -m "
            "labkit.evidence.bench all_reduce, or with labkit bench all_reduce --ranks 4"
        )
    return int(os.environ["RANK"])


def start(options: BenchOptions, say: Callable[[str], None]) -> Group:
    """Start the job step by step; ``say`` takes the lines that rank 0 prints."""
    import torch.distributed as dist

    laps = _Laps()
    # 1) Bind the card first: what touches a GPU before makes its context on card 0, in every process.
    local_rank = int(os.environ["LOCAL_RANK"])
    backend = bench_device.choose_backend(options.backend)
    device = bench_device.bind(backend, local_rank)
    # 2) The group, on the interface that was named, with a limit that the slowest start keeps.
    bench_network.name_interface(backend, options.interface)
    log = bench_network.log_of_nccl(backend)
    dist.init_process_group(backend, init_method="env://", timeout=timedelta(minutes=options.timeout))
    laps.end("process group")
    # 3) All ranks gather where they are, then rank 0 prints. This first collective connects the ranks.
    places = gathered(_place(backend, device, local_rank))
    laps.end("gather")
    if dist.get_rank() == 0:
        say(topology(places))
    # 4) A barrier: nobody goes on before all are there, and from then on a shorter limit will do.
    dist.barrier(device_ids=[local_rank] if backend == "nccl" else None)
    laps.end("barrier")
    shorten_limit(options.run_timeout)
    networks = gathered(bench_network.chosen(backend, log))
    if dist.get_rank() == 0:
        say(f"network chosen: {_by_host(places, networks)}")
        say(f"seconds of the start, on rank 0: {laps}")
    return Group(dist.get_rank(), backend, device, tuple(places))


def gathered(mine) -> list:
    """What every rank has, by rank, on every rank: a collective, so all ranks must call it."""
    import torch.distributed as dist

    everyone = [None] * dist.get_world_size()
    dist.all_gather_object(everyone, mine)
    return everyone


def shorten_limit(minutes: float) -> None:
    """Give every later collective of the group this limit (torch has no public name for it)."""
    from torch.distributed.distributed_c10d import _set_pg_timeout

    _set_pg_timeout(timedelta(minutes=minutes))


def topology(places: list[Place]) -> str:
    """What rank 0 prints: every rank's host and device, contexts per card, what the network was told.

    >>> places = [Place("node01", k, 71 + k, f"cuda:{k}", "H200", (k,), "") for k in range(2)]
    >>> print(topology(places))
    rank 0: host node01, local rank 0, device cuda:0, H200, process 71
    rank 1: host node01, local rank 1, device cuda:1, H200, process 72
    contexts per card: node01 1 on card 0, 1 on card 1
    network told: not set
    """
    lines = [
        f"rank {rank}: host {at.host}, local rank {at.local_rank}, device {at.device}, {at.name}, "
        f"process {at.pid}"
        for rank, at in enumerate(places)
    ]
    if cards := contexts_per_card(places):
        lines.append(f"contexts per card: {_said(cards)}")
    return "\n".join([*lines, f"network told: {_by_host(places, [at.told for at in places])}"])


def contexts_per_card(places) -> dict[tuple[str, int], int]:
    """How many processes hold a context on each card, by host and card."""
    return dict(sorted(Counter((at.host, card) for at in places for card in at.contexts).items()))


def _said(cards: dict[tuple[str, int], int]) -> str:
    hosts = {host: [] for host, _ in cards}
    for (host, card), count in cards.items():
        hosts[host].append(f"{count} on card {card}")
    many = ": more than one on a card means that a process touched it before it bound its own"
    listed = "; ".join(f"{host} {', '.join(counts)}" for host, counts in hosts.items())
    return listed + (many if max(cards.values()) > 1 else "")


def _by_host(places: list[Place], values: list[str]) -> str:
    """One value where all ranks have the same, else each with its hosts."""
    hosts: dict[str, list[str]] = {}
    for at, value in zip(places, values, strict=True):
        hosts.setdefault(value or "not set", []).append(at.host)
    if len(hosts) == 1:
        return next(iter(hosts))
    return "; ".join(f"{value} on {', '.join(dict.fromkeys(on))}" for value, on in hosts.items())


def _place(backend: str, device, local_rank: int) -> Place:
    return Place(
        host=platform.node(),
        local_rank=local_rank,
        pid=os.getpid(),
        device=str(device),
        name=bench_device.name_of(device),
        contexts=bench_device.contexts(),
        told=bench_network.told(backend),
    )


@dataclass
class _Laps:
    """The seconds between the ends of the steps."""

    last: float = field(default_factory=perf_counter)
    seconds: dict[str, float] = field(default_factory=dict)

    def end(self, step: str) -> None:
        now = perf_counter()
        self.seconds[step], self.last = now - self.last, now

    def __str__(self):
        return ", ".join(f"{step} {format_time(seconds)}" for step, seconds in self.seconds.items())
