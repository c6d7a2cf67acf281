"""Data parallelism against N and against the batch: where communication catches compute, if anywhere."""

from dataclasses import replace

import numpy as np

from labkit.collectives import volume
from labkit.collectives.scaling import BACKWARD_SHARE, knee, scaling
from labkit.course.chapter3_data import job
from labkit.errors import InputRefused
from labkit.presets import cluster as load_cluster
from labkit.show import theme, ticks
from labkit.show.lab import Lab
from labkit.show.labels import EndLabels
from labkit.show.sense import several_ranks
from labkit.units import format_bytes, format_share, format_time

RANKS = 2 ** np.arange(3, 11)
BATCHES = 2.0 ** np.arange(14, 24)
KILO = 2.0**10
NOWHERE = "at no N up to 1,024"
LEAST, MOST = 1e-4, 1e3  # seconds on the axis of the first panel


def compute(
    cluster="cloud-25gbe",
    n=64,
    mode="strong",
    tokens=2**19,
    billions=1,
    gradient_bytes=2,
    overlap=0.0,
    bucket=0,
):
    """One step of ``billions`` x 1e9 parameters on 8 to 1,024 ranks; ``tokens`` per step on 8 of them.

    ``overlap``: share of the backward pass under which communication can hide; ``bucket`` 0: one message.
    """
    several_ranks(n)
    if mode == "strong" and tokens < n:
        raise InputRefused(f"{tokens:,} tokens cannot be shared by {n:,} ranks. Choose more tokens.")
    machine = load_cluster(cluster)
    changes = dict(mode=mode, overlap=overlap, bucket=bucket or None)
    one = job(machine, tokens, billions * 1e9, gradient_bytes, **changes)
    budget = overlap * BACKWARD_SHARE
    largest = int(RANKS[-1])
    # The batch only enters through compute: every batch at once, against the same communication.
    batches = [
        replace(one, compute=one.compute * BATCHES / tokens, overlap=share) for share in (0.0, overlap)
    ]
    shares = [scaling([n], machine, setting) for setting in batches]
    return dict(
        machine=machine,
        setting=one,
        n=n,
        tokens=tokens,
        budget=budget,
        sent=volume("all_reduce", "ring", one.gradient, n).busiest,
        rows=scaling(RANKS, machine, one),
        here=scaling([n], machine, one),
        knee=knee(machine, one, largest),
        shows=knee(machine, one, largest, budget) if budget else float("nan"),
        shares=[rows.exposed / rows.step for rows in shares],
    )


def build(figure):
    """Seconds against N, throughput against N, exposed share against the batch."""
    seconds, speed, share = theme.axes(
        figure, columns=3, left=0.075, right=0.9, bottom=0.16, top=0.87, wspace=0.68
    )
    for ax in (seconds, speed):
        ticks.scale(ax.xaxis, "number", log=2, most=4)
        ax.set(xlim=(6.5, 1250), xlabel="ranks N")
    ticks.scale(seconds.yaxis, "time", log=10, most=7)
    seconds.set(ylim=(LEAST, MOST))
    ticks.scale(speed.yaxis, "number", log=2, most=8)
    speed.set(ylim=(0.25, 160), title="throughput / that of 8")
    ticks.scale(share.xaxis, "number", log=2, most=4)
    ticks.scale(share.yaxis, "share")
    share.set(xlim=(BATCHES[0] / KILO, BATCHES[-1] / KILO), ylim=(-0.02, 1.02))
    share.set_xlabel("tokens per step on 8 ranks, x 1,024")
    share.set_title("exposed share of the step")
    colours = theme.COLOURS
    looks = (
        ("compute", colours["compute"], "-"),
        ("can hide", colours["good"], "--"),
        ("all_reduce", colours["communication"], "-"),
        ("latency", colours["latency"], ":"),
    )
    lines = [seconds.plot([], [], ls, color=hue, label=label)[0] for label, hue, ls in looks]
    speed.plot(RANKS, RANKS / 8, "--", color=colours["ideal"], lw=1.4)
    speed.text(300, 72, "ideal", color=colours["muted"], ha="right")
    shares = [
        share.plot([], [], ls, color=colours["communication"], label=label)[0]
        for label, ls in (("unhidden", ":"), ("overlapped", "-"))
    ]
    knees = [ax.axvline(8, color=colours["warning"], lw=1.4) for ax in (seconds, speed)]
    return dict(
        lines=lines,
        names=EndLabels(seconds, lines, fontsize=10),
        shares=shares,
        share_names=EndLabels(share, shares, fontsize=10),
        dot=share.plot([], [], "o", color=colours["text"], ms=8)[0],
        speed=speed.plot([], [], "o-", color=colours["compute"], ms=4)[0],
        speed_dot=speed.plot([], [], "o", color=colours["text"], ms=8)[0],
        here=[ax.axvline(8, color=colours["muted"], lw=1.1, ls=":") for ax in (seconds, speed)],
        knees=knees,
        says=seconds.text(0, 1.042, "", transform=seconds.transAxes, fontsize=12),
    )


def update(artists, result):
    """Curves, the marks of N and of the knee, and the dot of the chosen batch."""
    rows, here = result["rows"], result["here"]
    curves = (rows.compute, result["budget"] * rows.compute, rows.communication, rows.latency)
    for line, values in zip(artists["lines"], curves, strict=True):
        line.set_data(RANKS, np.where(values > 0, values, np.nan))
    for line, values in zip(artists["shares"], result["shares"], strict=True):
        line.set_data(BATCHES / KILO, values)
    artists["shares"][1].set_visible(result["budget"] > 0)
    artists["dot"].set_data([result["tokens"] / KILO], here.exposed / here.step)
    artists["speed"].set_data(RANKS, rows.throughput)
    artists["speed_dot"].set_data([result["n"]], here.throughput)
    for mark in artists["here"]:
        mark.set_xdata([result["n"]] * 2)
    found = bool(np.isfinite(result["knee"]))
    for mark in artists["knees"]:
        mark.set_visible(found)
        if found:
            mark.set_xdata([result["knee"]] * 2)
    artists["says"].set_text(f"per step: knee at N = {result['knee']:,.0f}" if found else "per step: no knee")
    return [
        *artists["lines"],
        *artists["names"].place(),
        *artists["shares"],
        *artists["share_names"].place(),
        *(artists[name] for name in ("dot", "speed", "speed_dot", "says")),
        *artists["here"],
        *artists["knees"],
    ]


def readout(result):
    """What is sent, the step at N, the knee, and the throughput."""
    here, setting, n = result["here"], result["setting"], result["n"]
    part = {name: format_time(getattr(here, name)[0]) for name in ("compute", "latency", "exposed", "step")}
    wire = format_time(here.communication[0])
    met = f"at N = {result['knee']:,.0f}" if np.isfinite(result["knee"]) else NOWHERE
    shows = "at every N" if not result["budget"] else NOWHERE
    if np.isfinite(result["shows"]):
        shows = f"from N = {result['shows']:,.0f} on"
    return [
        f"{result['machine'].name}: gradients {format_bytes(setting.gradient)}; at N = {n:,} a rank sends "
        f"{format_bytes(result['sent'])} per step, whatever the batch",
        f"step {part['step']}: compute {part['compute']}, all_reduce {wire} (latency {part['latency']}), "
        f"exposed {part['exposed']} = {format_share(here.exposed[0] / here.step[0])}",
        f"{setting.mode} scaling; communication passes compute {met}; exposed {shows}",
        f"throughput {here.throughput[0]:.2f} x that of 8 ranks, efficiency "
        f"{format_share(here.efficiency[0])}; {result['tokens']:,} tokens per step on 8 ranks",
    ]


def alt(result):
    """What a reader who cannot see the picture needs."""
    return (
        f"Three panels under {result['setting'].mode} scaling: seconds of compute and of the gradient "
        "all_reduce against the number of ranks, with the N at which they meet marked, if there is one; "
        "throughput below the ideal line; and the exposed share of the step falling as the batch grows."
    )


data_parallel_knee = Lab("data_parallel_knee", compute, build, update, readout, alt, size=(9.6, 3.9))
