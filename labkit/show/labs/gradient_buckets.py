"""Gradient buckets under the backward pass: one step on two streams, and the best size for several N."""

from dataclasses import replace

import numpy as np
from matplotlib.patches import Patch

from labkit.course.chapter3_buckets import blocks_of, half_busbw, mebibytes, ring_on
from labkit.presets import cluster as load_cluster
from labkit.show import blocks, theme, ticks
from labkit.show.lab import Lab
from labkit.show.labels import EndLabels
from labkit.show.sense import several_ranks
from labkit.spec import Transformer
from labkit.strategies.buckets import FIRST_CAP
from labkit.strategies.overlap import best_bucket, step_timeline
from labkit.strategies.timeline import BACKWARD, FORWARD, TRANSFER
from labkit.units import MiB, format_bytes, format_share, format_time

CAPS = MiB * 2.0 ** np.arange(0, 12.01, 0.5)
OTHERS = (8, 64, 512)  # the rank counts that are always drawn, beside the chosen one
HEAD_DIM, VOCABULARY, SEQUENCE = 128, 50257, 2048
ROWS = {FORWARD: 1.0, BACKWARD: 1.0, TRANSFER: 0.0}
COLOURS = {**blocks.COLOURS, TRANSFER: theme.COLOURS["communication"]}
HEIGHT, SEAM = 0.72, 0.0012  # of a block, in rows and in shares of the step
LEAST, MOST = 1e-4, 1e2  # seconds on the axis of the curves


def compute(
    cluster="a100",
    n=64,
    layers=24,
    hidden=2048,
    sequences=2,
    bucket=25 * MiB,
    slow_down=1.0,
    small_first=True,
):
    """The step of a decoder of ``layers`` x ``hidden`` on ``n`` ranks, ``sequences`` of 2,048 tokens on each.

    ``bucket``: the cap in bytes; ``small_first``: the first bucket keeps 1 MiB, else it has the same cap.
    """
    several_ranks(n)
    machine = load_cluster(cluster)
    ranks = np.array([*OTHERS, n])[:, None]
    machine = replace(machine, nodes=int(np.ceil(ranks.max() / machine.gpus_per_node)))
    shape = dict(layers=layers, hidden=hidden, heads=hidden // HEAD_DIM)
    model = Transformer("decoder", vocabulary=VOCABULARY, sequence=SEQUENCE, **shape)
    blocks = blocks_of(model, machine.gpu, sequences)
    first = FIRST_CAP if small_first else None
    alone = sum(block.forward + block.backward for block in blocks)
    return dict(
        machine=machine,
        model=model,
        n=n,
        bucket=float(bucket),
        slow_down=slow_down,
        compute=alone,
        search=best_bucket(blocks, ring_on(machine, ranks), CAPS, first, slow_down),
        timeline=step_timeline(
            blocks, ring_on(machine, n), bucket, FIRST_CAP if small_first else bucket, slow_down
        ),
    )


def build(figure):
    """Above, computing and communicating on one time axis; below, what is added to compute by bucket size."""
    above, below = theme.axes(
        figure, rows=2, left=0.115, right=0.86, bottom=0.12, top=0.9, height_ratios=(1, 2.3), hspace=0.62
    )
    above.grid(False)
    above.spines[["left"]].set_visible(False)
    above.tick_params(axis="y", length=0)
    above.set(xlim=(0, 1), ylim=(-0.5, 1.5))
    above.set_yticks([1, 0], ["computing", "all_reduce"])
    ticks.scale(above.xaxis, "share")
    above.set_xlabel("share of the step", labelpad=2)
    key = [Patch(color=COLOURS[kind], label=kind) for kind in (FORWARD, BACKWARD)]
    key += [
        Patch(color=COLOURS[TRANSFER], label="all_reduce, hidden"),
        Patch(color=theme.COLOURS["warning"], label="exposed"),
    ]
    figure.legend(
        handles=key, ncols=4, loc="upper left", bbox_to_anchor=(0.105, 0.995), handlelength=1.2, borderpad=0
    )
    ticks.scale(below.xaxis, "size", log=2, most=7)
    ticks.scale(below.yaxis, "time", log=10, most=7)
    below.set(xlim=(CAPS[0] / 1.2, CAPS[-1] * 1.2), ylim=(LEAST, MOST), xlabel="bucket size (cap)")
    below.set_title("the step beyond its compute; dots: the best size for each N")
    # None of the colours above: a curve is no part of the step.
    hues = [theme.COLOURS[name] for name in ("activations", "expert", "optimizer", "text")]
    lines = [
        below.plot([], [], color=hue, lw=3.0 if i == len(OTHERS) else 1.6, zorder=3 + i // 3)[0]
        for i, hue in enumerate(hues)
    ]
    dots = [below.plot([], [], "o", color=hue, ms=8, zorder=5)[0] for hue in hues]
    return dict(
        above=above,
        shapes={kind: blocks.patch(above, facecolor=COLOURS[kind]) for kind in ROWS},
        exposed=blocks.patch(above, facecolor=theme.COLOURS["warning"]),
        says=above.text(1.02, 0.5, "", va="center", transform=above.transAxes, linespacing=1.5),
        lines=lines,
        dots=dots,
        labels=EndLabels(below, lines),
        here=below.axvline(CAPS[0], color=theme.COLOURS["muted"], lw=1.2, ls="--"),
    )


def _row(row, start, stop):
    """One rectangle from each start to its stop, with a seam after those that are long enough for one."""
    stop = stop - np.where(stop - start > 4 * SEAM, SEAM, 0.0)
    return blocks.rectangles(np.full(start.shape, row), start, stop, HEIGHT)


def update(artists, result):
    """Fills the two rows and the curves."""
    t, search = result["timeline"], result["search"]
    for kind, row in ROWS.items():
        chosen = t.kind == kind
        artists["shapes"][kind].set_path(_row(row, t.start[chosen] / t.span, t.stop[chosen] / t.span))
    # Computing is without a gap from 0 on, so that what is sent after its end is exposed.
    computed = t.stop[t.kind != TRANSFER].max()
    sent = (t.kind == TRANSFER) & (t.stop > computed)
    artists["exposed"].set_path(
        _row(ROWS[TRANSFER], np.maximum(t.start[sent], computed) / t.span, t.stop[sent] / t.span)
    )
    artists["says"].set_text(f"{format_time(t.span)}\n{format_share(t.coverage)}\nhidden")
    added = np.clip(search.seconds - result["compute"], LEAST / 10, MOST * 10)
    for i, (line, dot, n) in enumerate(
        zip(artists["lines"], artists["dots"], (*OTHERS, result["n"]), strict=True)
    ):
        shown = i == len(OTHERS) or n != result["n"]
        best = int(np.argmin(search.seconds[i]))
        line.set_data(CAPS, added[i])
        line.set_label(f"N = {n:,}")
        dot.set_data([CAPS[best]], [added[i, best]])
        for artist in (line, dot):
            artist.set_visible(shown)
    artists["here"].set_xdata([result["bucket"]] * 2)
    return [
        *artists["shapes"].values(),
        artists["exposed"],
        artists["says"],
        *artists["lines"],
        *artists["dots"],
        *artists["labels"].place(),
        artists["here"],
    ]


def readout(result):
    """The step, its buckets, the optimum, and the closed form beside it."""
    t, search, machine, n = result["timeline"], result["search"], result["machine"], result["n"]
    buckets = int((t.kind == TRANSFER).sum())
    slowed = t.hidden[0] * (1 - 1 / result["slow_down"])
    last = t.item == buckets - 1
    seconds = (t.stop - t.start)[last & (t.kind == TRANSFER)][0]
    low, high = (mebibytes(getattr(search, end)[-1]) for end in ("low", "high"))
    half = half_busbw(machine, n)
    return [
        f"{machine.name}, N = {n:,}; {result['model'].layers} layers x {result['model'].hidden:,} = "
        f"{result['model'].parameters / 1e9:.2f} B parameters in {buckets:,} buckets",
        f"step {format_time(t.span)}: compute {format_time(result['compute'])}, slowed by "
        f"{format_time(slowed)}, exposed {format_time(t.exposed[0])}",
        f"communication {format_time(t.communication[0])}, {format_share(t.coverage)} hidden; the last "
        f"all_reduce, never hidden: {format_time(seconds)}",
        f"best bucket {mebibytes(search.best[-1])}: step {format_time(search.seconds[-1].min())}; "
        f"within 1 % from {low} to {high}; half of busbw at {format_bytes(half)}",
    ]


def alt(result):
    """What a reader who cannot see the picture needs."""
    return (
        "Above, a time axis with the forward and backward pass of one step and, below them, the all_reduces "
        "of its gradient buckets, the part after the backward pass marked as exposed; below, the time that "
        "communication adds to compute against the bucket size for several numbers of ranks, each with a "
        "lowest point that moves to larger buckets as N grows."
    )


gradient_buckets = Lab("gradient_buckets", compute, build, update, readout, alt, size=(9.6, 5.2))
