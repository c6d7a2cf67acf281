"""Section 2.2 as tables: formulas beside counts, latency, and where algorithms cross."""

from labkit.collectives import collective_cost, crossover, replay, trace, volume
from labkit.course.chapter2 import LINK, traffic_of
from labkit.course.table import Table, table
from labkit.presets import cluster
from labkit.spec import Link
from labkit.units import GB, MB, digits, format_bytes, format_time, us, words


def counts_table(sizes=(1_000_000, 1_000_003)) -> Table:
    """Ring AllReduce counted on its trace beside 2(N-1) steps and 2S(N-1)/N bytes, N dividing S or not."""
    rows = []
    for n in (2, 3, 4, 8, 13, 64):
        for size in sizes:
            run = replay(trace("all_reduce", "ring", n), size, LINK)
            cost = collective_cost("all_reduce", "ring", size, n, LINK)
            rows.append(
                (
                    str(n),
                    f"{size:,}",
                    f"{run.rounds} = {cost.steps:.0f}",
                    f"{run.sent.sum():,.0f} = {2 * size * (n - 1):,.0f}",
                    f"{cost.bytes_per_rank:,.2f}",
                    f"{run.sent.min():,.0f} to {run.sent.max():,.0f}",
                )
            )
    return table(
        ("N", "S", "steps: counted = formula", "all bytes: counted = 2S(N-1)", "2S(N-1)/N", "ranks send"),
        rows,
    )


def formulas_table(n=8, size=2**20) -> Table:
    """The other volumes the guide names: formula beside count (claim 2.2-e)."""
    rows = []
    for op, how, formula, value in (
        ("all_gather", "ring", "S(N-1)/N", (n - 1) / n),
        ("reduce_scatter", "ring", "S(N-1)/N", (n - 1) / n),
        ("all_to_all", "pairwise", "S(N-1)/N", (n - 1) / n),
        ("broadcast", "ring", "S", 1.0),
    ):
        counted = traffic_of(replay(trace(op, how, n), size, LINK)).max()
        rows.append((op, how, formula, format_bytes(value * size), format_bytes(counted)))
    return table((f"N = {n}, S = 1 MiB", "algorithm", "formula", "by formula", "counted"), rows)


def latency_table(size=256e3) -> Table:
    """Alpha enters once per step and one way (claims 2.2-f, 2.2-j); beside it round trips and few steps."""
    link, rows = Link(10 * us, 50 * GB), []
    for n in (8, 64, 512):
        ring = collective_cost("all_reduce", "ring", 0.0, n, link).seconds
        total = collective_cost("all_reduce", "ring", size, n, link).seconds
        few = collective_cost("all_reduce", "recursive_doubling", size, n, link).seconds
        rows.append((str(n), *map(format_time, (ring, 2 * ring, total - ring, few))))
    heads = (
        "N",
        "ring: 2(N-1) α",
        "were each step a round trip",
        "ring: its bytes",
        "recursive doubling in all",
    )
    return table(heads, rows)


def crossover_table() -> Table:
    """Where small-message algorithms lose to the ring, whole and in the best number of segments."""
    alpha_b = LINK.alpha * LINK.bandwidth
    rows = []
    for name, segments in (
        ("recursive_doubling", 1),
        ("tree", 1),
        ("tree", None),
        ("double_tree", 1),
        ("double_tree", None),
    ):
        sizes = [crossover("all_reduce", name, "ring", n, LINK, segments=segments) for n in (8, 64, 512)]
        kind = "best number" if segments is None else "one"
        rows.append((words(name), kind, *(f"{digits(s / alpha_b)} αB = {format_bytes(s)}" for s in sizes)))
    return table(("cheaper than the ring up to", "segments", "N = 8", "N = 64", "N = 512"), rows)


def preset_crossovers_table() -> Table:
    """Up to which size the small-message algorithms beat the ring on presets (claim 2.2-d)."""
    rows = []
    for name in ("a100", "h100", "cloud-25gbe"):
        for nodes in (1, 8):
            machine = cluster(name, nodes)
            sizes = [
                crossover("all_reduce", how, "ring", 8 * nodes, machine, segments=1)
                for how in ("recursive_doubling", "tree")
            ]
            rows.append((name, str(8 * nodes), *map(format_bytes, sizes)))
    return table(("preset", "ranks", "recursive doubling beats the ring up to", "tree, up to"), rows)


def broadcast_table(n=64) -> Table:
    """Broadcast three ways over sizes, the cheapest named; and the two crossovers."""
    ways = {
        "binomial tree": lambda s: collective_cost("broadcast", "tree", s, n, LINK, segments=1).seconds,
        "pipelined chain": lambda s: collective_cost("broadcast", "ring", s, n, LINK).seconds,
        "scatter + all-gather": lambda s: sum(
            collective_cost(op, how, s, n, LINK).seconds
            for op, how in (("scatter", "tree"), ("all_gather", "ring"))
        ),
    }
    rows = []
    for size in (10e3, 100e3, MB, 10 * MB, 100 * MB, GB):
        times = {name: way(size) for name, way in ways.items()}
        rows.append((format_bytes(size), *map(format_time, times.values()), min(times, key=times.get)))
    return table((f"S, N = {n}", *ways, "cheapest"), rows)


def broadcast_crossovers(n=64) -> tuple[float, float]:
    """Sizes at which scatter + all-gather overtakes the binomial tree, and the chain overtakes both."""
    both = (("scatter", "tree"), ("all_gather", "ring"))
    return (
        crossover("broadcast", "tree", both, n, LINK, segments=1),
        crossover("broadcast", both, "ring", n, LINK, segments=None),
    )


def volume_row(op: str, how: str, n: int) -> str:
    """Busiest rank's traffic in units of S, with the steps."""
    steps = collective_cost(op, how, 1.0, n, LINK, segments=1).steps
    return f"{digits(volume(op, how, 1.0, n).busiest)} S in {steps:.0f} steps"
