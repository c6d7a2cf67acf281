"""Memory over a run of batches of different shapes: what is reserved, what is used, and where it runs out."""

from functools import lru_cache

import numpy as np
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from labkit.practice.allocator import Job, batches, diagnose, draw_lengths, run_steps
from labkit.show import blocks, theme, ticks
from labkit.show.lab import Lab
from labkit.spec.rule import counted
from labkit.units import GB, MB, digits, format_bytes, format_share

SEQUENCES, ROWS, LONGEST = 160, 2, 8192
MOST = SEQUENCES // ROWS  # micro-batches, fewer where sequences are packed
LINES = 6  # rows that the map of the device has
HIGHEST = 26 * GB  # of the axis
DONE = "all ran; the last micro-batch, its forward done"
COLOURS = {"used": theme.COLOURS["activations"], "free": theme.COLOURS["buckets"]}


def compute(room_GB=15, median=1500, spread=0.8, way="as they come", allocator="segments", leak_MB=0):
    """Micro-batches of two sequences through the allocator, until they are done or memory is out.

    ``room_GB``: what weights and optimizer leave of the card. Four layers of hidden 4096, a head for 32,000
    words, two micro-batches a step; ``leak_MB``: what each micro-batch leaves behind.
    """
    made = _made(median, spread, way)
    history = run_steps(list(made.shapes), int(room_GB * GB), Job(leak=int(leak_MB * MB)), allocator)
    setting = dict(median=median, spread=spread, way=way, allocator=allocator, leak=leak_MB * MB)
    return dict(setting, made=made, history=history, found=diagnose(history))


@lru_cache(maxsize=64)
def _made(median, spread, way):
    return batches(draw_lengths(SEQUENCES, median, LONGEST, spread), ROWS, LONGEST, way)


def build(figure):
    """Left, bytes over micro-batches; right, the device as lines of text, with the request below it."""
    over, device = theme.axes(
        figure, columns=2, left=0.075, right=0.985, bottom=0.15, top=0.82, wspace=0.12, width_ratios=(1.25, 1)
    )
    ticks.scale(over.yaxis, "bytes")
    over.set(xlim=(0, MOST + 1), ylim=(0, HIGHEST), xlabel="micro-batch", title="over the run")
    device.set(
        xlim=(0, 1),
        ylim=(LINES + 1.75, -0.6),
    )
    device.set_xlabel("one line: a sixth of the room, by address", loc="left")
    device.set_title("the device at the end")
    device.set_xticks([])
    device.set_yticks([])
    device.grid(False)
    for side in ("left", "bottom"):
        device.spines[side].set_visible(False)
    lanes, zeros = np.arange(LINES), np.zeros(LINES)
    outline = blocks.patch(
        device, facecolor="none", edgecolor=theme.COLOURS["muted"], linewidth=0.8, zorder=4
    )
    outline.set_path(blocks.rectangles(lanes, zeros, zeros + 1, 0.8))
    handles = [
        Patch(color=COLOURS["used"], label="allocated"),
        Patch(color=COLOURS["free"], label="reserved, not allocated"),
        Line2D([], [], color=theme.COLOURS["optimizer_states"], ls="--", label="held between micro-batches"),
        Line2D([], [], color=theme.COLOURS["text"], lw=1.4, label="room"),
        Patch(color=theme.COLOURS["warning"], label="asked for, in vain"),
    ]
    figure.legend(
        handles=handles,
        ncols=5,
        loc="upper left",
        bbox_to_anchor=(0.065, 1.0),
        handlelength=1.2,
        columnspacing=1.2,
        fontsize=10.5,
    )
    return dict(
        areas={name: blocks.patch(over, facecolor=COLOURS[name], zorder=2) for name in ("free", "used")},
        held=over.plot([], [], color=theme.COLOURS["optimizer_states"], ls="--", lw=1.8, zorder=4)[0],
        room=over.axhline(0, color=theme.COLOURS["text"], lw=1.4, zorder=3),
        end=over.plot([], [], "X", color=theme.COLOURS["warning"], ms=11, zorder=5)[0],
        pieces={name: blocks.patch(device, facecolor=COLOURS[name], zorder=2) for name in COLOURS},
        asked=blocks.patch(device, facecolor=theme.COLOURS["warning"], zorder=2),
        says=device.text(0, LINES + 1.7, "", va="bottom", fontsize=11),
    )


def update(artists, result):
    """Areas, lines, the map and the request."""
    history = result["history"]
    count, failed = len(history.allocated), history.failed is not None
    lane = np.arange(1, count + 1 + failed)
    last = np.array(history.at_failure)[:, None][:, : int(failed)]  # the one that failed has a bar as well
    for name, top, end in (("free", history.reserved, last[1]), ("used", history.allocated, last[0])):
        artists["areas"][name].set_path(_bars(lane, np.concatenate([top, end])))
    artists["held"].set_data(lane[:count], history.held if result["leak"] else np.full(count, np.nan))
    artists["room"].set_ydata([history.capacity] * 2)
    artists["end"].set_data(*(([count + 1], [history.at_failure[1]]) if failed else ([], [])))
    sizes = np.array([size for size, _ in history.layout], float)
    free = np.array([free for _, free in history.layout], bool)
    stop = np.cumsum(sizes)
    width = history.capacity / LINES
    for name, mask in (("used", ~free), ("free", free)):
        artists["pieces"][name].set_path(_wrapped((stop - sizes)[mask], stop[mask], width, 0.8))
    asked = np.array([history.asked], float)
    artists["asked"].set_path(_wrapped(0 * asked, asked, width, 0.4, LINES + 0.1, 0.5))
    fits = "no hole is as large" if result["found"].missing <= 0 else "more than is free"
    artists["says"].set_text(f"{format_bytes(history.asked)} asked for: {fits}" if failed else DONE)
    moved = [*artists["areas"].values(), *artists["pieces"].values()]
    return [*moved, *(artists[name] for name in ("held", "room", "end", "asked", "says"))]


def _bars(lane, top):
    """A bar from 0 up for each micro-batch, without gaps."""
    return blocks.rectangles(top / 2, lane - 0.5, lane + 0.5, top)


def _wrapped(start, stop, width, height, first=0.0, apart=1.0):
    """Pieces of a long strip that is cut into lines of one width, ``apart`` from each other."""
    line = np.arange(LINES + 1)[:, None]
    low, high = np.maximum(start, line * width), np.minimum(stop, (line + 1) * width)
    lanes, pieces = np.nonzero(high > low)
    left, right = low[lanes, pieces] - lanes * width, high[lanes, pieces] - lanes * width
    return blocks.rectangles(first + apart * lanes, left / width, right / width, height)


def readout(result):
    """Shapes and padding, the bytes, how it ended, and what to do."""
    made, history, found = result["made"], result["history"], result["found"]
    ran, allocated, reserved = len(history.allocated), history.allocated, history.reserved
    most, taken = (
        int(one.max(initial=end)) for one, end in zip((allocated, reserved), history.at_failure, strict=True)
    )
    shapes = len(set(made.shapes))
    end = f"out of memory at micro-batch {ran + 1} of {len(made.shapes)}: {found.verdict}"
    leak = f", {format_bytes(result['leak'])} leaked each" if result["leak"] else ""
    return [
        f"{result['way']}, median {result['median']:,} tokens, spread {digits(result['spread'])}: "
        f"{counted(len(made.shapes), 'micro-batch')} of {counted(shapes, 'shape')}, "
        f"{format_share(made.padding)} padding",
        f"{result['allocator']}, {format_bytes(history.capacity)} of room{leak}: at most "
        f"{format_bytes(most)} allocated, {format_bytes(taken)} reserved",
        end if history.failed is not None else f"all {ran} micro-batches ran",
        found.reason,
        f"what helps: {found.remedy}",
    ]


def alt(result):
    """What a reader who cannot see the picture needs."""
    return (
        "Left, bars of the bytes allocated and reserved for each micro-batch under a line at the memory "
        "there is, with a cross where it ran out; right, the device's memory as six lines of blocks in use "
        f"and holes between them, the request that failed below. Verdict: {result['found'].verdict}."
    )


fragmentation = Lab("fragmentation", compute, build, update, readout, alt, size=(9.8, 4.0))
