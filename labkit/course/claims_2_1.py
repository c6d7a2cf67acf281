"""Section 2.1's claims: the operations, what they are for, and AllReduce in two halves."""

from labkit.collectives import ALGORITHMS, collective_cost, prove, reduce_loss, replay, trace
from labkit.course import chapter2
from labkit.course import chapter2_algorithms as algorithms
from labkit.course.claims import claim
from labkit.spec import Link
from labkit.units import MB, digits, format_bytes, format_time

LINK: Link = chapter2.LINK


@claim(
    "2.1-a",
    "Broadcast 广播: S, tree log N steps or linear N",
    guide="S; log N or N steps",
)
def broadcast():
    return "N = 64, busiest rank: " + ", ".join(
        f"{how} {algorithms.volume_row('broadcast', how, 64)}" for how in ("tree", "linear", "ring")
    )


@claim("2.1-b", "Each primitive has one training action 训练动作", guide="each a clear action")
def actions():
    operations = {row[0] for row in chapter2.USES}
    return (
        f"{len(chapter2.USES)} uses of {len(operations)} operations, "
        "each with the section that comes back to it"
    )


@claim("2.1-c", "AllReduce = ReduceScatter + AllGather 等价关系", guide="equal")
def two_halves():
    found = chapter2.halves()
    same = "equal sums" if found["same sums"] else "different sums"
    return f"{same}; bytes per rank {found['all_reduce bytes']:,.0f} and {found['two halves bytes']:,.0f}"


@claim("2.1-d", "Hence sharding (stages 1 and 2) adds no traffic 不会额外增加通信量", guide="no extra bytes")
def sharding_is_free():
    found = chapter2.halves()
    same = "equals" if found["same update"] else "differs from"
    extra = found["two halves bytes"] - found["all_reduce bytes"]
    return (
        f"update on shards {same} the update on the full sum; {extra:.0f} extra bytes for one "
        "synchronisation per step"
    )


@claim(
    "2.1-e",
    "Six primitives 六个基本原语",
    guide="6",
    verdict="approximately",
    why="five are described, then three variants; Send/Recv, without which a pipeline cannot run, and "
    "Barrier are missing: ten",
)
def ten():
    for op, how in chapter2.TEN:
        prove(trace(op, how, 8))
    operations = {op for op, _ in chapter2.TEN}
    return f"{len(operations)} operations, each proved on 8 ranks"


@claim(
    "2.1-f",
    "Broadcast usually runs as a tree 实现上一般走树",
    guide="tree",
    verdict="corrected",
    why="the tree's root sends S log2 N times, right for small messages only: large ones go down a "
    "pipelined chain or by scatter + all-gather; NCCL itself has only the ring for Broadcast and Reduce",
)
def three_broadcasts():
    rows = {row[0]: row[1:4] for row in algorithms.broadcast_table().rows}
    first, second = algorithms.broadcast_crossovers()
    return (
        f"N = 64, tree / chain / scatter + all-gather: 10 kB {' / '.join(rows['10 kB'])}; 1 GB "
        f"{' / '.join(rows['1 GB'])}; the tree loses at {format_bytes(first)}, the chain wins from "
        f"{format_bytes(second)}"
    )


@claim(
    "2.1-g",
    "Nearly all fast implementations split AllReduce in two 几乎所有高性能实现内部都是这么干的",
    guide="nearly all",
    verdict="approximately",
    why="true for ring, halving-doubling and hierarchical; not for recursive doubling, trees, one-shot and "
    "in-switch reduction",
)
def which_split():
    return "; ".join(
        f"{how} {'yes' if chapter2.splits(how) else 'no'}"
        + ("" if how == "hierarchical" else f" ({algorithms.volume_row('all_reduce', how, 8)})")
        for how in ALGORITHMS["all_reduce"]
    )


@claim("2.1-h", "Some layout changes use AllToAll 布局转换", guide="used by tensor-parallel layouts")
def layout():
    there, again, share = chapter2.layout_change()
    words = "equal" if there and again else "not equal"
    return (
        f"sequence shards to head shards and back: {words} to the unsharded arrays; {digits(share)} S each "
        "way on 4 ranks"
    )


@claim("2.1-i", "Reduce for metrics 把所有卡的 loss 汇总到一张卡打印", guide="loss on one rank")
def metrics():
    weighted, plain = reduce_loss([4.0, 2.0], [1000, 3000])
    return f"4.0 over 1,000 and 2.0 over 3,000 tokens: by tokens {weighted:g}, mean of means {plain:g}"


@claim(
    "2.1-j",
    "Traffic is what one rank sends 每卡通信量",
    guide="per-rank traffic",
    verdict="corrected",
    why="undefined for rooted operations: a Reduce root sends nothing and receives; here it is the busiest "
    "rank's larger direction",
)
def busiest_rank():
    parts = []
    for op, how in (("reduce", "tree"), ("scatter", "linear"), ("all_reduce", "ring")):
        traffic = chapter2.traffic_of(replay(trace(op, how, 8), 8 * MB, LINK))
        spread = " / ".join(map(format_bytes, (traffic.min(), traffic.mean(), traffic.max())))
        parts.append(f"{op} {how}: {spread}")
    return "8 MB on 8 ranks, least / mean / busiest: " + "; ".join(parts)


@claim("2.1-k", "Which action uses which primitive 对应动作", guide="nine uses")
def nine_uses():
    named = [f"{op}: {use}" for op, _, use, _ in chapter2.USES]
    time = format_time(collective_cost("barrier", "recursive_doubling", 0.0, 64, LINK).seconds)
    return f"{len(named)} uses, the guide's nine among them, plus Send/Recv and Barrier ({time} on 64 ranks)"
