"""Which strategy may leave the host: the answer as numbers, not as a rule.

Three questions. ``placement``: how much bandwidth and how little latency does each strategy need to stay
under a share of a step? ``crossing_cost``: what does it cost that tensor parallel spans hosts with so many
ports? ``step_on_side``: how long is a step with tensor parallel inside the host, or across?
"""

from dataclasses import dataclass, replace

import numpy as np

from labkit.errors import InputRefused
from labkit.planner.compute import compute_time
from labkit.planner.traffic import (
    BillRow,
    Workload,
    data_parallel,
    pipeline_stage,
    share_of_ports,
    tensor_parallel,
)
from labkit.spec import Cluster, Link
from labkit.spec.checks import amount, noun, one_of, together, whole
from labkit.units import plain


@dataclass(frozen=True, slots=True)
class PlacementRow:
    """What one strategy needs to stay within a budget of a step's compute, and what two links give it.

    ``bandwidth_needed`` (bytes/s per GPU and direction) supposes no latency, ``latency_budget`` (seconds per
    collective) no bytes: both are the most generous reading. ``share_inside`` and ``share_across`` have both,
    per step of compute, nothing hidden. ``placement`` is ``across`` where that stays within the budget, else
    ``inside`` where that does, else ``neither``.
    """

    strategy: str
    collective: str
    count: float
    payload: float
    bytes_per_rank: float
    step: float
    bandwidth_needed: float
    latency_budget: float
    share_inside: float
    share_across: float
    placement: str


def placement(
    work: Workload, cluster: Cluster, tp=8, dp=8, pp=4, *, budget=0.10, bucket=25e6
) -> list[PlacementRow]:
    """Claim 2.4-c: tensor, data and pipeline parallel of **one** plan of tp x dp x pp ranks, on both links.

    ``budget`` is a share of the step's compute, ``bucket`` the bytes of a gradient bucket. Compute of a step
    is FLOPs / (tp x pp); bubbles and overlap are left out. Data parallel reduces the 1/(tp pp) of the
    gradients that a rank holds, tensor parallel works on the 1/pp of the layers, and every rank sends whole
    activations to the next stage. ``across`` has one rank per host, with its share of the host's ports.
    Refused: degrees not whole or below 1, and a budget or bucket not above 0.
    """
    _check(work, cluster, tp=tp, dp=dp, pp=pp, budget=budget, bucket=bucket)
    tp, dp, pp = (
        whole(degree, f"the {name}-parallel degree", arrays=True)
        for degree, name in ((tp, "tensor"), (dp, "data"), (pp, "pipeline"))
    )
    amount(budget, "the budget, a share of a step's compute,")
    step = compute_time(work.flops, cluster.gpu, work.precision) / (tp * pp)
    rank = replace(work, parameters=work.parameters / (tp * pp), layers=work.layers / pp)
    rows = tensor_parallel(rank, tp) + data_parallel(rank, dp, bucket=bucket) + pipeline_stage(work, pp)
    return [_judge(row, step, cluster, budget) for row in rows]


def _check(work: Workload, cluster: Cluster, **numbers) -> None:
    noun(work, Workload, "the work")
    noun(cluster, Cluster, "the cluster")
    together("a placement", work=work, cluster=cluster, **numbers)


def _judge(row: BillRow, step, cluster: Cluster, budget) -> PlacementRow:
    inside = row.seconds_on(cluster.intra) / step
    across = row.seconds_on(share_of_ports(cluster)) / step
    verdict = np.select([across <= budget, inside <= budget], ["across", "inside"], "neither")
    return PlacementRow(
        row.strategy,
        row.collective,
        row.count,
        row.payload,
        row.bytes_per_rank,
        plain(step),
        bandwidth_needed=plain(row.bytes_per_rank / (budget * step)),
        latency_budget=plain(budget * step / row.count),
        share_inside=plain(inside),
        share_across=plain(across),
        placement=plain(verdict),
    )


def tensor_layer(work: Workload, degree, link: Link):
    """Seconds of the four all_reduces of **one** layer and micro-batch on a link (ring; claim 2.4-b).

    >>> work = Workload(13e9, 32, 5120, 2048, micro_batch=4)
    >>> round(tensor_layer(work, 8, Link(0.0, 235e9)) * 1e3, 3)
    2.499
    """
    noun(work, Workload, "the work")
    (row,) = tensor_parallel(replace(work, layers=1, micro_batches=1), degree)
    return row.seconds_on(link)


def host_link(cluster: Cluster, members=8, ports=None, port_rate=None) -> Link:
    """The slowest hop of a ring over hosts with ``members`` ranks each: all their ports together, or inside.

    ``ports`` x ``port_rate`` (bytes/s, either may be an array) replace the cluster's own. Of the ports a
    group has the share of its members, as in ``Cluster.group``. Refused: more members than the domain holds.
    """
    noun(cluster, Cluster, "the cluster")
    within = f"members of a group in a fast-link domain of {cluster.domain} GPUs"
    members = whole(members, within, most=cluster.domain, arrays=True)
    ports = amount(cluster.nics_per_node if ports is None else ports, "ports of a host")
    ports = ports * members / cluster.gpus_per_node
    port_rate = amount(cluster.inter.bandwidth if port_rate is None else port_rate, "bytes/s of a port")
    across = ports * port_rate
    alpha = np.maximum(cluster.inter.alpha, cluster.intra.alpha)
    return Link(plain(alpha), plain(np.minimum(across, cluster.intra.bandwidth)))


@dataclass(frozen=True, slots=True)
class TensorTime:
    """Seconds of one replica's micro-batches under tensor parallel: compute, and two parts of all_reduces.

    ``latency`` is what the messages cost however small, ``bandwidth`` what their bytes cost. All exposed:
    forward the data dependence hides none of it, and what may hide backward is left out.
    """

    compute: float
    latency: float
    bandwidth: float

    @property
    def communication(self):
        """Seconds of all all_reduces."""
        return self.latency + self.bandwidth

    @property
    def total(self):
        """Seconds of everything."""
        return self.compute + self.communication


def tensor_time(
    work: Workload, cluster: Cluster, degree, ports=None, port_rate=None, *, members=None
) -> TensorTime:
    """Compute split evenly over ``degree`` ranks, and the four all_reduces of every layer and micro-batch.

    The group stays inside where ``degree`` is at most ``members``, the ranks that it has in a host (the
    fast-link domain unless given), and else runs a ring over hosts at the slowest hop, ``host_link``.
    Degrees, ports and the numbers of ``work`` may be arrays.

    >>> from labkit.spec import Gpu
    >>> machine = Cluster("c", Gpu("g", 80e9, {"bf16": 312e12}, 0.5), 2, 8, Link(0, 235e9), Link(0, 25e9), 1)
    >>> times = tensor_time(Workload(13e9, 32, 5120, 2048, micro_batch=4), machine, np.array([8, 16]))
    >>> times.compute.round(3).tolist(), times.communication.round(3).tolist()
    ([0.512, 0.256], [0.08, 0.805])
    """
    _check(work, cluster, degree=degree, ports=ports, port_rate=port_rate, members=members)
    degree = whole(degree, "the tensor-parallel degree", arrays=True)
    members = cluster.domain if members is None else members
    across = host_link(cluster, members, ports, port_rate)
    inside = np.asarray(degree) <= members
    alpha = np.where(inside, cluster.intra.alpha, across.alpha)
    bandwidth = np.where(inside, cluster.intra.bandwidth, across.bandwidth)
    (row,) = tensor_parallel(work, degree)
    return TensorTime(
        plain(compute_time(work.flops, cluster.gpu, work.precision) / np.asarray(degree)),
        plain(row.seconds_on(Link(alpha, np.inf))),
        plain(row.seconds_on(Link(0.0, bandwidth))),
    )


def crossing_cost(work: Workload, cluster: Cluster, ports=None, port_rate=None, *, degree=8, hosts=2):
    """Claim 2.4-e: cost per sample of tensor parallel over ``hosts`` hosts against ``degree`` ranks in one.

    Cost is cards x seconds per micro-batch: (seconds at degree x hosts) x hosts / (seconds at degree).
    Seconds are compute, split evenly, plus the exposed all_reduces of all layers; a flat ring runs at its
    slowest hop whatever share crosses.
    """
    _check(work, cluster, ports=ports, port_rate=port_rate, hosts=hosts)
    degree, hosts = whole(degree, "ranks of a host"), whole(hosts, "the number of hosts", arrays=True)
    one = tensor_time(work, cluster, degree, members=degree)
    many = tensor_time(work, cluster, degree * hosts, ports, port_rate, members=degree)
    return plain(hosts * many.total / one.total)


def rate_for_crossing_cost(work: Workload, cluster: Cluster, cost, *, degree=8, hosts=2):
    """Bytes/s that a host's ports must carry together for ``crossing_cost`` to be ``cost`` (float or array).

    NaN where no rate gives it: cheaper than latency and compute allow, or than a host's own ring.
    """
    _check(work, cluster, cost=cost, hosts=hosts)
    degree, hosts = whole(degree, "ranks of a host"), whole(hosts, "the number of hosts", arrays=True)
    cost = amount(cost, "the cost over hosts against one host")
    one = tensor_time(work, cluster, degree, members=degree)
    many = tensor_time(work, cluster, degree * hosts, members=degree)
    # Seconds over hosts are fixed + per_rate / rate, read off the time at the cluster's own rate.
    per_rate = many.bandwidth * host_link(cluster, degree).bandwidth
    left = cost * one.total / hosts - many.compute - many.latency
    with np.errstate(divide="ignore"):
        rate = per_rate / left
    return plain(np.where((left > 0) & (rate <= cluster.intra.bandwidth), rate, np.nan))


@dataclass(frozen=True, slots=True)
class StepOnSide:
    """Seconds of one step of a plan of tensor and data parallel: compute, and both kinds of all_reduce."""

    compute: float
    tensor: float
    data: float

    @property
    def total(self):
        """Seconds of the step, nothing hidden."""
        return self.compute + self.tensor + self.data


def step_on_side(
    work: Workload, cluster: Cluster, tp=8, dp=2, *, tensor_inside=True, ports=None, port_rate=None
) -> StepOnSide:
    """Claim 2.4-b: one plan of tp x dp ranks in either rank order, its step in seconds.

    With ``tensor_inside`` the ranks of a tensor-parallel group are neighbours and data parallel goes across;
    without, it is the other way round, and every group has its share of the hosts' ports. ``work`` is that of
    one of the dp replicas. All communication is exposed: both orders are charged alike. Refused: degrees not
    whole or below 1, and tp x dp ranks that do not fill whole domains.
    """
    _check(work, cluster)
    tp, dp = whole(tp, "the tensor-parallel degree"), whole(dp, "the data-parallel degree")
    one_of((False, True), tensor_inside, "tensor_inside", arrays=False)
    if tp * dp % cluster.domain:
        raise InputRefused(
            f"{tp} x {dp} ranks do not fill domains of {cluster.domain}; use a multiple of {cluster.domain}"
        )
    strides = (1, tp) if tensor_inside else (dp, 1)
    (tensor,) = tensor_parallel(work, tp, stride=strides[0], domain=cluster.domain)
    shard = replace(work, parameters=work.parameters / tp)
    (data,) = data_parallel(shard, dp, stride=strides[1], domain=cluster.domain)

    def seconds(row: BillRow):
        if row.link == "inside":
            return row.seconds_on(cluster.intra)
        return row.seconds_on(host_link(cluster, row.members, ports, port_rate))

    compute = compute_time(work.flops, cluster.gpu, work.precision) / tp
    return StepOnSide(plain(compute), plain(seconds(tensor)), plain(seconds(data)))
