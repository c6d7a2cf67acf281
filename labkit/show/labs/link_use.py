"""Which links carry data when: a ring with chunks beside the same ring with the message whole."""

import numpy as np
from matplotlib.collections import PolyCollection

from labkit.collectives import replay, trace, unchunked_all_reduce
from labkit.show import theme
from labkit.show.lab import Lab
from labkit.show.sense import several_ranks, some_bytes
from labkit.spec import Link
from labkit.units import GB, format_share, format_size, format_time, us

LINK = Link(5 * us, 50 * GB)
MOST = 16


def compute(n=8, size=2**24):
    """Both rings replayed on links of 5 µs and 50 GB/s."""
    several_ranks(n, MOST)
    some_bytes(size)
    runs = {
        "in N chunks": replay(trace("all_reduce", "ring", n), size, LINK),
        "whole": replay(unchunked_all_reduce(n), size, LINK),
    }
    return dict(n=n, size=size, runs=runs)


def build(figure):
    """Two panels on one time axis, which ends when the slower one does."""
    panels = theme.axes(figure, rows=2, left=0.05, right=0.965, bottom=0.13, top=0.88, hspace=0.55)
    artists = {}
    for ax, name in zip(panels, ("in N chunks", "whole"), strict=True):
        ax.set(xlim=(0, 1.0), ylim=(1.02, -0.02), yticks=[], ylabel="links")
        ax.set_xticks([0, 0.25, 0.5, 0.75, 1.0], ["0", "25 %", "50 %", "75 %", "100 %"])
        ax.grid(False)
        blocks = PolyCollection([], facecolors=theme.COLOURS["bandwidth"], edgecolors="white", linewidths=0.4)
        waits = PolyCollection([], facecolors=theme.COLOURS["latency"], edgecolors="none")
        for collection in (waits, blocks):
            ax.add_collection(collection, autolim=False)
        artists[name] = (waits, blocks, ax.text(0, 1.07, "", transform=ax.transAxes, fontsize=12))
    panels[1].set_xlabel("time, in shares of the slower one")
    figure.text(0.965, 0.945, "carries data", ha="right", color=theme.COLOURS["bandwidth"], fontweight="bold")
    figure.text(0.83, 0.945, "latency", ha="right", color=theme.COLOURS["latency"], fontweight="bold")
    return artists


def update(artists, result):
    """A block for every link and round in which it carries data, after the latency of that round."""
    longest = max(run.seconds for run in result["runs"].values())
    moved = []
    for name, run in result["runs"].items():
        waits, blocks, title = artists[name]
        ends = np.cumsum(run.round_seconds)
        round_, rank = np.nonzero(run.busy)
        stop, busy = ends[round_] / longest, (run.busy * run.round_seconds[:, None])[round_, rank] / longest
        start = (ends - run.round_seconds)[round_] / longest
        low, high = rank / result["n"], (rank + 0.86) / result["n"]
        blocks.set_verts(_boxes(stop - busy, stop, low, high))
        waits.set_verts(_boxes(start, stop - busy, low, high))
        title.set_text(
            f"{name}: {format_time(run.seconds)}, links carry data {format_share(run.occupancy)} of the time"
        )
        moved += [waits, blocks, title]
    return moved


def _boxes(left, right, low, high):
    corners = [np.stack([x, y], axis=-1) for x, y in ((left, low), (right, low), (right, high), (left, high))]
    return np.stack(corners, axis=1)


def readout(result):
    """Times and occupancy of both."""
    chunks, whole = result["runs"].values()
    n = result["n"]
    return [
        f"{format_size(result['size'])} over {n} ranks, 5 µs and 50 GB/s: in chunks "
        f"{format_time(chunks.seconds)}, whole {format_time(whole.seconds)} = "
        f"{whole.seconds / chunks.seconds:.2f}x",
        f"links carry data {format_share(chunks.occupancy)} of the time in chunks, "
        f"{format_share(whole.occupancy)} whole",
    ]


def alt(result):
    """What a reader who cannot see the picture needs."""
    return (
        f"Two panels of {result['n']} links against time: with chunks every link carries data in every "
        "round, with the message whole one link works at a time and the same AllReduce takes "
        "many times longer."
    )


link_use = Lab("link_use", compute, build, update, readout, alt, size=(9, 4.0))
