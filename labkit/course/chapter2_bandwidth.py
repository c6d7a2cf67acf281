"""Section 2.3 as tables: busbw factors, from theory to the clock, shipped sweeps and what they say."""

from functools import cache

from labkit.collectives import busbw_factor, collective_cost
from labkit.course.table import Table, table
from labkit.errors import InputRefused
from labkit.evidence.baseline import Run, diagnose, differences, plateau_share, waterfall
from labkit.evidence.fit import LinkFit
from labkit.evidence.sweep import Sweep, read_sweep
from labkit.presets import sample_sweeps
from labkit.spec import Link
from labkit.units import GB, KiB, MiB, format_bytes, format_rate, format_share, format_size, format_time

GRADIENTS, RANKS, LINK_RATE = 14 * GB, 8, 50 * GB
A100, H100, TWO_NODES = "a100-8gpu-nvswitch", "h100-8gpu-nvswitch", "h100-2x8-infiniband"
FULL_RANGE = "gh200-2x4-slingshot"
# The one-direction rate that each shipped sweep is held against: the card's NVLink, or all ports of a node.
NOMINAL = {
    A100: 300 * GB,
    H100: 450 * GB,
    TWO_NODES: 8 * 50 * GB,
    "gh200-2x4-slingshot": 4 * 25 * GB,
    "gh200-2x4-sockets": 4 * 25 * GB,
}


@cache
def sample(name: str) -> tuple[Sweep, LinkFit]:
    """A shipped sweep and its fit."""
    (sweep,) = read_sweep(sample_sweeps()[name])
    return sweep, sweep.fit()


def busbw_table(n=8) -> Table:
    """The factor of every operation as nccl-tests defines it, and both conversions for 100 GB/s."""
    rows = []
    for op in (
        "all_reduce",
        "reduce_scatter",
        "all_gather",
        "all_to_all",
        "gather",
        "scatter",
        "broadcast",
        "reduce",
        "send_recv",
    ):
        factor = busbw_factor(op, n)
        rows.append((op, f"{factor:.4g}", format_rate(100 * GB * factor), format_rate(100 * GB / factor)))
    return table(
        ("operation", f"factor, N = {n}", "busbw of algbw 100 GB/s", "algbw of busbw 100 GB/s"), rows
    )


def share_at(size: float) -> float:
    """Share of the plateau that the published 8 x A100 sweep reaches at a message size."""
    return plateau_share(sample(A100)[1], size)


def waterfall_parts(measured: float, gradient_factor=1.0):
    """From bytes / rate to a measured clock for the guide's 7 B example in 25 MB buckets."""
    return waterfall(GRADIENTS, RANKS, LINK_RATE, measured, share_at, gradient_factor=gradient_factor)


def waterfall_table() -> Table:
    """The guide's "a half to a third of theory" explained: bf16 to 0.98 s, and fp32 to 1.47 s."""
    rows = []
    for name, measured, factor in (
        ("half of theory", 0.98, 1.0),
        ("a third of theory, fp32 gradients", 1.47, 2.0),
    ):
        for part in waterfall_parts(measured, factor):
            sign = "+" if part.seconds >= 0 else "−"
            rows.append(
                (name, part.what, f"{sign} {format_time(abs(part.seconds))}", format_time(part.total))
            )
            name = ""
    return table(("measured", "what", "adds", "total"), rows)


def fit_table(fit: LinkFit, nominal: float | None = None) -> Table:
    """A fit in words: alpha and bandwidth with their errors, knee, plateau, and the range it rests on."""
    rows = [
        ("alpha of the whole collective", f"{format_time(fit.alpha)} ± {format_time(fit.alpha_error)}"),
        ("bandwidth (algbw limit)", f"{format_rate(fit.bandwidth)} ± {format_rate(fit.bandwidth_error)}"),
        ("knee, alpha x bandwidth", format_bytes(fit.knee)),
        ("half of the bandwidth reached at", format_bytes(fit.half_power)),
        ("plateau, busbw", format_rate(fit.plateau)),
        ("rests on", f"{fit.rows} sizes from {format_size(fit.range[0])} to {format_size(fit.range[1])}"),
    ]
    if nominal:
        rows.insert(
            5,
            (
                "plateau as a share of nominal",
                f"{format_share(fit.share_of(nominal))} of {format_rate(nominal)}",
            ),
        )
    rows += [("stands out", finding.message) for finding in fit.findings] + [
        ("warning", text) for text in fit.warnings
    ]
    return table(("fitted", "value"), rows)


def regions_table() -> Table:
    """The guide's three regions on every shipped sweep, and what they say of 64 KiB, the knee and 80 %."""
    rows = []
    for name in sample_sweeps():
        sweep, fit = sample(name)
        spans = {region.name: region for region in fit.regions}
        latency = (
            f"up to {format_bytes(spans['latency'].largest)}" if "latency" in spans else "not in the log"
        )
        rows.append(
            (
                name,
                latency,
                format_bytes(fit.knee),
                format_bytes(fit.half_power),
                format_rate(fit.plateau),
                format_share(fit.share_of(NOMINAL[name])),
                f"from {format_size(sweep.size.min())}",
            )
        )
    return table(
        ("sweep", "latency region", "knee αB", "half of plateau at", "plateau busbw", "of nominal", "starts"),
        rows,
    )


def cut_sweep(name=FULL_RANGE, smallest=MiB) -> LinkFit:
    """The same log as the guide would have swept it: from 1 MB up."""
    lines = sample_sweeps()[name].read_text("utf-8").splitlines()
    kept = [
        line
        for line in lines
        if line.startswith("#") or not line.split() or float(line.split()[0]) >= smallest
    ]
    return read_sweep("\n".join(kept) + "\n")[0].fit()


def procedure_table() -> Table:
    """Baseline, expected, measured, verdict: three jobs against the published 8 x A100 sweep, one refused."""
    _, fit = sample(A100)
    node = ("node01",) * 8
    bucket = 25e6
    baseline = Run("all_reduce", bucket, 8, node, fit.predict(bucket))
    rows = []
    for name, slowdown, step in (
        ("560 buckets, step 10 s", 1.05, 10.0),
        ("560 buckets, step 0.8 s", 1.05, 0.8),
        ("560 slow buckets, step 10 s", 3.0, 10.0),
    ):
        run = Run("all_reduce", bucket, 8, node, slowdown * baseline.seconds)
        found = diagnose([(run, baseline, 560)], step)
        rows.append(
            (name, format_time(found.expected), format_time(found.measured), found.verdict, found.reason)
        )
    other = Run("all_reduce", 14e9, 16, node + ("node02",) * 8, 0.2)
    try:
        diagnose([(other, baseline, 1)], 10.0)
    except InputRefused as refusal:
        rows.append(("one 14 GB message over 16 ranks", "", "", "refused", str(refusal)))
    return table(("job", "expected", "measured", "verdict", "because"), rows)


def refused_differences() -> list[str]:
    """What forbids comparing a two-node run of the whole gradient with a one-node bucket baseline."""
    node = ("a",) * 8
    run = Run("all_reduce", 14e9, 16, node + ("b",) * 8, 0.2)
    return differences(run, Run("all_reduce", 25e6, 8, node, 1e-3))


def theory(size=GRADIENTS, n=RANKS, rate=LINK_RATE) -> float:
    """Seconds of the guide's worked example: a ring without latency."""
    return collective_cost("all_reduce", "ring", size, n, Link(0.0, rate)).seconds


def merging(messages=1000, size=4 * KiB, n=8) -> tuple[float, float]:
    """Seconds of many small AllReduces one by one, and merged into one: (k - 1) latencies saved."""
    link = sample(FULL_RANGE)[1].link("ring")
    one = collective_cost("all_reduce", "ring", size, n, link).seconds
    return messages * one, collective_cost("all_reduce", "ring", messages * size, n, link).seconds
