"""Section 3.4's experts: what an uneven router costs, and what a capacity, a balance or a placement buys."""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from labkit.course.table import Table, table
from labkit.presets import cluster, model
from labkit.spec import Cluster, Transformer
from labkit.strategies.expert_exchange import (
    exchange_seconds,
    layer_seconds,
    leaving_share,
    row_matrix,
)
from labkit.strategies.expert_layer import LayerRun, split, unsplit
from labkit.strategies.experts import (
    Routing,
    drop_late,
    imbalance,
    place_experts,
    popularity,
    route,
    tokens_per_rank,
)
from labkit.units import digits, format_bytes, format_share, format_time, words

BYTES = 2  # of an activation's element, bf16
MACHINE = "h100"
# Hidden size and experts of a published model; how many experts there are is a setting of the figure.
MODEL = "mixtral-8x7b"


@dataclass(frozen=True, slots=True, eq=False)
class Case:
    """One router on one machine: ``free`` with every choice kept, ``limited`` under the capacity, if any.

    ``exchange`` and ``compute``: seconds of the four AllToAlls and of the experts' products in one layer and
    micro-batch, forward and backward, shape (3,): an even load, ``free``, ``limited``.
    """

    free: Routing
    limited: Routing
    seats: np.ndarray
    factor: float | None
    exchange: np.ndarray
    compute: np.ndarray

    @property
    def ranks(self) -> int:
        """Expert-parallel ranks."""
        return self.free.ranks

    @property
    def mean(self) -> float:
        """Choices per rank of an even load."""
        return self.free.chosen.size / self.ranks

    @property
    def demand(self) -> np.ndarray:
        """Choices that fell on the experts of each rank, shape (ranks,)."""
        return tokens_per_rank(self.free.demand, self.seats, self.ranks)

    @property
    def kept(self) -> np.ndarray:
        """Those that found room, shape (ranks,)."""
        return tokens_per_rank(self.limited.tokens_per_expert, self.seats, self.ranks)

    @property
    def exchange_ratio(self) -> np.ndarray:
        """AllToAll time of ``free`` and ``limited``, over that of an even load, shape (2,)."""
        return self.exchange[1:] / self.exchange[0]

    @property
    def compute_ratio(self) -> np.ndarray:
        """Time of the experts' products likewise, shape (2,)."""
        return self.compute[1:] / self.compute[0]


def machine_of(ranks: int) -> Cluster:
    """As many hosts of the preset as it takes."""
    return cluster(MACHINE, nodes=-(-ranks // cluster(MACHINE).domain))


def experts_case(
    ranks=32,
    experts=64,
    skew=1.0,
    top_k=2,
    factor=None,
    balance=0.0,
    placement="contiguous",
    tokens=4096,
) -> Case:
    """Routes ``tokens`` tokens of each rank, and times one expert layer of MODEL's size on MACHINE.

    A ``balanced`` placement knows the load of another micro-batch of the same router, not of this one.
    """
    place_experts(experts, ranks)  # refuses before it routes
    free = _routed(ranks, experts, skew, top_k, balance, tokens, 0)
    load = (
        _routed(ranks, experts, skew, top_k, balance, tokens, 1).demand if placement == "balanced" else None
    )
    seats = place_experts(experts, ranks, placement, load)
    limited = free if factor is None else drop_late(free, factor)
    even = np.full((ranks, ranks), tokens * top_k / ranks)
    rows = np.stack([even, *(row_matrix(routing, seats) for routing in (free, limited))])
    machine, shape = machine_of(ranks), model(MODEL)
    rate = machine.gpu.peak["bf16"] * machine.gpu.reached
    exchange, compute = layer_seconds(rows, shape.hidden * BYTES, _row_flops(shape), rate, machine)
    return Case(free, limited, seats, factor, exchange, compute)


@lru_cache(maxsize=8)  # a slider of what comes after the router does not route again
def _routed(ranks, experts, skew, top_k, balance, tokens, batch) -> Routing:
    return route(popularity(experts, skew, balance), ranks, tokens, top_k, seed=batch)


def _row_flops(shape: Transformer) -> float:
    """Forward operations of one row in one expert."""
    return shape.forward_flops(1, 1)["mlp"] / shape.layers / shape.top_k


def skew_table(skews=(0, 0.5, 1, 1.5), ranks=32) -> Table:
    """The fullest rank and what waits for it, dropless, against the skew of the router."""
    rows = []
    for skew in skews:
        case = experts_case(ranks, skew=skew)
        rows.append(
            (
                digits(skew),
                f"{case.demand.max():,} of {case.mean:,.0f}",
                f"{imbalance(case.demand):.2f}",
                f"{format_time(case.exchange[1])} = {case.exchange_ratio[0]:.2f}x",
                f"{format_time(case.compute[1])} = {case.compute_ratio[0]:.2f}x",
            )
        )
    heads = ("skew", "fullest rank, of mean", "max / mean", "four AllToAlls", "experts' products")
    return table(heads, rows)


REMEDIES = {
    "dropless, as routed": {},
    "capacity 1": {"factor": 1.0},
    "capacity 1.25": {"factor": 1.25},
    "capacity 2": {"factor": 2.0},
    "dropless, experts placed by load": {"placement": "balanced"},
    "dropless, balance 0.9": {"balance": 0.9},
    "capacity 1.25, balance 0.9": {"factor": 1.25, "balance": 0.9},
}


def remedies_table(skew=1.0, ranks=32) -> Table:
    """What each remedy drops, pads and takes, for one router."""
    rows = []
    for name, setting in REMEDIES.items():
        case = experts_case(ranks, skew=skew, **setting)
        rows.append(
            (
                name,
                format_share(case.limited.dropped),
                format_share(case.limited.passed_by),
                format_share(case.limited.padding),
                f"{case.exchange_ratio[1]:.2f}x",
                f"{case.compute_ratio[1]:.2f}x",
                format_time(case.exchange[2] + case.compute[2]),
            )
        )
    heads = (
        "remedy",
        "choices dropped",
        "tokens with no expert",
        "padding",
        "AllToAll, x even",
        "experts, x even",
        "layer",
    )
    return table(heads, rows)


def nodes_table(tokens=4096, top_k=2, nodes=(1, 2, 4, 8)) -> Table:
    """An even exchange of ``top_k`` x ``tokens`` rows per rank over so many hosts of 8."""
    size = payload(tokens, top_k)
    rows = []
    for count in nodes:
        n = 8 * count
        sent = np.full((n, n), size / n)
        seconds = exchange_seconds(sent, machine_of(n))
        rows.append((count, n, format_bytes(size), format_share(leaving_share(sent)), format_time(seconds)))
    return table(("nodes", "ranks", "payload of a rank", "leaves the node", "one AllToAll"), rows)


def payload(tokens=4096, top_k=2, factor=1.0) -> float:
    """Bytes that a rank puts into one AllToAll: factor x top-k x tokens x hidden x 2.

    >>> payload()
    67108864.0
    """
    return factor * top_k * tokens * model(MODEL).hidden * BYTES


def half_idle(ranks=64, rows=1024) -> tuple[float, float]:
    """(max over mean, AllToAll time over even) where half of the ranks get twice the tokens, the rest none.

    Latency is left out, so that the ratio is that of the bytes.
    """
    one = np.repeat([2.0 * rows, 0.0], ranks // 2) / ranks
    sent, even = np.tile(one, (ranks, 1)), np.full((ranks, ranks), rows / ranks)
    link = cluster(MACHINE).intra
    bytes_alone = type(link)(0.0, link.bandwidth)
    ratio = exchange_seconds(sent, bytes_alone) / exchange_seconds(even, bytes_alone)
    return imbalance(sent.sum(axis=0)), ratio


def moved_and_unsplit(ranks=4, experts=8, tokens=16, top_k=2, factor=None) -> tuple[LayerRun, LayerRun]:
    """A small layer on real arrays, with its experts on ``ranks`` ranks and unsplit: (split, unsplit)."""
    hidden, ffn, rng = 8, 16, np.random.default_rng(0)
    shapes = (ranks, tokens, hidden), (ranks, tokens, hidden), (experts, hidden, ffn), (experts, ffn, hidden)
    arrays = [rng.standard_normal(shape) for shape in shapes]
    routing = drop_late(route(popularity(experts, 1.0), ranks, tokens, top_k), factor)
    seats = place_experts(experts, ranks)
    return split(*arrays, routing, seats), unsplit(*arrays, routing)


def moved_table() -> Table:
    """Whether tokens that travelled give the unsplit layer, and how many rows each AllToAll carried."""
    moved, whole = moved_and_unsplit()
    names = ("output", "input_gradient", "gate_gradient", "up_gradient", "down_gradient")
    equal = [np.allclose(getattr(moved, name), getattr(whole, name), atol=1e-12) for name in names]
    rows = [(words(name), "equals the unsplit layer", same) for name, same in zip(names, equal, strict=True)]
    steps = ("dispatch, forward", "combine, forward", "dispatch, backward", "combine, backward")
    for name, sent in zip(steps, moved.exchanges, strict=True):
        rows.append((name, "rows sent to another rank", f"{sent.sum() - sent.trace()} of {sent.sum()}"))
    return table(("what", "checked", "found"), rows)
