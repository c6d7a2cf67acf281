"""algbw and busbw against N beside the link's rate, and one gradient reduction timed whole and in buckets."""

import numpy as np

from labkit.collectives import busbw, collective_cost
from labkit.planner.traffic import bucket_count
from labkit.show import theme, ticks
from labkit.show.lab import Lab
from labkit.show.labels import EndLabels
from labkit.show.sense import several_ranks, some_bytes
from labkit.spec import Link
from labkit.units import GB, format_bytes, format_rate, format_share, format_size, format_time, us

RANKS = 2 ** np.arange(1, 11)
ALPHA = 5 * us
BARS = ("bytes / link rate", "ring, one message", "ring, in buckets")
COLOURS = ("ideal", "bandwidth", "latency")


def compute(n=8, link_GBps=50, billions=7, gradient_bytes=2, bucket=2**25):
    """Seconds and bandwidths of one AllReduce of the gradients: on ``n`` ranks and over all N."""
    several_ranks(n)
    some_bytes(billions * gradient_bytes)
    some_bytes(bucket)
    link, size = Link(ALPHA, link_GBps * GB), billions * 1e9 * gradient_bytes
    ranks = np.append(RANKS, n)
    whole = collective_cost("all_reduce", "ring", size, ranks, link).seconds
    count = bucket_count(size, bucket)
    buckets = count * collective_cost("all_reduce", "ring", size / count, ranks, link).seconds
    curves = {
        "algbw": size / whole / link.bandwidth,
        "busbw": busbw("all_reduce", ranks, size / whole) / link.bandwidth,
        "busbw in buckets": busbw("all_reduce", ranks, size / buckets) / link.bandwidth,
    }
    seconds = dict(zip(BARS, (size / link.bandwidth, whole[-1], buckets[-1]), strict=True))
    return dict(n=n, link=link, size=size, bucket=bucket, count=count, curves=curves, seconds=seconds)


def build(figure):
    """Left: shares of the link's rate; right: three clocks on a log axis."""
    left, right = theme.axes(
        figure, columns=2, left=0.07, right=0.955, bottom=0.16, top=0.88, wspace=0.62, width_ratios=(1, 0.95)
    )
    ticks.scale(left.xaxis, "number", log=2, most=6)
    ticks.scale(left.yaxis, "share")
    left.set(xlim=(2, 1024), ylim=(0, 1.12), xlabel="ranks N", title="share of the link's rate")
    left.axhline(1, color=theme.COLOURS["ideal"], lw=1.4, ls="--")
    left.text(1000, 1.03, "link, one direction", ha="right", color=theme.COLOURS["muted"])
    names = (("algbw", "gather"), ("busbw", "bandwidth"), ("busbw in buckets", "latency"))
    lines = [
        left.plot([], [], "o-", ms=4, color=theme.COLOURS[colour], label=name.replace(" in ", "\nin "))[0]
        for name, colour in names
    ]
    ticks.scale(right.xaxis, "time", log=10, most=6)
    right.set(xlim=(1e-2, 1e3), ylim=(-0.6, 2.6), title="the clock of one AllReduce")
    right.set_yticks([2, 1, 0], [name.replace(", ", ",\n").replace(" / ", "\n/ ") for name in BARS])
    right.grid(False, axis="y")
    bars = right.barh([2, 1, 0], [0, 0, 0], height=0.55, left=1e-2, color=[theme.COLOURS[c] for c in COLOURS])
    return dict(
        lines=lines,
        labels=EndLabels(left, lines),
        here=left.axvline(2, color=theme.COLOURS["muted"], lw=1.2, ls=":"),
        bars=list(bars),
        says=[right.text(0, y, "", va="center") for y in (2, 1, 0)],
    )


def update(artists, result):
    """Curves, the mark of N, and the bars."""
    for line, share in zip(artists["lines"], result["curves"].values(), strict=True):
        line.set_data(RANKS, share[:-1])
    artists["here"].set_xdata([result["n"]] * 2)
    for bar, text, seconds in zip(artists["bars"], artists["says"], result["seconds"].values(), strict=True):
        bar.set_width(max(0.0, seconds - 1e-2))
        far = seconds > 30
        text.set(
            text=f" {format_time(seconds)} ",
            x=seconds,
            ha="right" if far else "left",
            color="white" if far else theme.COLOURS["text"],
        )
    return [
        *artists["lines"],
        *artists["labels"].place(),
        artists["here"],
        *artists["bars"],
        *artists["says"],
    ]


def readout(result):
    """The worked example at these settings."""
    naive, whole, buckets = result["seconds"].values()
    algbw, bus, bus_buckets = (share[-1] for share in result["curves"].values())
    link = result["link"].bandwidth
    return [
        f"{format_bytes(result['size'])} of gradients on {result['n']:,} ranks, link {format_rate(link)}: "
        f"bytes/rate {format_time(naive)}, ring {format_time(whole)}",
        f"algbw {format_rate(algbw * link)} = {format_share(algbw)} of the link; busbw "
        f"{format_rate(bus * link)} = {format_share(bus)}",
        f"in {result['count']:,.0f} buckets of {format_size(result['bucket'])}: {format_time(buckets)}, "
        f"busbw {format_rate(bus_buckets * link)} = {format_share(bus_buckets)}",
    ]


def alt(result):
    """What a reader who cannot see the picture needs."""
    return (
        "Left: algorithm and bus bandwidth of a ring AllReduce as shares of the link's rate against the "
        "number of ranks; right: the time of one gradient reduction by bytes over rate, by the ring "
        "formula, and in buckets."
    )


bus_bandwidth = Lab("bus_bandwidth", compute, build, update, readout, alt)
