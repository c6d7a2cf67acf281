"""A row of elements cut for one number of ranks and for another: who reads what from whom (section 6.3)."""

import numpy as np

from labkit.errors import InputRefused
from labkit.practice.resharding.slices import cuts, overlaps
from labkit.show import blocks, theme
from labkit.show.lab import Lab
from labkit.spec.checks import whole
from labkit.spec.rule import counted, listed

MOST, RANKS = 64, 16
SOURCE, TARGET = 0.0, 1.6
_NUMBERED = 40  # elements that are wide enough for their number
# Ranks that the readout names one by one: their sizes, what they read, and from whom.
WRITTEN, NAMED, SOURCES = 6, 3, 2


def compute(length=13, source=3, target=4, together=1):
    """What each target slice of ``length`` elements reads; ``together`` elements are never cut apart.

    Source and target are numbers of ranks.
    """
    length = whole(length, "the elements", most=MOST)
    source, target = (whole(n, "ranks", most=RANKS) for n in (source, target))
    together = whole(together, "the elements that belong together")
    if length % together:
        whole_heads = [n for n in (length - length % together, length + -length % together) if 0 < n <= MOST]
        raise InputRefused(
            f"{length} elements are no whole number of heads of {together}; choose {listed(whole_heads)} "
            "elements, or 1 a head"
        )
    old, new = cuts(length, source, together), cuts(length, target, together)
    units = length // together
    return dict(length=length, units=units, old=old, new=new, read=overlaps(old, new), together=together)


def build(figure):
    """Two rows on one axis of elements; colours are those of the source ranks."""
    ax = theme.axes(figure, left=0.115, right=0.985, bottom=0.06, top=0.93)
    ax.set(xlim=(0, 1), ylim=(2.45, -0.85), yticks=[], xticks=[])
    for spine in ax.spines.values():
        spine.set_visible(False)
    ax.grid(False)
    for y, words in ((SOURCE, "saved by"), (TARGET, "loaded by")):
        ax.text(-0.012, y, words, ha="right", va="center")
    return dict(
        ax=ax,
        source=[blocks.patch(ax, facecolor=colour, zorder=2) for colour in theme.RANKS],
        target=[blocks.patch(ax, facecolor=colour, zorder=2) for colour in theme.RANKS],
        threads=[blocks.patch(ax, facecolor=colour, alpha=0.18, zorder=1) for colour in theme.RANKS],
        edges=blocks.patch(ax, fill=False, linewidth=2.2, edgecolor=theme.COLOURS["text"], zorder=4),
        heads=blocks.patch(ax, fill=False, linewidth=0.7, edgecolor="white", zorder=3),
        elements=blocks.Numbers(ax, fontsize=10),
        names=[blocks.Numbers(ax, fontsize=11) for _ in range(2)],
    )


def update(artists, result):
    """Fills both rows, and between them the parts that are read."""
    length, read = result["length"], result["read"]
    old, new = result["old"] / length, result["new"] / length
    colours = len(theme.RANKS)
    rank = np.arange(old.size - 1)
    for colour, (above, below, thread) in enumerate(
        zip(artists["source"], artists["target"], artists["threads"], strict=True)
    ):
        mine, taken = rank % colours == colour, read.source % colours == colour
        row = np.zeros(mine.sum())
        above.set_path(blocks.rectangles(row + SOURCE, old[:-1][mine], old[1:][mine], 0.8))
        start, stop = read.start[taken] / length, read.stop[taken] / length
        row = np.zeros(taken.sum())
        below.set_path(blocks.rectangles(row + TARGET, start, stop, 0.8))
        thread.set_path(blocks.rectangles(row + (SOURCE + TARGET) / 2, start, stop, TARGET - 0.8))
    edges = [
        np.column_stack([np.full(ends.size - 1, y), ends[:-1], ends[1:]])
        for y, ends in ((SOURCE, old), (TARGET, new))
    ]
    lane, start, stop = np.concatenate(edges).T
    some = stop > start
    artists["edges"].set_path(blocks.rectangles(lane[some], start[some], stop[some], 0.8))
    marks = np.arange(result["units"] + 1) / result["units"]
    lane = np.repeat([SOURCE, TARGET], marks.size)
    artists["heads"].set_path(blocks.rectangles(lane, np.tile(marks, 2), np.tile(marks, 2), 0.8))
    at = np.arange(length)
    if length <= _NUMBERED:
        lane = np.repeat([SOURCE, TARGET], length)
        at = np.tile(at, 2)
        artists["elements"].set_numbers(lane, at / length, (at + 1) / length, at, "white")
    else:
        artists["elements"].clear()
    for names, y, ends in zip(artists["names"], (SOURCE - 0.62, TARGET + 0.62), (old, new), strict=True):
        some = np.flatnonzero(np.diff(ends) > 0)
        words = [f"rank {n}" if some.size <= 10 else str(n) for n in some]
        names.set_numbers(np.full(some.size, y), ends[some], ends[some + 1], words)
    return [
        *artists["source"],
        *artists["target"],
        *artists["threads"],
        artists["edges"],
        artists["heads"],
        artists["elements"],
        *artists["names"],
    ]


def readout(result):
    """The sizes, what the target ranks read, and whether all of them hold as much."""
    read, old, new = result["read"], np.diff(result["old"]), np.diff(result["new"])
    counts = np.bincount(read.target, minlength=new.size)
    even = "all equal" if np.ptp(new) == 0 else "unequal: a flat buffer may be that, heads may not"
    most, least = counts.max(), counts[new > 0].min()
    reads = f"{least} to {most} source ranks" if most > least else counted(int(most), "source rank")
    named = [rank for rank in range(min(NAMED, new.size)) if new[rank]]
    more = int((new > 0).sum()) - len(named)
    together = f", {result['together']} of them never cut apart" if result["together"] > 1 else ""
    return [
        f"{counted(result['length'], 'element')}{together}; saved by {counted(old.size, 'rank')}: "
        f"{_sizes(old)}",
        f"loaded by {counted(new.size, 'rank')}: {_sizes(new)}, {even}",
        f"a target rank reads from {reads}; every element is read once",
        "reads of " + "; ".join(_read(read, rank) for rank in named) + (f"; and {more} more" if more else ""),
    ]


def _read(read, rank: int) -> str:
    """What one target rank reads."""
    mine = read.target == rank
    sources, lengths = read.source[mine].tolist(), read.length[mine].tolist()
    if len(sources) > SOURCES:
        return f"rank {rank}: {sum(lengths)} from {sources[0]} to {sources[-1]}"
    parts = zip(lengths, sources, strict=True)
    return f"rank {rank}: " + " + ".join(f"{size} from {source}" for size, source in parts)


def _sizes(sizes) -> str:
    if np.ptp(sizes) == 0:
        return f"{sizes[0]} each"
    return " + ".join(map(str, sizes)) if sizes.size <= WRITTEN else f"{sizes.min()} to {sizes.max()} each"


def alt(result):
    """What a reader who cannot see the picture needs."""
    old, new = result["old"].size - 1, result["new"].size - 1
    return (
        f"A row of {result['length']} elements twice: above cut into slices of {old} ranks, in colours; "
        f"below into those of {new} ranks, with the colours of the ranks that each part is read from."
    )


reshard_slices = Lab("reshard_slices", compute, build, update, readout, alt, size=(9.2, 2.9))
