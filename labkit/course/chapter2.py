"""Sections 2.1 and 2.2 as tables: what each operation does and costs, counted on traces and by formula."""

import numpy as np

from labkit.collectives import (
    all_reduce_in_halves,
    change_layout,
    collective_cost,
    crossover,
    prove,
    reduce_loss,
    replay,
    run,
    trace,
    volume,
)
from labkit.course.table import Table, table
from labkit.spec import Link
from labkit.units import GB, MB, digits, format_bytes, format_time, us

LINK = Link(5 * us, 50 * GB)
TEN = (
    ("broadcast", "tree"),
    ("all_reduce", "ring"),
    ("reduce_scatter", "ring"),
    ("all_gather", "ring"),
    ("all_to_all", "pairwise"),
    ("reduce", "tree"),
    ("scatter", "tree"),
    ("gather", "tree"),
    ("send_recv", "linear"),
    ("barrier", "recursive_doubling"),
)
# The guide's uses of each operation, and the chapter that comes back to it.
USES = (
    ("Broadcast", "广播", "initial weights 初始权重 from rank 0", "3.1"),
    ("Broadcast", "广播", "parameters after loading a checkpoint 对齐参数", "6.3"),
    ("AllReduce", "全规约", "gradients in data parallelism 数据并行", "3.1"),
    ("AllReduce", "全规约", "activations of every layer in tensor parallelism 张量并行", "3.2"),
    ("ReduceScatter", "规约散射", "gradients of sharded data parallelism 分片", "4.1"),
    ("AllGather", "全收集", "parameters of sharded data parallelism 分片", "4.1"),
    ("AllToAll", "全交换", "tokens to their experts, and back 专家混合", "3.4"),
    ("AllToAll", "全交换", "layout change: sequence shards to head shards 布局转换", "3.2"),
    ("Reduce", "规约到单卡", "metrics, as the loss on one rank 指标统计", "5.4"),
    ("Send/Recv", "点对点", "activations between pipeline stages 流水线并行", "3.3"),
    ("Barrier", "屏障", "all ranks are up before training starts", "5.3"),
)


def primitives_table(n=8, size=2**26) -> Table:
    """All ten operations: rounds, bytes over ranks, seconds, counted on traces (size divisible by n)."""
    rows = []
    for op, how in TEN:
        made = trace(op, how, n)
        prove(made)
        run = replay(made, size, LINK)
        rows.append(
            (
                op,
                how,
                str(run.rounds),
                *(format_bytes(b) for b in (run.least, run.mean, run.busiest)),
                format_time(run.seconds),
            )
        )
    return table(("operation", "algorithm", "steps", "least rank", "mean", "busiest rank", "time"), rows)


def uses_table() -> Table:
    """Which operation serves which action of training."""
    return table(("operation", "中文", "what training uses it for", "section"), USES)


def halves(n=8, elements=1000) -> dict[str, object]:
    """AllReduce against ReduceScatter + AllGather on the same numbers, with and without an update between."""
    inputs = np.random.default_rng(21).integers(-99, 100, (n, elements)).astype(float)
    whole = run(trace("all_reduce", "ring", n), inputs)
    plain = all_reduce_in_halves(inputs)
    updated = all_reduce_in_halves(inputs, lambda _, shard: 1.0 - 0.01 * shard)
    size = float(4 * elements)
    return {
        "same sums": all(
            np.array_equal(a, inputs.sum(axis=0)) and np.array_equal(a, b)
            for a, b in zip(whole, plain.results, strict=True)
        ),
        "same update": all(np.array_equal(r, 1.0 - 0.01 * inputs.sum(axis=0)) for r in updated.results),
        "all_reduce bytes": replay(trace("all_reduce", "ring", n), size, LINK).mean,
        "two halves bytes": sum(replay(half, size, LINK).mean for half in (plain.scatter, plain.gather)),
        "without all_gather": _replicas_apart(updated.shards),
    }


def _replicas_apart(shards) -> int:
    """Ranks whose parameters differ from rank 0's when each updates its own shard and nothing is gathered."""
    length, start, copies = sum(map(len, shards)), 0, []
    for shard in shards:
        mine = np.ones(length)
        mine[start : start + len(shard)] = shard
        copies.append(mine)
        start += len(shard)
    return sum(not np.array_equal(copy, copies[0]) for copy in copies[1:])


def equivalence_table(n=8, elements=1000) -> Table:
    """Claim 2.1-c and 2.1-d as a table."""
    found = halves(n, elements)
    return table(
        ("AllReduce against ReduceScatter + AllGather", "result"),
        (
            ("the same sums on every rank", found["same sums"]),
            ("bytes a rank sends, AllReduce", format_bytes(found["all_reduce bytes"])),
            ("bytes a rank sends, both halves", format_bytes(found["two halves bytes"])),
            (
                "with an optimizer update on each shard in between: equals the update of the full sum",
                found["same update"],
            ),
            (
                "without the AllGather: ranks whose parameters differ from rank 0's",
                f"{found['without all_gather']} of {n - 1}",
            ),
        ),
    )


def layout_change(n=4, sequence=8, heads=8, width=3) -> tuple[bool, bool, float]:
    """Sequence shards to head shards and back by AllToAll.

    Returns (equal to the unsharded, back to the start, share of S sent).
    """
    full = np.arange(sequence * heads * width, dtype=float).reshape(sequence, heads, width)
    shards = np.split(full, n, axis=0)
    by_heads = change_layout(shards, cut=1, join=0)
    back = change_layout(by_heads, cut=0, join=1)
    there = all(np.array_equal(a, b) for a, b in zip(by_heads, np.split(full, n, axis=1), strict=True))
    again = all(np.array_equal(a, b) for a, b in zip(back, shards, strict=True))
    share = replay(trace("all_to_all", "pairwise", n), float(n * n), LINK).mean / (n * n)
    return there, again, share


def uses_on_arrays_table() -> Table:
    """Claims 2.1-h and 2.1-i on real arrays."""
    there, again, share = layout_change()
    weighted, plain = reduce_loss([4.0, 2.0], [1000, 3000])
    return table(
        ("on real arrays", "result"),
        (
            ("AllToAll turns sequence shards into head shards, equal to cutting the full array", there),
            ("a second AllToAll turns them back", again),
            ("each way a rank sends", f"{digits(share)} S on 4 ranks"),
            ("loss 4.0 over 1,000 tokens and 2.0 over 3,000, weighted by tokens", weighted),
            ("the mean of the two means", plain),
        ),
    )


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
        rows.append(
            (name.replace("_", " "), kind, *(f"{digits(s / alpha_b)} αB = {format_bytes(s)}" for s in sizes))
        )
    return table(("cheaper than the ring up to", "segments", "N = 8", "N = 64", "N = 512"), rows)


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
    return f"{digits(float(np.asarray(volume(op, how, 1.0, n)[2])))} S in {steps:.0f} steps"
