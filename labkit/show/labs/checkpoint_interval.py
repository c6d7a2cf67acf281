"""What saving costs against how often: saves on one side, work lost to failures on the other (6.3)."""

import numpy as np

from labkit.course.chapter6_saving import HOUR, format_clock
from labkit.practice.failures import daly_interval, job_mtbf, lost_share, parts_lost, young_interval
from labkit.show import theme, ticks
from labkit.show.lab import Lab
from labkit.show.labels import EndLabels
from labkit.units import format_share, format_time

INTERVALS = np.geomspace(60, 48 * HOUR, 240)
LEAST, MOST = 1e-4, 1.0
_MARKS = (60, 600, HOUR, 6 * HOUR, 48 * HOUR)


def compute(cards=1024, failures=0.17, save=36.0, restart=10, late=0):
    """Shares of a job's time that are lost over the interval between saves.

    ``failures``: of a card in a year; ``save``: seconds that a save stops the job; ``restart``: minutes after
    a failure until it trains again; ``late``: seconds until an asynchronous save is on disk.
    """
    mtbf = job_mtbf(failures, cards)
    rest = dict(restart=60.0 * restart, late=float(late))
    best = daly_interval(save, mtbf)
    parts = parts_lost(INTERVALS, save, mtbf, **rest)
    return dict(
        cards=cards,
        failures=failures,
        save=save,
        mtbf=mtbf,
        best=best,
        young=young_interval(save, mtbf),
        lost=lost_share(INTERVALS, save, mtbf, **rest),
        parts={**parts, "restarts": np.full(INTERVALS.size, parts["restarts"])},
        at_best=lost_share(best, save, mtbf, **rest),
        hourly=lost_share(HOUR, save, mtbf, **rest),
        best_parts=parts_lost(best, save, mtbf, **rest),
    )


def build(figure):
    """One chart on logarithmic axes: all that is lost, and its three parts."""
    ax = theme.axes(figure, left=0.105, right=0.815, bottom=0.17, top=0.9)
    ticks.scale(ax.yaxis, "share", log=10, most=5)
    ax.set_xscale("log")
    ax.set_xticks(_MARKS, [format_clock(mark) for mark in _MARKS])
    ax.minorticks_off()
    ax.set(xlim=(INTERVALS[0], INTERVALS[-1]), ylim=(LEAST, 1.3), xlabel="training between two saves")
    ax.set_title("share of the job's time that is lost")
    looks = (("all of it", "text"), ("saves", "input"), ("lost work", "warning"), ("restarts", "ideal"))
    lines = [
        ax.plot([], [], color=theme.COLOURS[colour], label=name, lw=2.8 if name == "all of it" else 1.8)[0]
        for name, colour in looks
    ]
    return dict(
        lines=lines,
        dot=ax.plot([], [], "o", color=theme.COLOURS["good"], ms=10, zorder=5, clip_on=False)[0],
        says=ax.text(0, 0, "", color=theme.COLOURS["good"], ha="center", va="top"),
        labels=EndLabels(ax, lines),
    )


def update(artists, result):
    """Moves the lines and the dot at the best interval."""
    series = [result["lost"], *result["parts"].values()]
    for line, share in zip(artists["lines"], series, strict=True):
        line.set_data(INTERVALS, share)
    inside = float(np.clip(result["best"], INTERVALS[0], INTERVALS[-1]))
    seen = INTERVALS[0] <= result["best"] <= INTERVALS[-1]
    artists["dot"].set_data([inside] if seen else [], [result["at_best"]] if seen else [])
    side = np.log(inside / INTERVALS[0]) / np.log(INTERVALS[-1] / INTERVALS[0])
    high = result["at_best"] < 0.5  # there is room above the valley
    off = "" if seen else ", off the axis"
    artists["says"].set(
        position=(inside, result["at_best"] * (1.7 if high else 0.72)),
        text=f"best: {format_clock(result['best'])}{off}",
        ha="left" if side < 0.15 else "right" if side > 0.85 else "center",
        va="bottom" if high else "top",
    )
    return [*artists["lines"], artists["dot"], artists["says"], *artists["labels"].place()]


def readout(result):
    """How often it fails, when to save, and what is lost then."""
    parts = ", ".join(f"{name} {format_share(share)}" for name, share in result["best_parts"].items())
    return [
        f"{result['cards']:,} cards of {result['failures']:g} failures a year: one every "
        f"{format_clock(result['mtbf'])}; a save stops the job for {format_time(result['save'])}",
        f"best interval: Young {format_clock(result['young'])}, Daly {format_clock(result['best'])}",
        f"lost there: {format_share(result['at_best'])} of the time; to first order {parts}",
        f"saved every hour instead: {format_share(result['hourly'])} lost",
    ]


def alt(result):
    """What a reader who cannot see the picture needs."""
    return (
        "The lost share of a job's time over the interval between saves, on log axes: saves fall with "
        "it, lost work rises, restarts are level, and their sum has a flat valley at "
        f"{format_clock(result['best'])}."
    )


checkpoint_interval = Lab("checkpoint_interval", compute, build, update, readout, alt, size=(9.2, 3.8))
