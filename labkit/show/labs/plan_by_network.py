"""Six ways to cut 13B over 32 cards by the rate of a port: a line for each, and which is the fastest."""

from dataclasses import dataclass

import numpy as np

from labkit.course.chapter5_families import FAMILIES, RATES, Families, families
from labkit.course.chapter5_rounds import cards
from labkit.show import blocks, theme, ticks
from labkit.show.lab import Lab
from labkit.show.labels import EndLabels
from labkit.units import GB, format_rate, format_share

NAMES = tuple(FAMILIES)
COLOURS = theme.RANKS[: len(NAMES)]
MOST = 0.9  # of the axis: model FLOPs over the peak
STRIP = 0.6  # height of the leader's strip, in its own rows


@dataclass(frozen=True)
class Result:
    """The families at all rates of the axis and, last, at the rate of the cluster itself."""

    found: Families
    sequence: int
    global_batch: int
    overlap: bool

    @property
    def rate(self) -> float:
        """Bytes/s of a port of the cluster."""
        return float(self.found.rates[-1])

    @property
    def lead(self) -> np.ndarray:
        """The number of the fastest family at each rate of the axis."""
        return self.found.leader[:-1]

    @property
    def edges(self) -> np.ndarray:
        """Places in ``RATES`` from which another family leads."""
        return np.flatnonzero(np.diff(self.lead)) + 1


def compute(cluster="a100", sequence=2048, global_batch=64, overlap=True) -> Result:
    """Six ways to cut the guide's 13B over 32 cards, each at its best micro-batch, by the rate of a port."""
    rates = np.append(RATES, cards(cluster).inter.bandwidth)
    return Result(families(cluster, sequence, global_batch, rates, overlap), sequence, global_batch, overlap)


def build(figure):
    """Above, utilisation by the rate of a port, a line for each cut; below, the leader's colour."""
    ax, strip = theme.axes(
        figure, rows=2, left=0.085, right=0.825, bottom=0.14, top=0.9, height_ratios=(9, 1), hspace=0.07
    )
    for each in (ax, strip):
        ticks.scale(each.xaxis, "rate", log=10, most=5)
        each.set_xlim(RATES[0], RATES[-1])
    ax.tick_params(axis="x", labelbottom=False)
    ticks.scale(ax.yaxis, "share")
    ax.set(ylim=(0, MOST), ylabel="MFU")
    strip.set(ylim=(-0.5, 0.5), xlabel="bytes/s of a card's port, one direction")
    strip.set_yticks([0], ["fastest"])
    strip.grid(False)
    strip.tick_params(axis="y", length=0)
    strip.spines["left"].set_visible(False)
    lines = [
        ax.plot([], [], color=colour, lw=2.4, label=name)[0]
        for name, colour in zip(NAMES, COLOURS, strict=True)
    ]
    return dict(
        lines=lines,
        labels=EndLabels(ax, lines),
        here=[each.axvline(RATES[0], color=theme.COLOURS["muted"], lw=1.2, ls="--") for each in (ax, strip)],
        leaders=[blocks.patch(strip, facecolor=colour) for colour in COLOURS],
        title=ax.set_title(""),
    )


def update(artists, result: Result):
    """Fills the lines, the strip and the mark at the cluster's own rate."""
    for line, mfu in zip(artists["lines"], result.found.mfu, strict=True):
        line.set_data(RATES, mfu[:-1])
        line.set_visible(bool(np.isfinite(mfu).any()))
    starts = np.concatenate([[0], result.edges])
    stops = np.concatenate([result.edges, [RATES.size - 1]])
    for number, patch in enumerate(artists["leaders"]):
        mine = result.lead[starts] == number
        low, high = RATES[starts[mine]], RATES[stops[mine]]
        patch.set_path(blocks.rectangles(0 * low, low, high, STRIP))
    for mark in artists["here"]:
        mark.set_xdata([result.rate] * 2)
    artists["title"].set_text(_subject(result))
    moved = (*artists["lines"], *artists["labels"].place(), *artists["leaders"], *artists["here"])
    return [*moved, artists["title"]]


def _subject(result: Result) -> str:
    card = result.found.machine.gpu.name.split("-")[0]
    return (
        f"10.3 B on 32 × {card}, {result.global_batch} sequences of {result.sequence:,}; dashes: this "
        f"cluster's {format_rate(result.rate)}"
    )


def readout(result: Result) -> list[str]:
    """The setting, what each family does at the cluster's own rate, and where the lead changes."""
    found, own = result.found, result.found.mfu[:, -1]
    fits = np.isfinite(own)
    order = [int(i) for i in np.argsort(-np.nan_to_num(own, nan=-1.0), kind="stable")]
    said = [f"{NAMES[i]} {format_share(own[i])}" if fits[i] else f"{NAMES[i]} does not fit" for i in order]
    first = order[0]
    changes = [f"{RATES[i] / GB:.2g}: {NAMES[result.lead[i]]}" for i in result.edges]
    hidden = "gradients overlapped, one layer gathered ahead" if result.overlap else "nothing overlapped"
    return [
        _subject(result),
        f"MFU at {format_rate(result.rate)}: {', '.join(said[:3])}",
        f"then: {', '.join(said[3:])}",
        f"fastest there: micro-batch {found.micro_batch[first, -1]}, {found.tokens[first, -1]:,.0f} tokens/s "
        f"a card, {hidden}",
        f"fastest from 1 GB/s: {'; '.join([NAMES[result.lead[0]], *changes])}",
    ]


def alt(result: Result) -> str:
    """What a reader who cannot see the picture needs."""
    return (
        "Lines of the utilisation of six ways to cut 13B over 32 cards against the rate of a port on a log "
        "axis; below, a strip in the colour of the fastest. At this cluster's "
        f"{format_rate(result.rate)} it is {NAMES[result.found.leader[-1]]}."
    )


plan_by_network = Lab("plan_by_network", compute, build, update, readout, alt, size=(9.4, 4.2))
