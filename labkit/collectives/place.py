"""Where ranks sit: the numbers of a Link or a Cluster that every formula and every replay works with.

Ranks fill the domains (GPUs that share the fast links) in order. Inside a domain each rank has a port of its
own into the fast link; across, each domain has ``ports`` network ports, and local index l uses port
l * ports // domain. Two rules that follow from the seats stand here too, because the traces and the closed
forms both obey them: how many rings run, and when partners are found by XOR.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from labkit.collectives.levels import power_of_two
from labkit.errors import InputRefused
from labkit.spec import Cluster, Link
from labkit.spec.checks import floats, shown
from labkit.spec.rule import listed, multiples

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
        return seat(np.asarray(rank), int(self.domain), int(self.ports))


def seat(rank, domain: int, ports: int):
    """(domain, network port counted over all domains) of each rank, for domains of so many GPUs and ports.

    >>> seat(np.arange(6), domain=4, ports=2)
    (array([0, 0, 0, 0, 1, 1]), array([0, 0, 1, 1, 2, 2]))
    """
    return rank // domain, rank // domain * ports + rank % domain * ports // domain


def ring_count(n, at: Place):
    """Rings across domains: one per network port that the last domain's ranks reach; 1 inside a domain."""
    _, domains, last = at.spread(n)
    return np.where(domains > 1, (last - 1) * at.ports // at.domain + 1, 1.0)


def uses_xor(n, at: Place):
    """Whether ``pairwise`` uses XOR: n a power of two, and the domain too where it is crossed."""
    return power_of_two(n) & (power_of_two(at.domain) | (n <= at.domain))


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
    return np.asarray(link.alpha, dtype=float), np.asarray(link.bandwidth, dtype=float)


def check_count(n, what: str) -> np.ndarray:
    """``n`` as floats; refused, as ``what``, when not whole or below 1.

    >>> check_count([8, 0], "the tensor-parallel degree")
    Traceback (most recent call last):
    ...
    labkit.errors.InputRefused: the tensor-parallel degree must be a whole number of at least 1, not 0
    """
    numbers = floats(n)
    good = (numbers >= 1) & (numbers == np.floor(numbers)) & np.isfinite(numbers)
    if not good.all():
        wrong = numbers[~good].flat[0]
        said = f"{wrong:g}" if numbers.ndim else shown(n)
        raise InputRefused(f"{what} must be a whole number of at least 1, not {said}")
    return numbers


def check_ranks(n, at: Place | None = None) -> np.ndarray:
    """``n`` as floats; refused when not whole, below 1, or more than the cluster has (None: no limit)."""
    n = check_count(n, "the number of ranks")
    if at is not None and (n > at.capacity).any():
        most = int(np.min(at.capacity))
        raise InputRefused(f"{int(np.max(n))} ranks do not fit: the cluster has {most}; lower n or add nodes")
    return n


def check_whole_domains(n: np.ndarray, at: Place) -> None:
    """Refuse what a hierarchical algorithm cannot run on: no boundary, or a partly filled last domain."""
    if at.is_flat:
        raise InputRefused(
            "hierarchical needs a Cluster with an intra and an inter link; a plain Link has one level"
        )
    partial = (n > at.domain) & (n % at.domain != 0)
    if partial.any():
        count, domain = (float(np.broadcast_to(x, partial.shape)[partial].flat[0]) for x in (n, at.domain))
        raise InputRefused(
            f"hierarchical needs whole domains of {int(domain)} ranks, and {int(count)} leave one partly "
            f"filled; use {listed(multiples(count, int(domain)))}"
        )
