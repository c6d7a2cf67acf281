"""Section 2.4's claims: topology sets the ceiling."""

from labkit.course import chapter2_topology as topology
from labkit.course.claims import claim
from labkit.planner.placement import crossing_cost, rate_for_crossing_cost
from labkit.planner.traffic import Workload, data_parallel, sharded
from labkit.presets import cluster
from labkit.strategies.pipeline import gpipe, one_f_one_b, peak_in_flight, simulate
from labkit.units import GB, format_bytes, format_rate, format_share, format_time


@claim(
    "2.4-a",
    "Device memory >> links inside a node >> network, about 10x a step 带宽悬崖",
    guide="an order of magnitude per step",
    verdict="approximately",
    why="per GPU it is; a node with a port for each GPU narrows the last step (see 2.3-l)",
)
def cliff():
    return "; ".join(
        f"{name}: memory {format_rate(m.gpu.memory_bandwidth)}, inside {format_rate(m.intra.bandwidth)}, "
        f"one port {format_rate(m.inter.bandwidth)}"
        for name, m in ((name, cluster(name)) for name in ("a100", "h100", "b200"))
    )


@claim(
    "2.4-b",
    "Tensor parallelism inside a node 张量并行不出单机; across nodes a step takes about 3x",
    guide="about 3x",
    verdict="approximately",
    why="the same 16 cards in either rank order; the ratio of the steps is set by the ports per node, while "
    "the communication of a layer alone differs far more",
)
def step_on_both_sides():
    machine, steps, layers = cluster("a100"), [], []
    for ports in (1, 8):
        inside, across = (step.total for step in topology.steps_on_both_sides(ports))
        steps.append(
            f"{ports} x 25 GB/s: {format_time(inside)} and {format_time(across)}, {across / inside:.1f}x"
        )
        one, two = topology.layer_seconds(machine, 8, ports, 25 * GB)
        layers.append(f"{format_time(two)}, {two / one:.1f}x")
    return (
        f"step of TP 8 x DP 2 on two nodes, 16 micro-batches, tensor inside and tensor across: "
        f"{'; '.join(steps)}; one layer's AllReduces inside a node {format_time(one)}, over two "
        f"{' or '.join(layers)}"
    )


@claim(
    "2.4-c",
    "Tensor inside the node, data across, pipeline across 三条放置规则",
    guide="three placement rules",
    verdict="approximately",
    why="data and pipeline parallelism stay under a tenth of the step's compute across nodes; tensor "
    "parallelism "
    "stays inside because outside it costs three times the compute, though even inside it takes more than "
    "a tenth",
)
def placement_rules():
    return "; ".join(
        f"{row.strategy}: {format_share(row.share_inside)} of the compute inside, "
        f"{format_share(row.share_across)} across"
        for row in topology.placement_rows()
    )


@claim(
    "2.4-d",
    "Data parallelism communicates once per step 每一步只通信一次",
    guide="one communication",
    verdict="corrected",
    why="one logical synchronisation is many collectives, m times that if accumulation does not defer it, "
    "and 3 per layer per micro-batch in stage 3",
)
def how_often():
    work = Workload(parameters=7e9, layers=32, hidden=4096, sequence=2048, micro_batch=1, micro_batches=16)
    deferred = sum(row.count for row in data_parallel(work, 8, bucket=25e6))
    each = sum(row.count for row in data_parallel(work, 8, bucket=25e6, deferred=False))
    third = sum(row.count for row in sharded(work, 8, 3))
    return (
        f"7 B bf16 in 25 MB buckets: {deferred:,.0f} collectives; {each:,.0f} at m = 16 "
        f"without deferring; stage 3: {third:,.0f}"
    )


@claim(
    "2.4-e",
    "Crossing nodes triples the step 单步时间直接翻三倍",
    guide="3x",
    verdict="approximately",
    why="set by ports per node and by the card's speed; the bandwidth per node at which it is "
    "3x is solved for",
)
def crossing():
    work, slow, fast = topology.crossing_setting()
    ports = ((1, 12.5), (1, 25), (1, 50), (8, 25))
    a100 = ", ".join(
        f"{crossing_cost(work, slow, n, rate * GB):.1f}x with {n} x {rate:g}" for n, rate in ports
    )
    h100 = ", ".join(
        f"{crossing_cost(work, fast, n, rate * GB):.1f}x with {n} x {rate:g}"
        for n, rate in ((1, 25), (8, 50))
    )
    three = format_rate(float(rate_for_crossing_cost(work, slow, 3.0)))
    return f"A100-class: {a100} GB/s; 989 TFLOP/s card: {h100} GB/s; 3x at {three} per node (A100-class)"


@claim(
    "2.4-f",
    "The single host is the boundary 单机 for tensor parallelism",
    guide="one host",
    verdict="approximately",
    why="dated: the boundary is the fast-link domain, today up to 72 cards over many hosts",
)
def domain():
    return ", ".join(
        f"{name}: {cluster(name).gpus_per_node} per host, domain {cluster(name).domain}"
        for name in ("h100", "gb200-nvl72")
    )


# NCCL's own per-hop latencies, microseconds, by protocol (LL, LL128, Simple): src/graph/tuning.cc, hwLat.
NCCL_HOP_US = {
    "ring": {"NVLink": (0.6, 1.9, 3.4), "network": (2.7, 4.0, 14.0)},
    "tree": {"NVLink": (0.6, 1.25, 4.0), "network": (5.0, 8.5, 14.0)},
}


@claim(
    "2.4-g",
    "Latency across nodes is an order of magnitude higher 延迟高一个数量级",
    guide="10x",
    verdict="approximately",
    why="NCCL's own per-hop constants are 2 to 4.5 times apart for the ring's three protocols, up to 8 for "
    "the tree",
)
def latency_ratio():
    parts = []
    for algorithm, hops in NCCL_HOP_US.items():
        pairs = zip(hops["NVLink"], hops["network"], strict=True)
        parts.append(f"{algorithm} " + ", ".join(f"{a:g} and {b:g} µs ({b / a:.1f}x)" for a, b in pairs))
    preset = cluster("h100")
    fitted = preset.inter.alpha / preset.intra.alpha
    return f"NCCL inside and across: {'; '.join(parts)}; fitted on preset h100 {fitted:.1f}x"


@claim(
    "2.4-h",
    "Pipeline transfers 流水线传输 need careful scheduling to be hidden",
    guide="hidden by scheduling micro-batches",
    verdict="approximately",
    why="plain 1F1B does not hide them; all-forward-then-backward or a doubled warm-up pays the fill and "
    "drain only, the latter with 7 instead of 4 micro-batches in flight and while the transfer is under "
    "half of forward + backward",
)
def pipeline_transfer():
    forward, backward, c = 1.0, 2.0, 0.01

    def longer(order):
        return (simulate(order, forward, backward, c).span - simulate(order, forward, backward).span) / c

    plain, long = one_f_one_b(4, 16), one_f_one_b(4, 32)
    doubled, all_first = one_f_one_b(4, 16, warmup=2), gpipe(4, 16)
    transfer = format_time(topology.layer().activation_bytes / (50 * GB))
    return (
        f"p = 4: 1F1B {longer(plain):.0f}c at m = 16, {longer(long):.0f}c at 32; doubled warm-up "
        f"{longer(doubled):.0f}c with {peak_in_flight(doubled).max():.0f} in flight instead of "
        f"{peak_in_flight(plain).max():.0f}; GPipe {longer(all_first):.0f}c; c = {transfer} for "
        f"{format_bytes(topology.layer().activation_bytes)} at 50 GB/s"
    )
