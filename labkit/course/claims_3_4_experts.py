"""Section 3.4's claims on experts: the load is never even, and what can be done about it."""

import numpy as np

from labkit.course import chapter3_experts as experts
from labkit.course.claims import claim
from labkit.strategies.expert_exchange import leaving_share
from labkit.strategies.experts import drop_late, imbalance, popularity, route
from labkit.units import digits, format_bytes, format_share, format_time


@claim(
    "3.4-e",
    "Expert parallelism 专家并行 sends tokens by AllToAll; the load is uneven 负载不均衡, and the slowest "
    "card holds up the whole AllToAll",
    guide="the slowest card sets the time",
    why="the fullest rank sets the exchange and, more so, the experts' products that follow",
)
def slowest_rank():
    uneven, slower = experts.half_idle()
    shares = ", ".join(format_share(leaving_share(np.ones((8 * k, 8 * k)))) for k in (1, 2, 3, 4))
    parts = []
    for skew in (0, 0.5, 1):
        case = experts.experts_case(ranks=32, skew=skew)
        parts.append(
            f"skew {digits(skew)}: fullest rank {imbalance(case.demand):.2f}x, AllToAll "
            f"{case.exchange_ratio[0]:.2f}x, experts {case.compute_ratio[0]:.2f}x"
        )
    capped = experts.experts_case(ranks=32, skew=1, factor=1.25)
    return (
        f"half of 64 ranks idle: imbalance {digits(uneven)}, AllToAll {digits(slower)}x; of an even load "
        f"leaves the node on 1 to 4 nodes {shares}; 32 ranks, top-2 of 64 experts, over an even load: "
        f"{'; '.join(parts)}; with capacity 1.25 AllToAll {capped.exchange_ratio[1]:.2f}x, "
        f"{format_share(capped.limited.dropped)} of the choices dropped"
    )


@claim(
    "3.4-i",
    "MoE needs a capacity factor 容量因子 and token dropping token 丢弃",
    guide="capacity limit and dropping are a must",
    verdict="approximately",
    why="dated: one option; a balance loss or router bias and dropless grouped computation are the others, "
    "and a capacity above 1 pays for padding in every AllToAll",
)
def capacity_is_one_option():
    moved, whole = experts.moved_and_unsplit()
    same = "equal to" if np.allclose(moved.output, whole.output, atol=1e-12) else "different from"
    even = drop_late(route(popularity(64), ranks=32, tokens=4096, top_k=2), 1.25)
    balanced = experts.experts_case(ranks=32, skew=1, balance=0.9)
    capped = experts.experts_case(ranks=32, skew=1, factor=1.25)
    free = experts.experts_case(ranks=32, skew=1)
    layer = [format_time(c.exchange[2] + c.compute[2]) for c in (free, capped, balanced)]
    return (
        f"{len(moved.exchanges)} AllToAlls per layer and micro-batch, moved tokens {same} the unsplit layer; "
        f"payload {format_bytes(experts.payload())} (top-2 x 4,096 x 4,096 x 2 B), "
        f"{format_bytes(experts.payload(factor=1.25))} at capacity 1.25, of which "
        f"{format_share(even.padding)} padding with an even router; one layer at skew 1: dropless "
        f"{layer[0]}; capacity 1.25 {layer[1]} and {format_share(capped.limited.dropped)} dropped; dropless "
        f"with balance 0.9 {layer[2]} and {format_share(balanced.limited.dropped)} dropped"
    )
