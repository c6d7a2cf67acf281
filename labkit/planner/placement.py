"""Which strategy may leave the host: the answer as numbers, not as a rule.

Two questions. ``placement``: how much bandwidth and how little latency does each strategy need to stay under
a share of a step? ``crossing_cost``: what does it cost that tensor parallel spans hosts with so many ports?
"""

from dataclasses import dataclass, replace

import numpy as np

from labkit.collectives.place import check_count, check_ranks
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
from labkit.spec import Cluster, Gpu, Link
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
    for degree, name in ((tp, "tensor"), (dp, "data"), (pp, "pipeline")):
        check_count(degree, f"the {name}-parallel degree")
    if not budget > 0:
        raise InputRefused(f"the budget is {budget}; it is a share of a step's compute, use more than 0")
    step = compute_time(work.flops, cluster.gpu, work.precision) / (tp * pp)
    rank = replace(work, parameters=work.parameters / (tp * pp), layers=work.layers / pp)
    rows = tensor_parallel(rank, tp) + data_parallel(rank, dp, bucket=bucket) + pipeline_stage(work, pp)
    return [_judge(row, step, cluster, budget) for row in rows]


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
    (row,) = tensor_parallel(replace(work, layers=1, micro_batches=1), degree)
    return row.seconds_on(link)


def host_link(cluster: Cluster, members=8, ports=None, port_rate=None) -> Link:
    """The slowest hop of a ring over hosts with ``members`` ranks each: all their ports together, or inside.

    ``ports`` x ``port_rate`` (bytes/s, either may be an array) replace the cluster's own. Of the ports a
    group has the share of its members, as in ``Cluster.group``. Refused: more members than the domain holds.
    """
    check_ranks(members)
    if members > cluster.domain:
        raise InputRefused(
            f"{members} ranks do not fit a fast-link domain of {cluster.domain}; use at most {cluster.domain}"
        )
    ports = np.asarray(cluster.nics_per_node if ports is None else ports, float)
    ports = ports * members / cluster.gpus_per_node
    port_rate = cluster.inter.bandwidth if port_rate is None else port_rate
    across = ports * port_rate
    alpha = np.maximum(cluster.inter.alpha, cluster.intra.alpha)
    return Link(plain(alpha), plain(np.minimum(across, cluster.intra.bandwidth)))


def crossing_cost(work: Workload, cluster: Cluster, ports=None, port_rate=None, *, degree=8, hosts=2):
    """Claim 2.4-e: cost per sample of tensor parallel over ``hosts`` hosts against ``degree`` ranks in one.

    Cost is cards x seconds per micro-batch: (seconds at degree x hosts) x hosts / (seconds at degree).
    Seconds are compute, split evenly, plus the exposed all_reduces of all layers; a flat ring runs at its
    slowest hop whatever share crosses.
    """
    one = _micro_batch(work, cluster.gpu, degree, cluster.intra)
    many = _micro_batch(work, cluster.gpu, degree * hosts, host_link(cluster, degree, ports, port_rate))
    return plain(hosts * many / one)


def rate_for_crossing_cost(work: Workload, cluster: Cluster, cost, *, degree=8, hosts=2):
    """Bytes/s that a host's ports must carry together for ``crossing_cost`` to be ``cost`` (float or array).

    NaN where no rate gives it: cheaper than latency and compute allow, or than a host's own ring.
    """
    one = _micro_batch(work, cluster.gpu, degree, cluster.intra)
    alpha = host_link(cluster, degree).alpha
    # Time is fixed + per_rate / rate: read off the cost function, first without bytes, then without latency.
    fixed = _micro_batch(work, cluster.gpu, degree * hosts, Link(alpha, np.inf))
    per_rate = work.layers * tensor_layer(work, degree * hosts, Link(0.0, 1.0))
    left = np.asarray(cost, float) * one / hosts - fixed
    with np.errstate(divide="ignore"):
        rate = per_rate / left
    return plain(np.where((left > 0) & (rate <= cluster.intra.bandwidth), rate, np.nan))


def _micro_batch(work: Workload, gpu: Gpu, degree, link: Link):
    """Seconds of one micro-batch at this tensor-parallel degree: compute plus exposed communication."""
    check_count(degree, "the tensor-parallel degree")
    compute = compute_time(replace(work, micro_batches=1).flops, gpu, work.precision) / degree
    return compute + work.layers * tensor_layer(work, degree, link)
