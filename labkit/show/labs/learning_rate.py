"""Learning rate and warm-up when the global batch changes: the rules, and a toy that tries them."""

from functools import lru_cache

import numpy as np

from labkit.practice.learning_rate import (
    RULES,
    rate_factor,
    rate_for_noise,
    samples_needed,
    steps_needed,
    warm_ups,
)
from labkit.practice.noisy_quadratic import METHODS, best_rate, loss_after
from labkit.show import theme, ticks
from labkit.show.lab import Lab
from labkit.show.labels import EndLabels
from labkit.spec.checks import whole
from labkit.units import digits

BATCHES = np.geomspace(16, 16384, 81)
SAMPLES = 2**14  # that the toy sees with either batch
TRIED = ("as it was", *RULES)
CURVES = (*RULES, "with noise")
HUE = {"linear": "compute", "square root": "good", "with noise": "tensor"}
WARM_HUE = ("warning", "muted", "good")
LEFT, MOST = 1e-5, 60.0  # of the axis of warm-up; of the toy's axis, above which a bar is cut off
GOOD = 1.25  # times the old loss: up to here a bar is green
ROWS = (0.0, 1.0, 2.0, 3.7, 4.7, 5.7)  # three of each method


def compute(batch=64, new_batch=512, warm_up=2000, steps=100_000, critical=4096):
    """From one global batch to another, in sequences; ``warm_up`` of ``steps`` steps with the old one.

    ``critical``: the critical batch of the real run, which the dashed curve bends at. The toy has its own.
    """
    batch, new_batch = whole(batch, "the batch"), whole(new_batch, "the new batch")
    return dict(
        batch=batch,
        new_batch=new_batch,
        warm_up=warm_up,
        steps=steps,
        critical=critical,
        factors={rule: rate_factor(batch, BATCHES, rule) for rule in RULES}
        | {"with noise": rate_for_noise(BATCHES, critical) / rate_for_noise(batch, critical)},
        chosen={rule: rate_factor(batch, new_batch, rule) for rule in RULES}
        | {"with noise": rate_for_noise(new_batch, critical) / rate_for_noise(batch, critical)},
        run=steps * batch / new_batch,
        warm_ups=warm_ups(warm_up, steps, batch, new_batch),
        steps_factor=steps_needed(new_batch, critical) / steps_needed(batch, critical),
        samples_factor=samples_needed(new_batch, critical) / samples_needed(batch, critical),
        toy={method: toy(batch, new_batch, method) for method in METHODS},
    )


@lru_cache(maxsize=256)
def toy(batch: int, new_batch: int, method: str) -> tuple[float, ...]:
    """Loss of the toy with the new batch over that with the old and its best rate, for each of ``TRIED``."""
    rate = _best(batch, method)
    before = loss_after(SAMPLES, batch, rate, method)
    factors = (1.0, *(rate_factor(batch, new_batch, rule) for rule in RULES))
    after = loss_after(SAMPLES, new_batch, rate * np.array(factors), method)
    return tuple((after / before).tolist())


@lru_cache(maxsize=64)
def _best(batch: int, method: str) -> float:
    return best_rate(SAMPLES, batch, method)


def build(figure):
    """Rules over the batch; warm-up as a share of the run; losses of the toy."""
    rules, warm, tried = theme.axes(
        figure,
        columns=3,
        left=0.062,
        right=0.985,
        bottom=0.17,
        top=0.87,
        wspace=0.46,
        width_ratios=(1.05, 1, 1),
    )
    for axis in (rules.xaxis, rules.yaxis):
        ticks.scale(axis, "number", log=2, most=5)
    rules.set(xlim=(16, 16384), ylim=(2**-5, 2**9), xlabel="global batch")
    rules.set_yticks([1 / 8, 1, 8, 64])
    rules.set_title("learning rate, times the old")
    for ax in (warm, tried):
        ax.spines["left"].set_visible(False)
        ax.tick_params(axis="y", length=0)
        ax.grid(False, axis="y")
    ticks.scale(warm.xaxis, "share", log=10, most=5)
    warm.set(xlim=(LEFT, 300), ylim=(2.5, -0.7), xlabel="beyond red the run is over")
    warm.set_xticks([1e-4, 1e-2, 1])
    warm.set_yticks([])
    warm.axvline(1, color=theme.COLOURS["warning"], lw=1.4, zorder=1)
    ticks.scale(tried.xaxis, "number", log=10, most=4)
    tried.set(xlim=(0.4, 700), ylim=(6.3, -1.3), xlabel="1: as good as the old batch")
    tried.set_xticks([1, 10, 100])
    tried.set_yticks(ROWS, TRIED * 2)
    tried.set_title("toy: loss, times the old")
    tried.axvline(1, color=theme.COLOURS["muted"], lw=1.2, ls="--", zorder=1)
    for y, method in zip((ROWS[0], ROWS[3]), METHODS, strict=True):
        tried.text(1.15, y - 0.55, method, va="bottom", color=theme.COLOURS["muted"], fontsize=10.5)
    lines = [
        rules.plot([], [], color=theme.COLOURS[HUE[name]], label=name, ls="--" if name not in RULES else "-")[
            0
        ]
        for name in CURVES
    ]
    thick = {"solid_capstyle": "butt", "zorder": 3}
    words = {"fontsize": 10.5, "bbox": {"facecolor": "white", "linewidth": 0, "pad": 0.8}}
    return dict(
        lines=lines,
        labels=EndLabels(rules, lines),
        here=[rules.axvline(64, color=theme.COLOURS["muted"], lw=1.2, ls=ls) for ls in (":", "--")],
        dots=[rules.plot([], [], "o", color=theme.COLOURS[HUE[name]], ms=8, zorder=5)[0] for name in CURVES],
        warm=[warm.plot([], [], lw=9, color=theme.COLOURS[hue], **thick)[0] for hue in WARM_HUE],
        warm_says=[warm.text(LEFT, y - 0.17, "", va="bottom", zorder=4, **words) for y in range(3)],
        run=warm.set_title(""),
        bars=[tried.plot([], [], lw=9, **thick)[0] for _ in ROWS],
        says=[tried.text(1, y, "", va="center", fontsize=10) for y in ROWS],
    )


def update(artists, result):
    """Curves, dots, bars and their words."""
    for line, dot, name in zip(artists["lines"], artists["dots"], CURVES, strict=True):
        line.set_data(BATCHES, result["factors"][name])
        dot.set_data([result["new_batch"]], [result["chosen"][name]])
    for line, batch in zip(artists["here"], (result["batch"], result["new_batch"]), strict=True):
        line.set_xdata([batch] * 2)
    for y, (bar, says, rule) in enumerate(
        zip(artists["warm"], artists["warm_says"], result["warm_ups"], strict=True)
    ):
        bar.set_data([LEFT, max(rule.share, LEFT)], [y, y])
        says.set_text(f"{rule.rule}: {_steps(rule.steps)}")
    losses = [loss for method in METHODS for loss in result["toy"][method]]
    for y, bar, says, loss in zip(ROWS, artists["bars"], artists["says"], losses, strict=True):
        end = min(loss, MOST)
        bar.set_data([1, end], [y, y])
        bar.set_color(theme.COLOURS["good" if loss <= GOOD else "warning"])
        says.set_text(_times(loss))
        says.set_x(max(end, 1.0) * 1.25)
    artists["run"].set_text(f"warm-up, of {_steps(result['run'])} steps")
    groups = ("lines", "dots", "here", "warm", "warm_says", "bars", "says")
    moved = (one for group in groups for one in artists[group])
    return [*moved, artists["run"], *artists["labels"].place()]


def _steps(steps: float) -> str:
    return f"{steps:,.0f}" if steps >= 10 else digits(steps)


def _times(loss: float) -> str:
    return f"{digits(loss)} x" if loss < 1000 else "diverges"


def readout(result):
    """The factors, the warm-ups, what the larger batch brings, and the toy."""
    batch, new, chosen = result["batch"], result["new_batch"], result["chosen"]
    warm = ", ".join(f"{_steps(w.steps)} {w.rule}" for w in result["warm_ups"])
    more, steps, samples = map(digits, (new / batch, result["steps_factor"], result["samples_factor"]))
    toys = [
        f"{method}, toy: loss "
        + ", ".join(f"{_times(loss)} {name}" for name, loss in zip(TRIED, result["toy"][method], strict=True))
        for method in METHODS
    ]
    return [
        f"global batch {batch:,} to {new:,}: learning rate x {digits(chosen['linear'])} linear, x "
        f"{digits(chosen['square root'])} square root, x {digits(chosen['with noise'])} by the noise",
        f"warm-up of {result['warm_up']:,} in {result['steps']:,}: {warm}, of {_steps(result['run'])} steps",
        f"critical batch {result['critical']:,}: {more} x the batch takes {steps} x the steps to the same "
        f"loss, {samples} x the samples",
        *toys,
    ]


def alt(result):
    """What a reader who cannot see the picture needs."""
    return (
        "Left, factors of the learning rate against the global batch on logarithmic axes: a steep straight "
        "line for the linear rule, half as steep for the square root, and one that bends level at the "
        "critical batch; middle, warm-up by three rules as a share of the run; right, losses of a toy with "
        f"each rule, by gradient and by sign descent, from batch {result['batch']} to {result['new_batch']}."
    )


learning_rate = Lab("learning_rate", compute, build, update, readout, alt, size=(9.8, 4.0))
