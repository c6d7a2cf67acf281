"""Stage 3 against N: the latency of its many collectives passes their bytes; hybrid shards avoid it (4.1)."""

from dataclasses import replace

import numpy as np

from labkit.course.chapter3_data import machine_of
from labkit.course.chapter4_prefetch import latency_and_bytes
from labkit.course.chapter4_sharding import shards_inside
from labkit.errors import InputRefused
from labkit.planner.sharding import hybrid, sharded_layer
from labkit.planner.traffic import Workload
from labkit.presets import model as load_model
from labkit.show import theme, ticks
from labkit.show.lab import Lab
from labkit.show.labels import EndLabels
from labkit.show.sense import several_ranks
from labkit.spec import Link, Plan
from labkit.spec.rule import counted
from labkit.units import digits, format_bytes, format_time, us

RANKS = 2 ** np.arange(1, 15)
LEAST, MOST = 5e-5, 1e5  # seconds on the axis


def compute(cluster="a100", n=64, alpha_us=0.0, model="gpt3-13b", micro_batches=16):
    """One step of m micro-batches of one sequence at stage 3, nothing hidden, on 2 to 16,384 ranks.

    ``alpha_us``: microseconds of latency of a message between hosts, 0 for the preset's own.
    """
    several_ranks(n, int(RANKS[-1]))
    one, machine = load_model(model), machine_of(cluster, RANKS[-1])
    if one.experts:
        raise InputRefused(f"{model} has experts, which this picture does not know. Choose a dense model.")
    inter = Link(alpha_us * us or machine.inter.alpha, machine.inter.bandwidth)
    machine = replace(machine, inter=inter)
    ranks = np.append(RANKS, n)
    plan = Plan(dp=ranks, zero=3)
    layer = sharded_layer(one, machine, plan)
    latency, carried = latency_and_bytes(one, machine, plan)
    count = one.layers * micro_batches
    shards = shards_inside(ranks, machine.domain)
    parameters = one.layers * one.layer_parameters
    work = Workload(parameters, one.layers, one.hidden, one.sequence, 1, micro_batches)
    mixed = hybrid(work, shards, ranks // shards, domain=machine.domain)
    return dict(
        machine=machine,
        model=one,
        n=n,
        shards=int(shards[-1]),
        micro_batches=micro_batches,
        layer=layer,
        compute=count * (layer.forward + layer.backward),
        latency=3 * count * latency,
        carried=3 * count * carried,
        mixed=sum(row.seconds(machine) for row in mixed),
        passes=crossing(latency[:-1] / carried[:-1], machine.domain),
    )


def crossing(ratio, domain) -> tuple[float, str]:
    """Where latency over bytes, by ``RANKS``, passes 1: N on the drawn curves, infinity at none; in words.

    Among ranks of one level the ratio is in proportion to N, so that a line between two points tells it.
    """
    above = np.flatnonzero(ratio >= 1)
    if not above.size:
        return np.inf, f"nowhere up to N = {RANKS[-1]:,}"
    first = above[0]
    if first == 0:
        return float(RANKS[0]), f"from N = {RANKS[0]} on"
    near, far = RANKS[first - 1 : first + 1]
    before, after = np.log(ratio[first - 1 : first + 1])
    passes = float(near * (far / near) ** (before / (before - after)))
    if near <= domain < far:  # the ring grows out of its fast links between the two
        return passes, f"between N = {near:,} and {far:,}"
    return passes, f"at N = {passes:,.0f}"


def build(figure):
    """Seconds of a step against N: compute, bytes, latency, both, and hybrid sharding."""
    ax = theme.axes(figure, left=0.085, right=0.79, bottom=0.15, top=0.9)
    ticks.scale(ax.xaxis, "number", log=2, most=8)
    ticks.scale(ax.yaxis, "time", log=10, most=8)
    ax.set(xlim=(1.8, 20_000), ylim=(LEAST, MOST), xlabel="ranks N")
    ax.set_title("stage 3, one step, nothing hidden")
    colours = theme.COLOURS
    looks = (
        ("compute", colours["compute"], "--", 1.6),
        ("bytes alone, over N", colours["bandwidth"], "-", 1.6),
        ("latency alone, over N", colours["latency"], "-", 1.6),
        ("hybrid, in all", colours["good"], "-", 2.6),
    )
    lines = [ax.plot([], [], ls, color=hue, lw=lw, label=label)[0] for label, hue, ls, lw in looks]
    return dict(
        lines=lines,
        names=EndLabels(ax, lines, fontsize=10.5, gap=10),  # a dot may stand on the end
        dots=[ax.plot([], [], "o", color=hue, ms=7, zorder=5)[0] for _, hue, _, _ in looks],
        here=ax.axvline(2, color=colours["muted"], lw=1.1, ls=":"),
        passes=ax.axvline(2, color=colours["warning"], lw=1.4),
        words=ax.annotate(
            "",
            (2, 6 * LEAST),
            color=colours["warning"],
            xytext=(6, 0),
            textcoords="offset points",
            bbox=dict(facecolor="white", edgecolor="none", pad=0),
        ),
    )


def update(artists, result):
    """The curves, the dots at the chosen N, and the mark where latency passes."""
    curves = [result[name] for name in ("compute", "carried", "latency", "mixed")]
    for line, dot, values in zip(artists["lines"], artists["dots"], curves, strict=True):
        values = np.broadcast_to(values, RANKS.size + 1)
        line.set_data(RANKS, values[:-1])
        dot.set_data([result["n"]], [values[-1]])
    artists["here"].set_xdata([result["n"]] * 2)
    passes, where = result["passes"]
    for name in ("passes", "words"):
        artists[name].set_visible(np.isfinite(passes))
    if np.isfinite(passes):
        artists["passes"].set_xdata([passes] * 2)
        artists["words"].set_text(f"latency passes\n{where}")
        left = passes > 1000  # the side without curves near the axis
        artists["words"].set(ha="right" if left else "left", position=(-6 if left else 6, 0))
        artists["words"].xy = (passes, artists["words"].xy[1])
    return [
        *artists["lines"],
        *artists["dots"],
        *artists["names"].place(),
        artists["here"],
        artists["passes"],
        artists["words"],
    ]


def readout(result):
    """The collectives, their latency and bytes at the chosen N, the crossing, and the remedy."""
    one, n, machine = result["model"], result["n"], result["machine"]
    m, latency, carried = result["micro_batches"], result["latency"][-1], result["carried"][-1]
    count = 3 * one.layers * m
    shards, (_, where) = result["shards"], result["passes"]
    return [
        f"{machine.name}, {one.name}: 3 x {one.layers} layers x m = {m}: {count:,} collectives a step, of "
        f"{counted(n - 1, 'step')} each",
        f"N = {n:,}: latency alone {format_time(latency)}, bytes alone {format_time(carried)}, beside "
        f"{format_time(result['compute'])} of compute",
        f"a layer of {format_bytes(result['layer'].weights)}: latency passes its bytes {where}; "
        f"alpha {digits(machine.inter.alpha / us)} µs",
        f"hybrid, shards over {shards} and {counted(n // shards, 'replica')}: "
        f"{format_time(result['mixed'][-1])}",
    ]


def alt(result):
    """What a reader who cannot see the picture needs."""
    return (
        "Seconds of a step of stage 3 against the number of ranks: its bytes rise to a constant, its latency "
        "grows with N and passes them at a marked N, while hybrid sharding stays flat beside the compute."
    )


sharding_latency = Lab("sharding_latency", compute, build, update, readout, alt, size=(9.6, 3.8))
