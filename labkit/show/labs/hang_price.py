"""What a hang costs against the timeout: one limit for the whole job, or a long and then a short one."""

import numpy as np

from labkit.course.chapter5_launch import card_hours
from labkit.show import theme, ticks
from labkit.show.lab import Lab
from labkit.show.labels import EndLabels
from labkit.spec.checks import amount, whole
from labkit.spec.rule import counted
from labkit.units import digits, format_share

LIMITS = np.geomspace(1, 120, 120)  # minutes
LEAST, MOST = 0.1, 4e6  # card-hours a month on the axis


def compute(cards=64, hangs=4, limit=30, late=15, short=5):
    """Card-hours that a month's ``hangs`` hangs of ``cards`` cards wait, over the limit in minutes.

    ``limit``: the single limit chosen; ``late``: minutes by which the slowest rank comes later than the first
    to the first collective (it loads a checkpoint, say): a limit below it ends every start; ``short``: the
    limit that two limits have once all ranks are there.
    """
    cards, hangs = whole(cards, "cards"), whole(hangs, "the hangs of a month")
    limit, late, short = (
        float(amount(minutes, name, arrays=False))
        for minutes, name in (
            (limit, "the limit"),
            (late, "the minutes that a rank is late"),
            (short, "the limit"),
        )
    )
    return dict(
        cards=cards,
        hangs=hangs,
        limit=limit,
        late=late,
        short=short,
        starts=limit > late,
        one=card_hours(LIMITS, cards, hangs),
        chosen=card_hours(limit, cards, hangs),
        two=card_hours(short, cards, hangs),
        each=card_hours(limit, cards),
        each_short=card_hours(short, cards),
    )


def build(figure):
    """One chart: card-hours a month over the limit; what lies below the late rank is shaded."""
    ax = theme.axes(figure, left=0.115, right=0.8, bottom=0.16, top=0.9)
    ticks.scale(ax.yaxis, "number", log=10, most=7)
    ax.set_xscale("log")
    marks = [1, 2, 5, 10, 30, 60, 120]
    ax.set_xticks(marks, [f"{mark} min" for mark in marks])
    ax.minorticks_off()
    ax.set(xlim=(LIMITS[0], 135), ylim=(LEAST, MOST), xlabel="timeout until the last rank is there")
    ax.set_title("card-hours that hangs cost in a month")
    lines = [
        ax.plot([], [], color=theme.COLOURS[colour], lw=2.4, label=label)[0]
        for colour, label in (("warning", "one limit"), ("good", "two limits"))
    ]
    shade = ax.axvspan(LIMITS[0], 15, color=theme.COLOURS["warning"], alpha=0.12, lw=0)
    return dict(
        lines=lines,
        dot=ax.plot([], [], "o", color=theme.COLOURS["text"], ms=9, zorder=5, clip_on=False)[0],
        shade=shade,
        says=ax.text(
            0, 0.96, "", transform=ax.get_xaxis_transform(), va="top", color=theme.COLOURS["warning"]
        ),
        labels=EndLabels(ax, lines),
    )


def update(artists, result):
    """Moves the lines, the shade and the dot."""
    one, two = artists["lines"]
    alive = result["late"] < LIMITS
    one.set_data(LIMITS[alive], result["one"][alive])
    two.set_data(LIMITS[alive], np.full(alive.sum(), result["two"]))
    artists["dot"].set_data([result["limit"]], [result["chosen"]])
    artists["shade"].set_width(max(result["late"], LIMITS[0]) - LIMITS[0])
    right = result["late"] > 6  # there is room for the words inside the shade
    artists["says"].set(
        text="no start succeeds " if right else " no start succeeds\n left of here",
        x=result["late"],
        ha="right" if right else "left",
    )
    return [*artists["lines"], artists["dot"], artists["shade"], artists["says"], *artists["labels"].place()]


def readout(result):
    """The price of a hang, of a month, and what a second limit saves."""
    starts = (
        f"the last rank comes {digits(result['late'])} min after the first: the limit of "
        f"{digits(result['limit'])} min "
    )
    saved = 1 - result["two"] / result["chosen"]
    return [
        f"{result['cards']:,} cards, one limit of {digits(result['limit'])} min: {_hours(result['each'])} a "
        f"hang, {_hours(result['chosen'])} a month of {counted(result['hangs'], 'hang')}",
        starts
        + ("lets the job start" if result["starts"] else "ends every start: no job, no bill for hangs"),
        f"two limits, {digits(result['short'])} min once all are there: {_hours(result['each_short'])} a "
        f"hang, {_hours(result['two'])} a month",
        f"the second limit saves {format_share(max(saved, 0.0))} of the hours"
        + ("" if saved > 0 else ": it is no shorter than the first"),
    ]


def alt(result):
    """What a reader who cannot see the picture needs."""
    return (
        "Card-hours a month against the timeout on logarithmic axes: with one limit a rising straight line, "
        "with a second, shorter limit a level line; limits shorter than the slowest rank's delay are shaded."
    )


def _hours(hours: float) -> str:
    return f"{hours:,.0f} card-hours" if hours >= 100 else f"{digits(hours)} card-hours"


hang_price = Lab("hang_price", compute, build, update, readout, alt)
