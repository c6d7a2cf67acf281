"""Collectives: one trace, three views (proof, cost, picture), and closed forms held equal to it."""

from labkit.collectives.algorithms import trace
from labkit.collectives.buckets import bandwidth_share, bucket_count, bucket_for_share
from labkit.collectives.busbw import algbw, busbw, busbw_factor, node_factor
from labkit.collectives.cost import Cost, Volume, best_segments, busiest_bytes, collective_cost, volume
from labkit.collectives.crossover import crossover
from labkit.collectives.equivalence import (
    all_reduce_in_halves,
    change_layout,
    reduce_loss,
    unchunked_all_reduce,
)
from labkit.collectives.names import ALGORITHMS
from labkit.collectives.prove import Proof, history, prove, run
from labkit.collectives.replay import Replay, replay
from labkit.collectives.sends import Send, Trace, from_sends
from labkit.collectives.topology import (
    bit_reversed,
    crossing_share,
    flat_against_hierarchical,
    placed,
    ring_orders,
)

__all__ = [
    "ALGORITHMS",
    "Cost",
    "Proof",
    "Replay",
    "Send",
    "Trace",
    "Volume",
    "algbw",
    "all_reduce_in_halves",
    "bandwidth_share",
    "best_segments",
    "bit_reversed",
    "bucket_count",
    "bucket_for_share",
    "busbw",
    "busbw_factor",
    "busiest_bytes",
    "change_layout",
    "collective_cost",
    "crossing_share",
    "crossover",
    "flat_against_hierarchical",
    "from_sends",
    "history",
    "node_factor",
    "placed",
    "prove",
    "reduce_loss",
    "replay",
    "ring_orders",
    "run",
    "trace",
    "unchunked_all_reduce",
    "volume",
]
