"""Section 4.1's claims: sharded data parallelism, what each stage saves and sends, and prefetch."""

from labkit.course import chapter4_prefetch as prefetch
from labkit.course import chapter4_sharding as sharding
from labkit.course.chapter3_data import GUIDE_PARAMETERS, machine_of
from labkit.course.claims import claim
from labkit.planner.sharding import hybrid
from labkit.planner.states import MIXED, state_bytes
from labkit.planner.traffic import Workload
from labkit.presets import model
from labkit.spec import Link
from labkit.strategies.prefetch import prefetch_bytes
from labkit.units import GB, digits, format_bytes, format_rate, format_share, format_time


def _states(n) -> str:
    sizes = (state_bytes(GUIDE_PARAMETERS, n, stage) for stage in range(4))
    return " / ".join(f"{size / GB:.4g}" for size in sizes)


@claim(
    "4.1-a",
    "Three stages of sharding 三档, bytes per rank and traffic",
    guide="13B at N = 8 from 208 GB; the table is missing",
)
def stages():
    laws = ", ".join(sharding.formula(stage) for stage in range(4))
    return f"bytes per parameter {laws}: 13B {_states(8)} GB at N = 8, {_states(64)} GB at N = 64"


@claim(
    "4.1-b",
    "Stages 1 and 2 are free 白捡, stage 3 sends 1.5x",
    guide="1x, 1x, 1.5x",
    verdict="approximately",
    why="true without accumulation, counted on arrays that are really sent; with it see 4.1-d",
)
def traffic():
    counted = [sharding.toy_run(stage).sent() for stage in range(4)]
    times = ", ".join(f"{sent / counted[0]:g}x" for sent in counted[1:])
    return (
        f"4 ranks, one micro-batch, in units of S(N-1)/N: {' / '.join(f'{sent:g}' for sent in counted)}, "
        f"that is {times} of plain"
    )


@claim(
    "4.1-c",
    "Prefetch 预取 of the next layer hides most of the extra 50 %",
    guide="most of it",
    verdict="approximately",
    why="all but the first gather and the last scatter, where the network is fast enough for the batch; "
    "where it is not, no depth of prefetch helps",
)
def hides():
    share = {}
    for name in ("a100", "cloud-25gbe"):
        for depth in (0, 1, 4):
            coverage, exposed, of_it = prefetch.facts(prefetch.micro_batch(name, depth))
            share[name, depth] = f"{coverage} ({exposed}, {of_it})"
    fast, slow = (prefetch.at_cluster(name) for name in ("a100", "cloud-25gbe"))
    return (
        f"gpt3-13b, N = 64, 2,048 tokens per rank, coverage (exposed time, its share): on a100 "
        f"{share['a100', 0]} without, {share['a100', 1]} one layer ahead, {format_rate(fast.has)} where "
        f"{format_rate(fast.needs)} are needed; on cloud-25gbe {share['cloud-25gbe', 1]}, four ahead "
        f"{share['cloud-25gbe', 4]}, {format_rate(slow.has)}, enough from {slow.enough_tokens:,.0f} tokens"
    )


@claim(
    "4.1-d",
    "Stages 1 and 2 leave the traffic as it was 通信量没变, stage 3 makes it 1.5 times",
    guide="1x, 1x, 1.5x",
    verdict="corrected",
    why="with m micro-batches a plain rank synchronises once, stage 2 scatters m times, stage 3 gathers 2m "
    "times; that is why stages 2 and 3 are rarely combined with pipelines",
)
def accumulated():
    m = 16
    sent = [sharding.units(stage, m) for stage in range(4)]
    kept = sharding.units(3, m, keep_gradients=True)
    arrays = " / ".join(f"{sharding.toy_run(stage, 4).sent():g}" for stage in range(4))
    return (
        f"m = {m}, units of S(N-1)/N: {' / '.join(f'{each:g}' for each in sent)} ({kept:g} with full "
        f"gradients kept), {sent[2] / sent[0]:g}x and {sent[3] / sent[0]:g}x; on arrays with m = 4: {arrays}"
    )


@claim(
    "4.1-e",
    "After the reduction each card needs its own part only: make it a ReduceScatter 顺手做成 ReduceScatter",
    guide="that is all",
    verdict="approximately",
    why="it is half of it: the updated parameters must be gathered, or the replicas diverge; this other half "
    "cannot hide in the backward pass, only in the next forward",
)
def two_halves():
    alone, both = (sharding.toy_run(1, 1, 10, gather) for gather in (False, True))
    return (
        f"units sent: gradients {both.sent('gradients'):g}, new parameters {both.sent('new weights'):g}; "
        f"after 10 steps on 4 ranks a parameter differs between ranks by up to {alone.divergence:.2g} "
        f"without the all_gather, by {both.divergence:g} with it"
    )


@claim(
    "4.1-f",
    "Gathered layers are freed at once 用完立刻释放, close to linear 接近线性可分片",
    guide="16 P / N",
    verdict="approximately",
    why="beside the shards stand d + 1 gathered layers and a layer's full gradient, two of them while one is "
    "scattered and the next computed; at N = 64 they outweigh the gradients' and parameters' shards",
)
def peak():
    n, one = 64, model(prefetch.MODEL)
    layer = MIXED.weights * one.layer_parameters
    states = state_bytes(GUIDE_PARAMETERS, n, 3)
    gathered = prefetch_bytes(one.layers, layer, 0.0, 1)
    deeper = ", ".join(
        f"{format_bytes(prefetch_bytes(one.layers, layer, layer, depth))} at d = {depth}"
        for depth in (0, 1, 4)
    )
    return (
        f"13B, N = {n}: {format_bytes(states)} + 2 x {layer / GB:.2f} GB gathered + {layer / GB:.2f} GB of "
        f"gradient = {format_bytes(states)} + {digits((gathered + layer) / GB, 2)} GB; with two gradients "
        f"{deeper} instead"
    )


@claim(
    "4.1-g",
    "Gaps in the network's throughput mean bad prefetch 网络吞吐曲线有明显的空隙",
    guide="gaps in the network curve",
    verdict="corrected",
    why="gaps of the compute stream mean it: a fast network idles most of the time exactly when all of its "
    "work hides",
)
def gaps():
    forward, gather = prefetch.guide_layer()
    good, none = prefetch.guide_prefetch(1), prefetch.guide_prefetch(0)
    return (
        f"one layer: forward {format_time(forward)}, gather {format_time(gather)}, so that the network idles "
        f"{format_share(1 - gather / forward)} of it; 40 layers: coverage {format_share(good.coverage)}, "
        f"exposed {format_time(good.exposed)}, "
        f"network idle {format_share(good.network_idle)}, GPU idle {format_share(good.compute_idle)}, and "
        f"{format_share(none.network_idle)}, {format_share(none.compute_idle)} without prefetch"
    )


@claim(
    "4.1-h",
    "(not in the guide) the number of collectives in stage 3 集合通信次数",
    guide="absent",
    verdict="approximately",
    why="the 1.5x counts bytes; 3 collectives per layer and micro-batch of N - 1 steps each make latency "
    "pass the bandwidth term at N = layer/(alpha B); shards inside the host alone keep it away",
)
def latency():
    one, m, n = model(prefetch.MODEL), 16, 1024
    long, rest = prefetch.latency_terms(n, micro_batches=m)
    work = Workload(one.parameters, one.layers, one.hidden, one.sequence, 1, m)
    machine = machine_of("a100", n)
    mixed = sum(row.seconds(machine) for row in hybrid(work, 8, n // 8))
    passes = prefetch.latency_ranks(prefetch.ring_link())
    slow = prefetch.latency_ranks(Link(5e-6, 50 * GB))
    return (
        f"40 layers, m = {m}, N = {n:,}: {3 * one.layers * m:,} collectives of {n - 1:,} steps; on a100 "
        f"{format_time(long)} of latency beside {format_time(rest)} of bytes, it passes at N = {passes:,.0f} "
        f"(5 µs, 50 GB/s: {slow:,.0f}); hybrid, shards of 8: {format_time(mixed)} in all"
    )


@claim(
    "4.1-i",
    "Whenever memory is short switch these two on first 任何显存吃紧的场景都应该先开这一档",
    guide="stages 1 and 2 before anything else",
    verdict="approximately",
    why="stage 1 always, it costs no bytes; then selective recompute, unless a fused attention keeps no "
    "scores anyhow; whether stages 2 and 3 or full recompute come next is for the network and m to say",
)
def cheapest_first():
    def line(name):
        order = ", ".join(
            f"{one.option} {digits(1e3 * max(0.0, one.work_per_gb))}" for one in prefetch.ranked(name)
        )
        return f"{name}: {order}"

    return (
        "gpt3-13b, N = 64, m = 16, ms of added work per GB saved: "
        f"{'; '.join(line(name) for name in ('h100', 'a100', 'cloud-25gbe'))}"
    )


@claim(
    "4.1-j",
    "TABLE 这个思路分三档递进，代价各不相同: (missing in the guide, rebuilt)",
    guide="the sentence ends in a colon; 208 GB is said before it",
)
def missing_table():
    return "; ".join(" ".join(row) for row in sharding.stage_table(micro_batches=(1, 16)).rows)
