"""Section 4.1's stage 3 as tables: what prefetch hides and holds, when the network is enough, what it costs.

Worked on gpt3-13b, 40 layers x 5,120: a layer of 314.6 M parameters, as the guide's 13B has, which has 32.
"""

from dataclasses import replace

from labkit.course.chapter3_data import CARD, GUIDE_PARAMETERS, machine_of
from labkit.course.table import Table, table
from labkit.planner.savings import Saving, savings
from labkit.planner.sharding import (
    BreakEven,
    break_even,
    latency_passes,
    sharded_layer,
    stage_three,
)
from labkit.planner.states import MIXED, state_bytes
from labkit.presets import model as load_model
from labkit.spec import Cluster, Gpu, Link, Plan, Transformer
from labkit.strategies.prefetch import Prefetched, prefetch_bytes, prefetched
from labkit.units import GB, format_bytes, format_rate, format_share, format_time

MODEL = "gpt3-13b"


def plan_of(n=64, micro_batch=1, **changes) -> Plan:
    """Data parallel alone over ``n`` ranks, stage 3."""
    return Plan(dp=n, zero=3, micro_batch=micro_batch, **changes)


def micro_batch(name="a100", depth=1, n=64) -> Prefetched:
    """One micro-batch of one sequence of the worked model under stage 3."""
    return stage_three(load_model(MODEL), machine_of(name, n), plan_of(n, prefetch=depth))


def depth_table(name="a100", n=64, micro_batch=1, depths=(0, 1, 2, 4)) -> Table:
    """Claims 4.1-c and 4.1-f: what a deeper prefetch hides, and what it holds. One micro-batch."""
    one, machine, rows = load_model(MODEL), machine_of(name, n), []
    for depth in depths:
        plan = plan_of(n, micro_batch, prefetch=depth)
        found, layer = stage_three(one, machine, plan), sharded_layer(one, machine, plan)
        gathered = prefetch_bytes(one.layers, layer.weights, 0.0, depth)
        rows.append(
            (
                depth,
                format_bytes(gathered),
                format_time(found.compute),
                format_time(found.exposed),
                format_share(found.coverage),
                format_share(found.compute_idle),
                format_share(found.network_idle),
            )
        )
    heads = ("layers ahead", "gathered layers", "compute", "exposed", "coverage", "GPU waits (exposed share)")
    return table((*heads, "network idle"), rows)


def peak_table(n=64, depths=(0, 1, 2, 4), parameters=GUIDE_PARAMETERS) -> Table:
    """Claim 4.1-f: shards, gathered layers and full gradients of layers. 13e9 parameters, 40 layers."""
    layer = MIXED.weights * load_model(MODEL).layer_parameters
    states, rows = state_bytes(parameters, n, 3), []
    for depth in depths:
        weights, both = (prefetch_bytes(40, layer, size, depth) for size in (0.0, layer))
        gradients = both - weights
        parts = [format_bytes(size) for size in (states, weights, gradients)]
        rows.append((depth, *parts, format_bytes(states + weights + gradients)))
    return table(("layers ahead", "16 P/N", "gathered", "two gradients", "peak without activations"), rows)


GUIDE_CARD = Gpu("A100 at 50 % of its peak", CARD, {"bf16": 312e12}, 0.5)
GUIDE_LINK = Link(0.0, 50 * GB)


def guide_layer(n=64, tokens=4 * 2048) -> tuple[float, float]:
    """Claim 4.1-g's layer: seconds of its forward (24 h^2 a token, no scores) and of its gather."""
    hidden = load_model(MODEL).hidden
    elements = 12 * hidden**2
    seconds = 2 * elements * tokens / (GUIDE_CARD.peak["bf16"] * GUIDE_CARD.reached)
    return seconds, MIXED.weights * elements * (n - 1) / n / GUIDE_LINK.bandwidth


def guide_prefetch(depth=1, slower=1.0, layers=40) -> Prefetched:
    """One micro-batch of such layers; the network ``slower`` times as slow."""
    forward, gather = guide_layer()
    return prefetched(layers, forward, 2 * forward, slower * gather, slower * gather, depth)


def idle_table() -> Table:
    """Claim 4.1-g: which of the two idle times tells whether prefetch is good."""
    cases = (
        ("prefetch one ahead", 1, 1.0),
        ("no prefetch", 0, 1.0),
        ("one ahead, a network 4 times slower", 1, 4.0),
    )
    rows = []
    for words, depth, slower in cases:
        found = guide_prefetch(depth, slower)
        network = format_share(found.network_idle)
        rows.append((words, *facts(found), network))
    return table(("case", "coverage", "exposed", "GPU idle (exposed share)", "network idle"), rows)


def facts(found: Prefetched) -> tuple[str, str, str]:
    """Coverage, exposed time and its share of the micro-batch: never one of them alone."""
    return format_share(found.coverage), format_time(found.exposed), format_share(found.compute_idle)


# ---- is my network enough?


def at_cluster(name, n=64, micro_batch=1, shard_ranks=None, **changes) -> BreakEven:
    """Break-even of the worked model on a preset."""
    plan = plan_of(n, micro_batch, shard_ranks=shard_ranks, **changes)
    return break_even(load_model(MODEL), machine_of(name, n), plan)


def enough_table(names=("a100", "h100", "b200", "cloud-25gbe", "l40s-pcie"), n=64) -> Table:
    """Claim 4.1-c solved: bandwidth and batch from which on stage 3 hides; sharded over all, or in a host."""
    one, rows = load_model(MODEL), []
    for name in names:
        machine = machine_of(name, n)
        for shards in (n, machine.domain):
            plan = plan_of(n, shard_ranks=shards)
            found, step = break_even(one, machine, plan), stage_three(one, machine, plan)
            rows.append(
                (
                    name,
                    shards,
                    format_rate(found.has),
                    format_rate(found.needs),
                    f"{found.enough_tokens:,.0f}",
                    *facts(step),
                    format_bytes(state_bytes(GUIDE_PARAMETERS, shards, 3)),
                )
            )
    heads = ("cluster", "shards", "ring has", "needs at 2,048 tokens", "enough from, tokens per rank")
    return table((*heads, "coverage at 2,048", "exposed", "of the micro-batch", "13B states"), rows)


def latency_and_bytes(one: Transformer, machine: Cluster, plan: Plan):
    """Seconds of one gather of a layer by its latency alone, and by its bytes alone on the same links.

    A step of a ring takes as long as its slowest hop, and with other links that is another hop.
    """
    free = {name: replace(getattr(machine, name), alpha=0.0) for name in ("intra", "inter")}
    whole, carried = (sharded_layer(one, each, plan) for each in (machine, replace(machine, **free)))
    return whole.latency, carried.gather


def latency_terms(n, name="a100", micro_batches=16) -> tuple[float, float]:
    """Seconds of a step's gathers and scatters at stage 3: their latencies, and their bytes. Claim 4.1-h."""
    one = load_model(MODEL)
    count = 3 * one.layers * micro_batches
    latency, carried = latency_and_bytes(one, machine_of(name, n), plan_of(n))
    return count * latency, count * carried


def latency_ranks(link: Link) -> float:
    """N from which on latency is more than half of a gather, for a layer of the worked model."""
    return latency_passes(MIXED.weights * load_model(MODEL).layer_parameters, link)


def ring_link(name="a100") -> Link:
    """What a ring through all ports of a preset's hosts gets: one port's latency, a host's bandwidth."""
    machine = machine_of(name, 8)
    return Link(machine.inter.alpha, machine.node_bandwidth)


# ---- what a gigabyte costs


def ranked(name, n=64, micro_batches=16) -> list[Saving]:
    """Claim 4.1-i: the options by added work for each GB saved; attention that keeps its scores."""
    plan = Plan(dp=n, micro_batch=1, accumulation=micro_batches, fused_attention=False)
    found = savings(load_model(MODEL), machine_of(name, n), plan)
    return sorted(found, key=lambda one: one.work_per_gb)


def savings_table(names=("h100", "cloud-25gbe"), n=64, micro_batches=16) -> Table:
    """Claim 4.1-i: cheapest first, on a fast and on a slow network."""
    rows = []
    for name in names:
        for one in ranked(name, n, micro_batches):
            cost = (format_time(max(0.0, x)) for x in (one.work_per_gb, one.exposed_per_gb))
            work = (_signed(one.seconds), _signed(one.exposed))
            rows.append((name, one.option, one.after, format_bytes(one.saved), *work, *cost))
    heads = ("cluster", "option", "instead of", "saves", "more work", "step longer by")
    return table((*heads, "work per GB saved", "longer step per GB saved"), rows)


def _signed(seconds: float) -> str:
    """Seconds with their sign; less than a microsecond is rounding."""
    if abs(seconds) < 1e-6:
        return "0 s"
    return ("-" if seconds < 0 else "") + format_time(abs(seconds))
