"""Samples that the cards of a host take against those that its workers prepare, and what each remedy does."""

import numpy as np

from labkit.practice.data_loading import REMEDIES, Host, host_demand, remedy, supply, workers_needed
from labkit.show import blocks, theme, ticks
from labkit.show.lab import Lab
from labkit.show.labels import EndLabels
from labkit.spec.checks import amount, whole
from labkit.spec.rule import counted
from labkit.units import digits, format_time

CARDS = np.arange(1, 17)
SAMPLES = 8  # of a card in a step
LEAST, MOST = 1, 50_000  # samples a second on the axis
TIMES = 100  # of the step, on the axis of the remedies
ROWS = ("as it is", *REMEDIES)


def compute(cards=8, workers=8, seconds=0.06, step=0.32, cores=64):
    """Supply and demand over the cards of a host, and the step with each remedy; seconds.

    ``seconds`` of a core for one sample; each card takes 8 samples in a ``step`` that does not wait.
    """
    cards, workers = whole(cards, "the cards of a host"), whole(workers, "the loader workers of a host", 0)
    step = float(amount(step, "the seconds of a step", arrays=False))
    host = Host(cards=cards, samples=SAMPLES, step=step, workers=workers, cores=cores, seconds=seconds)
    rate = SAMPLES / step
    return dict(
        host=host,
        rate=rate,
        demand=host_demand(CARDS, rate),
        supply=supply(workers, seconds, cores),
        needed=workers_needed(cards, rate, seconds),
        remedies=[remedy(host, name) for name in REMEDIES],
    )


def build(figure):
    """Left, samples a second over the cards of the host; right, the step as it is and with each remedy."""
    left, right = theme.axes(
        figure, 1, 2, left=0.085, right=0.965, bottom=0.16, top=0.89, wspace=0.75, width_ratios=(1.15, 1)
    )
    left.set(xlim=(1, 16.4), ylim=(LEAST, MOST), xlabel="cards of the host")
    left.set_xscale("log", base=2)
    left.set_xticks([1, 2, 4, 8, 16], ["1", "2", "4", "8", "16"])
    ticks.scale(left.yaxis, "number", log=10, most=5)
    left.minorticks_off()
    left.set_title("samples a second")
    lines = [
        left.plot([], [], color=theme.COLOURS[colour], lw=2.4, label=name)[0]
        for name, colour in (("cards take", "compute"), ("workers prepare", "input"))
    ]
    ticks.scale(right.xaxis, "number", log=10, most=3)
    right.set(xlim=(1, TIMES), ylim=(3.6, -0.6), xlabel="times a step that never waits")
    right.set_yticks(range(4), ["as it is", "more\nworkers", "on the\ncard", "encoded\ndata"])
    right.tick_params(axis="y", length=0)
    right.grid(False, axis="y")
    right.set_title("step, and seconds of it waited")
    return dict(
        lines=lines,
        labels=EndLabels(left, lines, gap=9),
        shade=blocks.patch(left, facecolor=theme.COLOURS["warning"], alpha=0.15),
        dot=left.plot([], [], "o", color=theme.COLOURS["text"], ms=8, zorder=5, clip_on=False)[0],
        bars=blocks.patch(right, facecolor=theme.COLOURS["input"]),
        numbers=blocks.Numbers(right, "right", fontsize=10.5),
        right=right,
    )


def update(artists, result):
    """Moves lines, dot and bars."""
    host, demand, level = result["host"], result["demand"], result["supply"]
    takes, prepares = artists["lines"]
    takes.set_data(CARDS, demand)
    prepares.set_data([1, 16], [level, level])
    artists["dot"].set_data([host.cards], [host_demand(host.cards, result["rate"])])
    starved = CARDS[demand > level]
    if starved.size:
        first = max(1.0, level / result["rate"])
        middle = np.array([(LEAST + MOST) / 2])
        path = blocks.rectangles(middle, np.array([first]), np.array([16.4]), MOST - LEAST)
    else:
        path = blocks.rectangles(*np.zeros((3, 1)), 0.0)
    artists["shade"].set_path(path)
    steps, waits = _steps(result)
    times = np.maximum(np.array(steps) / host.step, 1.02)
    row = np.arange(4.0)
    artists["bars"].set_path(blocks.rectangles(row, 1 + 0 * row, times, 0.6))
    said = [format_time(wait) if wait else "none" for wait in waits]
    artists["numbers"].set_numbers(row, times, times, said, [theme.COLOURS["text"]] * 4, 0.6)
    parts = ("dot", "shade", "bars", "numbers")
    return [*artists["lines"], *(artists[name] for name in parts), *artists["labels"].place()]


def _steps(result) -> tuple[list[float], list[float]]:
    """Seconds of the step and of its waiting, as it is and with each remedy."""
    host = result["host"]
    steps = [host.step + host.wait, *(one.step for one in result["remedies"])]
    return steps, [host.wait, *(one.host.wait for one in result["remedies"])]


def readout(result):
    """Supply and demand, waiting, and each remedy with its price."""
    host, rate = result["host"], result["rate"]
    demand = host_demand(host.cards, rate)
    steps, waits = _steps(result)
    left = f"{digits(demand)} samples/s taken, {digits(result['supply'])} prepared"
    share = waits[0] / steps[0]
    ways = [f"{one.name} {format_time(one.step)} ({one.price})" for one in result["remedies"]]
    few = " is a finding by itself" if host.workers <= 1 else ""
    return [
        f"{counted(host.cards, 'card')} x {digits(rate)} samples/s: {left}",
        f"a step takes {format_time(steps[0])}, of which {format_time(waits[0])} wait for input, "
        f"{digits(100 * share)} %",
        f"{counted(host.workers, 'worker')}{few}; {result['needed']:,} are needed, of {host.cores} cores",
        f"{ways[0]}; {ways[1]}",
        ways[2],
    ]


def alt(result):
    """What a reader who cannot see the picture needs."""
    return (
        "Left, on logarithmic axes, samples a second over the cards of a host: a rising line for what they "
        "take and a level one for what the workers prepare; right, the step as it is and with each remedy."
    )


loader_supply = Lab("loader_supply", compute, build, update, readout, alt, size=(9.4, 3.9))
