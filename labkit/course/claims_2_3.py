"""Section 2.3's claims: algorithm bandwidth, bus bandwidth, and why the clock says more."""

from labkit.collectives import (
    busbw,
    busbw_factor,
    collective_cost,
    replay,
    trace,
    unchunked_all_reduce,
    volume,
)
from labkit.course import chapter2_bandwidth as bandwidth
from labkit.course import chapter2_topology as topology
from labkit.course.claims import claim
from labkit.planner.states import state_bytes
from labkit.presets import cluster
from labkit.spec import Link
from labkit.spec.hardware import one_direction
from labkit.units import GB, MiB, format_bytes, format_rate, format_share, format_time, us


@claim(
    "2.3-a", "7 B bf16 gradients on 8 ranks: 14 GB, 24.5 GB sent, 0.49 s at 50 GB/s", guide="24.5 GB, 0.49 s"
)
def worked_example():
    sent = volume("all_reduce", "ring", bandwidth.GRADIENTS, bandwidth.RANKS)[1]
    return f"{format_bytes(sent)} per rank, {format_time(bandwidth.theory())}"


@claim("2.3-b", "busbw = algbw x 2(N-1)/N 总线带宽", guide="factor 2(N-1)/N")
def factors():
    ops = ("all_reduce", "reduce_scatter", "all_gather", "all_to_all", "broadcast", "reduce", "send_recv")
    return "N = 8: " + ", ".join(f"{op} {busbw_factor(op, 8):.4g}" for op in ops)


@claim(
    "2.3-c",
    "Send and receive each take half of the link 收和发各占一半",
    guide="explains the factor two",
    verdict="corrected",
    why="links are full duplex and a ring sends and receives at once; the factor is the two phases, "
    "reduce-scatter and all-gather",
)
def full_duplex():
    run = replay(trace("all_reduce", "ring", 8), 8 * MiB, Link(0.0, 50 * GB))
    half = replay(trace("reduce_scatter", "ring", 8), 8 * MiB, Link(0.0, 50 * GB))
    return (
        f"in every round each rank sends and receives; links carry data {format_share(run.occupancy)} of "
        f"the time; one phase takes {half.seconds / run.seconds:.3g} of the time"
    )


@claim(
    "2.3-d",
    "A single-node figure does not predict multi-node 单机数字推多机",
    guide="too inaccurate to use",
)
def one_node_or_many():
    return (
        ", ".join(f"{name} {format_rate(rate)}" for name, rate in topology.one_node_against_many().items())
        + " busbw"
    )


@claim(
    "2.3-e",
    "Measured is often half or a third of theory; busbw explains it 口径",
    guide="explained by the busbw factor",
    verdict="corrected",
    why="the 0.49 s already contains 2(N-1)/N; what explains a slower clock is the message size of the "
    "buckets and fp32 gradients",
)
def what_explains_it():
    shares = ", ".join(
        f"{format_share(bandwidth.share_at(size * MiB))} at {size} MiB" for size in (4, 8, 16, 32)
    )
    algbw = bandwidth.GRADIENTS / bandwidth.theory()
    wide = bandwidth.theory(2 * bandwidth.GRADIENTS)
    return (
        f"algbw {format_rate(algbw)} = {format_share(algbw / bandwidth.LINK_RATE)} of the link, busbw "
        f"{format_rate(busbw('all_reduce', 8, algbw))}; published 8-card sweep: {shares} of its "
        f"plateau; fp32: {format_time(wide)}"
    )


@claim(
    "2.3-f",
    "The vendor's 50 GB/s is one direction, shared by sending and receiving 单向单端口带宽",
    guide="half for each direction",
    verdict="corrected",
    why="contradicts itself: a figure of one direction is not shared by the other; ports are quoted per "
    "direction in bits, links inside a node as the sum of both",
)
def conventions():
    port, nvlink = one_direction(400e9, bits=True), one_direction(900e9, both_directions=True)
    return f"400 Gb/s port: {format_rate(port)} each way; 900 GB/s NVLink: {format_rate(nvlink)} each way"


@claim(
    "2.3-g",
    "Cutting the data into N chunks lowers each port's use 切成 N 份流水线传输",
    guide="effective use is discounted",
    verdict="corrected",
    why="chunking keeps all N links busy; without it one link works at a time; its price is alpha per step: "
    "use S/(S + N alpha B)",
)
def chunks():
    link, size = Link(5 * us, 50 * GB), 64 * MiB
    cut, whole = (
        replay(trace("all_reduce", "ring", 8), size, link),
        replay(unchunked_all_reduce(8), size, link),
    )
    predicted = size / (size + 8 * link.alpha * link.bandwidth)
    return (
        f"64 MiB, N = 8: links carry data {format_share(cut.occupancy)} of the time in chunks (S/(S + NαB) "
        f"= {format_share(predicted)}), {format_share(whole.occupancy)} whole, which takes "
        f"{whole.seconds / cut.seconds:.2f}x"
    )


@claim(
    "2.3-h",
    "Only when busbw nears the link's limit is it used fully 接近硬件链路的物理上限",
    guide="busbw <= link rate",
    verdict="approximately",
    why="for send/receive algorithms; reduction inside the switch moves fewer bytes, and busbw may pass the "
    "link rate",
)
def above_the_link():
    _, fit = bandwidth.sample(bandwidth.H100)
    ring = cluster("h100").intra
    return (
        f"8 x H100 with in-switch reduction: {format_rate(fit.plateau)} = "
        f"{format_share(fit.share_of(450 * GB))} of 450 GB/s; the ring inside such a node "
        f"{format_rate(ring.bandwidth)} = {format_share(ring.bandwidth / ring.rated)}"
    )


@claim(
    "2.3-i",
    "Use the sizes and topology of training for a baseline 相同的数据规模和进程拓扑",
    guide="same size, same layout",
)
def comparable():
    return "refused: " + "; ".join(bandwidth.refused_differences())


@claim(
    "2.3-j",
    "The worked case is 7 B as plain data parallel on 8 cards 纯数据并行",
    guide="7 B on 8 cards",
    verdict="corrected",
    why="by the guide's own 16 bytes per parameter it does not fit 80 GB; the traffic is the same under "
    "stage 1, so the example means stage 1",
)
def seven_billion():
    plain, first, second = (state_bytes(7e9, 8, stage) for stage in (0, 1, 2))
    return (
        f"states per card: plain {format_bytes(plain)}, stage 1 {format_bytes(first)}, stage 2 "
        f"{format_bytes(second)}, of 80 GB"
    )


@claim(
    "2.3-k",
    "First the baseline, then the share, then the verdict 通信实现不行还是通信量太大",
    guide="implementation or volume",
)
def procedure():
    rows = bandwidth.procedure_table().rows
    return "; ".join(f"{job}: {verdict}" for job, _, _, verdict, _ in rows)


@claim(
    "2.3-l",
    "Across nodes a fraction of the inside (2.3), an order of magnitude (2.4) 几分之一、一个数量级",
    guide="a fraction; 10x",
    verdict="approximately",
    why="both, by what is counted: one card's port, or all ports of a node together",
)
def by_what_is_counted():
    machine = cluster("h100")
    inside, port, node = machine.intra.rated, machine.inter.rated, machine.nics_per_node * machine.inter.rated
    many = cluster("h100", nodes=4)
    across = busbw(
        "all_reduce", 32, 16 * GB / collective_cost("all_reduce", "ring", 16 * GB, 32, many).seconds
    )
    alone = busbw(
        "all_reduce", 8, 16 * GB / collective_cost("all_reduce", "ring", 16 * GB, 8, machine).seconds
    )
    return (
        f"rated: {format_rate(inside)} inside, one port {format_rate(port)} ({inside / port:.0f}x), a "
        f"node's {machine.nics_per_node:.0f} ports {format_rate(node)} ({inside / node:.1f}x); busbw of a "
        f"ring in one node {format_rate(alone)}, over 4 nodes {format_rate(across)} modelled and "
        f"{format_rate(topology.PUBLISHED_4X8_H100)} published"
    )
