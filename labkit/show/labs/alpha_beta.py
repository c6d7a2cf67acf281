"""Time against message size for one collective's algorithms: where alpha or B rules, and where they cross."""

import numpy as np

from labkit.collectives import ALGORITHMS, collective_cost, crossover
from labkit.errors import InputRefused
from labkit.show import theme, ticks
from labkit.show.lab import Lab
from labkit.show.labels import EndLabels
from labkit.show.sense import several_ranks, some_bytes
from labkit.spec import Link
from labkit.units import format_size, format_time, us, words

SIZES = 2.0 ** np.arange(10, 34.01, 0.25)
PIECES = {"1": 1, "best": None}
DRAWN = ("ring", "tree", "double_tree", "recursive_doubling", "halving_doubling", "pairwise")


def compute(op="all_reduce", n=8, size=2**20, alpha_us=5.0, bandwidth_GBps=50.0, segments="best"):
    """Seconds of every drawn algorithm over all sizes, and at ``size``, on links of alpha and B."""
    return _on_link(Link(alpha_us * us, bandwidth_GBps * 1e9), op, n, size, segments)


def compute_on_fit(fit, op="all_reduce", n=8, size=2**20, segments="best"):
    """The same on the link of one hop that a ``fit`` of a sweep implies."""
    algorithm = next(name for name in ("ring", "pairwise", "linear") if name in ALGORITHMS[fit.collective])
    return _on_link(fit.link(algorithm), op, n, size, segments) | {"fit": fit}


def _on_link(link, op, n, size, segments):
    several_ranks(n)
    some_bytes(size)
    if op not in ALGORITHMS or segments not in PIECES:
        raise InputRefused(f"{op!r} in {segments!r} segments is not drawn. Segments are '1' or 'best'.")
    pieces = PIECES[segments]
    names = [name for name in DRAWN if name in ALGORITHMS[op]]
    sizes = np.append(SIZES, float(size))  # one call an algorithm: the curve, and the marked size
    seconds = {name: collective_cost(op, name, sizes, n, link, pieces).seconds for name in names}
    curves, here = ({name: s[part] for name, s in seconds.items()} for part in (slice(-1), -1))
    best = min(here, key=here.get)
    switches = {
        name: crossover(op, name, "ring", n, link, segments=pieces)
        for name in names
        if "ring" in names and name != "ring"
    }
    return dict(
        op=op,
        n=n,
        size=float(size),
        curves=curves,
        here=here,
        best=best,
        switches=switches,
        fit=None,
    )


def build(figure):
    """One log-log panel; everything on it moves, the axes do not."""
    ax = theme.axes(figure, left=0.105, right=0.79, bottom=0.15, top=0.90)
    ticks.scale(ax.xaxis, "size", log=2, most=8)
    ticks.scale(ax.yaxis, "time", log=10, most=8)
    ax.set(xlim=(SIZES[0], SIZES[-1]), ylim=(1e-6, 1e2), xlabel="message size S", ylabel="time")
    ax.set_title("thick: the cheapest at S, with its time; diamonds: crossovers with the ring")
    lines = {name: ax.plot([], [], color=theme.COLOURS[name], label=words(name))[0] for name in DRAWN}
    artists = dict(
        ax=ax,
        lines=lines,
        here=ax.axvline(SIZES[0], color=theme.COLOURS["muted"], lw=1.2, ls="--"),
        dot=ax.plot([], [], "o", color=theme.COLOURS["text"], ms=7)[0],
        says=ax.text(0, 1.6e-6, "", color=theme.COLOURS["text"]),
        log=ax.plot([], [], ":", color=theme.COLOURS["measured"], lw=2.4, label="the log")[0],
        switch=ax.plot([], [], "D", color=theme.COLOURS["muted"], ms=7, mfc="white", mew=1.8)[0],
    )
    return artists | {
        "labels": EndLabels(ax, list(lines.values())),
        "log_says": ax.text(2**14, 1.0, "the log", color=theme.COLOURS["measured"], va="bottom", ha="right"),
    }


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
    crossings = np.array([x for x in result["switches"].values() if x >= SIZES[0]])
    crossings = crossings[crossings <= SIZES[-1]]
    ring = result["curves"].get("ring", np.full(SIZES.shape, np.nan))
    artists["switch"].set_data(crossings, np.exp(np.interp(np.log(crossings), np.log(SIZES), np.log(ring))))
    fit = result["fit"]
    for key in ("log", "log_says"):
        artists[key].set_visible(fit is not None)
    if fit is not None:
        artists["log_says"].set_y(1.5 * fit.predict(2.0**14))
        inside = (fit.range[0] <= SIZES) & (fit.range[1] >= SIZES)
        artists["log"].set_data(SIZES[inside], fit.predict(SIZES[inside]))
    labels = artists["labels"].place()
    moved = [artists[key] for key in ("log", "log_says", "here", "switch", "dot", "says")]
    return [*artists["lines"].values(), *labels, *moved]


def readout(result):
    """Times at S, the cheapest, the crossovers with the ring, and what a fitted log says of S."""
    times = [f"{words(name)} {format_time(t)}" for name, t in result["here"].items()]
    times.append(f"cheapest here: {words(result['best'])}")
    half = (len(times) + 1) // 2
    switches = ", ".join(f"{words(name)} {_up_to(x)}" for name, x in result["switches"].items())
    return [
        f"{_name(result['op'])}, N = {result['n']:,}, S = {format_size(result['size'])}: "
        f"{', '.join(times[:half])}",
        ", ".join(times[half:]),
        f"beats the ring up to: {switches}" if switches else "no ring among these algorithms",
        *([_of_the_log(result["fit"], result["size"])] if result["fit"] else []),
    ]


def _up_to(size: float) -> str:
    if 0 < size < np.inf:
        return format_size(round(size))
    return "never" if size == 0 else "always" if size == np.inf else "the same"


def _of_the_log(fit, size: float) -> str:
    """What the log's own pieces say, beside one straight line for each hop; or that they do not reach so "
    "far."""
    outside = fit.warn_outside(size)
    says = f"the log itself on its {fit.n_ranks} ranks, by its pieces: {format_time(fit.predict(size))}"
    return outside or f"{says}; one line a hop leaves changes of protocol out"


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
on_your_link = Lab("on_your_link", compute_on_fit, build, update, readout, alt)
