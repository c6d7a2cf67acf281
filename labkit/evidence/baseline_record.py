"""The record of a cluster's baseline: three figures, and what makes them comparable later (claim 5.1-c)."""

from dataclasses import dataclass
from datetime import date

from labkit.collectives import collective_cost
from labkit.errors import InputRefused
from labkit.evidence.fit import LinkFit
from labkit.spec import Link
from labkit.spec.checks import amount, label, noun, shown, whole
from labkit.units import format_rate, format_time


@dataclass(frozen=True, slots=True)
class BaselineRecord:
    """What to measure before any tuning: bandwidth inside and across (busbw, bytes/s), latency across.

    ``latency``: seconds of one hop. ``n_ranks`` and ``algorithm`` are those of the run across nodes, from
    which it comes; ``day``: ISO 8601. Refused: figures that are not above 0, fewer than 2 ranks, no date.
    """

    inside: float
    across: float
    latency: float
    n_ranks: int
    algorithm: str
    day: str

    def __post_init__(self):
        for name in ("inside", "across", "latency"):
            amount(getattr(self, name), f"{name} of a baseline", arrays=False)
        whole(self.n_ranks, "ranks of a baseline", least=2)
        label(self.algorithm, "the algorithm of a baseline")
        try:
            date.fromisoformat(self.day)
        except (TypeError, ValueError):
            raise InputRefused(
                f"the day of a baseline is {shown(self.day)}; give a date as 2026-03-01"
            ) from None

    def __repr__(self) -> str:
        """The record in one line."""
        return (
            f"BaselineRecord(inside {format_rate(self.inside)}, across {format_rate(self.across)}, latency "
            f"{format_time(self.latency)}; {self.n_ranks} ranks, {self.algorithm}, {self.day})"
        )


def hop_latency(seconds, collective: str, algorithm: str, n_ranks: int):
    """Seconds of one hop from the time of a small collective: the time over its steps one after the other.

    2(N-1) steps of a ring AllReduce, 2 log2 N of a tree, 1 of a message from one rank to another. The time
    itself is no latency of a link: it grows with N.

    >>> hop_latency(28e-6, "all_reduce", "ring", 8), hop_latency(24e-6, "all_reduce", "tree", 8)
    (2e-06, 4e-06)
    """
    amount(seconds, "seconds of a small collective")
    return seconds / collective_cost(collective, algorithm, 0.0, n_ranks, Link(1.0, 1.0), 1).seconds


def baseline_record(inside: LinkFit, across: LinkFit, algorithm: str, day: str) -> BaselineRecord:
    """The record from two fitted sweeps: one of a single node, and one over nodes, where ``algorithm`` ran.

    Refused: a fit whose rows cannot tell the plateau or the latency, or that does not say its ranks.
    """
    noun(inside, LinkFit, "the fit inside a node")
    noun(across, LinkFit, "the fit across nodes")
    if across.collective is None or across.n_ranks is None or not across.alpha > 0:
        raise InputRefused(
            "the sweep across nodes tells no latency of a hop: it needs sizes from 1 KiB or below, its "
            "collective and its number of ranks"
        )
    latency = hop_latency(across.alpha, across.collective, algorithm, across.n_ranks)
    return BaselineRecord(inside.plateau, across.plateau, latency, across.n_ranks, algorithm, day)
