"""One synchronous step, rank by rank: own work, waiting for the last, exchange; all steps are equal (5.4)."""

import numpy as np
from matplotlib.patches import Patch

from labkit.course.chapter5_jobs import CASES, rank_seconds
from labkit.errors import InputRefused
from labkit.evidence.health import health
from labkit.evidence.measured import Measured
from labkit.show import blocks, theme, ticks
from labkit.show.lab import Lab
from labkit.show.sense import several_ranks
from labkit.units import format_share, format_time

MOST = 16
PARTS = {
    "own work": theme.COLOURS["compute"],
    "waiting for the last rank": theme.COLOURS["idle"],
    "all_reduce itself": theme.COLOURS["communication"],
}

# Where the three columns of numbers start, in shares of the axis.
COLUMNS = (1.025, 1.188, 1.367)


def compute(case="made up", n=8, slow=2.0, transfer=0.5):
    """Seconds of work, waiting and exchange of each rank, and what the scorecard makes of them."""
    if case not in CASES:
        raise InputRefused(f"there is no case {case!r}; choose one of {', '.join(CASES)}")
    several_ranks(n, MOST)
    if not (slow > 0 and transfer >= 0):
        raise InputRefused(
            "work and exchange take time; choose more than 0 for the one, at least 0 for the other"
        )
    work, waiting, exchange = rank_seconds(case, n, slow, transfer)
    step = work + waiting + exchange
    by_steps = health(Measured(rank_steps=step)).of("rank_spread")
    by_work = health(Measured(rank_steps=step, rank_work=work)).of("rank_spread")
    return dict(case=case, parts=(work, waiting, exchange), step=step, by_steps=by_steps, by_work=by_work)


def build(figure):
    """One row for each rank in shares of the step, and numbers beside it."""
    ax = theme.axes(figure, left=0.085, right=0.70, bottom=0.13, top=0.80)
    ticks.scale(ax.xaxis, "share")
    ax.spines["left"].set_visible(False)
    ax.tick_params(axis="y", length=0)
    ax.grid(False, axis="y")
    ax.set(xlim=(0, 1), xlabel="share of the step", yticks=[])
    key = [Patch(color=colour, label=name) for name, colour in PARTS.items()]
    where = dict(
        loc="upper left", bbox_to_anchor=(0.075, 0.995), handlelength=1.2, columnspacing=1.6, borderpad=0
    )
    figure.legend(handles=key, ncols=3, **where)
    for x, words in zip(COLUMNS, ("own work", "collective", "step"), strict=True):
        ax.text(x + 0.008, 1.035, words, transform=ax.transAxes, fontsize=11, color=theme.COLOURS["muted"])
    return dict(
        ax=ax,
        bars={name: blocks.patch(ax, facecolor=colour) for name, colour in PARTS.items()},
        end=ax.axvline(1, color=theme.COLOURS["text"], lw=2.0, clip_on=False),
        names=blocks.Numbers(ax, "left", fontsize=11),
        numbers=[blocks.Numbers(ax, "right", fontsize=11) for _ in range(3)],
        title=figure.text(0.085, 0.875, "", ha="left", va="center", fontsize=12),
    )


def update(artists, result):
    """Fills the rows; their heights follow the number of ranks, within fixed axes."""
    work, waiting, exchange = result["parts"]
    n, step = len(work), result["step"]
    row = (np.arange(n) + 0.5) / n
    start = np.zeros(n)
    artists["ax"].set_ylim(1, 0)
    for shape, seconds in zip(artists["bars"].values(), result["parts"], strict=True):
        stop = start + seconds / step
        shape.set_path(blocks.rectangles(row, start, stop, 0.72 / n))
        start = stop
    last = int(work.argmax())
    uneven = np.ptp(work) > 0
    colours = [theme.COLOURS["warning" if uneven and rank == last else "text"] for rank in range(n)]
    zero = np.zeros(n)
    artists["names"].set_numbers(row, zero, zero, [f"rank {rank}" for rank in range(n)], colours, 1 / n)
    for column, at, seconds in zip(
        artists["numbers"], COLUMNS, (work, waiting + exchange, step), strict=True
    ):
        column.set_numbers(row, zero + at, zero + at, [format_time(one) for one in seconds], colours, 1 / n)
    artists["title"].set_text(_title(result))
    return [*artists["bars"].values(), artists["names"], *artists["numbers"], artists["title"]]


def _title(result) -> str:
    spread = np.ptp(result["step"]) / result["step"].max()
    apart = result["by_work"]
    return f"steps {format_share(spread)} apart, own work {format_share(apart.value)} apart: {apart.verdict}"


def readout(result):
    """Steps, own work, time in the collective, and the two verdicts."""
    work, waiting, exchange = result["parts"]
    inside, step = waiting + exchange, result["step"]
    apart, uneven = result["by_work"], np.ptp(work) > 0
    shortest = f"shortest on rank {int(inside.argmin())}" if uneven else "alike on all"
    blamed = "which all wait for" if uneven else "nobody waits"
    spread = format_share(np.ptp(step) / step.max())
    return [
        f"{result['case']}: {len(work)} ranks, every step {_range(step)}, {spread} apart",
        f"own work {_range(work)}, {format_share(apart.value)} apart, {apart.limit}: {apart.verdict}",
        f"in the collective, waiting included, {_range(inside)}: {shortest}, {blamed}",
        f"the scorecard from the steps alone: {result['by_steps'].verdict}; from own work: {apart.verdict}",
    ]


def _range(seconds) -> str:
    low, high = format_time(seconds.min()), format_time(seconds.max())
    return low if low == high else f"{low} to {high}"


def alt(result):
    """What a reader who cannot see the picture needs."""
    last = int(result["parts"][0].argmax())
    return (
        f"A row for each of {len(result['step'])} ranks with own work, waiting and the all_reduce in shares "
        f"of the step; all rows end together, and rank {last}, which has the most work, waits least."
    )


rank_waiting = Lab("rank_waiting", compute, build, update, readout, alt, size=(9.4, 3.6))
