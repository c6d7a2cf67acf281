"""Chapter 1's story: what one training step is made of as ranks are added, from the collective costs alone.

A step is compute plus the gradient all-reduce. Under *strong* scaling the global batch is fixed, so compute
shrinks as 1/N; under *weak* scaling the batch per rank is fixed, so compute stays. A flat ring moves nearly
the same bytes per rank at any N, so weak scaling bends only where latency or contention grows. These are
claims 1-e and 3.1-i.

Approximations: one all-reduce implementation (the ring over all ranks), no stragglers, overlap as one share.
"""

from dataclasses import dataclass, replace

import numpy as np

from labkit.collectives.buckets import bucket_count
from labkit.collectives.cost import collective_cost
from labkit.collectives.place import check_ranks
from labkit.errors import InputRefused
from labkit.spec import Cluster, Link

# Share of a step's compute that is backward: two of the three matrix products of a layer. Only there are
# gradients already on their way.
BACKWARD_SHARE = 2 / 3


@dataclass(frozen=True, slots=True)
class Setting:
    """What a scaling curve rests on. Bytes and seconds.

    ``gradient``: bytes every rank reduces per step. ``compute``: seconds of computation at ``reference``
    ranks. ``mode``: ``strong`` (global batch fixed) or ``weak`` (batch per rank fixed). ``overlap``: share of
    the backward pass under which communication can hide. ``bucket``: most bytes per all-reduce, in buckets of
    equal size (None: the whole gradient at once). ``taper``: share of the ports' bandwidth left once a job is
    larger than ``pod`` ranks, as behind an oversubscribed spine. Refused: any of them out of its range.
    """

    gradient: float
    compute: float
    reference: int = 8
    mode: str = "strong"
    overlap: float = 0.0
    bucket: float | None = None
    taper: float = 1.0
    pod: int = 32

    def __post_init__(self):
        if self.mode not in ("strong", "weak"):
            raise InputRefused(f"mode is {self.mode!r}; use 'strong' or 'weak'")
        if not np.all((np.asarray(self.overlap) >= 0) & (np.asarray(self.overlap) <= 1)):
            raise InputRefused(f"overlap is {self.overlap}; it is a share, use 0 to 1")
        if not 0 < self.taper <= 1:
            raise InputRefused(f"taper is {self.taper}; it is a share, use more than 0 and at most 1")
        if not np.all(np.asarray(self.compute) > 0):
            raise InputRefused("a step must compute for more than 0 seconds; give a positive number")
        check_ranks(self.reference)
        _buckets(self)


def _buckets(setting: Setting):
    """All-reduces per step."""
    return bucket_count(setting.gradient, np.inf if setting.bucket is None else setting.bucket)


@dataclass(frozen=True, slots=True)
class Scaling:
    """One row per N. Seconds; throughput and efficiency are relative to the reference."""

    n: np.ndarray
    compute: np.ndarray
    latency: np.ndarray
    bandwidth: np.ndarray
    contention: np.ndarray
    exposed: np.ndarray
    step: np.ndarray
    throughput: np.ndarray
    efficiency: np.ndarray

    @property
    def communication(self):
        """All seconds the network is busy, hidden or not."""
        return self.latency + self.bandwidth + self.contention

    @property
    def compute_share(self):
        """Share of the step in which the GPU computes.

        The usual "GPU utilisation" counts waiting kernels as busy.
        """
        return self.compute / self.step

    @property
    def link_share(self):
        """Share of the step in which the slowest link carries gradients."""
        return self.communication / self.step

    def grew(self) -> list[str]:
        """For each N after the first: the term whose share grew most since the last N (claim 1-g)."""
        names = ("compute", "latency", "bandwidth", "contention")
        shares = np.array([getattr(self, name) / self.step for name in names])
        return [names[i] for i in np.argmax(np.diff(shares, axis=1), axis=0)]


def scaling(n, cluster: Cluster, setting: Setting) -> Scaling:
    """The step on ``n`` ranks (an array) of ``cluster``, by term, and its throughput.

    latency = what an all-reduce of no bytes costs, per bucket; bandwidth = the rest on an untapered network;
    contention = what the taper adds. Throughput is relative to that on ``setting.reference`` ranks. The ring
    is that of Patarasuk and Yuan (2009), alpha-beta that of Hockney (1994). Refused: ``n`` not whole or below
    1; the cluster is taken as large as ``n`` asks for.
    """
    n = np.atleast_1d(np.asarray(n))
    check_ranks(n)
    at_reference = terms(np.asarray([setting.reference]), cluster, setting)
    here = terms(n, cluster, setting)
    batch = np.ones(n.shape) if setting.mode == "strong" else n / setting.reference
    throughput = batch * (at_reference["step"] / here["step"])
    return Scaling(n=n, throughput=throughput, efficiency=throughput / (n / setting.reference), **here)


def terms(n, cluster: Cluster, setting: Setting) -> dict[str, np.ndarray]:
    """Seconds of one step on ``n`` ranks by term, shape as n; what ``scaling`` relates to a reference."""
    cluster = replace(cluster, nodes=int(max(n.max(), cluster.gpus_per_node) // cluster.gpus_per_node) + 1)
    buckets = _buckets(setting)
    tapered = Link(
        cluster.inter.alpha,
        np.where(n > setting.pod, setting.taper, 1.0) * cluster.inter.bandwidth,
        cluster.inter.rated,
    )

    def ring(size, on):
        return buckets * np.asarray(collective_cost("all_reduce", "ring", size, n, on).seconds)

    latency, free = ring(0.0, cluster), ring(setting.gradient / buckets, cluster)
    total = ring(setting.gradient / buckets, replace(cluster, inter=tapered))
    compute = setting.compute * (setting.reference / n if setting.mode == "strong" else np.ones(n.shape))
    exposed = np.maximum(0.0, total - setting.overlap * BACKWARD_SHARE * compute)
    return {
        "compute": compute,
        "latency": latency,
        "bandwidth": free - latency,
        "contention": total - free,
        "exposed": exposed,
        "step": compute + exposed,
    }


def knee(cluster: Cluster, setting: Setting, largest: int = 65_536, budget: float = 1.0) -> float:
    """The smallest N at which communication takes ``budget`` x computation; NaN: none up to ``largest``.

    ``budget`` 1 is all of the computation; ``BACKWARD_SHARE`` is what communication can hide under, so that
    from there on some of it shows however well it overlaps. Looked for among the ranks of one node, and
    beyond it among whole nodes. Under weak scaling with a ring both terms tend to constants, so "none" is a
    usual answer (claim 3.1-i). Refused: a budget that is not above 0.
    """
    if not budget > 0:
        raise InputRefused(f"the budget is {budget}; it is a share of the computation, use more than 0")
    # Beyond one node a job fills its nodes: a lone GPU on the last would be a fault.
    whole = cluster.gpus_per_node
    ranks = np.concatenate([np.arange(2, whole + 1), np.arange(2 * whole, largest + 1, whole)])
    rows = scaling(ranks, cluster, setting)
    above = np.flatnonzero(rows.communication >= budget * rows.compute)
    return float(ranks[above[0]]) if above.size else float("nan")


def what_it_takes(cluster: Cluster, setting: Setting, n: int, target: float) -> dict[str, float]:
    """By what factor each single input must change for the efficiency on ``n`` ranks to reach ``target``.

    The inputs: the global ``batch`` (more computation per reduction), the ports' ``bandwidth``, the
    ``gradient`` bytes, and ``overlap`` (the share of the backward that must hide; a share, not a factor).
    NaN where one cannot reach it, be it by a factor of 10,000. Efficiency rises with each of them, so ever
    finer grids find the factor.
    """

    def changed(name, factor):
        if name == "batch":
            return cluster, replace(setting, compute=setting.compute * factor)
        if name == "bandwidth":
            return replace(
                cluster, inter=replace(cluster.inter, bandwidth=cluster.inter.bandwidth * factor)
            ), setting
        if name == "gradient":
            return cluster, replace(setting, gradient=setting.gradient / factor)
        return cluster, replace(setting, overlap=factor)

    def solve(name):
        factors = np.linspace(setting.overlap, 1.0, 257) if name == "overlap" else np.geomspace(1.0, 1e4, 257)
        # Each pass looks closer, between the last factor that fails and the first that does not.
        for _ in range(3):
            efficiency = scaling(n, *changed(name, factors[:, None])).efficiency[:, 0]
            reached = np.flatnonzero(efficiency >= target)
            if reached.size == 0 or reached[0] == 0:
                return float(factors[0]) if reached.size else float("nan")
            last, first = factors[reached[0] - 1], factors[reached[0]]
            factors = np.linspace(last, first, 257)
        return float(first)

    return {name: solve(name) for name in ("batch", "bandwidth", "gradient", "overlap")}
