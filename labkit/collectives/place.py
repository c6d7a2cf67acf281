"""Where ranks sit: the numbers of a Link or a Cluster that every formula and every replay works with.

Ranks fill the domains (GPUs that share the fast links) in order. Inside a domain each rank has a port of
the fast link; across, each domain has ``ports`` network ports, and the GPU with local index l uses port l *
ports // domain.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from labkit.errors import InputRefused
from labkit.spec import Cluster, Link

# A Link has no boundary: one domain larger than any rank count, and small enough to stay exact in a float.
_BOUNDLESS = 2.0**53


@dataclass(frozen=True, slots=True)
class Place:
    """Latencies (s), bandwidths (bytes/s), sizes; ``far_bandwidth``: one of the ``ports`` of a domain."""

    alpha: Any
    bandwidth: Any
    far_alpha: Any
    far_bandwidth: Any
    domain: Any
    ports: Any
    capacity: float

    @property
    def sharing(self) -> np.ndarray:
        """GPUs of a full domain that use its fullest port."""
        return np.ceil(self.domain / self.ports)

    @property
    def is_flat(self) -> bool:
        """Whether there is no boundary to cross: a plain Link."""
        return bool(np.isinf(self.capacity).all())

    def near(self, size):
        """Seconds of one message of ``size`` bytes inside a domain."""
        return self.alpha + size / self.bandwidth

    def far(self, size):
        """Seconds of one message of ``size`` bytes through one network port."""
        return self.far_alpha + size / self.far_bandwidth

    def spread(self, n):
        """(ranks in the first domain, domains in use, ranks in the last domain) for n ranks."""
        if self.is_flat:
            return n, np.asarray(1.0), n
        domains = np.ceil(n / self.domain)
        return np.minimum(n, self.domain), domains, n - (domains - 1) * self.domain

    def where(self, rank: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(domain, network port counted over all domains) of each rank, whole numbers."""
        rank = np.asarray(rank)
        domain = rank // int(self.domain)
        local = rank % int(self.domain)
        return domain, domain * int(self.ports) + local * int(self.ports) // int(self.domain)


def place(link_or_cluster: Link | Cluster) -> Place:
    """The numbers of a Link (no boundary) or of a Cluster; both may hold arrays.

    More network ports than GPUs: each GPU owns several, one port with their summed bandwidth. Less than one
    port (a group's share, ``Cluster.group``): one port with that part of the bandwidth.

    >>> from labkit.spec import Link
    >>> float(place(Link(5e-6, 50e9)).near(50e3))
    6e-06
    """
    if isinstance(link_or_cluster, Link):
        alpha, bandwidth = _link(link_or_cluster)
        return Place(alpha, bandwidth, alpha, bandwidth, np.asarray(_BOUNDLESS), np.asarray(1.0), np.inf)
    if not isinstance(link_or_cluster, Cluster):
        raise InputRefused(
            f"{type(link_or_cluster).__name__} is neither a Link nor a Cluster; pass one of the two"
        )
    cluster = link_or_cluster
    domain = np.asarray(cluster.domain, dtype=float)
    share = np.asarray(cluster.nics_per_node, dtype=float) * domain / np.asarray(cluster.gpus_per_node)
    if not (share > 0).all():
        raise InputRefused(f"cluster {cluster.name!r} has no network port; give nics_per_node above 0")
    ports = np.clip(np.floor(share + 1e-9), 1, domain)
    alpha, bandwidth = _link(cluster.intra)
    far_alpha, far_bandwidth = _link(cluster.inter)
    capacity = np.asarray(cluster.nodes, dtype=float) * cluster.gpus_per_node
    return Place(alpha, bandwidth, far_alpha, far_bandwidth * share / ports, domain, ports, capacity)


def _link(link: Link) -> tuple[np.ndarray, np.ndarray]:
    alpha, bandwidth = np.asarray(link.alpha, dtype=float), np.asarray(link.bandwidth, dtype=float)
    if not ((alpha >= 0).all() and (bandwidth > 0).all()):
        raise InputRefused(
            "a link needs alpha >= 0 s and bandwidth > 0 bytes/s; correct the figures of this one"
        )
    return alpha, bandwidth


def check_ranks(n, at: Place) -> np.ndarray:
    """``n`` as floats; refused when not whole, below 1, or more than the cluster has."""
    n = np.asarray(n, dtype=float)
    if not ((n >= 1) & (n == np.floor(n)) & np.isfinite(n)).all():
        raise InputRefused(f"the number of ranks must be a whole number of at least 1, not {_first_bad(n)}")
    if (n > at.capacity).any():
        most = int(np.min(at.capacity))
        raise InputRefused(f"{int(np.max(n))} ranks do not fit: the cluster has {most}; lower n or add nodes")
    return n


def _first_bad(n: np.ndarray) -> str:
    bad = n[~((n >= 1) & (n == np.floor(n)) & np.isfinite(n))]
    return f"{bad.flat[0]:g}"


def check_whole_domains(n: np.ndarray, at: Place) -> None:
    """Refuse what a hierarchical algorithm cannot run on: no boundary, or a partly filled last domain."""
    if at.is_flat:
        raise InputRefused(
            "hierarchical needs a Cluster with an intra and an inter link; a plain Link has one level"
        )
    partial = (n > at.domain) & (n % at.domain != 0)
    if partial.any():
        count, domain = (float(np.broadcast_to(x, partial.shape)[partial].flat[0]) for x in (n, at.domain))
        below = int(count // domain * domain)
        raise InputRefused(
            f"hierarchical needs whole domains of {int(domain)} ranks, and {int(count)} leave one partly "
            f"filled; use {below} or {below + int(domain)}"
        )
