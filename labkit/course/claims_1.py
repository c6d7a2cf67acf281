"""Chapter 1's claims: why scaling efficiency collapses."""

from labkit.collectives import collective_cost
from labkit.collectives.scaling import Setting, scaling
from labkit.course import chapter1
from labkit.course import chapter2_topology as topology
from labkit.course.claims import claim
from labkit.planner.states import smallest_ranks, state_bytes
from labkit.presets import cluster
from labkit.spec import Cluster, Link
from labkit.units import format_bytes, format_share, format_time


def _guide_preset(**changes) -> tuple[Cluster, Setting]:
    """The setting of claim 1-e: 20 GB, 250 GB/s inside, one 25 GB/s port, 2.0 s compute at 8 cards."""
    gpu = cluster("a100").gpu
    machine = Cluster("one 25 GB/s port", gpu, 1, 8, Link(10e-6, 250e9), Link(10e-6, 25e9), 1)
    return machine, Setting(gradient=20e9, compute=2.0, **changes)


@claim(
    "1-a",
    "A ~10 B job 百亿参数: fine on 8 cards, poor at 32, flat at 64",
    guide="32 cards rise by less than half over 8; 64 stand still or fall",
    verdict="approximately",
    why="true under strong scaling on a measured cluster for small batches; the batch up to which it is "
    "true is solved for, and 64 cards stand still rather than fall",
)
def story():
    rows = chapter1.story([8, 32, 64])
    limit = chapter1.largest_true_batch()
    return (
        f"throughput 1 / {rows.throughput[1]:.2f} / {rows.throughput[2]:.2f} at 8 / 32 / 64; under 1.5 at "
        f"32 for batches up to {limit:,.0f} tokens"
    )


@claim(
    "1-b",
    "Compute is linear, communication logarithmic or worse 计算线性、通信对数",
    guide="latency and contention both worsen as cards double",
    verdict="approximately",
    why="each term is shown for each N: the bandwidth term saturates at 2S/B, only latency grows with N",
)
def decomposition():
    rows = chapter1.story([16, 32, 64])
    return "; ".join(
        f"{n}: latency {format_time(a)}, bandwidth {format_time(b)}"
        for n, a, b in zip(rows.n, rows.latency, rows.bandwidth, strict=True)
    )


@claim(
    "1-c",
    "The network curve is pegged while nothing else is 网络吞吐跑满",
    guide="network full, GPU, CPU and memory not",
    why="",
)
def pegged():
    rows = chapter1.story([64])
    return (
        f"at 64 ranks: link busy {format_share(rows.link_share[0])}, computing "
        f"{format_share(rows.compute_share[0])} of the step"
    )


@claim(
    "1-d",
    "Samples per second rose by less than half from 8 to 32 cards 只涨了不到一半",
    guide="thr(32)/thr(8) < 1.5, efficiency < 37.5 %",
)
def strict_reading():
    rows = chapter1.story([32])
    return f"thr(32)/thr(8) = {rows.throughput[0]:.2f}, efficiency {format_share(rows.efficiency[0])}"


@claim(
    "1-e",
    "64 cards stand still or fall 原地踏步甚至回退, though weak scaling 弱扩展 is the test to use",
    guide="thr(64) <= thr(32)",
    verdict="corrected",
    why="a flat ring cannot do this under weak scaling (its bytes per rank grow by 1.6 %): it takes strong "
    "scaling, less bandwidth at 64 than at 32, or a latency-bound ring",
)
def falling():
    machine, strong = _guide_preset()
    throughput = scaling([8, 16, 32, 64], machine, strong).throughput
    weak = scaling([32, 64], machine, _guide_preset(mode="weak")[1]).throughput
    needed = _taper_for_no_gain(2.0), _taper_for_no_gain(0.5)
    return (
        "20 GB, one 25 GB/s port per node, 2 s compute at 8, 10 µs: "
        f"strong {' / '.join(f'{t:.2f}' for t in throughput)} at 8 / 16 / 32 / 64; weak thr(64)/thr(32) = "
        f"{weak[1] / weak[0]:.2f}; a weak curve is flat when 64 cards keep {needed[0]:.2f}x (2 s compute) or "
        f"{needed[1]:.2f}x (0.5 s) of the bandwidth at 32"
    )


def _taper_for_no_gain(compute: float) -> float:
    """The taper beyond 32 ranks at which 64 bring nothing under weak scaling, by bisection."""
    low, high = 0.01, 1.0
    for _ in range(50):
        taper = (low + high) / 2
        machine, setting = _guide_preset(mode="weak", taper=taper)
        one = Setting(setting.gradient, compute, mode="weak", taper=taper)
        first, second = scaling([32, 64], machine, one).throughput
        low, high = (taper, high) if second < first else (low, taper)
    return low


@claim(
    "1-f",
    "The single-card figure looks fine 单卡吞吐看着挺漂亮",
    guide="a single-card throughput of a 10 B job",
    verdict="corrected",
    why="by the guide's own 16 bytes per parameter the states do not fit one 80 GB card: the baseline is "
    "the smallest configuration that runs",
)
def no_single_card():
    alone = state_bytes(chapter1.PARAMETERS)
    fewest = smallest_ranks(chapter1.PARAMETERS, 80e9, stage=1)
    return f"states on one card {format_bytes(alone)} of 80 GB; fewest 80 GB cards with stage 1: {fewest:.0f}"


@claim(
    "1-g",
    "Doubling the cards doubles the parties: latency and contention worsen together 同时恶化",
    guide="communication grows with N",
    verdict="approximately",
    why="ring bytes per rank stay below 2S, as the guide's 2.2 says; latency grows with N, contention only "
    "on an oversubscribed network",
)
def what_grew():
    ranks = [8, 16, 32, 64, 128]
    grew = chapter1.story(ranks).grew()
    tapered = chapter1.story(ranks, taper=0.5).grew()
    return (
        "share that grew most: "
        + ", ".join(f"{n} {name}" for n, name in zip(ranks[1:], grew, strict=True))
        + f"; with half the ports beyond 32: 64 {tapered[2]}"
    )


@claim(
    "1-h",
    "Three levers: shrink, hide, confine 压缩、隐藏、限制",
    guide="every parallel strategy does one of three things",
)
def three_levers():
    kinds = [row[0] for row in chapter1.technique_table().rows]
    return ", ".join(f"{kind}: {kinds.count(kind)} techniques" for kind in ("shrink", "hide", "confine"))


@claim(
    "1-i",
    "The cut decides the bill 切法决定通信账单",
    guide="one bill per way of cutting",
)
def one_bill():
    totals: dict[str, float] = {}
    for row in chapter1.bill(chapter1.MODEL, 8):
        totals[row.strategy] = totals.get(row.strategy, 0.0) + row.bytes_per_rank
    return "; ".join(f"{cut} {format_bytes(total)}" for cut, total in totals.items())


@claim(
    "1-j",
    "Volumes in MB, times in ms, settings that can be changed and rerun 可复现",
    guide="MB and ms throughout; three kinds of reader",
)
def conventions():
    payload = topology.layer().activation_bytes
    sent = collective_cost("send_recv", "linear", payload, 2, Link(0.0, 50e9)).seconds
    return (
        f"one activation of chapter 2: {format_bytes(payload)}, {format_time(sent)} at 50 GB/s; every live "
        "figure prints its setting as one line of code"
    )


@claim(
    "1-k",
    "No error, memory not full, CPU idle, network pegged 一直跑满",
    guide="the symptom list",
    verdict="approximately",
    why="'GPU utilisation' as usually reported counts waiting communication kernels as busy, so the figure "
    "plots the compute-busy share",
)
def symptoms():
    rows = chapter1.story([32])
    computing = rows.compute_share[0]
    waiting = rows.exposed[0] / rows.step[0]
    return (
        f"at 32 ranks kernels are on the GPU {format_share(computing + waiting)} of the time, "
        f"{format_share(waiting)} of it waiting for the network; the compute-busy share is "
        f"{format_share(computing)}"
    )
