"""A job's step times, one by one and as a distribution, beside their mean; and who is late in each step."""

import numpy as np

from labkit.course.chapter6_scaling import ONE, RANKS, STEPS, made_steps
from labkit.evidence.triage import distribution
from labkit.show import blocks, theme, ticks
from labkit.show.lab import Lab
from labkit.show.labels import EndLabels
from labkit.units import format_share, format_time

SHOWN, LONGEST = 60, 3.6  # steps in the picture of arrivals; seconds on the axis
BINS = np.linspace(0, LONGEST, 37)
LINES = (("mean", "warning"), ("P50", "compute"), ("P99", "text"), ("max", "muted"))
CLOSE = 0.5  # seconds to which arrivals are drawn at least, so that mere scatter stays small
LATE = 0.1  # seconds behind the first rank from which a rank is drawn as late


def compute(share=0.5, ratio=2.0, cause=ONE):
    """Step times of a made-up job whose cause is known, and what is said of it without knowing that."""
    steps, work = made_steps(share, ratio, cause)
    return dict(steps=steps, work=work, found=distribution(steps, work))


def build(figure):
    """Steps in order, their counts beside them on the same axis, and a row of arrivals for each rank."""
    top, count = theme.axes(
        figure, 1, 2, left=0.075, right=0.96, bottom=0.5, top=0.92, wspace=0.26, width_ratios=(3, 1)
    )
    for ax in (top, count):
        ax.set_ylim(0, LONGEST)
        ticks.scale(ax.yaxis, "time", most=5)
    top.set(xlim=(0, STEPS), xlabel="step")
    ticks.scale(top.xaxis, "number", most=5)
    top.set_title("step times, and what a monitor may show of them")
    ticks.scale(count.xaxis, "share", most=4)
    count.set(xlim=(0, 1), xlabel="share of the steps")
    late = theme.axes(figure, left=0.075, right=0.96, bottom=0.12, top=0.33)
    late.set(xlim=(0, SHOWN), ylim=(RANKS - 0.4, -0.6), xlabel=f"step, the first {SHOWN}")
    late.set_yticks(range(0, RANKS, 2), [f"rank {rank}" for rank in range(0, RANKS, 2)])
    late.grid(False)
    late.tick_params(axis="y", length=0)
    late.set_title("how much later than the first each rank comes to the collective")
    lines = [
        top.plot([], [], color=theme.COLOURS[colour], lw=1.6, label=name, zorder=order)[0]
        for order, (name, colour) in zip((4, 3, 3, 3), LINES, strict=True)
    ]
    return dict(
        top=top,
        dots=top.plot([], [], ".", color=theme.COLOURS["measured"], ms=4)[0],
        lines=lines,
        labels=EndLabels(top, lines, fontsize=10.5),
        bars=blocks.patch(count, facecolor=theme.COLOURS["measured"]),
        mean=count.axhline(0, color=theme.COLOURS["warning"], lw=1.6),
        early=blocks.patch(late, facecolor=theme.COLOURS["compute"]),
        late=blocks.patch(late, facecolor=theme.COLOURS["warning"]),
    )


def update(artists, result):
    """Moves dots, lines and bars; the axes stay."""
    steps, facts = result["steps"], result["found"].summary
    artists["dots"].set_data(np.arange(STEPS) + 0.5, steps)
    for line, height in zip(
        artists["lines"], (facts.mean, facts.median, facts.p99, facts.longest), strict=True
    ):
        line.set_data([0, STEPS], [height, height])
    counts = np.histogram(steps, BINS)[0] / STEPS
    filled = counts > 0
    centre, half = (BINS[1:] + BINS[:-1]) / 2, (BINS[1] - BINS[0]) * 0.9
    artists["bars"].set_path(blocks.rectangles(centre[filled], 0 * counts[filled], counts[filled], half))
    artists["mean"].set_ydata([facts.mean, facts.mean])
    behind = (result["work"] - result["work"].min(axis=1, keepdims=True))[:SHOWN]
    most = max(np.ptp(result["work"], axis=1).max(), CLOSE)
    for name, mask in (("early", behind <= LATE), ("late", behind > LATE)):
        at, rank = np.nonzero(mask)
        width = np.clip(0.9 * behind[mask] / most, 0.06, 0.9)
        artists[name].set_path(blocks.rectangles(rank, at + 0.05, at + 0.05 + width, 0.72))
    moved = ("dots", "bars", "mean", "early", "late")
    return [*artists["lines"], *(artists[name] for name in moved), *artists["labels"].place()]


def readout(result):
    """The four figures, the modes, the rhythm, and what the slow steps have in common."""
    found = result["found"]
    facts = found.summary
    modes = ", ".join(f"{format_share(m.share)} around {format_time(m.seconds)}" for m in found.modes)
    slow = len(found.slow)
    rhythm = f"slow steps come back every {found.period}" if found.period else "slow steps have no rhythm"
    last = found.last
    return [
        f"{STEPS} steps, mean {format_time(facts.mean)}, P50 {format_time(facts.median)}, "
        f"P99 {format_time(facts.p99)}, max {format_time(facts.longest)}",
        f"{len(found.modes)} kind{'s' if found.bimodal else ''} of steps: {modes}",
        f"{slow} slow steps; " + (rhythm if slow else "so there is no cause to look for"),
        f"cause found: {found.cause or 'none'}; rank {last.rank} is last most often, in "
        f"{format_share(last.share)} of the {'slow ' if slow else ''}steps",
    ]


def alt(result):
    """What a reader who cannot see the picture needs."""
    kinds = "two bands" if result["found"].bimodal else "one band"
    return (
        f"Step times as dots in {kinds}, with lines for mean, median, P99 and maximum and a histogram beside "
        f"them; below, a row for each of {RANKS} ranks shows how late it comes to each step's collective."
    )


step_distribution = Lab("step_distribution", compute, build, update, readout, alt, size=(9.4, 5.2))
