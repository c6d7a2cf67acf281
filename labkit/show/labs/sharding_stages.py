"""The stages of sharding: what a rank holds of 13B, by part, and what it sends for it (section 4.1)."""

import numpy as np
from matplotlib.lines import Line2D

from labkit.course.chapter3_data import GUIDE_PARAMETERS, machine_of
from labkit.course.chapter4_sharding import shards_inside
from labkit.planner.sharding import hybrid as hybrid_rows
from labkit.planner.states import FP32_ACCUMULATION, FP32_GRADIENTS, MIXED, bytes_by_state
from labkit.planner.traffic import Workload, data_parallel, sharded
from labkit.show import blocks, memory_parts, theme, ticks
from labkit.show.lab import Lab
from labkit.show.sense import several_ranks
from labkit.spec.rule import counted
from labkit.units import GB, TB, digits, format_bytes, format_time

RECIPES = {"2 + 2 + 12": MIXED, "2 + 4 + 12": FP32_GRADIENTS, "2 + 2 + 4 + 12": FP32_ACCUMULATION}
STAGES = np.arange(4)
NAMES = ("plain", "stage 1", "stage 2", "stage 3")
PARTS = ("parameters", "gradients", "optimizer_states")
MOST, SUMS = 335 * GB, 265 * GB  # of the axis; where the sums stand, beyond 20 bytes a parameter
LEAST_SENT, MOST_SENT = 0.2 * GB, 40 * TB
HEIGHT = 0.62


def compute(cluster="a100", n=16, micro_batches=1, recipe="2 + 2 + 12", hybrid=False):
    """States and traffic of 13e9 parameters at each stage on ``n`` ranks, m micro-batches a step.

    ``recipe``: bytes per parameter of parameters, gradients (an fp32 copy of them) and optimizer. ``hybrid``:
    stages shard over the ranks of one fast-link domain, with replicas across.
    """
    several_ranks(n)
    machine, chosen = machine_of(cluster, n), RECIPES[recipe]
    shards = int(shards_inside(n, machine.domain)) if hybrid else n
    work = Workload(GUIDE_PARAMETERS, 40, 5120, 2048, 1, micro_batches, chosen.weights, chosen.gradients)
    bills = [data_parallel(work, n, domain=machine.domain)]
    for stage in (1, 2, 3):
        if shards < n:
            bills.append(hybrid_rows(work, shards, n // shards, stage, domain=machine.domain))
        else:
            bills.append(sharded(work, n, stage, domain=machine.domain))
    held = [bytes_by_state(shards if stage else n, int(stage), chosen) for stage in STAGES]
    return dict(
        machine=machine,
        n=n,
        shards=shards,
        alike=hybrid and shards == n,
        micro_batches=micro_batches,
        recipe=recipe,
        held={part: GUIDE_PARAMETERS * np.array([one[part] for one in held]) for part in PARTS},
        sent=np.array([sum(row.bytes_per_rank for row in rows) for rows in bills]),
        across=np.array([sum(row.bytes_across for row in rows) for rows in bills]),
        seconds=np.array([sum(row.seconds(machine) for row in rows) for rows in bills]),
    )


def build(figure):
    """Bars of bytes per rank on the left; on the right, on a log axis, dots of bytes sent."""
    held, sent = theme.axes(
        figure, columns=2, left=0.085, right=0.985, bottom=0.15, top=0.83, wspace=0.07, width_ratios=(1.25, 1)
    )
    for ax in (held, sent):
        ax.set_ylim(3.6, -0.6)
        ax.spines["left"].set_visible(False)
        ax.tick_params(axis="y", length=0)
        ax.grid(False, axis="y")
    held.set_yticks(STAGES, NAMES)
    sent.set_yticks(STAGES, [""] * 4)
    ticks.scale(held.xaxis, "bytes")
    held.set_xticks([0, 100 * GB, 200 * GB])
    held.set(xlim=(0, MOST), xlabel="held by a rank: model states of 13e9 parameters")
    ticks.scale(sent.xaxis, "bytes", log=10, most=5)
    sent.set(xlim=(LEAST_SENT, MOST_SENT), xlabel="sent by a rank in one step (log scale)")
    key = memory_parts.key(PARTS)
    key.append(Line2D([], [], color=theme.COLOURS["warning"], lw=1.6, label="the card"))
    figure.legend(handles=key, ncols=4, loc="upper left", bbox_to_anchor=(0.075, 0.99), **_LEGEND)
    # Two legends, because the second goes where nothing crosses.
    legends = [
        figure.legend(
            handles=[Line2D([], [], label=label, **look)],
            loc="upper left",
            bbox_to_anchor=(x, 0.99),
            **_LEGEND,
        )
        for x, (label, look) in zip((0.625, 0.745), _DOTS.items(), strict=True)
    ]
    return dict(
        bars={part: blocks.patch(held, facecolor=memory_parts.COLOURS[part], zorder=2) for part in PARTS},
        sums=blocks.Numbers(held, "right", fontsize=11),
        card=held.axvline(0, color=theme.COLOURS["warning"], lw=1.6, zorder=4),
        dots=[sent.plot([], [], zorder=4, **look)[0] for look in _DOTS.values()],
        crosses=legends[1],
        stems=blocks.patch(sent, fill=False, linewidth=1.2, color=theme.COLOURS["grid"], zorder=1),
        says=blocks.Numbers(sent, "right", fontsize=11),
    )


_LEGEND = {"handlelength": 1.2, "columnspacing": 1.3, "borderpad": 0, "handletextpad": 0.5}
_DOTS = {
    "sent in all": {"color": theme.COLOURS["text"], "marker": "o", "ls": "", "ms": 9},
    "of it over the network": {
        "color": theme.COLOURS["device"],
        "marker": "D",
        "ls": "",
        "ms": 7,
        "markerfacecolor": "white",
    },
}


def update(artists, result):
    """Bars, sums, dots and their words."""
    start = np.zeros(4)
    for part, patch in artists["bars"].items():
        stop = start + result["held"][part]
        patch.set_path(blocks.rectangles(STAGES, start, stop, HEIGHT))
        start = stop
    artists["sums"].set_numbers(STAGES, 0 * start, 0 * start + SUMS, _sizes(start))
    artists["card"].set_xdata([result["machine"].gpu.usable] * 2)
    sent, across = result["sent"], result["across"]
    artists["dots"][0].set_data(sent, STAGES)
    artists["dots"][1].set_data(np.where(across > 0, across, np.nan), STAGES)
    artists["crosses"].set_visible(bool(across.any()))
    corners = np.full(4, LEAST_SENT)
    artists["stems"].set_path(blocks.rectangles(STAGES, corners, sent, 0.0))
    times = [f"  {digits(each / sent[0])} x" for each in sent]
    artists["says"].set_numbers(STAGES, 0 * sent + LEAST_SENT, sent, times)
    return [
        *artists["bars"].values(),
        artists["sums"],
        artists["card"],
        artists["stems"],
        *artists["dots"],
        artists["crosses"],
        artists["says"],
    ]


def _sizes(sizes) -> list[str]:
    return [f"{digits(size / GB, 4)} GB" for size in sizes]


def readout(result):
    """The setting, the bytes held, the bytes sent and how long they take."""
    held = sum(result["held"].values())
    memory, n, shards = result["machine"].gpu.usable, result["n"], result["shards"]
    fits = [name for name, size in zip(NAMES, held, strict=True) if size < memory]
    where = f"shards over {shards}" + (f", {counted(n // shards, 'replica')}" if shards < n else "")
    where += ", hybrid or not" if result["alike"] else ""
    sent = ", ".join(format_bytes(size) for size in result["sent"])
    between = result["across"]
    return [
        f"13e9 parameters, recipe {result['recipe']}; {result['machine'].name}, N = {n}, {where}; "
        f"m = {result['micro_batches']}",
        f"held by a rank, plain to stage 3: {', '.join(_sizes(held))}; the card has {format_bytes(memory)}: "
        f"{fits[0] + ' fits' if fits else 'none fits'}",
        f"sent by a rank in a step: {sent}",
        "of it over the network, off the fast links: "
        + (", ".join(map(format_bytes, between)) if between.any() else "none"),
        f"one after the other, nothing hidden: {', '.join(map(format_time, result['seconds']))}",
    ]


def alt(result):
    """What a reader who cannot see the picture needs."""
    return (
        "Left, one stacked bar for plain data parallelism and each stage of sharding: parameters, gradients "
        f"and optimizer states of 13e9 parameters on one of {result['n']} ranks, shorter from stage to "
        "stage, with a line at the card's memory; right, a dot for the bytes that a rank sends per step."
    )


sharding_stages = Lab("sharding_stages", compute, build, update, readout, alt, size=(9.6, 3.6))
