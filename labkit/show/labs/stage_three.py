"""When stage 3 pays: one micro-batch of gathers under compute, and what bandwidth or batch it takes (4.1)."""

from dataclasses import replace

import numpy as np
from matplotlib.patches import Patch

from labkit.course.chapter3_data import machine_of
from labkit.course.chapter4_sharding import shards_inside
from labkit.errors import InputRefused
from labkit.intervals import intervals, subtract
from labkit.planner.sharding import break_even, sharded_layer
from labkit.planner.states import state_bytes
from labkit.presets import model as load_model
from labkit.show import blocks, theme, ticks
from labkit.show.lab import Lab
from labkit.show.labels import EndLabels
from labkit.show.sense import several_ranks
from labkit.spec import Plan
from labkit.strategies.prefetch import prefetch_bytes, prefetch_timeline, prefetched
from labkit.strategies.timeline import BACKWARD, FORWARD, TRANSFER
from labkit.units import GB, format_bytes, format_rate, format_share, format_time

BANDWIDTHS = GB * 2.0 ** np.arange(-2, 12.01, 0.25)
TOKENS = 2.0 ** np.arange(8, 21.01, 0.25)
COMPUTING, NETWORK = 1.0, 0.0  # rows of the timeline
KINDS = {
    "forward": (COMPUTING, blocks.COLOURS[FORWARD]),
    "backward": (COMPUTING, blocks.COLOURS[BACKWARD]),
    "gather": (NETWORK, theme.COLOURS["communication"]),
    "reduce_scatter": (NETWORK, theme.COLOURS["communication_back"]),
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
    shards = int(shards_inside(n, machine.domain)) if hybrid else n
    plan = Plan(dp=shards, zero=3, micro_batch=micro_batch, prefetch=depth)  # the replicas do not gather
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
        alike=hybrid and shards == n,
        depth=depth,
        layer=layer,
        found=found,
        here=prefetched(one.layers, *times, depth),
        timeline=prefetch_timeline(one.layers, *times, depth),
        curves=[idle(0), idle(depth if depth else 1)],
        held=dict(
            states=state_bytes(one.parameters, shards, 3),
            gathered=prefetch_bytes(one.layers, layer.weights, 0.0, depth),
            gradients=prefetch_bytes(one.layers, layer.weights, layer.gradients, depth)
            - prefetch_bytes(one.layers, layer.weights, 0.0, depth),
        ),
    )


def build(figure):
    """Above, two streams on one time axis; below, the GPU's waiting share by bandwidth and by tokens."""
    above = theme.axes(figure, left=0.115, right=0.84, bottom=0.7, top=0.9)
    by_rate, by_batch = theme.axes(
        figure, columns=2, left=0.07, right=0.9, bottom=0.115, top=0.475, wspace=0.42
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
    by_rate.set_title("the GPU waits, by network", pad=22)  # room for what is enough
    by_batch.set_title("the GPU waits, by batch", pad=22)
    looks = ((theme.COLOURS["muted"], 1.6, ":"), (theme.COLOURS["compute"], 2.4, "-"))
    both = (by_rate, by_batch)
    lines = [[ax.plot([], [], color=c, lw=w, ls=s)[0] for c, w, s in looks] for ax in both]
    return dict(
        shapes={
            # What is exposed is seen however short.
            kind: blocks.patch(above, int(kind == "exposed"), facecolor=colour, edgecolor=colour)
            for kind, (_, colour) in KINDS.items()
        },
        says=above.text(1.015, 0.5, "", va="center", transform=above.transAxes, linespacing=1.4),
        lines=lines,
        labels=[EndLabels(ax, pair, fontsize=10, gap=9) for ax, pair in zip(both, lines, strict=True)],
        needs=[ax.axvline(1, color=theme.COLOURS["good"], lw=1.4, ls="--") for ax in both],
        words=[ax.text(0, 1.02, "", transform=ax.transAxes, **_WORDS) for ax in both],
        dots=[ax.plot([], [], "o", zorder=5, clip_on=False, **_DOT)[0] for ax in both],
    )


_WORDS = {"color": theme.COLOURS["good"], "fontsize": 10, "va": "bottom"}
_DOT = {"color": theme.COLOURS["text"], "ms": 8}


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
    found, here = result["found"], result["here"]
    artists["says"].set_text(
        f"{format_time(t.span)}\n{format_share(here.coverage)} hidden\n{format_time(here.exposed)} exposed\n"
        f"{format_share(here.compute_idle)} of it"
    )
    depth = result["depth"]
    marks = (
        (BANDWIDTHS, found.has, found.needs, format_rate),
        (TOKENS, found.tokens, found.enough_tokens, "{:,.0f}".format),
    )
    for which, (grid, has, needs, say) in enumerate(marks):
        none, ahead = artists["lines"][which]
        for line, curves in zip((none, ahead), result["curves"], strict=True):
            line.set_data(grid, curves[which])
        none.set_label("0 ahead")
        ahead.set_label(f"{depth or 1} ahead")
        dot, mark, words = (artists[name][which] for name in ("dots", "needs", "words"))
        dot.set_data([has], [here.compute_idle])
        _say_enough(mark, words, needs, grid, say)
    return [
        *artists["shapes"].values(),
        artists["says"],
        *(line for pair in artists["lines"] for line in pair),
        *(text for labels in artists["labels"] for text in labels.place()),
        *artists["needs"],
        *artists["words"],
        *artists["dots"],
    ]


def _say_enough(mark, words, needs, grid, say):
    """The line at what is enough, and its words above; beyond the axis an arrow, "none" where nothing is."""
    low, high = grid[0], grid[-1]
    mark.set_visible(bool(low <= needs <= high))
    mark.set_xdata([needs] * 2)
    amount = "none" if np.isinf(needs) else say(needs)
    amount = f"← {amount}" if needs < low else f"{amount} →" if high < needs < np.inf else amount
    across = float(np.log(np.clip(needs, low, high) / low) / np.log(high / low))
    words.set(text=f"enough: {amount}", x=across)
    words.set_ha("left" if across < 0.25 else "right" if across > 0.75 else "center")


def readout(result):
    """The layer, the micro-batch, the peak of memory, and what is enough."""
    layer, here, found, one = (result[name] for name in ("layer", "here", "found", "model"))
    machine, shards = result["machine"], result["shards"]
    needs = "at no bandwidth" if np.isinf(found.needs) else f"from {format_rate(found.needs)} on"
    enough = "enough" if found.enough else "not enough"
    idle = round(here.network_idle, 9)  # less is rounding
    states, gathered, gradients = map(format_bytes, result["held"].values())
    peak = format_bytes(sum(result["held"].values()))
    return [
        f"{machine.name}, {one.name}: {one.layers} layers of {format_bytes(layer.weights)}, sharded over "
        f"{shards:,}{', hybrid or not' if result['alike'] else ''}; {found.tokens:,.0f} tokens per rank",
        f"one layer: forward {format_time(layer.forward)}, backward {format_time(layer.backward)}, gather "
        f"{format_time(layer.gather)}, reduce_scatter {format_time(layer.scatter)}",
        f"one micro-batch {format_time(here.span)}: coverage {format_share(here.coverage)}, exposed "
        f"{format_time(here.exposed)}, {format_share(here.compute_idle)} of it: GPU waits; network idle "
        f"{format_share(idle)}",
        f"peak without activations: states {states} + gathered {gathered} + two layers' gradients "
        f"{gradients} = {peak}",
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
