"""Cost of a trace, counted: every message on its link, round after round."""

from dataclasses import dataclass, field

import numpy as np

from labkit.collectives.place import check_ranks, place
from labkit.collectives.sends import Trace
from labkit.errors import InputRefused
from labkit.spec import Cluster, Link


@dataclass(frozen=True, slots=True)
class Replay:
    """``seconds`` and ``rounds``; bytes ``sent`` and ``received`` by each rank, and ``crossing`` domains.

    ``round_seconds``: seconds of each round. ``busy`` (round, rank): share of the round in which the link out
    of the rank carries bytes, its fast port or the network port it uses, whichever is busier.
    """

    seconds: float
    rounds: int
    sent: np.ndarray
    received: np.ndarray
    crossing: float
    round_seconds: np.ndarray = field(repr=False)
    busy: np.ndarray = field(repr=False)

    @property
    def mean(self) -> float:
        """Bytes sent per rank, which is also bytes received per rank."""
        return float(self.sent.mean())

    @property
    def least(self) -> float:
        """Bytes in the idlest direction of any rank."""
        return float(min(self.sent.min(), self.received.min()))

    @property
    def busiest(self) -> float:
        """Bytes in the busiest direction of any rank: max over ranks of max(sent, received)."""
        return float(max(self.sent.max(), self.received.max()))

    @property
    def occupancy(self) -> float:
        """Mean of ``busy`` over ranks and time: the share of all outgoing links in use."""
        return float(np.average(self.busy.mean(axis=1), weights=self.round_seconds)) if self.seconds else 0.0


def replay(trace: Trace, size: float, link_or_cluster: Link | Cluster) -> Replay:
    """Seconds and bytes of ``trace`` for a message of ``size`` bytes, link by link.

    A round costs the slowest of its links: alpha + bytes / bandwidth, with the bytes counted per rank and
    direction inside a domain and per network port and direction across domains, and each of the two classes
    with its own alpha and bandwidth (Hockney's model, as in ``cost``). A ``size`` that is a whole number is
    cut into whole bytes. Refused: more ranks than the cluster has, and a size below 0 or not finite.

    >>> from labkit.collectives import trace
    >>> from labkit.spec import Link
    >>> r = replay(trace("all_reduce", "ring", 4), 10, Link(1.0, 1.0))
    >>> r.sent.tolist(), r.rounds, r.seconds
    ([14.0, 15.0, 16.0, 15.0], 6, 24.0)
    """
    at = place(link_or_cluster)
    check_ranks(trace.n, at)
    if not (np.isfinite(size) and size >= 0):
        raise InputRefused(f"the message size must be 0 bytes or more, and finite, not {size}; correct it")
    load = trace.piece_bytes(size)[trace.chunk % trace.parts]
    (from_domain, from_port), (to_domain, to_port) = at.where(trace.src), at.where(trace.dst)
    crosses = from_domain != to_domain
    out = _loads(trace, trace.src, ~crosses, load, trace.n)
    near = np.maximum(out, _loads(trace, trace.dst, ~crosses, load, trace.n))
    rank_port = at.where(np.arange(trace.n))[1]
    ports = int(rank_port.max()) + 1
    port_out = _loads(trace, from_port, crosses, load, ports)
    far = np.maximum(port_out, _loads(trace, to_port, crosses, load, ports))
    seconds = np.maximum(
        np.where(_used(trace, ~crosses), at.near(near.max(axis=1)), 0.0),
        np.where(_used(trace, crosses), at.far(far.max(axis=1)), 0.0),
    )

    wire = np.maximum(out / at.bandwidth, port_out[:, rank_port] / at.far_bandwidth)
    with np.errstate(divide="ignore", invalid="ignore"):
        busy = np.where(seconds[:, None] > 0, wire / seconds[:, None], 0.0)
    sent = np.bincount(trace.src, load, trace.n)
    received = np.bincount(trace.dst, load, trace.n)
    return Replay(
        float(seconds.sum()), trace.rounds, sent, received, float(load[crosses].sum()), seconds, busy
    )


def _loads(trace: Trace, link, chosen, load, links) -> np.ndarray:
    """Bytes per (round, link) of the chosen sends."""
    key = trace.round[chosen] * links + link[chosen]
    return np.bincount(key, load[chosen], trace.rounds * links).reshape(trace.rounds, links)


def _used(trace: Trace, chosen) -> np.ndarray:
    """Whether each round has a chosen send, even one of no bytes."""
    return np.bincount(trace.round[chosen], minlength=trace.rounds) > 0
