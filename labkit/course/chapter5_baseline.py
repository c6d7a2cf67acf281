"""Section 5.1's baseline as tables: what it records, a ring's knee, what merging saves, a healthy plateau."""

import numpy as np

from labkit.collectives import collective_cost
from labkit.course.chapter2_bandwidth import A100, FULL_RANGE, H100, NOMINAL, TWO_NODES, sample
from labkit.course.table import Table, table
from labkit.evidence.baseline_record import BaselineRecord, baseline_record, hop_latency
from labkit.evidence.plateau import LARGE_ENOUGH, PlateauVerdict, judge_plateau
from labkit.presets import cluster
from labkit.spec import Link
from labkit.units import (
    GB,
    KiB,
    MiB,
    format_bytes,
    format_rate,
    format_share,
    format_size,
    format_time,
    us,
)

HOP = Link(5 * us, 50 * GB)  # the guide's own figures: alpha B = 250 KB
GUIDE_SMALLEST, GUIDE_LARGEST = 1e6, 1e9  # of its sweep, bytes
SOCKETS = "gh200-2x4-sockets"
EXAMPLE_DAY = "2026-01-15"  # the published sweeps do not name theirs


# ---- the record


def record(algorithm: str = "tree", day: str = EXAMPLE_DAY) -> BaselineRecord:
    """The baseline record of two shipped sweeps, of one node and of two, where ``algorithm`` ran."""
    return baseline_record(sample(H100)[1], sample(TWO_NODES)[1], algorithm, day)


def latency_table(name: str = TWO_NODES) -> Table:
    """Claim 5.1-c: the time of a small AllReduce, and the latency of a hop by which algorithm ran."""
    _, fit = sample(name)
    rows = [("the collective itself", "1", format_time(fit.alpha))]
    for algorithm in ("ring", "tree"):
        hop = hop_latency(fit.alpha, fit.collective, algorithm, fit.n_ranks)
        formula = {"ring": "2(N-1)", "tree": "2 log2 N"}[algorithm]
        rows.append((f"a hop, if a {algorithm} ran", f"{formula} = {fit.alpha / hop:.0f}", format_time(hop)))
    return table((f"latency, {name}", "steps", "seconds"), rows)


# ---- the knee


def half_power(n, link: Link = HOP):
    """The size at which latency and bandwidth term of a ring AllReduce are equal, in bytes: N alpha B.

    2(N-1) alpha = 2(N-1)/N S/B. At this size half of the bandwidth is reached.
    """
    return n * link.alpha * link.bandwidth


def knee_table(ranks=(2, 8, 64, 512), link: Link = HOP) -> Table:
    """Claim 5.1-d: the knee that the guide gives, where it is, and 90 % of the bandwidth, by N."""
    rows = []
    for n in ranks:
        knee = half_power(n, link)
        latency, whole = (
            collective_cost("all_reduce", "ring", size, n, link).seconds for size in (0.0, knee)
        )
        rows.append(
            (
                str(n),
                format_bytes(link.alpha * link.bandwidth),
                format_bytes(knee),
                format_share(latency / whole),
                format_bytes(knee * LARGE_ENOUGH / (1 - LARGE_ENOUGH)),
            )
        )
    heads = ("ring over N ranks", "αB, the guide's knee", "N αB, the knee", "latency there", "90 % of B from")
    return table(heads, rows)


def half_plateau_rows(name: str) -> tuple[float, float]:
    """Between which two measured sizes a sweep passes half of its plateau for good."""
    sweep, fit = sample(name)
    above = int(np.flatnonzero(sweep.busbw < fit.plateau / 2)[-1]) + 1
    return float(sweep.size[above - 1]), float(sweep.size[above])


def published_knee_table() -> Table:
    """Claim 5.1-d on the shipped sweeps: alpha B of a hop, of the whole, and where half the plateau is."""
    rows = []
    for name in (A100, H100, TWO_NODES, FULL_RANGE):
        _, fit = sample(name)
        hop = fit.link("ring")
        between = " to ".join(map(format_size, half_plateau_rows(name)))
        hop_knee, whole = hop.alpha * hop.bandwidth, half_power(fit.n_ranks, hop)
        rows.append((name, str(fit.n_ranks), format_bytes(hop_knee), format_bytes(whole), between))
    return table(("sweep", "N", "αB of a hop", "N αB", "half of the plateau between"), rows)


def unseen(smallest: float, largest: float, n: int, link: Link = HOP, messages=1) -> list[str]:
    """Which regions a sweep cannot show: those that end before it starts, or start after it ends.

    Latency is where the time is within a quarter of 2(N-1) alpha, the plateau where 80 % of B is reached, as
    in ``labkit.evidence.fit``; the knee lies between. In k ``messages`` all of them are k times as far out.
    """
    knee = messages * half_power(n, link)
    seen = {"latency": smallest < knee / 4, "knee": smallest < knee < largest, "plateau": largest > 4 * knee}
    return [name for name, shown in seen.items() if not shown]


def guides_own_regions() -> list[str]:
    """What the guide's sweep misses if its own places were right: below 64 KB, at hundreds of KB, large."""
    places = {"latency": 64e3, "knee": HOP.alpha * HOP.bandwidth, "plateau": GUIDE_LARGEST}
    return [name for name, ends in places.items() if ends < GUIDE_SMALLEST]


# ---- two curves, and merging


def flat_table(name: str = A100, sizes=(32, 64, 128, 512, 1024, 4096)) -> Table:
    """Claim 5.1-e: small messages of a published sweep, their time and their bandwidth, in KiB."""
    sweep, _ = sample(name)
    rows = []
    for size in sizes:
        (at,) = np.flatnonzero(sweep.size == size * KiB)
        rows.append(
            (
                format_size(size * KiB),
                format_time(sweep.time[at]),
                f"{sweep.time[at] / sweep.time[0]:.2f}x",
                format_rate(sweep.busbw[at]),
                f"{sweep.busbw[at] / sweep.busbw[0]:.1f}x",
            )
        )
    return table((name, "time", "of the first", "busbw", "of the first"), rows)


def merged(messages, size: float = 4 * MiB, n: int = 8, link: Link = HOP):
    """Seconds of ``size`` bytes as so many ring AllReduces, and of one that carries them all."""
    apart = messages * collective_cost("all_reduce", "ring", size / messages, n, link).seconds
    return apart, collective_cost("all_reduce", "ring", size, n, link).seconds


def merge_table(size: float = 4 * MiB, messages=(2, 8, 64, 128), n: int = 8, link: Link = HOP) -> Table:
    """Claim 5.1-e: k messages merged into one save k-1 latencies, by the formula and as measured."""
    sweep, _ = sample(A100)
    seconds = dict(zip(sweep.size.tolist(), sweep.time.tolist(), strict=True))
    latency = collective_cost("all_reduce", "ring", 0.0, n, link).seconds
    rows = []
    for k in messages:
        apart, one = merged(k, size, n, link)
        there = seconds[size / k] * k
        rows.append(
            (
                f"{k} x {format_size(size / k)}",
                format_time(apart),
                format_time(one),
                f"{(apart - one) / latency:.6g}",
                f"{format_time(there)} and {format_time(seconds[size])}",
                f"{there / seconds[size]:.1f}x",
            )
        )
    heads = ("messages", "apart", "merged", "latencies saved", f"measured, {A100}", "ratio")
    return table(heads, rows)


# ---- the verdict


def plateau_cases() -> list[tuple[str, str, PlateauVerdict]]:
    """Published plateaus with what is known of the algorithm, and the verdict on each."""
    cases = []
    for name, algorithm in (
        (A100, "ring"),
        (H100, "in_switch"),
        (TWO_NODES, "tree_over_two_nodes"),
        (TWO_NODES, "ring"),
        (SOCKETS, "ring"),
    ):
        _, fit = sample(name)
        found = judge_plateau(
            fit.plateau, NOMINAL[name], algorithm, fit.n_ranks, fit.range[1], fit.half_power
        )
        cases.append((name, algorithm, found))
    ring = cluster("h100").intra
    found = judge_plateau(ring.bandwidth, ring.rated, "ring", 8)
    cases.insert(1, ("8 x H100, in-switch reduction off", "ring", found))
    sweep, fit = sample(A100)
    for size in (2**30, 2**22):
        (at,) = np.flatnonzero(sweep.size == size)
        found = judge_plateau(sweep.busbw[at], NOMINAL[A100], "ring", 8, size, fit.half_power)
        cases.append((f"{A100}, at {format_size(size)} alone", "ring", found))
    return cases


def verdict_table() -> Table:
    """Claim 5.1-f: the guide's rule of 80 % beside the band that knows algorithm and size."""
    rows = [
        (
            name,
            algorithm.replace("_", " "),
            format_share(found.share),
            "fine" if found.share >= 0.8 else "a problem",
            f"{format_share(found.low)} to {format_share(found.high)}",
            found.verdict.replace("_", " "),
        )
        for name, algorithm, found in plateau_cases()
    ]
    return table(("busbw of", "algorithm", "of nominal", "rule of 80 %", "band", "verdict"), rows)
