"""Gpu, Link and Cluster: bytes per second are those of **one direction**, as network ports are quoted.

Vendors quote links inside a node as the sum of both directions (NVLink 900 GB/s = 2 x 450) and network ports
per direction and in bits (400 Gb/s = 50 GB/s each way, at once). ``one_direction`` converts both conventions.
"""

from dataclasses import dataclass, field, replace

import numpy as np

from labkit.errors import InputRefused
from labkit.spec.checks import LARGEST, amount, broadcasting, label, noun, one_of, whole
from labkit.spec.kernels import Kernels
from labkit.units import plain


@dataclass(frozen=True, slots=True)
class Link:
    """One hop: ``alpha`` seconds per message and ``bandwidth`` bytes/s per direction (floats or arrays).

    ``bandwidth`` is what is reached in practice, ``rated`` the vendor's figure for the same direction.
    """

    alpha: float
    bandwidth: float
    rated: float | None = None

    def __post_init__(self):
        amount(self.alpha, "alpha of a link, in seconds,", zero=True)
        amount(self.bandwidth, "bandwidth of a link, in bytes/s,", endless=True)
        if self.rated is not None:
            amount(self.rated, "the rated bandwidth of a link, in bytes/s,", endless=True)


@dataclass(frozen=True, slots=True)
class Gpu:
    """One accelerator: memory in bytes, dense peak FLOP/s by precision, the share that big products reach.

    ``memory`` is what the driver reports. ``reserve`` bytes of it no tensor can have: what the driver keeps,
    and the CUDA context with its kernels. A plan has to fit in the rest, ``usable``. ``kernels``: what single
    kernels get out of it; left out, the usual ones of ``reached`` (a changed ``reached`` does not change
    those that are there already).

    >>> Gpu("80 GiB", 80 * 2**30, {"bf16": 312e12}, 0.8, reserve=1.9e9).usable / 1e9
    83.99934592
    """

    name: str
    memory: float
    peak: dict[str, float]
    reached: float
    memory_bandwidth: float | None = None
    reserve: float = 0.0
    kernels: Kernels | None = None

    def __post_init__(self):
        label(self.name, "the name of a GPU")
        noun(self.peak, dict, "the peak FLOP/s of a GPU by precision")
        for precision, rate in self.peak.items():
            label(precision, "a precision of a GPU")
            amount(rate, f"the {precision} peak of a GPU, in FLOP/s,")
        amount(self.memory, "memory of a GPU, in bytes,")
        if np.any(amount(self.reached, "the reached share of a GPU's peak") > 1):
            raise InputRefused("the reached share of a GPU's peak is above 1; give a share above 0 up to 1")
        if self.kernels is None:
            object.__setattr__(self, "kernels", Kernels.usual(self.reached))
        noun(self.kernels, Kernels, "the kernels of a GPU")
        if self.memory_bandwidth is not None:
            amount(self.memory_bandwidth, "memory bandwidth of a GPU, in bytes/s,")
        amount(self.reserve, "the reserve of a GPU's memory, in bytes,", zero=True)
        broadcasting({"memory": np.shape(self.memory), "reserve": np.shape(self.reserve)}, "one GPU")
        if np.any(np.asarray(self.reserve) >= self.memory):
            raise InputRefused(
                "the reserve of a GPU leaves nothing of its memory; give a reserve below the memory, in bytes"
            )

    @property
    def usable(self) -> float:
        """Bytes that tensors and buffers of a program can have: ``memory`` less ``reserve``."""
        return self.memory - self.reserve


@dataclass(frozen=True, slots=True)
class Cluster:
    """``nodes`` hosts of ``gpus_per_node`` GPUs; ``inter`` is **one** of a host's ``nics_per_node`` ports.

    ``domain`` is the number of GPUs that share the fast links: the host, or a whole rack of hosts (NVL72).
    """

    name: str
    gpu: Gpu
    nodes: int
    gpus_per_node: int
    intra: Link
    inter: Link
    nics_per_node: float
    domain: int = 0
    sources: dict[str, str] = field(default_factory=dict)

    def __post_init__(self):
        label(self.name, "the name of a cluster")
        for name, kind in (("gpu", Gpu), ("intra", Link), ("inter", Link), ("sources", dict)):
            noun(getattr(self, name), kind, f"{name} of a cluster")
        least = {"nodes": 1, "gpus_per_node": 1, "domain": 0}  # the search passes arrays
        for name in least:
            value = whole(getattr(self, name), f"{name} of a cluster", least[name], arrays=True)
            object.__setattr__(self, name, value)
        amount(self.nics_per_node, "nics_per_node of a cluster")
        shapes = {name: np.shape(getattr(self, name)) for name in (*least, "nics_per_node")}
        broadcasting(shapes, "one cluster")
        if np.all(np.asarray(self.domain) == 0):
            object.__setattr__(self, "domain", self.gpus_per_node)
        wrong = (np.asarray(self.domain) % self.gpus_per_node != 0) | (np.asarray(self.domain) == 0)
        if np.any(wrong):
            domain, node = (
                np.broadcast_to(size, wrong.shape)[wrong].flat[0]
                for size in (self.domain, self.gpus_per_node)
            )
            raise InputRefused(
                f"a domain of {domain} GPUs is not a multiple of the {node} of a node; a domain is one host "
                "or several whole hosts"
            )
        if np.any(np.asarray(self.nodes, float) * self.gpus_per_node > LARGEST):
            raise InputRefused(f"a cluster has at most {LARGEST:,} GPUs; give fewer nodes or GPUs of a node")

    @property
    def n_gpus(self) -> int:
        """GPUs in the whole cluster."""
        return self.nodes * self.gpus_per_node

    @property
    def node_bandwidth(self) -> float:
        """Bytes/s that leave (and at the same time enter) one host: all its ports together."""
        return self.nics_per_node * self.inter.bandwidth

    def group(self, members_per_node) -> "Cluster":
        """The cluster as one of several equal groups sees it, all of them communicating at the same time.

        A group with g of a node's G GPUs gets g/G of the ports: under tensor parallel 8 on 8-GPU nodes each
        of the eight data-parallel groups gets one eighth. Numbers may be arrays.
        """
        within = f"members_per_node of a group in a fast-link domain of {self.domain} GPUs"
        members_per_node = whole(members_per_node, within, most=self.domain, arrays=True)
        return replace(
            self,
            nodes=plain(np.maximum(1, self.n_gpus // self.domain)),
            gpus_per_node=members_per_node,
            domain=members_per_node,
            nics_per_node=self.nics_per_node * members_per_node / self.gpus_per_node,
        )


def one_direction(rate: float, *, bits: bool = False, both_directions: bool = False) -> float:
    """Bytes/s of one direction from a vendor's figure: in bits, or summed over both directions.

    >>> one_direction(400e9, bits=True), one_direction(900e9, both_directions=True)
    (50000000000.0, 450000000000.0)
    """
    amount(rate, "a rate", zero=True)
    for name, value in (("bits", bits), ("both_directions", both_directions)):
        one_of((False, True), value, name, arrays=False)
    return rate / (8 if bits else 1) / (2 if both_directions else 1)
