"""The bench's result as text: nccl-tests' layout, which ``read_sweep`` reads, with P99 behind each row."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from labkit.collectives import busbw
from labkit.evidence.bench_group import Place
from labkit.evidence.bench_options import ELEMENT, SHARED

# The redop and root columns of nccl-tests; root is rank 0.
_CELLS = {
    "all_reduce": ("sum", -1),
    "reduce_scatter": ("sum", -1),
    "reduce": ("sum", 0),
    "broadcast": ("none", 0),
    "scatter": ("none", 0),
    "gather": ("none", 0),
    "all_gather": ("none", -1),
    "all_to_all": ("none", -1),
    "send_recv": ("sum", -1),
}
HEADS = (
    "#       size         count    type   redop    root         time   algbw   busbw  #wrong"
    " |          P99  repeats",
    "#        (B)    (elements)                             (us)  (GB/s)  (GB/s)         |         (us)",
)
_P99 = re.compile(r"^ *(\d{1,12}) .{1,200}\| +(\d{1,12}\.\d\d) +\d{1,7}$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Measured:
    """One size: bytes, the seconds of every repetition (on the slowest rank), wrong elements on all ranks."""

    size: int
    seconds: np.ndarray
    wrong: int

    @property
    def median(self) -> float:
        """Seconds that half of the repetitions kept."""
        return float(np.median(self.seconds))

    @property
    def p99(self) -> float:
        """Seconds that 99 of 100 repetitions kept: with fewer than 100, the slowest. As in nccl-tests."""
        return float(np.quantile(self.seconds, 0.99, method="inverted_cdf"))


def slowest(size: int, from_ranks: Sequence[tuple[Sequence[float], int]]) -> Measured:
    """The result of a size from every rank's seconds and wrong elements: of a run its slowest rank counts."""
    seconds = np.max([seconds for seconds, _ in from_ranks], axis=0)
    return Measured(size, seconds, sum(wrong for _, wrong in from_ranks))


def head(op: str, backend: str, version: str, places: Sequence[Place]) -> str:
    """The lines above the rows of one table, the device list among them."""
    lines = [
        f"# Collective test starting: {op}_perf",
        f"# Measured by labkit's bench with torch {version} and {backend}; only the layout is nccl-tests'.",
        "# time: the median of the repetitions, each on its slowest rank; P99: what 99 of 100 kept.",
        "# Using devices",
    ]
    lines += [
        f"#  Rank {rank:2d} Group  0 Pid {at.pid:6d} on {at.host:>10} device {at.local_rank:2d} "
        f"[{at.device}] {at.name}"
        for rank, at in enumerate(places)
    ]
    return "\n".join([*lines, "#", *HEADS])


def row(op: str, ranks: int, measured: Measured) -> str:
    """One size as a line."""
    redop, root = _CELLS[op]
    count = measured.size // ELEMENT // (ranks if op in SHARED else 1)
    rate = measured.size / measured.median
    rates = "".join(f"  {_rate(value)}" for value in (rate, busbw(op, ranks, rate)))
    return (
        f"{measured.size:12d}  {count:12d}   float  {redop:>6}  {root:>6}  {measured.median * 1e6:11.2f}"
        f"{rates}  {measured.wrong:6d} | {measured.p99 * 1e6:12.2f}  {measured.seconds.size:7d}"
    )


def foot(op: str, rows: Sequence[Measured]) -> str:
    """The lines below the rows."""
    wrong = sum(measured.wrong for measured in rows)
    verdict = "FAILED" if wrong else "OK"
    return f"# Out of bounds values : {wrong} {verdict}\n# Collective test concluded: {op}_perf"


def read_p99(text: str) -> dict[int, float]:
    """Seconds of P99 by size in bytes, from the text of a log of the bench with one table.

    >>> read_p99("1024  256  float  sum  -1  8.00  0.1280  0.1920  0 |  9.50  100")
    {1024: 9.5e-06}
    """
    return {int(size): float(f"{p99}e-6") for size, p99 in _P99.findall(text)}


def _rate(value: float) -> str:
    """Bytes/s as GB/s in six columns: a CPU's small messages need more than two decimals."""
    return f"{value / 1e9:6.{4 if value < 10e9 else 2}f}"
