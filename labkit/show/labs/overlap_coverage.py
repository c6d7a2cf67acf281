"""What an overlap hides: two streams with it and without it, and coverage beside what stays exposed."""

import numpy as np
from matplotlib.patches import Patch

from labkit.course.chapter3_data import machine_of
from labkit.course.chapter4_off_and_on import ALL, DRAWN, measures, measures_by_sequences, off_and_on
from labkit.intervals import intervals, subtract
from labkit.show import blocks, theme, ticks
from labkit.show.lab import Lab
from labkit.show.sense import several_ranks
from labkit.spec.rule import counted
from labkit.strategies.contention import SLOW_DOWN
from labkit.strategies.timeline import BACKWARD, COMPUTING, FORWARD, TRANSFER, Timeline
from labkit.units import MiB, format_share, format_size, format_time

SEQUENCES = (1, 2, 4, 8, 16, 32, 64)
LEAST, MOST = 1e-5, 1e2  # seconds on the axis of exposed time; what is less is nothing but rounding
ZERO = 2 * LEAST  # where nothing is marked
HOW = ("off", "on")
# Rows of the timelines, from the top; communication below what is computed, its exposed part under it.
ROWS = {"off": (4.0, 3.0), "on": (1.2, 0.2)}
UNDER, STROKE = 0.54, 0.16
COLOURS = {FORWARD: blocks.COLOURS[FORWARD], BACKWARD: blocks.COLOURS[BACKWARD]}
COLOURS[TRANSFER] = theme.COLOURS["communication"]
HEIGHT, SEAM = 0.8, 0.0012  # of a block, in rows and in shares of the axis
MEASURES = ("coverage", "exposed time", "exposed share of the step")


def compute(
    overlap="gradient buckets", cluster="a100", n=64, sequences=2, bucket=25 * MiB, slow_down=SLOW_DOWN
):
    """One overlap off and on, at ``sequences`` of 2,048 tokens per rank and over all of ``SEQUENCES``.

    ``bucket``: bytes, of gradient buckets; ``n``: ranks, of these and of stage 3; tensor parallel stays in a
    node. ``slow_down``: how many times as long computing takes beside communication.
    """
    several_ranks(n)
    machine, shown = machine_of(cluster, n), sorted({*SEQUENCES, sequences})
    pair = off_and_on(overlap, machine, n, sequences, bucket, slow_down)
    curves = measures_by_sequences(overlap, machine, n, shown, bucket, slow_down)
    return dict(
        shown=shown,
        overlap=overlap,
        cluster=cluster,
        n=n,
        sequences=sequences,
        bucket=bucket,
        slow_down=slow_down,
        lines=dict(zip(HOW, pair, strict=True)),
        curves=dict(zip(HOW, curves, strict=True)),
    )


def build(figure):
    """Above, the streams off and on over one time axis; below, the three measures by batch."""
    above = theme.axes(figure, left=0.185, right=0.8, bottom=0.555, top=0.905)
    below = theme.axes(figure, columns=3, left=0.075, right=0.975, bottom=0.11, top=0.375, wspace=0.27)
    above.grid(False)
    above.spines[["left"]].set_visible(False)
    above.tick_params(axis="y", length=0)
    above.set(xlim=(0, 1), ylim=(-0.5, 4.55))
    above.set_yticks([row for how in HOW for row in ROWS[how]], ["computing", "communicating"] * 2)
    for how in HOW:
        above.text(
            -0.285, np.mean(ROWS[how]), how, transform=above.get_yaxis_transform(), va="center", weight="bold"
        )
    ticks.scale(above.xaxis, "share")
    above.set_xlabel("time, as a share of the longer of the two", labelpad=2)
    key = [Patch(color=COLOURS[kind], label=kind) for kind in (FORWARD, BACKWARD)]
    key += [
        Patch(color=COLOURS[TRANSFER], label="communication"),
        Patch(color=theme.COLOURS["warning"], label="exposed part of it"),
    ]
    figure.legend(
        handles=key, ncols=4, loc="upper left", bbox_to_anchor=(0.175, 0.995), handlelength=1.2, borderpad=0
    )
    for ax, name, kind in zip(below, MEASURES, ("share", "time", "share"), strict=True):
        ticks.scale(ax.xaxis, "number", log=2, most=7)
        ticks.scale(ax.yaxis, kind, log=10 if kind == "time" else None, most=4)
        limits = (LEAST, MOST) if kind == "time" else (-0.03, 1.03)
        ax.set(xlim=(SEQUENCES[0] / 1.2, SEQUENCES[-1] * 1.2), ylim=limits)
        ax.set_title(name, fontsize=11)
    below[1].set_xlabel("sequences per rank (dashed: overlap off)", labelpad=2)
    looks = {
        "off": dict(color=theme.COLOURS["ideal"], ls="--", lw=1.6),
        "on": dict(color=theme.COLOURS["model"]),
    }
    return dict(
        shapes={kind: blocks.patch(above, facecolor=colour) for kind, colour in COLOURS.items()},
        exposed=blocks.patch(above, 1, color=theme.COLOURS["warning"]),  # seen however short
        says={
            how: above.text(
                1.02,
                np.mean(ROWS[how]),
                "",
                va="center",
                transform=above.get_yaxis_transform(),
                linespacing=1.35,
            )
            for how in HOW
        },
        lines={how: [ax.plot([], [], **looks[how])[0] for ax in below] for how in HOW},
        zeros=below[1].plot([], [], "v", ms=7, mfc="white", mec=theme.COLOURS["model"], zorder=4)[0],
        zero=below[1].text(
            SEQUENCES[0], 2 * ZERO, "0 s", va="bottom", ha="center", color=theme.COLOURS["model"]
        ),
        dots=[
            ax.plot([], [], "o", color=theme.COLOURS["model"], ms=8, zorder=5, clip_on=False)[0]
            for ax in below
        ],
    )


def update(artists, result):
    """Fills the rows, what is said beside them, and the curves."""
    longest = max(t.span for t in result["lines"].values())
    drawn = {kind: [] for kind in (*COLOURS, "exposed")}
    for how, t in result["lines"].items():
        computing, communicating = ROWS[how]
        for kind in COLOURS:
            chosen = t.kind == kind
            row = communicating if kind == TRANSFER else computing
            drawn[kind].append((row, t.start[chosen] / longest, t.stop[chosen] / longest))
        start, stop = exposed(t).T / longest
        drawn["exposed"].append((communicating - UNDER, start, stop))
        coverage, seconds, share = measures(t)
        artists["says"][how].set_text(
            f"{format_share(coverage)} hidden\n{format_time(seconds)} exposed\n"
            f"{format_share(share)} of the step"
        )
    for kind, patch in (*artists["shapes"].items(), ("exposed", artists["exposed"])):
        patch.set_path(_rows(drawn[kind], *((STROKE, 0.0) if kind == "exposed" else (HEIGHT, SEAM))))
    for how, curves in result["curves"].items():
        for line, curve in zip(artists["lines"][how], curves, strict=True):
            line.set_data(result["shown"], curve)
    here = measures(result["lines"]["on"])
    for number, (dot, value) in enumerate(zip(artists["dots"], here, strict=True)):
        dot.set_data([result["sequences"]], [ZERO if number == 1 and value < LEAST else value])
    on = artists["lines"]["on"][1]
    nothing = on.get_ydata() < LEAST
    on.set_ydata(np.where(nothing, np.nan, on.get_ydata()))
    x = np.asarray(result["shown"])[nothing]
    artists["zeros"].set_data(x, np.full(len(x), ZERO))
    artists["zero"].set(visible=len(x) > 0, x=x[-1] if len(x) else SEQUENCES[0])
    return [
        *artists["shapes"].values(),
        artists["exposed"],
        *artists["says"].values(),
        *artists["lines"]["off"],
        *artists["lines"]["on"],
        artists["zeros"],
        artists["zero"],
        *artists["dots"],
    ]


def exposed(t: Timeline) -> np.ndarray:
    """When the rank communicates and does not compute, as intervals."""
    computes = np.isin(t.kind, COMPUTING)
    return subtract(
        intervals(t.start[~computes], t.stop[~computes]), intervals(t.start[computes], t.stop[computes])
    )


def _rows(parts, height, seam):
    """One rectangle from each start to its stop, with a seam after those that are long enough for one."""
    row, start, stop = (
        np.concatenate(each)
        for each in zip(
            *((np.full(start.shape, row), start, stop) for row, start, stop in parts), strict=True
        )
    )
    stop = stop - np.where(stop - start > 4 * seam, seam, 0.0)
    return blocks.rectangles(row, start, stop, height)


def readout(result):
    """Both timelines in figures, and what contention took."""
    off, on = (result["lines"][how] for how in HOW)
    what = f"N = {result['n']:,}, buckets of {format_size(result['bucket'])}"
    if result["overlap"].startswith("tensor"):
        what = f"{DRAWN} of {ALL} layers, any N and bucket"
    elif result["overlap"] == "stage-3 prefetch":
        what = f"N = {result['n']:,}, any bucket"
    # Less than a billionth of a step is rounding.
    saved, slowed = (
        round(each / off.span, 9) * off.span for each in (off.span - on.span, on.busy[0] - off.busy[0])
    )
    lines = [f"{result['overlap']}; {result['cluster']}, {counted(result['sequences'], 'sequence')}; {what}"]
    for how, t in zip(HOW, (off, on), strict=True):
        coverage, seconds, share = measures(t)
        lines.append(
            f"{how}: {format_time(t.span)}, communication {format_time(t.communication[0])}: "
            f"{format_share(coverage)} hidden, {format_time(seconds)} exposed, {format_share(share)} of it"
        )
    gained = f"saves {format_time(saved)}" if saved >= 0 else "costs more than it hides"
    lines.append(
        f"overlap {gained}; computing beside communication takes {result['slow_down']:g} times as long: "
        f"{format_time(slowed)} more"
    )
    return lines


def alt(result):
    """What a reader who cannot see the picture needs."""
    return (
        "Above, two time axes with a computing and a communicating stream each, one without overlap and one "
        "with it, the part of the communication beside which nothing is computed marked as exposed; below, "
        "coverage, exposed time and its share of the step against the sequences per rank."
    )


overlap_coverage = Lab("overlap_coverage", compute, build, update, readout, alt, size=(9.6, 5.4))
