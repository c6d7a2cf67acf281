"""Bytes per rank against N for every collective: which grow with N, and which tend to a constant."""

import numpy as np

from labkit.collectives import volume
from labkit.show import theme, ticks
from labkit.show.lab import Lab
from labkit.show.labels import EndLabels
from labkit.show.sense import several_ranks, some_bytes
from labkit.units import format_bytes, format_size

RANKS = np.unique(np.round(2.0 ** np.arange(1, 14.01, 1 / 32))).astype(int)
CURVES = (
    ("AllReduce or Broadcast, tree", "all_reduce", "tree", "tree"),
    ("AllReduce, ring", "all_reduce", "ring", "all_reduce"),
    ("Broadcast, chain", "broadcast", "ring", "broadcast"),
    ("AllGather, ReduceScatter, AllToAll", "all_gather", "ring", "all_gather"),
)


def compute(n=8, size=2**30):
    """The busiest rank's traffic in units of S over all N, and in bytes at ``n``."""
    several_ranks(n)
    some_bytes(size)
    curves = {label: volume(op, algorithm, 1.0, RANKS)[2] for label, op, algorithm, _ in CURVES}
    here = {label: volume(op, algorithm, 1.0, n)[2] for label, op, algorithm, _ in CURVES}
    return dict(n=n, size=float(size), curves=curves, here=here)


def build(figure):
    """One panel; the curves never move, N does."""
    ax = theme.axes(figure, left=0.08, right=0.66, bottom=0.15, top=0.93)
    ticks.scale(ax.xaxis, "number", log=2, most=8)
    ax.set_yscale("log", base=2)
    ticks.scale(ax.yaxis, "number", log=2, most=6)
    ax.set(
        xlim=(2, RANKS[-1]), ylim=(0.4, 20), xlabel="ranks N", ylabel="busiest rank's traffic, in units of S"
    )
    lines = [ax.plot([], [], color=theme.COLOURS[colour], label=label)[0] for label, _, _, colour in CURVES]
    return dict(
        ax=ax,
        lines=lines,
        labels=EndLabels(ax, lines),
        here=ax.axvline(2, color=theme.COLOURS["muted"], lw=1.2, ls="--"),
        dots=ax.plot([], [], "o", color=theme.COLOURS["text"], ms=6)[0],
    )


def update(artists, result):
    """Draws the curves and moves the marker of N."""
    for line in artists["lines"]:
        line.set_data(RANKS, result["curves"][line.get_label()])
    artists["here"].set_xdata([result["n"], result["n"]])
    artists["dots"].set_data([result["n"]] * len(result["here"]), list(result["here"].values()))
    return [*artists["lines"], *artists["labels"].place(), artists["here"], artists["dots"]]


def readout(result):
    """Units of S and bytes at N."""
    size = result["size"]
    parts = [
        f"{label}: {value:.4g} S = {format_bytes(value * size)}" for label, value in result["here"].items()
    ]
    return [f"N = {result['n']:,}, S = {format_size(size)}", ", ".join(parts[:2]), ", ".join(parts[2:])]


def alt(result):
    """What a reader who cannot see the picture needs."""
    return (
        "Traffic of the busiest rank in units of S against the number of ranks to 16,384: ring AllReduce "
        "tends to 2, AllGather, ReduceScatter and AllToAll to 1, a Broadcast chain stays at 1, trees grow "
        "with log2 N."
    )


volume_by_ranks = Lab("volume_by_ranks", compute, build, update, readout, alt)
