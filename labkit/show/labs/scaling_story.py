"""Chapter 1 in three pictures on one N axis: throughput, the step in parts, and the monitoring panel."""

from dataclasses import replace

import numpy as np

from labkit.collectives.scaling import knee, scaling, what_it_takes
from labkit.course import chapter1
from labkit.errors import InputRefused
from labkit.presets import cluster as load_cluster
from labkit.show import theme, ticks
from labkit.show.lab import Lab
from labkit.show.labels import EndLabels
from labkit.show.sense import several_ranks
from labkit.units import GB, digits, format_rate, format_share, format_time

RANKS = 2 ** np.arange(3, 11)
PARTS = ("compute", "latency", "bandwidth", "contention")
TARGET = 0.8  # the efficiency that the last line of the readout asks for


def compute(
    cluster=chapter1.CLUSTER,
    ports=1.0,
    n=32,
    batch=chapter1.BATCH,
    gradient=20,
    mode="strong",
    bucket=0,
    overlap=0.0,
    taper=1.0,
):
    """One step of a 10 B parameter job on 8 to 1,024 ranks; ``batch`` is tokens per step on 8 ranks.

    ``bucket`` 0: the whole gradient in one message.
    """
    several_ranks(n)
    machine = load_cluster(cluster)
    machine = replace(machine, inter=replace(machine.inter, bandwidth=machine.inter.bandwidth * ports))
    if mode == "strong" and batch < n:
        raise InputRefused(
            f"{batch:,} tokens cannot be shared by {n:,} ranks. Choose a larger batch or fewer ranks."
        )
    changes = dict(mode=mode, bucket=bucket or None, overlap=overlap, taper=taper)
    setting = chapter1.setting(machine, batch, gradient * GB, **changes)
    return dict(
        machine=machine,
        setting=setting,
        n=n,
        rows=scaling(RANKS, machine, setting),
        here=scaling([8, n], machine, setting),
        knee=knee(machine, setting, largest=int(RANKS[-1])),
        takes=what_it_takes(machine, setting, n, TARGET),
    )


def build(figure):
    """Three panels over the same N."""
    grid = dict(left=0.055, right=0.9, bottom=0.16, top=0.87, wspace=0.3)
    speed, parts, panel = theme.axes(figure, columns=3, **grid)
    for ax in (speed, parts, panel):
        ticks.scale(ax.xaxis, "number", log=2, most=5)
        ax.set(xlim=(5.4, 1500), xlabel="ranks N")
    ticks.scale(speed.yaxis, "number", log=2, most=8)
    speed.set(ylim=(0.2, 180), title="throughput / that of 8")
    for ax, title in ((parts, "one step, longest = 100 %"), (panel, "shares of time")):
        ticks.scale(ax.yaxis, "share")
        ax.set(ylim=(0, 1.02), title=title)
    speed.plot(RANKS, RANKS / 8, color=theme.COLOURS["ideal"], ls="--", lw=1.4)
    speed.text(90, 24, "ideal", color=theme.COLOURS["muted"], ha="right")
    bars = {
        part: parts.bar(RANKS, np.zeros(len(RANKS)), width=RANKS * 0.5, color=theme.COLOURS[part], lw=0)
        for part in PARTS
    }
    lines = [
        panel.plot([], [], color=theme.COLOURS[colour], label=label)[0]
        for colour, label in (
            ("compute", "computing"),
            ("communication", "link busy"),
            ("muted", "efficiency"),
        )
    ]
    lines[-1].set(linestyle="--", linewidth=1.6)
    marks = [ax.axvline(8, color=theme.COLOURS["muted"], lw=1.1, ls=":") for ax in (speed, parts, panel)]
    return dict(
        bars=bars,
        lines=lines,
        marks=marks,
        speed=speed.plot([], [], "o-", color=theme.COLOURS["compute"], ms=4)[0],
        dot=speed.plot([], [], "o", color=theme.COLOURS["text"], ms=8)[0],
        knee=speed.axvline(8, color=theme.COLOURS["warning"], lw=1.4),
        knee_says=speed.text(
            0.98, 0.03, "", transform=speed.transAxes, ha="right", color=theme.COLOURS["warning"]
        ),
        names={
            part: parts.text(0, 0, "", ha="center", va="center", color="white", fontsize=11) for part in PARTS
        },
        panel_names=EndLabels(panel, lines),
    )


def update(artists, result):
    """Bars, curves, the marks of N and of the knee."""
    rows = result["rows"]
    scale = rows.exposed / np.maximum(rows.communication, 1e-30)  # what overlap hides is not part of the step
    low = np.zeros(len(RANKS))
    for part in PARTS:
        share = getattr(rows, part) * (1 if part == "compute" else scale) / rows.step.max()
        for bar, bottom, height in zip(artists["bars"][part], low, share, strict=True):
            bar.set(y=bottom, height=height)
        widest = int(np.argmax(share))
        name = artists["names"][part]
        name.set(text=part if share[widest] > 0.12 else "", rotation=90 if share[widest] > 0.3 else 0)
        name.set_position((RANKS[widest], low[widest] + share[widest] / 2))
        low = low + share
    artists["speed"].set_data(RANKS, rows.throughput)
    artists["dot"].set_data([result["n"]], [result["here"].throughput[1]])
    for line, share in zip(
        artists["lines"],
        (rows.compute_share, np.minimum(rows.link_share, 1), np.minimum(rows.efficiency, 1)),
        strict=True,
    ):
        line.set_data(RANKS, share)
    for mark in artists["marks"]:
        mark.set_xdata([result["n"]] * 2)
    found = np.isfinite(result["knee"])
    artists["knee"].set_visible(bool(found))
    if found:
        artists["knee"].set_xdata([result["knee"]] * 2)
    artists["knee_says"].set_text(f"knee at N = {result['knee']:.0f}" if found else "no knee")
    bars = [bar for part in PARTS for bar in artists["bars"][part]]
    single = [artists[key] for key in ("knee", "speed", "dot", "knee_says")]
    return [
        *bars,
        *artists["names"].values(),
        *artists["lines"],
        *artists["panel_names"].place(),
        *artists["marks"],
        *single,
    ]


def readout(result):
    """The step at N, term by term, and what became of the scaling."""
    here, setting, machine, n = result["here"], result["setting"], result["machine"], result["n"]
    knee_text = f"N = {result['knee']:.0f}" if np.isfinite(result["knee"]) else "none up to 1,024"
    return [
        f"{machine.name}, {format_rate(machine.node_bandwidth)} per node, {setting.mode} scaling: step at 8 "
        f"{format_time(here.step[0])}, at {n:,} {format_time(here.step[1])}",
        f"at {n:,}: compute {format_time(here.compute[1])}, latency {format_time(here.latency[1])}, "
        f"bandwidth {format_time(here.bandwidth[1])}, contention {format_time(here.contention[1])}, exposed "
        f"{format_time(here.exposed[1])}",
        f"throughput {here.throughput[1]:.2f} x that of 8 ranks, efficiency "
        f"{format_share(here.efficiency[1])}; knee: {knee_text}; computing "
        f"{format_share(here.compute_share[1])} of the step",
        _what_turns_it(result),
    ]


def _what_turns_it(result) -> str:
    """The single inputs that would make this N good, and those that cannot."""
    words = {
        "batch": "{} x the tokens",
        "bandwidth": "{} x the ports",
        "gradient": "1/{} of the gradient bytes",
    }
    takes = {name: word.format(digits(result["takes"][name])) for name, word in words.items()}
    takes["overlap"] = f"{digits(result['takes']['overlap'])} hidden"
    able = [text for name, text in takes.items() if np.isfinite(result["takes"][name])]
    if result["here"].efficiency[1] >= TARGET:
        return f"{format_share(TARGET)} efficiency is reached at {result['n']:,}"
    wanted = f"{format_share(TARGET)} efficiency at {result['n']:,} takes"
    return f"{wanted} one of: {'; '.join(able)}" if able else f"no single input gives {format_share(TARGET)}"


def alt(result):
    """What a reader who cannot see the picture needs."""
    return (
        f"Three panels against the number of ranks from 8 to 1,024 under {result['setting'].mode} scaling: "
        "relative throughput below the ideal line; the step cut into compute, latency, bandwidth and "
        "contention; the shares of time in which the GPU computes and the slowest link is busy, with the "
        "efficiency."
    )


scaling_story = Lab("scaling_story", compute, build, update, readout, alt, size=(9.6, 3.8))
