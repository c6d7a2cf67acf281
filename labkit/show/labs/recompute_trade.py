"""Recompute: memory of a card against extra compute, for none, selective and full; the best checkpoints."""

from dataclasses import replace

import numpy as np

from labkit.errors import InputRefused
from labkit.planner.activations import layer_activations
from labkit.planner.bill import step_bill
from labkit.planner.memory import memory
from labkit.planner.recompute import (
    best_every,
    checkpointed_bytes,
    checkpoints,
    closed_form_every,
    extra_compute,
)
from labkit.presets import cluster as load_cluster
from labkit.presets import model as load_model
from labkit.show import blocks, memory_parts, theme, ticks
from labkit.show.lab import Lab
from labkit.spec import Plan
from labkit.units import GB, format_bytes, format_share

WAYS = ("none", "selective", "full", "full")
NAMES = ("none", "selective", "full, every k", "full, every layer")
CARDS = ("a100-40", "a100", "h200")
SHARDS = 8  # data-parallel ranks over which stage 1 spreads the optimizer states
CUT, WIDE = 154, 228  # GB: where bars end that are longer, and the axis, which has room for numbers there
MOST, LEAST = 128, 1e-3  # layers per checkpoint, and share held, on the axes of the curve
GROUPS = np.arange(1, MOST + 1)
HEIGHT = 0.62
_ROW = np.arange(len(WAYS), dtype=float)[::-1]


def compute(
    cluster="a100",
    model="gpt3-13b",
    tp=4,
    pp=1,
    sequence=4096,
    micro_batch=4,
    every=4,
    fused=False,
    sequence_parallel=False,
):
    """Memory of the fullest card, and extra compute, of one plan recomputed in four ways.

    The four: none, selective, full with a checkpoint every ``every`` layers, full with one at every layer.
    """
    machine, of = load_cluster(cluster), replace(load_model(model), sequence=sequence)
    if of.layers % pp:
        raise InputRefused(
            f"{of.name} has {of.layers} layers, which {pp} stages cannot share evenly. Choose a divisor."
        )
    plan = Plan(
        tp=tp,
        pp=pp,
        dp=SHARDS,
        zero=1,
        micro_batch=micro_batch,
        accumulation=pp,
        fused_attention=fused,
        sequence_parallel=sequence_parallel,
    )
    layer, layers, ways = layer_activations(of, plan), of.layers // pp, np.array(WAYS)
    found = memory(of, machine, replace(plan, recompute=ways, recompute_every=np.array([1, 1, every, 1])))
    sizes, whole = (layer.boundary, layer.kept, pp), pp * layers * layer.kept
    return dict(
        machine=machine,
        of=of,
        pp=pp,
        every=every,
        at_peak=found.at_peak,
        capacity=found.capacity,
        extra=extra_compute(of, ways),
        layers=layers,
        held=checkpointed_bytes(layers, GROUPS, *sizes) / whole,
        inputs=pp * checkpoints(layers, GROUPS) * layer.boundary / whole,
        alike=checkpointed_bytes(layers, GROUPS, layer.kept, layer.kept, pp) / whole,
        best=best_every(layers, *sizes),
        closed=closed_form_every(layers, *sizes),
        sent=[_sent(of, machine, replace(plan, recompute=way)) for way in ("none", "full")],
    )


def _sent(of, machine, plan) -> float:
    """Bytes of tensor parallel that a rank sends per micro-batch, inside its layers."""
    rows = [row for row in step_bill(of, machine, plan) if row.strategy == "tensor parallel"]
    return sum(row.bytes_per_rank for row in rows) / plan.accumulation


def build(figure):
    """Left memory and, in the middle, extra compute by way; right the share held by layers per checkpoint."""
    left, middle, right = theme.axes(
        figure,
        columns=3,
        left=0.145,
        right=0.94,
        bottom=0.15,
        top=0.8,
        width_ratios=(2.5, 0.9, 2.7),
        wspace=0.31,
    )
    for ax in (left, middle):
        ax.grid(False, axis="y")
        ax.set(ylim=(-0.6, len(WAYS) - 0.4))
        ax.tick_params(axis="y", length=0)
        ax.set_yticks(_ROW, NAMES if ax is left else [""] * len(WAYS))
    left.set(xlim=(0, WIDE), xlabel="memory of the fullest card, GB", xticks=[0, 50, 100, 150])
    ticks.scale(middle.xaxis, "share", most=2)
    middle.set(xlim=(0, 0.6), xlabel="extra compute", xticks=[0, 0.3])
    ticks.scale(right.xaxis, "number", log=2, most=8)
    ticks.scale(right.yaxis, "share", log=10, most=3)
    right.set(xlim=(0.85, MOST), ylim=(LEAST, 1.3), xlabel="layers per checkpoint k")
    right.set_title("share held; dot: best k, ring: chosen k")
    hue = theme.COLOURS
    lines = [
        right.plot([], [], color=hue["text"], lw=1.4, ls="--", label="if input = layer")[0],
        right.plot([], [], color=hue["expert"], lw=1.6, label="inputs")[0],
        right.plot([], [], color=hue["activations"], lw=3, label="held")[0],
    ]
    # Keys, because curves end anywhere, and on those of the guide.
    for handles, x, length in ((memory_parts.key(memory_parts.SUMS), 0.135, 1.2), (lines[::-1], 0.6, 1.8)):
        place = dict(loc="upper left", bbox_to_anchor=(x, 0.995))
        figure.legend(handles=handles, ncols=3, handlelength=length, columnspacing=1.4, borderpad=0, **place)
    return dict(
        shapes={part: blocks.patch(left, facecolor=memory_parts.COLOURS[part]) for part in memory_parts.SUMS},
        totals=[left.text(WIDE, row, "", ha="right", va="center") for row in _ROW],
        card=left.axvline(0, color=hue["text"], lw=1.6),
        says=left.text(0, 1.0, "", transform=left.get_xaxis_transform(), ha="center", va="bottom"),
        extra=blocks.patch(middle, facecolor=hue["compute"]),
        shares=[middle.text(0, row, "", ha="left", va="center") for row in _ROW],
        lines=lines,
        below=right.plot([], [], "v", ms=6, color=hue["expert"], clip_on=False)[0],
        guide=[right.axhline(1, color=hue["muted"], lw=1.0, ls=":") for _ in range(2)],
        guides=[
            right.text(MOST * 1.06, 1, name, color=hue["muted"], va="center") for name in ("1/√L", "1/L")
        ],
        chosen=right.plot([], [], "o", ms=9, mfc="white", mec=hue["text"], zorder=5)[0],
        best=right.plot([], [], "o", ms=9, color=hue["good"], zorder=6)[0],
    )


def update(artists, result):
    """Fills the bars and the curves; a bar beyond the axis ends early, with an arrow before its number."""
    at_peak, start = result["at_peak"], np.zeros(len(WAYS))
    for part, shape in artists["shapes"].items():
        stop = start + getattr(at_peak, part) / GB
        shape.set_path(blocks.rectangles(_ROW, np.minimum(start, CUT), np.minimum(stop, CUT), HEIGHT))
        start = stop
    for text, total in zip(artists["totals"], at_peak.total, strict=True):
        text.set_text(f"{'→ ' if total > CUT * GB else ''}{format_bytes(total)}")
    capacity = result["capacity"] / GB
    artists["card"].set_xdata([capacity] * 2)
    artists["says"].set(x=capacity, text=f"card: {capacity:.0f} GB")
    extra = result["extra"]
    artists["extra"].set_path(blocks.rectangles(_ROW, 0 * extra, extra, HEIGHT))
    for text, share in zip(artists["shares"], extra, strict=True):
        text.set(x=share + 0.015, text=f"{100 * share:.0f} %")
    k = GROUPS[: result["layers"]]
    for line, name in zip(artists["lines"], ("alike", "inputs", "held"), strict=True):
        line.set_data(k, result[name][: len(k)])
    # Inputs go on below the axis where layers keep much.
    leaves = leaves_at(k, result["inputs"][: len(k)])
    artists["below"].set_data(leaves, np.full(len(leaves), LEAST))
    for line, text, share in zip(artists["guide"], artists["guides"], guide(result), strict=True):
        line.set_ydata([share] * 2)
        text.set_y(share)
    for name in ("chosen", "best"):
        k = min(result["every" if name == "chosen" else "best"], result["layers"])
        artists[name].set_data([k], [result["held"][k - 1]])
    return [
        *artists["shapes"].values(),
        *artists["totals"],
        artists["card"],
        artists["says"],
        artists["extra"],
        *artists["shares"],
        *artists["lines"],
        artists["below"],
        *artists["guide"],
        *artists["guides"],
        artists["chosen"],
        artists["best"],
    ]


def leaves_at(k, share) -> list[float]:
    """Where the falling line through the shares leaves the axis, on logarithmic scales; empty: nowhere."""
    if share[-1] >= LEAST:
        return []
    return [float(np.exp(np.interp(np.log(LEAST), np.log(share[::-1]), np.log(k[::-1]))))]


def guide(result):
    """The guide's two shares, for the layers of this card."""
    return result["layers"] ** -0.5, 1 / result["layers"]


def readout(result):
    """What each way holds and costs, what fits, and the best k beside the closed form."""
    totals, extra, of = result["at_peak"].total, result["extra"], result["of"]
    fits = [name for name, total in zip(NAMES, totals, strict=True) if total <= result["capacity"]]
    held, best, every = result["held"], result["best"], min(result["every"], result["layers"])
    beyond = f" ({result['every']} is beyond a stage)" if every < result["every"] else ""
    none, selective, full, each = map(format_bytes, totals)
    sent, again = map(format_bytes, result["sent"])
    return [
        f"{of.name}, s = {of.sequence:,}: none {none}, selective {selective}, full at k = {every} {full}, "
        f"at every layer {each}",
        f"fits the {format_bytes(result['capacity'])} of {result['machine'].gpu.name}: "
        f"{'; '.join(fits) or 'none of them'}",
        f"extra compute: selective {format_share(extra[1])}, full {format_share(extra[2])} at any k; tensor "
        f"parallel sends {sent}, full {again}",
        f"of {result['layers']} layers {format_share(held[best - 1])} held at the best k = {best} "
        f"(closed form {result['closed']:.2f}), {format_share(held[every - 1])} at k = {every}{beyond}",
    ]


def alt(result):
    """What a reader who cannot see the picture needs."""
    totals = ", ".join(
        f"{name} {format_bytes(total)}" for name, total in zip(NAMES, result["at_peak"].total, strict=True)
    )
    return (
        f"Left, bars of the memory of one card, states, activations and the rest, for four ways to "
        f"recompute: {totals}; beside each its extra compute, about a third for full whatever k is. Right, "
        f"the share of the activations held against layers per checkpoint, lowest at k = {result['best']}."
    )


recompute_trade = Lab("recompute_trade", compute, build, update, readout, alt, size=(9.8, 4.0))
