"""Time against message size for one collective's algorithms: where alpha or B rules, and where they cross."""

import numpy as np

from labkit.collectives import ALGORITHMS, collective_cost, crossover
from labkit.show import theme, ticks
from labkit.show.lab import Lab
from labkit.show.labels import EndLabels
from labkit.show.sense import several_ranks, some_bytes
from labkit.spec import Link
from labkit.units import format_size, format_time, us

SIZES = 2.0 ** np.arange(10, 34.01, 0.25)
DRAWN = ("ring", "tree", "double_tree", "recursive_doubling", "halving_doubling", "pairwise")


def compute(op="all_reduce", n=8, size=2**20, alpha_us=5.0, bandwidth_GBps=50.0, segments="best", fit=None):
    """Seconds of every drawn algorithm over all sizes, and at ``size``.

    A ``fit`` of a sweep, if given, replaces alpha and B by the link of one hop that it implies.
    """
    several_ranks(n)
    some_bytes(size)
    link = fit.link("ring") if fit else Link(alpha_us * us, bandwidth_GBps * 1e9)
    pieces = None if segments == "best" else 1
    names = [name for name in DRAWN if name in ALGORITHMS[op]]
    sizes = np.append(SIZES, float(size))  # one call an algorithm: the curve, and the marked size
    seconds = {name: collective_cost(op, name, sizes, n, link, pieces).seconds for name in names}
    curves, here = ({name: s[part] for name, s in seconds.items()} for part in (slice(-1), -1))
    best = min(here, key=here.get)
    small = min(names, key=lambda name: curves[name][0])
    large = min(names, key=lambda name: curves[name][-1])
    switch = crossover(op, small, large, n, link, segments=pieces) if small != large else np.nan
    switch = switch if 0 < switch < np.inf else np.nan  # one of the two is never dearer
    return dict(
        op=op,
        n=n,
        size=float(size),
        curves=curves,
        here=here,
        best=best,
        small=small,
        large=large,
        switch=switch,
        rests_on=[fit.warn_outside(size) or "this size is one that the fit rests on"] if fit else [],
    )


def build(figure):
    """One log-log panel; everything on it moves, the axes do not."""
    ax = theme.axes(figure, left=0.105, right=0.79, bottom=0.15, top=0.90)
    ticks.scale(ax.xaxis, "size", log=2, most=8)
    ticks.scale(ax.yaxis, "time", log=10, most=8)
    ax.set(xlim=(SIZES[0], SIZES[-1]), ylim=(1e-6, 1e2), xlabel="message size S", ylabel="time")
    ax.set_title("thick: the cheapest at S, with its time; diamond: the crossover")
    lines = {
        name: ax.plot([], [], color=theme.COLOURS[name], label=name.replace("_", " "))[0] for name in DRAWN
    }
    return dict(
        ax=ax,
        lines=lines,
        labels=EndLabels(ax, list(lines.values())),
        here=ax.axvline(SIZES[0], color=theme.COLOURS["muted"], lw=1.2, ls="--"),
        dot=ax.plot([], [], "o", color=theme.COLOURS["text"], ms=7)[0],
        says=ax.text(0, 1.6e-6, "", color=theme.COLOURS["text"]),
        switch=ax.plot([], [], "D", color=theme.COLOURS["muted"], ms=7, mfc="white", mew=1.8)[0],
    )


def update(artists, result):
    """Moves the curves, the marker of S and the crossing."""
    for name, line in artists["lines"].items():
        line.set_visible(name in result["curves"])
        if name in result["curves"]:
            line.set_data(SIZES, result["curves"][name])
            line.set_linewidth(3.2 if name == result["best"] else 1.8)
    size, best = result["size"], result["here"][result["best"]]
    artists["here"].set_xdata([size, size])
    artists["dot"].set_data([size], [best])
    right = size < 2**27  # the marker's text goes to the side with more room
    artists["says"].set(text=f"  {format_time(best)}  ", x=size, ha="left" if right else "right")
    curve = result["curves"][result["large"]]
    crossing = np.isfinite(result["switch"]) and SIZES[0] <= result["switch"] <= SIZES[-1]
    artists["switch"].set_visible(bool(crossing))
    if crossing:
        height = np.exp(np.interp(np.log(result["switch"]), np.log(SIZES), np.log(curve)))
        artists["switch"].set_data([result["switch"]], [height])
    labels = artists["labels"].place()
    moved = [artists[key] for key in ("here", "switch", "dot", "says")]
    return [*artists["lines"].values(), *labels, *moved]


def readout(result):
    """Times at S, the cheapest, the crossover, and whether a fit covers S."""
    times = [f"{name.replace('_', ' ')} {format_time(t)}" for name, t in result["here"].items()]
    half = (len(times) + 1) // 2
    switch = (
        "no crossover"
        if not np.isfinite(result["switch"])
        else f"crossover at {format_size(round(result['switch']))}"
    )
    return [
        f"{_name(result['op'])}, N = {result['n']:,}, S = {format_size(result['size'])}: "
        f"{', '.join(times[:half])}",
        f"{', '.join(times[half:])}; cheapest here: {result['best'].replace('_', ' ')}",
        f"small messages: {result['small'].replace('_', ' ')}; large: {result['large'].replace('_', ' ')}; "
        f"{switch}",
        *result["rests_on"],
    ]


def _name(op: str) -> str:
    return "".join(part.capitalize() for part in op.split("_"))


def alt(result):
    """What a reader who cannot see the picture needs."""
    return (
        f"Time against message size, both logarithmic, for {len(result['curves'])} algorithms of "
        f"{_name(result['op'])} on {result['n']} ranks: flat where latency rules, rising in proportion "
        "where bandwidth rules."
    )


alpha_beta = Lab("alpha_beta", compute, build, update, readout, alt)
