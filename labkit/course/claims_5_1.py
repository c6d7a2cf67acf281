"""Section 5.1's claims: the baseline, its sweep and its three regions, and who sits where."""

from labkit.course import chapter2_bandwidth as bandwidth
from labkit.course import chapter5_baseline as baseline
from labkit.course import chapter5_mapping as mapping
from labkit.course.claims import claim
from labkit.evidence.baseline_record import hop_latency
from labkit.units import KiB, digits, format_bytes, format_rate, format_share, format_size, format_time, words


@claim(
    "5.1-a",
    "Sweep AllReduce 1 MB..1 GB: latency region, knee 拐点, plateau 大消息平台",
    guide="< 64 KB latency; knee at hundreds of KB; plateau >= 80 % of nominal",
    verdict="corrected",
    why="a sweep from 1 MB cannot show a region below 64 KB, start at 1 KB or below; and the terms of a ring "
    "are equal at N times the αB of one hop, not at αB; changes of protocol push half the plateau further "
    "out",
)
def three_regions():
    _, fit = bandwidth.sample(bandwidth.FULL_RANGE)
    hop = fit.link("ring")
    shares = ", ".join(
        f"{name} {format_share(bandwidth.sample(name)[1].share_of(bandwidth.NOMINAL[name]))}"
        for name in bandwidth.NOMINAL
    )
    late = bandwidth.cut_sweep()
    told = f"alpha {format_time(late.alpha)}" if late.alpha == late.alpha else "no alpha"
    return (
        f"{bandwidth.FULL_RANGE}: alpha {format_time(fit.alpha)} ± {format_time(fit.alpha_error)}, algbw "
        f"limit {format_rate(fit.bandwidth)}; αB of one hop {format_bytes(hop.alpha * hop.bandwidth)}, of "
        f"the whole {format_bytes(fit.knee)}, half the plateau at {format_bytes(fit.half_power)}; the same "
        f"log from 1 MiB up gives {told}; plateaus: {shares} of nominal"
    )


@claim(
    "5.1-b",
    "Record the mapping of ranks to cards 进程到卡的映射关系: a wrong order costs half 莫名其妙掉一半",
    guide="half",
    verdict="approximately",
    why="the check is right, and reads any launcher's listing; what a wrong order costs is set by the ports "
    "of a host beside its fast links, and by how much of the step is tensor parallel",
)
def wrong_order():
    found = mapping.crossings(mapping.cyclic(), mapping.PLAN)
    across = ", ".join(
        f"{name} {one.across} of {one.groups} ({one.in_order} in order)" for name, one in found.items()
    )
    slower = ", ".join(f"{name} {mapping.wrong_order(name).slower:.2f}x" for name in mapping.CLUSTERS)
    return (
        f"TP 8 x DP 2 on two hosts, ranks dealt out in turn: groups across hosts {across}; step of "
        f"guide-13b, times as long as in block order: {slower}"
    )


@claim(
    "5.1-c",
    "Three things to measure 要测的东西就三样: bandwidth inside and across, latency across",
    guide="three figures",
    verdict="approximately",
    why="these three, with N, the algorithm and the date, or nobody can compare later; and the latency of a "
    "hop is the small collective's time over its steps, never that time itself",
)
def three_figures():
    _, fit = bandwidth.sample(bandwidth.TWO_NODES)
    ring, tree = (
        hop_latency(fit.alpha, fit.collective, algorithm, fit.n_ranks) for algorithm in ("ring", "tree")
    )
    found = baseline.record()
    return (
        f"inside {format_rate(found.inside)}, across {format_rate(found.across)}, latency of a hop "
        f"{format_time(found.latency)}, N = {found.n_ranks}, {found.algorithm}, {found.day}; the small "
        f"AllReduce took {format_time(fit.alpha)}: over 2(N-1) = {fit.alpha / ring:.0f} steps of a ring "
        f"{format_time(ring)}, over 2 log2 N = {fit.alpha / tree:.0f} of a tree {format_time(tree)}"
    )


@claim(
    "5.1-d",
    "At the knee 拐点 latency and bandwidth term are equal 延迟项和带宽项相等, usually hundreds of KB",
    guide="αB, hundreds of KB; where bandwidth starts to climb",
    verdict="corrected",
    why="for a ring the terms are equal at N αB; there half of the bandwidth is reached, it is not where the "
    "climb starts; by the guide's own places its sweep from 1 MB misses two of its three regions",
)
def knee():
    hop = baseline.HOP.alpha * baseline.HOP.bandwidth
    by_n = ", ".join(f"{format_bytes(baseline.half_power(n))} at N = {n}" for n in (8, 64, 512))
    seen = "; ".join(
        f"{name} αB of a hop {format_bytes(bandwidth.sample(name)[1].knee / 8)}, N αB "
        f"{format_bytes(bandwidth.sample(name)[1].knee)}, half of the plateau between "
        f"{' and '.join(map(format_size, baseline.half_plateau_rows(name)))}"
        for name in (bandwidth.A100, bandwidth.H100)
    )
    return (
        f"αB = {format_bytes(hop)}: knee {by_n}; published: {seen}; a sweep from 1 MB misses, by the guide's "
        f"places: {', '.join(baseline.guides_own_regions())}"
    )


@claim(
    "5.1-e",
    "Below 64 KB the curve is flat, low 曲线平缓且低: send less often 减少通信次数, merge messages 合并消息",
    guide="bandwidth flat below 64 KB",
    verdict="approximately",
    why="it is the time that is flat there, the bandwidth rises in proportion to the size; and the remedy is "
    "right: k messages merged into one save k - 1 latencies",
)
def flat_time():
    sweep, _ = bandwidth.sample(bandwidth.A100)
    columns = (column.tolist() for column in (sweep.size, sweep.time, sweep.busbw))
    rows = {size: (time, rate) for size, time, rate in zip(*columns, strict=True)}
    times = ", ".join(f"{format_time(rows[size * KiB][0])} at {size} KiB" for size in (32, 64, 512))
    rises = rows[64 * KiB][1] / rows[32 * KiB][1]
    small, large = 64 * KiB, 4096 * KiB
    k = large // small
    apart, one = baseline.merged(k, large)
    latency = 14 * baseline.HOP.alpha
    return (
        f"8 x A100: {times}; busbw from 32 to 64 KiB {digits(rises)}x; {k} x 64 KiB merged save "
        f"{(apart - one) / latency:.0f} latencies of 2(N-1) alpha, and as published "
        f"{format_time(k * rows[small][0])} become {format_time(rows[large][0])}"
    )


@claim(
    "5.1-f",
    "The plateau reaches 80 % of nominal or the network is ill 硬件标称值的 80% 以上",
    guide=">= 80 %",
    verdict="approximately",
    why="compare busbw with the rate of one direction, past 9 N αB; healthy rings show 76 to 82 %, reduction "
    "in the switch more than the link's rate: the verdict is a band that knows algorithm and size",
)
def plateau():
    cases = "; ".join(
        words(f"{name} ({algorithm}) {format_share(found.share)}: {found.verdict}")
        for name, algorithm, found in baseline.plateau_cases()
    )
    factor = baseline.LARGE_ENOUGH / (1 - baseline.LARGE_ENOUGH)
    return f"large enough from {digits(factor)} x N αB; {cases}"
