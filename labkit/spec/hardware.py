"""Gpu, Link and Cluster: bytes per second are those of **one direction**, as network ports are quoted.

Vendors quote links inside a node as the sum of both directions (NVLink 900 GB/s = 2 x 450) and network ports
per direction and in bits (400 Gb/s = 50 GB/s each way, at once). ``one_direction`` converts both conventions.
"""

from dataclasses import dataclass, field, replace
from numbers import Real

import numpy as np

from labkit.errors import InputRefused
from labkit.spec.whole import shown, whole


@dataclass(frozen=True, slots=True)
class Link:
    """One hop: ``alpha`` seconds per message and ``bandwidth`` bytes/s per direction (floats or arrays).

    ``bandwidth`` is what is reached in practice, ``rated`` the vendor's figure for the same direction.
    """

    alpha: float
    bandwidth: float
    rated: float | None = None


@dataclass(frozen=True, slots=True)
class Gpu:
    """One accelerator: memory in bytes, dense peak FLOP/s by precision, the share that big products reach."""

    name: str
    memory: float
    peak: dict[str, float]
    reached: float
    memory_bandwidth: float | None = None


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
        for name, kind in (("gpu", Gpu), ("intra", Link), ("inter", Link)):
            if not isinstance(getattr(self, name), kind):
                raise InputRefused(
                    f"{name} of a cluster is {shown(getattr(self, name))}; give a {kind.__name__}, as "
                    "labkit.cluster('h100') has"
                )
        least = {"nodes": 1, "gpus_per_node": 1, "domain": 0}  # the search passes arrays
        for name in least:
            value = whole(getattr(self, name), f"{name} of a cluster", least[name], arrays=True)
            object.__setattr__(self, name, value)
        if np.all(np.asarray(self.domain) == 0):
            object.__setattr__(self, "domain", self.gpus_per_node)
        if np.any(np.asarray(self.domain) % self.gpus_per_node) or np.any(np.asarray(self.domain) == 0):
            raise InputRefused(
                f"a domain of {self.domain} GPUs is not a multiple of the {self.gpus_per_node} of a node; a "
                "domain is one host or several whole hosts"
            )
        ports = self.nics_per_node
        number = isinstance(ports, Real | np.ndarray) and np.asarray(ports).dtype.kind in "iuf"
        if not (number and np.all((np.asarray(ports) > 0) & np.isfinite(ports))):
            raise InputRefused(f"nics_per_node of a cluster is {shown(ports)}; give a number above 0")

    @property
    def n_gpus(self) -> int:
        """GPUs in the whole cluster."""
        return self.nodes * self.gpus_per_node

    @property
    def node_bandwidth(self) -> float:
        """Bytes/s that leave (and at the same time enter) one host: all its ports together."""
        return self.nics_per_node * self.inter.bandwidth

    def group(self, members_per_node: int) -> "Cluster":
        """The cluster as one of several equal groups sees it, all of them communicating at the same time.

        A group with g of a node's G GPUs gets g/G of the ports: under tensor parallel 8 on 8-GPU nodes each
        of the eight data-parallel groups gets one eighth.
        """
        within = f"members_per_node of a group in a fast-link domain of {self.domain} GPUs"
        members_per_node = whole(members_per_node, within, most=self.domain)
        return replace(
            self,
            nodes=max(1, self.n_gpus // self.domain),
            gpus_per_node=members_per_node,
            domain=members_per_node,
            nics_per_node=self.nics_per_node * members_per_node / self.gpus_per_node,
        )


def one_direction(rate: float, *, bits: bool = False, both_directions: bool = False) -> float:
    """Bytes/s of one direction from a vendor's figure: in bits, or summed over both directions.

    >>> one_direction(400e9, bits=True), one_direction(900e9, both_directions=True)
    (50000000000.0, 450000000000.0)
    """
    return rate / (8 if bits else 1) / (2 if both_directions else 1)
