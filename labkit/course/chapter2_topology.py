"""Section 2.4 as tables: rings over ports, flat or hierarchical, placement, crossing the node boundary."""

from dataclasses import replace

import numpy as np

from labkit.collectives import busbw, collective_cost, flat_against_hierarchical
from labkit.course.table import Table, table
from labkit.planner.placement import (
    PlacementRow,
    StepOnSide,
    crossing_cost,
    host_link,
    placement,
    rate_for_crossing_cost,
    step_on_side,
    tensor_layer,
)
from labkit.planner.traffic import Workload
from labkit.presets import cluster
from labkit.spec import Cluster, Gpu, Link
from labkit.units import GB, digits, format_bytes, format_rate, format_share, format_time, us

PARAMETERS = 13e9
# NVIDIA/nccl-tests issue 309: Dell XE9680, 4 x 8 H100, 8 ports of 400 Gb/s per node, all_reduce of 16 GiB.
PUBLISHED_4X8_H100 = 365.84 * GB
SHARD = 12.85e9 * 2 / 8  # bytes of bf16 gradients of a 13 B model on one of eight tensor-parallel ranks


def layer(micro_batch=4) -> Workload:
    """One Transformer layer of the guide's 13 B model as the communication sees it."""
    return Workload(PARAMETERS, layers=32, hidden=5120, sequence=2048, micro_batch=micro_batch)


def layer_seconds(machine: Cluster, degree: int, ports, rate, micro_batch=4):
    """Seconds of one layer's four AllReduces at this degree: in one node, and over two.

    Over two, each node has ``ports`` ports of ``rate`` bytes/s.
    """
    work = layer(micro_batch)
    inside = tensor_layer(work, degree, machine.intra)
    return inside, tensor_layer(work, degree, host_link(machine, degree // 2, ports, rate))


def steps_on_both_sides(ports, rate=25 * GB, micro_batches=16) -> tuple[StepOnSide, StepOnSide]:
    """Steps of TP 8 x DP 2 on two nodes of preset a100: tensor inside and data across, then the other way.

    Each node has ``ports`` ports of ``rate`` bytes/s; a replica works through ``micro_batches``.
    """
    work, machine = replace(layer(), micro_batches=micro_batches), cluster("a100")
    return tuple(
        step_on_side(work, machine, 8, 2, tensor_inside=inside, ports=ports, port_rate=rate)
        for inside in (True, False)
    )


def alps_like(nics: int, nodes=2) -> Cluster:
    """Nodes of 4 H100 with ``nics`` ports of 200 Gb/s."""
    h100 = cluster("h100")
    return Cluster(
        f"4 GPUs, {nics} ports", h100.gpu, nodes, 4, Link(1.1 * us, 450 * GB), Link(5 * us, 25 * GB), nics
    )


def rings_table(size=4 * GB) -> Table:
    """busbw of a ring AllReduce over 2 x 4 GPUs by ports; and of groups that share the ports of a node."""
    rows = []
    for nics in (1, 2, 4):
        seconds = collective_cost("all_reduce", "ring", size, 8, alps_like(nics)).seconds
        rows.append(
            (
                f"2 x 4 GPUs, all 8 in one group, {nics} x 25 GB/s",
                format_bytes(size),
                format_time(seconds),
                _bus(size, 8, seconds),
            )
        )
    dgx = rated(cluster("a100", nodes=4))
    for name, machine in (
        ("its share, 1/8 of the ports", dgx.group(1)),
        ("all ports to itself", replace(dgx.group(1), nics_per_node=8)),
    ):
        seconds = collective_cost("all_reduce", "ring", SHARD, 4, machine).seconds
        rows.append(
            (
                f"4 x 8 GPUs, one of 8 data-parallel groups: {name}",
                format_bytes(SHARD),
                format_time(seconds),
                _bus(SHARD, 4, seconds),
            )
        )
    return table(("group", "size", "time", "busbw"), rows)


def _bus(size, n, seconds) -> str:
    return format_rate(busbw("all_reduce", n, size / seconds))


def rated(machine: Cluster) -> Cluster:
    """The cluster at its vendors' figures instead of those reached in practice."""
    at_best = {
        name: replace(link, bandwidth=link.rated)
        for name, link in (("intra", machine.intra), ("inter", machine.inter))
    }
    return replace(machine, **at_best)


def hierarchy_table(sizes=(256e3, 16e6, 1e9)) -> Table:
    """One flat ring, one ring per port, and the hierarchical AllReduce, over 2 and 8 nodes of preset a100."""
    rows = []
    for nodes in (2, 8):
        for size in sizes:
            costs = flat_against_hierarchical("all_reduce", size, 8 * nodes, cluster("a100", nodes))
            seconds = {name: cost.seconds for name, cost in costs.items()}
            cheapest = min(seconds, key=seconds.get)
            rows.append((str(8 * nodes), format_bytes(size), *map(format_time, seconds.values()), cheapest))
    return table(("ranks", "S", *costs, "cheapest"), rows)


def one_node_against_many(size=GB) -> dict[str, float]:
    """busbw of one AllReduce in one node of preset a100, and over four with one and eight ports (2.3-d)."""
    machines = {
        "one node": cluster("a100"),
        "four nodes, one port each": replace(cluster("a100", 4), nics_per_node=1),
        "four nodes, eight ports each": cluster("a100", 4),
    }
    return {
        name: busbw(
            "all_reduce", m.n_gpus, size / collective_cost("all_reduce", "ring", size, m.n_gpus, m).seconds
        )
        for name, m in machines.items()
    }


def placement_rows() -> list[PlacementRow]:
    """The 13 B model as TP 8 x DP 8 x PP 4 on preset a100: what each strategy needs of its link."""
    work = Workload(PARAMETERS, layers=40, hidden=5120, sequence=2048, micro_batch=4, micro_batches=16)
    return placement(work, cluster("a100"))


def placement_table() -> Table:
    """Collectives per step, bytes, and the link each strategy needs to stay under a tenth of the compute."""
    return table(
        (
            "strategy",
            "per step",
            "bytes each",
            "needs at least",
            "and a latency under",
            "of compute, inside",
            "of compute, across",
            "under 10 % on",
        ),
        (
            (
                row.strategy,
                f"{row.count:,.0f} x {row.collective}",
                format_bytes(row.payload),
                format_rate(row.bandwidth_needed),
                format_time(row.latency_budget),
                format_share(row.share_inside),
                format_share(row.share_across),
                {"across": "either side", "inside": "the inside only"}.get(
                    row.placement, "neither: inside is the lesser evil"
                ),
            )
            for row in placement_rows()
        ),
    )


def crossing_setting() -> tuple[Workload, Cluster, Cluster]:
    """The setting of claim 2.4-e: one layer, and nodes with a slow and with a fast card.

    Both reach half of peak, with 4 µs a message inside a node and 7 µs across; 235 and 367 GB/s inside.
    """
    base = cluster("a100")
    slow = replace(
        base, gpu=_half_of_peak(base.gpu, 312e12), intra=Link(4 * us, 235 * GB), inter=Link(7 * us, 25 * GB)
    )
    fast = replace(slow, gpu=_half_of_peak(base.gpu, 989e12), intra=Link(4 * us, 367 * GB))
    return layer(), slow, fast


def _half_of_peak(gpu: Gpu, peak: float) -> Gpu:
    return replace(gpu, peak={"bf16": peak}, reached=0.5)


def crossing_table() -> Table:
    """Cost per sample and card of TP 16 over two nodes against TP 8 in one, by ports; and the rate for 3x."""
    work, slow, fast = crossing_setting()
    rows = []
    for name, machine in (
        ("312 TFLOP/s card, 235 GB/s inside", slow),
        ("989 TFLOP/s card, 367 GB/s inside", fast),
    ):
        for ports, rate in ((1, 12.5), (1, 25), (1, 50), (8, 25), (8, 50)):
            rows.append(
                (
                    name,
                    f"{ports} x {digits(rate)} GB/s",
                    f"{crossing_cost(work, machine, ports, rate * GB):.1f}x",
                )
            )
        three = rate_for_crossing_cost(work, machine, np.array(3.0))
        rows.append((name, f"{format_rate(float(three))} in all", "3.0x, solved for"))
    return table(("card", "ports per node", "cost per sample and card"), rows)
