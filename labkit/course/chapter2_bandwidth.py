"""Section 2.3 as tables: busbw factors, from theory to the clock, shipped sweeps and what they say."""

from dataclasses import replace
from functools import cache

import numpy as np

from labkit.collectives import busbw_factor, collective_cost
from labkit.course.table import Table, table
from labkit.errors import InputRefused
from labkit.evidence.baseline import Run, diagnose, differences, waterfall
from labkit.evidence.fit import LinkFit
from labkit.evidence.sweep import Sweep, read_sweep
from labkit.presets import sample_sweeps
from labkit.spec import Link
from labkit.units import GB, MiB, format_bytes, format_rate, format_share, format_size, format_time

GRADIENTS, RANKS, LINK_RATE = 14 * GB, 8, 50 * GB
A100, H100, TWO_NODES = "a100-8gpu-nvswitch", "h100-8gpu-nvswitch", "h100-2x8-infiniband"
FULL_RANGE = "gh200-2x4-slingshot"
# The one-direction rate that each shipped sweep of GPUs is held against: the card's NVLink, or all ports of a
# node.
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
    return sweep, sweep.fit(NOMINAL.get(name))


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
    """Share of the plateau that the published 8 x A100 sweep reached at a message size, between its rows."""
    sweep, fit = sample(A100)
    return float(np.interp(np.log(size), np.log(sweep.size), sweep.busbw / fit.plateau))


def waterfall_parts(measured: float, gradient_factor=1.0):
    """From bytes / rate to a measured clock for the guide's 7 B example in 25 MB buckets."""
    return waterfall(GRADIENTS, RANKS, LINK_RATE, measured, share_at, gradient_factor=gradient_factor)


def waterfall_table() -> Table:
    """The guide's "half or a third of theory": twice and three times 0.49 s, in bf16 and in fp32."""
    rows = []
    for name, times, factor in (("half of theory, bf16", 2, 1.0), ("a third of theory, fp32", 3, 2.0)):
        for part in waterfall_parts(times * theory(), factor):
            sign = "+" if part.seconds >= 0 else "−"
            rows.append(
                (name, part.what, f"{sign} {format_time(abs(part.seconds))}", format_time(part.total))
            )
            name = ""
    return table(("measured", "what", "adds", "total"), rows)


def fit_table(fit: LinkFit) -> Table:
    """A fit in words: alpha and bandwidth with their errors, knee, plateau, and the range it rests on."""
    rows = [
        ("alpha of the whole collective", f"{format_time(fit.alpha)} ± {format_time(fit.alpha_error)}"),
        ("bandwidth (algbw limit)", f"{format_rate(fit.bandwidth)} ± {format_rate(fit.bandwidth_error)}"),
        ("knee, alpha x bandwidth", format_bytes(fit.knee)),
        ("half of the bandwidth reached at", format_bytes(fit.half_power)),
        ("plateau, busbw", f"{format_rate(fit.plateau)}, {format_share(fit.plateau_share)} of nominal"),
        ("rests on", f"{fit.rows} sizes from {format_size(fit.range[0])} to {format_size(fit.range[1])}"),
    ]
    rows += [("stands out", finding.message) for finding in fit.findings]
    return table(("fitted", "value"), rows + [("warning", text) for text in fit.warnings])


def regions_table() -> Table:
    """The guide's three regions on every shipped sweep of GPUs; alpha and knee of one hop, and of the whole
    collective."""
    rows = []
    for name in sorted(NOMINAL):
        sweep, fit = sample(name)
        hop = fit.link("ring")
        spans = {region.name: region for region in fit.regions}
        latency = (
            f"up to {format_bytes(spans['latency'].largest)}" if "latency" in spans else "not in the log"
        )
        rows.append(
            (
                name,
                latency,
                format_bytes(hop.alpha * hop.bandwidth),
                format_bytes(fit.knee),
                format_bytes(fit.half_power),
                f"{format_rate(fit.plateau)} = {format_share(fit.plateau_share)}",
                format_size(sweep.size.min()),
            )
        )
    heads = (
        "sweep",
        "latency region",
        "αB of a hop",
        "αB of the whole",
        "half of plateau at",
        "plateau busbw, of nominal",
        "starts at",
    )
    return table(heads, rows)


def cut_sweep(name=FULL_RANGE, smallest=MiB) -> LinkFit:
    """The fit of the same log as the guide would have swept it: from 1 MB up."""
    sweep, _ = sample(name)
    kept = sweep.size >= smallest
    columns = {key: getattr(sweep, key)[kept] for key in ("size", "time", "algbw", "busbw", "wrong")}
    return replace(sweep, in_place=None, **columns).fit()


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
