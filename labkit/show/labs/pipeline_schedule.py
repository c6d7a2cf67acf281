"""The gantt of a pipeline schedule, with what its ranks hold and how long they wait (section 3.3).

Time is counted in forwards: the forward of one micro-batch on one rank takes 1.
"""

import numpy as np
from matplotlib.colors import to_rgb
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from labkit.course.chapter3_pipeline import Case, pipeline_case
from labkit.errors import InputRefused
from labkit.show import blocks, theme
from labkit.show.lab import Lab
from labkit.spec.rule import counted
from labkit.strategies.pipeline import bubble_share
from labkit.strategies.timeline import BACKWARD, FORWARD, INPUT_GRADIENT, TRANSFER, WEIGHT_GRADIENT
from labkit.units import digits, format_share

KINDS = (FORWARD, BACKWARD, INPUT_GRADIENT, WEIGHT_GRADIENT)
CHUNKS = 4  # shades of a colour
MOST = 4096  # micro-batches on all ranks together
NUMBERED = 200  # blocks from which on they get no numbers
SLANTED = 2500  # transfers from which on they are no longer drawn: they would hide the blocks
FULL = 0.84  # height of a block where no transfers are drawn
IDEAL_LINE = {"color": theme.COLOURS["text"], "linewidth": 1.3, "linestyle": (0, (3, 2))}
FIRST, LAST = theme.COLOURS["activations"], theme.COLOURS["device"]
MEASURES = ("share of the step", "over the ideal", "own wait, busiest rank")


def compute(p=4, m=8, v=1, schedule="1F1B", backward=2.0, transfer=0.0, head=0.0, spread=False) -> Case:
    """One schedule: ``p`` ranks, ``m`` micro-batches, ``v`` chunks a rank; times in forwards.

    ``head``: the output head's forward, more work for the last stage, or for all evenly if ``spread``.
    """
    if v > CHUNKS or p * m > MOST:
        raise InputRefused(
            f"{p} ranks, {m} micro-batches and {v} chunks do not fit this picture. Choose up to {CHUNKS} "
            f"chunks, and p x m up to {MOST:,}."
        )
    return pipeline_case(schedule, p, m, v, backward, transfer, head, spread)


def build(figure) -> dict:
    """The gantt and what each rank holds beside it; held over time and the bubble below."""
    place = {"left": 0.075, "right": 0.97, "top": 0.865, "bottom": 0.1}
    gantt, most, held, bubble = theme.axes(
        figure, 2, 2, **place, wspace=0.07, hspace=0.25, width_ratios=[3.6, 1], height_ratios=[2.1, 1]
    )
    for ax in (gantt, most, held, bubble):
        ax.grid(False)
        ax.tick_params(length=0, labelleft=False, labelbottom=False)
        if ax is not held:
            ax.spines[["left", "bottom"]].set_visible(False)
    most.set_title("most held by a rank", fontsize=11)
    held.set_xlabel("time, in forwards of one micro-batch on one rank", labelpad=21)
    held.set_title("micro-batches held over time", fontsize=11)
    for x, words, colour in ((0.4, "first rank", FIRST), (0.56, "last rank", LAST)):
        above = {"xycoords": "axes fraction", "xytext": (0, 8), "textcoords": "offset points"}
        held.annotate(words, (x, 1), color=colour, weight="bold", **above)
    bubble.set(xlim=(0, 1.45), ylim=(2.5, -0.7))
    bubble.set_title("bubble: idle time", fontsize=11)
    for row, words in enumerate(MEASURES):
        bubble.text(0, row - 0.14, words, fontsize=9.5, va="bottom", color=theme.COLOURS["muted"])
    _legend(figure)
    return {
        "axes": (gantt, most, held),
        "limits": None,
        "title": gantt.text(0, 1.03, "", transform=gantt.transAxes, va="bottom"),
        "step": gantt.text(1, 1.03, "", transform=gantt.transAxes, va="bottom", ha="right"),
        "rows": blocks.Numbers(gantt, "left", fontsize=11),
        "idle": blocks.patch(gantt, facecolor=theme.COLOURS["idle"], zorder=1),
        "transfers": blocks.patch(gantt, fill=False, zorder=2, **blocks.TRANSFER_LINE),
        "blocks": {
            (kind, chunk): blocks.patch(gantt, facecolor=_shade(kind, chunk), zorder=3)
            for kind in KINDS
            for chunk in range(CHUNKS)
        },
        "done": blocks.patch(gantt, facecolor=theme.COLOURS["optimizer"], zorder=4),
        "numbers": blocks.Numbers(gantt),
        "end": gantt.plot([], [], zorder=4, **blocks.END_LINE)[0],
        "ideal": gantt.plot([], [], zorder=4, **IDEAL_LINE)[0],
        "peaks": blocks.patch(most, facecolor=FIRST, alpha=0.75, zorder=3),
        "says": blocks.Numbers(most, "right"),
        "grid": blocks.patch(held, fill=False, linewidth=0.9, color=theme.COLOURS["grid"], zorder=1),
        "ticks": [blocks.Numbers(held, "below", fontsize=11), blocks.Numbers(held, "left", fontsize=11)],
        "held": [
            held.plot([], [], drawstyle="steps-post", color=colour, linewidth=1.6, zorder=order)[0]
            for colour, order in ((FIRST, 3), (LAST, 4))
        ],
        "waits": blocks.patch(bubble, facecolor=theme.COLOURS["bubble"], zorder=1),
        "shares": blocks.Numbers(bubble, "right", fontsize=11),
    }


def _legend(figure) -> None:
    """What the colours mean, in one row above all."""
    key = [
        Patch(color=blocks.COLOURS[FORWARD], label="forward"),
        Patch(color=blocks.COLOURS[BACKWARD], label="backward (input gradient)"),
        Patch(color=blocks.COLOURS[WEIGHT_GRADIENT], label="weight gradient"),
        Patch(color=theme.COLOURS["idle"], label="idle"),
        Line2D([], [], label="transfer", **blocks.TRANSFER_LINE),
        Patch(color=theme.COLOURS["optimizer"], label="rank done"),
        Line2D([], [], label="ideal", **IDEAL_LINE),
        Line2D([], [], label="end", **blocks.END_LINE),
    ]
    place = {"loc": "upper left", "bbox_to_anchor": (0.01, 0.99), "borderaxespad": 0.2, "borderpad": 0}
    space = {"handlelength": 1.1, "columnspacing": 1.15, "handletextpad": 0.5, "fontsize": 10}
    figure.legend(handles=key, ncols=len(key), **space, **place)


def _shade(kind: str, chunk: int) -> tuple[float, float, float]:
    """The colour of a kind: forwards darker from chunk to chunk, backwards lighter, to stay apart."""
    towards = 0.0 if kind == FORWARD else 1.0
    share = (0.0, 0.32, 0.54, 0.7)[chunk]
    return tuple((1 - share) * part + share * towards for part in to_rgb(blocks.COLOURS[kind]))


def update(artists: dict, case: Case) -> list:
    """Fills the artists. Axes, ticks among them, are drawn as what moves: that spares the full redraw."""
    run, peak = case.run, case.peak
    limits = (case.p, _room(1.02 * run.span), _room(1.08 * peak.max()))
    if limits != artists["limits"]:
        artists["limits"] = limits
        _set_limits(artists, *limits)
    _draw_gantt(artists, case, limits[1])
    ranks = np.arange(case.p)
    artists["peaks"].set_path(blocks.rectangles(ranks, 0 * peak, peak, FULL))
    artists["says"].set_numbers(ranks, 0 * peak, peak, map(digits, peak), height=FULL)
    for line, rank in zip(artists["held"], (0, case.p - 1), strict=True):
        when, held = run.in_flight(rank)
        line.set_data([0, *when, run.span], [0, *held, 0])
    shares = np.array(case.bubble)
    rows, ends = np.arange(len(MEASURES)) + 0.1, np.minimum(shares, 1)
    artists["waits"].set_path(blocks.rectangles(rows, 0 * ends, ends, 0.36))
    artists["shares"].set_numbers(rows, 0 * ends, ends, map(format_share, shares))
    single = ("title", "step", "rows", "idle", "transfers", "done", "numbers", "end", "ideal")
    return [
        *(artists[name] for name in (*single, "peaks", "says", "grid", "waits", "shares")),
        *artists["blocks"].values(),
        *artists["ticks"],
        *artists["held"],
    ]


def _set_limits(artists: dict, p: int, time: float, places: float) -> None:
    gantt, most, held = artists["axes"]
    for ax in (gantt, held):
        ax.set_xlim(0, time)
    for ax in (gantt, most):
        ax.set_ylim(p - 0.5, -0.5)
    most.set_xlim(0, 1.35 * places)
    held.set_ylim(0, places)
    rows = np.arange(p) if p <= 8 else np.array([0, p - 1])
    artists["rows"].set_numbers(
        rows, 0 * rows, 0 * rows, [f"rank {row}" if row == 0 else row for row in rows]
    )
    x, y = (
        (ticks := MaxNLocator(most, steps=[1, 2, 5, 10]).tick_values(0, end))[ticks <= end]
        for end, most in ((time, 8), (places, 4))
    )
    artists["grid"].set_path(blocks.grid(x, y, (time, places)))
    below, left = artists["ticks"]
    below.set_numbers(0 * x, x, x, map(digits, x))
    left.set_numbers(y, 0 * y, 0 * y, map(digits, y))


def _room(least: float) -> float:
    """The end of an axis: the next of a few round numbers, so that it seldom changes while a slider moves."""
    power = 10.0 ** np.floor(np.log10(least))
    steps = (1, 1.1, 1.2, 1.35, 1.5, 1.75, 2, 2.25, 2.5, 3, 3.5, 4, 4.5, 5, 6, 7, 8, 9, 10)
    return next(power * step for step in steps if power * step >= least)


def _draw_gantt(artists: dict, case: Case, time: float) -> None:
    run = case.run
    computes = run.kind != TRANSFER
    slanted = case.times.transfer.any() and not _crowded(case)
    height = blocks.HEIGHT if slanted else FULL
    length = run.stop - run.start
    # A pixel between neighbours, less where blocks are narrow; drawing their edges would cost double.
    stop = run.stop - np.minimum(time / 700, 0.15 * length)
    ranks = np.arange(case.p)
    artists["idle"].set_path(blocks.rectangles(ranks, 0 * ranks, 0 * ranks + run.span, height))
    chunk_of = run.stage // case.p
    for kind in KINDS:
        of_kind = np.flatnonzero(run.kind == kind)
        for chunk in range(CHUNKS):
            chosen = of_kind[chunk_of[of_kind] == chunk]
            patch = artists["blocks"][kind, chunk]
            patch.set_visible(chosen.size > 0)
            patch.set_path(blocks.rectangles(run.lane[chosen], run.start[chosen], stop[chosen], height))
    artists["transfers"].set_visible(bool(slanted))
    if slanted:
        artists["transfers"].set_path(blocks.slants(run, case.times.transfer, height))
    done = np.zeros(case.p)
    np.maximum.at(done, run.lane[computes], run.stop[computes])
    artists["done"].set_path(blocks.rectangles(ranks, done, done + time / 220, height))
    for line, x in ((artists["end"], run.span), (artists["ideal"], case.ideal)):
        line.set_data([x, x], [-0.5, case.p - 0.5])
    _number(artists["numbers"], run, computes, height)
    artists["title"].set_text(_title(case))
    artists["step"].set_text(f"step {digits(run.span, 4)}, ideal {digits(case.ideal, 4)}")


def _crowded(case: Case) -> bool:
    """Whether the lines of the transfers would hide the blocks."""
    return 2 * case.m * case.crossings >= SLANTED


def _title(case: Case) -> str:
    """The setting in few words: drawing text costs more than drawing all blocks."""
    head = f", head {digits(case.head)} {'spread' if case.spread else 'last'}"
    head = head if case.head or case.spread else ""
    chunks = f", v = {case.chunks}{'' if head else ' (shades)'}" if case.chunks > 1 else ""
    return f"{case.name.removeprefix('interleaved ')}: p = {case.p}, m = {case.m}{chunks}{head}"


def _number(numbers: blocks.Numbers, run, computes, height: float) -> None:
    """The micro-batch in each block, white on the dark ones, while blocks are few."""
    if np.count_nonzero(computes) >= NUMBERED:
        numbers.clear()
        return
    chosen = [column[computes] for column in (run.lane, run.start, run.stop, run.item)]
    colours = np.where(run.kind[computes] == FORWARD, "white", theme.COLOURS["text"])
    numbers.set_numbers(*chosen, colours, height)


def readout(case: Case) -> list[str]:
    """What was taken, the step and its bubble in words, and what the ranks hold and send."""
    share, over, rate = case.bubble
    stage = case.times.forward
    formula = format_share(bubble_share(case.p, case.m, case.chunks))
    parts = "one stage" if case.chunks == 1 else f"{case.chunks} of {case.p * case.chunks} stages"
    return [
        f"{case.name}: {case.p} ranks with {parts} each, {counted(case.m, 'micro-batch')}",
        f"taken: {case.taken or 'as asked'}",
        f"step {digits(case.run.span, 4)} forwards, ideal {digits(case.ideal, 4)}; a stage's forward takes "
        f"{digits(stage[0])} on the first, {digits(stage[-1])} on the last stage",
        f"bubble: {format_share(share)} of the step = {format_share(over)} over the ideal",
        f"1F1B with equal stages and no transfers: (p-1)/(m v+p-1) = {formula} of the step",
        f"from its own first to its own last block the busiest rank waits {format_share(rate)}",
        f"micro-batches held at most: {_held(case.peak)}",
        f"boundaries crossed by one micro-batch: {case.crossings} up, {case.crossings} down"
        + (" (too many to draw)" if _crowded(case) else ""),
    ]


def _held(peak: np.ndarray) -> str:
    if np.ptp(peak) == 0:
        return f"{digits(peak[0], 4)} on every rank"
    if len(peak) <= 8:
        return f"{', '.join(digits(places, 4) for places in peak)} (first to last rank)"
    return (
        f"{digits(peak[0], 4)} on the first rank, {digits(peak[-1], 4)} on the last, "
        f"{digits(peak.max(), 4)} on the fullest"
    )


def alt(case: Case) -> str:
    """What the picture shows, in one sentence."""
    return (
        f"Timeline of {case.name} on {case.p} ranks with {case.m} micro-batches: the step takes "
        f"{digits(case.run.span, 4)} forwards, {format_share(case.bubble.share)} of it idle; a rank holds at "
        f"most {digits(case.peak.max())} micro-batches."
    )


pipeline_schedule = Lab("pipeline_schedule", compute, build, update, readout, alt, size=(9, 5.6))
