"""When stage 3 pays: one micro-batch of gathers under compute, and what bandwidth or batch it takes (4.1)."""

from dataclasses import replace

import numpy as np
from matplotlib.patches import Patch

from labkit.course.chapter3_data import machine_of
from labkit.errors import InputRefused
from labkit.intervals import intervals, subtract
from labkit.planner.sharding import break_even, sharded_layer
from labkit.presets import model as load_model
from labkit.show import blocks, theme, ticks
from labkit.show.lab import Lab
from labkit.show.labels import EndLabels
from labkit.show.sense import several_ranks
from labkit.spec import Plan
from labkit.strategies.prefetch import prefetch_bytes, prefetch_timeline, prefetched
from labkit.strategies.timeline import BACKWARD, FORWARD, TRANSFER
from labkit.units import GB, format_bytes, format_rate, format_share, format_time

BANDWIDTHS = GB * 2.0 ** np.arange(-1, 11.01, 0.25)
TOKENS = 2.0 ** np.arange(8, 20.01, 0.25)
COMPUTING, NETWORK = 1.0, 0.0  # rows of the timeline
KINDS = {
    "forward": (COMPUTING, blocks.COLOURS[FORWARD]),
    "backward": (COMPUTING, blocks.COLOURS[BACKWARD]),
    "gather": (NETWORK, theme.COLOURS["communication"]),
    "reduce_scatter": (NETWORK, theme.COLOURS["reduce_scatter"]),
    "exposed": (NETWORK, theme.COLOURS["warning"]),
}
HEIGHT, SEAM = 0.72, 0.0012  # of a block, in rows and in shares of the micro-batch


def compute(
    cluster="a100", model="gpt3-13b", n=64, network=1.0, hybrid=False, micro_batch=1, sequence=2048, depth=1
):
    """One micro-batch of stage 3 on ``n`` data-parallel ranks, ``depth`` layers gathered ahead.

    ``network``: times the bandwidth of the preset's ports; ``hybrid``: shards over one fast-link domain.
    """
    several_ranks(n)
    machine, one = machine_of(cluster, n), replace(load_model(model), sequence=sequence)
    if one.experts:
        raise InputRefused(f"{model} has experts, which this picture does not know. Choose a dense model.")
    machine = replace(machine, inter=replace(machine.inter, bandwidth=network * machine.inter.bandwidth))
    shards = min(n, machine.domain) if hybrid else n
    plan = Plan(dp=n, zero=3, shard_ranks=shards, micro_batch=micro_batch, prefetch=depth)
    layer, found = sharded_layer(one, machine, plan), break_even(one, machine, plan)
    times = (layer.forward, layer.backward, layer.gather, layer.scatter)
    carried = (shards - 1) / shards / BANDWIDTHS
    scale = TOKENS / found.tokens

    def idle(depth):
        """GPU's waiting share by bandwidth, and by tokens."""
        gather, scatter = (layer.latency + size * carried for size in (layer.weights, layer.gradients))
        by_rate = prefetched(one.layers, layer.forward, layer.backward, gather, scatter, depth)
        by_batch = prefetched(
            one.layers, layer.forward * scale, layer.backward * scale, layer.gather, layer.scatter, depth
        )
        return by_rate.compute_idle, by_batch.compute_idle

    return dict(
        machine=machine,
        model=one,
        shards=shards,
        depth=depth,
        layer=layer,
        found=found,
        here=prefetched(one.layers, *times, depth),
        timeline=prefetch_timeline(one.layers, *times, depth),
        curves=[idle(0), idle(depth if depth else 1)],
        held=prefetch_bytes(one.layers, layer.weights, 0.0, depth),
    )


def build(figure):
    """Above, two streams on one time axis; below, the GPU's waiting share by bandwidth and by tokens."""
    above = theme.axes(figure, left=0.115, right=0.87, bottom=0.7, top=0.9)
    by_rate, by_batch = theme.axes(
        figure, columns=2, left=0.07, right=0.9, bottom=0.115, top=0.5, wspace=0.42
    )
    above.grid(False)
    above.spines["left"].set_visible(False)
    above.tick_params(axis="y", length=0)
    above.set(xlim=(0, 1), ylim=(-0.5, 1.5))
    above.set_yticks([1, 0], ["computing", "network"])
    ticks.scale(above.xaxis, "share")
    above.set_xlabel("share of one micro-batch", labelpad=2)
    key = [Patch(color=colour, label=kind) for kind, (_, colour) in KINDS.items()]
    figure.legend(
        handles=key, ncols=5, loc="upper left", bbox_to_anchor=(0.105, 0.995), handlelength=1.2, borderpad=0
    )
    for ax, kind, grid, label in (
        (by_rate, "rate", BANDWIDTHS, "bandwidth of the ring, per rank"),
        (by_batch, "number", TOKENS, "tokens per rank and micro-batch"),
    ):
        ticks.scale(ax.xaxis, kind, log=10 if kind == "rate" else 2, most=4)
        ticks.scale(ax.yaxis, "share")
        ax.set(xlim=(grid[0], grid[-1]), ylim=(-0.02, 1.02), xlabel=label)
    by_rate.set_title("the GPU waits, by network")
    by_batch.set_title("the GPU waits, by batch")
    looks = ((theme.COLOURS["muted"], 1.6, ":"), (theme.COLOURS["compute"], 2.4, "-"))
    both = (by_rate, by_batch)
    lines = [[ax.plot([], [], color=c, lw=w, ls=s)[0] for c, w, s in looks] for ax in both]
    return dict(
        shapes={kind: blocks.patch(above, facecolor=colour) for kind, (_, colour) in KINDS.items()},
        says=above.text(1.015, 0.5, "", va="center", transform=above.transAxes, linespacing=1.5),
        lines=lines,
        labels=[EndLabels(ax, pair, fontsize=10) for ax, pair in zip(both, lines, strict=True)],
        needs=[ax.axvline(1, color=theme.COLOURS["good"], lw=1.4, ls="--") for ax in both],
        words=[ax.annotate("", (1, 0.84), **_WORDS) for ax in both],
        dots=[ax.plot([], [], "o", color=theme.COLOURS["text"], ms=8, zorder=5)[0] for ax in both],
    )


_WORDS = {"color": theme.COLOURS["good"], "fontsize": 10, "va": "center", "annotation_clip": False}
_WORDS |= {"xytext": (6, 0), "textcoords": "offset points"}


def _row(row, start, stop):
    """One rectangle from each start to its stop, with a seam after those that are long enough for one."""
    stop = stop - np.where(stop - start > 4 * SEAM, SEAM, 0.0)
    return blocks.rectangles(np.full(start.shape, row), start, stop, HEIGHT)


def update(artists, result):
    """Fills the two rows, the curves and the marks."""
    t, layers = result["timeline"], result["model"].layers
    transfers = t.kind == TRANSFER
    chosen = {
        "forward": t.kind == FORWARD,
        "backward": t.kind == BACKWARD,
        "gather": transfers & (t.item < 2 * layers),
        "reduce_scatter": transfers & (t.item >= 2 * layers),
    }
    for kind, which in chosen.items():
        ends = (times[which] / t.span for times in (t.start, t.stop))
        artists["shapes"][kind].set_path(_row(KINDS[kind][0], *ends))
    waits = subtract(
        intervals(t.start[transfers], t.stop[transfers]), intervals(t.start[~transfers], t.stop[~transfers])
    )
    artists["shapes"]["exposed"].set_path(
        blocks.rectangles(np.full(len(waits), NETWORK - 0.43), *(waits / t.span).T, 0.12)
    )
    artists["says"].set_text(f"{format_time(t.span)}\n{format_share(result['here'].coverage)}\nhidden")
    found, here = result["found"], result["here"]
    depth = result["depth"]
    marks = (
        (BANDWIDTHS, found.has, found.needs, format_rate),
        (TOKENS, found.tokens, found.enough_tokens, "{:,.0f}".format),
    )
    for which, (grid, has, needs, say) in enumerate(marks):
        none, ahead = artists["lines"][which]
        for line, curves in zip((none, ahead), result["curves"], strict=True):
            line.set_data(grid, curves[which])
        none.set_label("no prefetch")
        ahead.set_label(f"{depth or 1} ahead")
        dot, mark, words = (artists[name][which] for name in ("dots", "needs", "words"))
        dot.set_data([np.clip(has, grid[0], grid[-1])], [here.compute_idle])
        inside = grid[0] <= needs <= grid[-1]
        mark.set_visible(inside)
        words.set_visible(inside)
        if inside:
            mark.set_xdata([needs] * 2)
            words.set_text(f"enough:\n{say(needs)}")
            words.xy = (needs, 0.84)
    return [
        *artists["shapes"].values(),
        artists["says"],
        *(line for pair in artists["lines"] for line in pair),
        *(text for labels in artists["labels"] for text in labels.place()),
        *artists["needs"],
        *artists["words"],
        *artists["dots"],
    ]


def readout(result):
    """The layer, the micro-batch, what is enough, and the memory of prefetch."""
    layer, here, found, one = (result[name] for name in ("layer", "here", "found", "model"))
    machine, shards = result["machine"], result["shards"]
    needs = "at no bandwidth" if np.isinf(found.needs) else f"from {format_rate(found.needs)} on"
    enough = "enough" if found.enough else "not enough"
    idle = round(here.network_idle, 9)  # less is rounding
    return [
        f"{machine.name}, {one.name}: {one.layers} layers of {format_bytes(layer.weights)}, sharded over "
        f"{shards}; {found.tokens:,.0f} tokens per rank",
        f"one layer: forward {format_time(layer.forward)}, backward {format_time(layer.backward)}, gather "
        f"{format_time(layer.gather)}, reduce_scatter {format_time(layer.scatter)}",
        f"one micro-batch {format_time(here.span)}: compute {format_time(here.compute)}, exposed "
        f"{format_time(here.exposed)}; coverage {format_share(here.coverage)}",
        f"the GPU waits {format_share(here.compute_idle)} of the time, the network idles "
        f"{format_share(idle)}; gathered layers hold {format_bytes(result['held'])}",
        f"the ring has {format_rate(found.has)}: {enough}; one layer ahead hides {needs}, or here from "
        f"{found.enough_tokens:,.0f} tokens on",
    ]


def alt(result):
    """What a reader who cannot see the picture needs."""
    return (
        "Above, a time axis with the forward and backward passes of all layers of one micro-batch, and below "
        "them their gathers and reduce_scatters, with a red stroke where the GPU waits; below, the waiting "
        "share against the ring's bandwidth and against tokens per rank, without prefetch and with it, each "
        "with the point from which on nearly all hides."
    )


stage_three = Lab("stage_three", compute, build, update, readout, alt, size=(9.6, 5.4))
