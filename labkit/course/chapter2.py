"""Section 2.1 as tables: what each operation does and costs, counted on traces and by formula."""

from dataclasses import replace

import numpy as np

from labkit.collectives import (
    ALGORITHMS,
    Replay,
    all_reduce_in_halves,
    change_layout,
    collective_cost,
    history,
    prove,
    reduce_loss,
    replay,
    run,
    trace,
)
from labkit.course.table import Table, table
from labkit.presets import cluster
from labkit.spec import Link
from labkit.units import GB, digits, format_bytes, format_time, us, words

LINK = Link(5 * us, 50 * GB)
TEN = (
    ("broadcast", "tree"),
    ("broadcast", "linear"),
    ("broadcast", "ring"),
    ("all_reduce", "ring"),
    ("all_reduce", "tree"),
    ("all_reduce", "recursive_doubling"),
    ("all_reduce", "halving_doubling"),
    ("all_reduce", "double_tree"),
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
    """All ten operations, two of them by several algorithms: steps, bytes over ranks, seconds, all counted.

    Traffic of a rank is the larger of what it sends and what it receives; ``size`` is divisible by n.
    """
    rows = []
    for op, how in TEN:
        made = trace(op, how, n)
        prove(made)
        run = replay(made, size, LINK)
        traffic = traffic_of(run)
        spread = (traffic.min(), traffic.mean(), traffic.max())
        rows.append((op, words(how), str(run.rounds), *map(format_bytes, spread), format_time(run.seconds)))
    return table(("operation", "algorithm", "steps", "least rank", "mean", "busiest rank", "time"), rows)


def traffic_of(run: Replay) -> np.ndarray:
    """Bytes of each rank: the larger of what it sends and what it receives (claim 2.1-j)."""
    return np.maximum(run.sent, run.received)


def splits(how: str, n=8) -> bool:
    """Whether this AllReduce has a ReduceScatter inside: a moment at which the ranks hold the sum in pieces.

    Counted on the trace: after some round every chunk is complete on some rank, and no rank has all of them.
    """
    made = trace("all_reduce", how, n, _pairs(n) if how == "hierarchical" else None)
    ones = np.ones((n, made.parts))
    for state in history(made, ones):
        complete = state[:, :, 0] == n
        if complete.any(axis=0).all():
            return not complete.all(axis=1).any()
    return False


def _pairs(n: int):
    """n ranks as two nodes of preset a100, for the hierarchical form."""
    return replace(cluster("a100", 2).group(n // 2), nodes=2)


def split_table(n=8) -> Table:
    """Which AllReduce is a ReduceScatter and an AllGather inside, with steps and bytes (claim 2.1-g)."""
    rows = []
    for how in ALGORITHMS["all_reduce"]:
        where = _pairs(n) if how == "hierarchical" else LINK
        cost = collective_cost("all_reduce", how, 1.0, n, where, segments=1)
        rows.append((words(how), splits(how, n), f"{cost.steps:.0f}", f"{digits(cost.bytes_per_rank)} S"))
    return table((f"AllReduce, N = {n}", "in two halves", "steps", "busiest rank"), rows)


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
