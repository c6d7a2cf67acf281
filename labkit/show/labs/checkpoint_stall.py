"""Four ways to save a checkpoint as timelines of equal work: who waits for what, and how long (6.3)."""

import numpy as np
from matplotlib.patches import Patch

from labkit.course.chapter6_saving import BESIDE, WAYS, seconds_of
from labkit.intervals import intervals
from labkit.practice.save_timeline import CARD, HOST, save_timeline
from labkit.practice.saving import checkpoint_bytes, stall_seconds, stall_share
from labkit.show import blocks, theme
from labkit.show.lab import Lab
from labkit.spec.rule import counted
from labkit.strategies.timeline import TRANSFER
from labkit.units import GB, format_bytes, format_share, format_time

COLOURS = {
    "standing still": theme.COLOURS["idle"],
    "training": theme.COLOURS["compute"],
    "copying to the host": theme.COLOURS["communication"],
    "the host writes": theme.COLOURS["input"],
}
ROWS = np.arange(len(WAYS))
MARKS = np.linspace(0, 1, 6)
SEEN = 0.003  # of the axis: the least width of a copy, which may be too short to be seen
TRAINED = 2.5  # intervals between saves that the picture shows


def compute(billions=13, cards=16, one=5.0, writer=1.0, copy=25.0, step=1.0, every=60):
    """Timelines of a job of ``cards`` cards that saves ``billions`` e9 parameters, each ``every`` steps.

    ``one``: GB/s of the single writer, ``writer``: of each card where all write, ``copy``: of a card's copy
    to its host; ``step``: seconds of a step.
    """
    size = checkpoint_bytes(billions * 1e9)
    rates = dict(writer=writer * GB, one=one * GB, copy=copy * GB)
    steps = max(every, round(TRAINED * every))
    rows = []
    for name, way in WAYS.items():
        copied, written = seconds_of(name, size, cards, **rates)
        given = dict(step=step, every=every, copy=copied, write=written)
        line = save_timeline(way, steps, **given)
        stall, share = stall_seconds(way, **given), stall_share(way, **given)
        rows.append(dict(name=name, line=line, copy=copied, write=written, stall=stall, share=share))
    return dict(size=size, cards=cards, step=step, every=every, rows=rows)


def build(figure):
    """One row a way: the card's bar with the host's thinner one below, and what a save costs beside them."""
    ax = theme.axes(figure, left=0.235, right=0.785, bottom=0.15, top=0.83)
    ax.set(xlim=(0, 1), ylim=(len(WAYS) - 0.45, -0.55), yticks=[], xticks=[])
    ax.spines["left"].set_visible(False)
    ax.set_xlabel("time since the start", labelpad=20)
    figure.legend(
        handles=[Patch(color=colour, label=name) for name, colour in COLOURS.items()],
        ncols=4,
        loc="upper left",
        bbox_to_anchor=(0.225, 0.995),
        handlelength=1.2,
        columnspacing=1.6,
        borderpad=0,
    )
    names, notes = blocks.Numbers(ax, "left", fontsize=11), blocks.Numbers(ax, "right", fontsize=11)
    names.set_numbers(ROWS, 0 * ROWS, 0 * ROWS, list(WAYS))
    for x, words in ((1.012, "a save stops"), (1.21, "of the time")):
        ax.text(
            x, 1.02, words, transform=ax.transAxes, fontsize=11, color=theme.COLOURS["muted"], clip_on=False
        )
    return dict(
        patches={name: blocks.patch(ax, facecolor=colour, zorder=2) for name, colour in COLOURS.items()},
        ends=blocks.patch(ax, fill=False, linewidth=2.0, edgecolor=theme.COLOURS["text"], zorder=4),
        marks=blocks.Numbers(ax, "below", fontsize=11),
        names=names,
        notes=[notes, blocks.Numbers(ax, "right", fontsize=11)],
    )


def update(artists, result):
    """Fills the rows; time runs to the end of the slowest, so that the axis stays and its numbers move."""
    whole = max(row["line"].stop.max() for row in result["rows"])
    drawn = {name: [np.empty((0, 3))] for name in COLOURS}
    ends = []
    for number, row in zip(ROWS, result["rows"], strict=True):
        line = row["line"]
        own, host, moved = line.lane == CARD, line.lane == HOST, line.kind == TRANSFER
        train = intervals(line.start[own & ~moved], line.stop[own & ~moved])
        ends.append(train[-1, 1])
        drawn["standing still"].append(_rows(number, np.array([[0.0, train[-1, 1]]])))
        drawn["training"].append(_rows(number, train))
        if row["name"] == BESIDE:  # the copy runs beside the step, on half of the bar
            drawn["copying to the host"].append(_rows(number + 0.13, _stretches(line, own & moved)))
        else:
            drawn["copying to the host"].append(_rows(number, _stretches(line, own & moved)))
        drawn["the host writes"].append(_rows(number + 0.31, _stretches(line, host)))
    heights = {"the host writes": 0.14}
    for name, patch in artists["patches"].items():
        lane, start, stop = np.concatenate(drawn[name]).T
        if name == "copying to the host":
            stop = np.maximum(stop, start + SEEN * whole)
        patch.set_path(blocks.rectangles(lane, start / whole, stop / whole, heights.get(name, 0.42)))
    ends = np.array(ends) / whole
    artists["ends"].set_path(blocks.rectangles(ROWS, ends, ends, 0.5))
    bottom = np.full(MARKS.size, len(WAYS) - 0.45)
    artists["marks"].set_numbers(bottom, MARKS, MARKS, [format_time(mark * whole) for mark in MARKS])
    for column, x, texts in zip(
        artists["notes"],
        (1.0, 1.198),
        (
            [format_time(row["stall"]) for row in result["rows"]],
            [_share(row["share"]) for row in result["rows"]],
        ),
        strict=True,
    ):
        column.set_numbers(ROWS, 0 * ROWS + x, 0 * ROWS + x, texts)
    return [*artists["patches"].values(), artists["ends"], artists["marks"], *artists["notes"]]


def _rows(number: float, stretches: np.ndarray) -> np.ndarray:
    return np.column_stack([np.full(len(stretches), number), stretches])


def _stretches(line, chosen) -> np.ndarray:
    return np.stack([line.start[chosen], line.stop[chosen]], -1)


def readout(result):
    """The size, then a line for each way."""
    every = format_time(result["every"] * result["step"])
    lines = [
        f"checkpoint {format_bytes(result['size'])}, {format_bytes(result['size'] / result['cards'])} on "
        f"each of {counted(result['cards'], 'card')}; a save every {counted(result['every'], 'step')}, "
        f"{every}"
    ]
    for row in result["rows"]:
        copy = f"copy {format_time(row['copy'])}, " if row["copy"] else ""
        lines.append(
            f"{row['name']}: {copy}write {format_time(row['write'])}; stands still "
            f"{format_time(row['stall'])} a save, {_share(row['share'])} of the time"
        )
    return lines


def _share(share: float) -> str:
    """A share, where it is not too small to matter."""
    return "< 0.01 %" if 0 < share < 1e-4 else format_share(share)


def alt(result):
    """What a reader who cannot see the picture needs."""
    return (
        "Four timelines of the same training with two saves: one writer and all cards writing leave grey "
        "gaps for the whole write; with a copy first only the copy interrupts, and beside the step nothing "
        f"does, as long as the write of {format_time(result['rows'][-1]['write'])} ends before the next save."
    )


checkpoint_stall = Lab("checkpoint_stall", compute, build, update, readout, alt, size=(9.6, 3.9))
