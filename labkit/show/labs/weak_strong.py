"""One plan on ever more cards: strong and weak scaling from the same model, and where efficiency goes."""

from dataclasses import replace
from functools import lru_cache

import numpy as np
from matplotlib.patches import Patch

from labkit.errors import InputRefused
from labkit.practice.scaling import MODES, scaling_curves
from labkit.presets import cluster as load_cluster
from labkit.presets import model as load_model
from labkit.show import blocks, theme, ticks
from labkit.show.lab import Lab
from labkit.show.labels import EndLabels
from labkit.spec import Plan
from labkit.spec.rule import counted
from labkit.units import digits, format_bytes, format_share, format_time

MODEL = "gpt3-13b"
LARGEST = 1024  # cards
LINES = {"strong": theme.COLOURS["device"], "weak": theme.COLOURS["expert"]}
KEPT = theme.COLOURS["slack"]
SHOWN = {  # what the model of a step has; it knows no waiting
    "compute": theme.COLOURS["compute"],
    "update": theme.COLOURS["optimizer"],
    "bubble": theme.COLOURS["idle"],
    "inside": theme.COLOURS["intra"],
    "across": theme.COLOURS["inter"],
}
WORDS = {"inside": "communication inside nodes", "across": "across nodes"}


def compute(cluster="a100", tp=4, pp=1, batch=256, n=256, network=1.0):
    """13B (40 layers), ZeRO-1, micro-batches of 1, from one replica of tp x pp cards to 1,024 cards.

    ``batch``: the global batch of one replica; strong scaling keeps it. ``network``: times what a port has.
    """
    base = tp * pp
    if n < base or n % base or n > LARGEST:
        raise InputRefused(
            f"A replica takes {base} cards; N = {n} is no multiple of it. Choose N from {base} to {LARGEST}."
        )
    curves, lost = _curves(cluster, tp, pp, batch, network)
    at = int(np.argmin(np.abs(curves["weak"].cards - n)))
    setting = dict(cluster=load_cluster(cluster), tp=tp, pp=pp, batch=batch, n=n, network=network)
    return setting | dict(curves=curves, lost=lost, at=at)


@lru_cache(maxsize=128)
def _curves(cluster, tp, pp, batch, network):
    machine = load_cluster(cluster)
    port = replace(machine.inter, bandwidth=network * machine.inter.bandwidth)
    plan = Plan(tp=tp, pp=pp, zero=1, micro_batch=1, global_batch=batch)
    cards = plan.ranks * 2 ** np.arange(int(np.log2(LARGEST // plan.ranks)) + 1)
    curves = scaling_curves(load_model(MODEL), replace(machine, inter=port), plan, cards)
    return curves, {mode: curve.lost for mode, curve in curves.items()}


def build(figure):
    """Left, efficiency over cards; right, at N, what is kept and what is lost to which cause."""
    curve, split = theme.axes(
        figure, columns=2, left=0.07, right=0.965, bottom=0.15, top=0.80, wspace=0.32, width_ratios=(1, 1.05)
    )
    ticks.scale(curve.xaxis, "number", log=2, most=6)
    ticks.scale(curve.yaxis, "share")
    curve.set(xlim=(0.9, 1400), ylim=(0, 1.05), xlabel="cards N", title="efficiency against one replica")
    ticks.scale(split.xaxis, "share")
    split.set(xlim=(0, 1.001), ylim=(1.6, -0.6))
    split.set_yticks([0, 1], MODES)
    split.grid(False, axis="y")
    split.spines["left"].set_visible(False)
    split.tick_params(axis="y", length=0)
    split.set_xlabel("of the work of as many single replicas")
    key = [
        Patch(color=KEPT, label="efficiency"),
        *(Patch(color=c, label=WORDS.get(k, k)) for k, c in SHOWN.items()),
    ]
    figure.legend(
        handles=key,
        ncols=6,
        loc="upper left",
        bbox_to_anchor=(0.055, 1.0),
        handlelength=1.2,
        columnspacing=1.1,
        fontsize=10.5,
    )
    lines = [curve.plot([], [], "o-", ms=4, color=colour, label=mode)[0] for mode, colour in LINES.items()]
    return dict(
        lines=lines,
        labels=EndLabels(curve, lines, gap=8),
        here=curve.axvline(1, color=theme.COLOURS["muted"], lw=1.2, ls="--"),
        bars={
            name: blocks.patch(split, facecolor=colour, zorder=2)
            for name, colour in ({"kept": KEPT} | SHOWN).items()
        },
        title=split.set_title(""),
        says=[split.text(0.02, row, "", va="center", fontsize=12, zorder=4) for row in range(2)],
        below=[
            split.text(0.0, row + 0.36, "", va="top", fontsize=10.5, color=theme.COLOURS["muted"])
            for row in range(2)
        ],
    )


def update(artists, result):
    """Lines, the mark of N and both bars."""
    at, curves = result["at"], result["curves"]
    for line, mode in zip(artists["lines"], MODES, strict=True):
        line.set_data(curves[mode].cards, curves[mode].efficiency)
    artists["here"].set_xdata([result["n"]] * 2)
    parts = {"kept": np.array([curves[mode].efficiency[at] for mode in MODES])}
    parts |= {cause: np.array([result["lost"][mode][cause][at] for mode in MODES]) for cause in SHOWN}
    works = np.isfinite(parts["kept"])
    start = np.zeros(2)
    for name, patch in artists["bars"].items():
        # What is gained instead of lost would have no width.
        stop = start + np.maximum(np.where(works, parts[name], 0.0), 0.0)
        patch.set_path(blocks.rectangles(np.arange(2), start, stop, 0.56))
        start = stop
    artists["title"].set_text(f"at {counted(result['n'], 'card')}")
    for row, mode in enumerate(MODES):
        kept = format_share(parts["kept"][row]) if works[row] else "no work: fewer sequences than replicas"
        artists["says"][row].set_text(kept)
        artists["below"][row].set_text(f"global batch {int(curves[mode].batch[at]):,}" if works[row] else "")
    moved = [*artists["lines"], *artists["labels"].place(), *artists["bars"].values(), *artists["says"]]
    return [*moved, *artists["below"], artists["here"], artists["title"]]


def readout(result):
    """The base, both answers at N, and what is lost to what."""
    at, curves = result["at"], result["curves"]
    base = curves["weak"]
    return [
        f"13B (40 layers), {result['cluster'].name}, ports x {digits(result['network'])}; base: "
        f"{counted(int(base.cards[0]), 'card')}, batch {result['batch']:,}, step "
        f"{format_time(base.step.total[0])}, {_room(result)}",
        *(_answer(mode, curves[mode], at) for mode in MODES),
        *(_lost(mode, curves[mode], result["lost"][mode], at) for mode in MODES),
    ]


def _room(result) -> str:
    """What the base takes of a card: a replica that does not fit is a base on paper."""
    held, usable = float(result["curves"]["weak"].step.peak_memory[0]), result["cluster"].gpu.usable
    fits = "" if held <= usable else " (does not fit)"
    return f"{format_bytes(held)} of {format_bytes(usable)}{fits}"


def _answer(mode, curve, at) -> str:
    if not curve.works[at]:
        return f"{mode}: {curve.cards[at]:,} cards have no work, the batch has too few sequences"
    return (
        f"{mode}, {counted(int(curve.cards[at]), 'card')}: batch {int(curve.batch[at]):,}, step "
        f"{format_time(curve.step.total[at])}, {digits(curve.speedup[at])} x the throughput on "
        f"{digits(curve.cards[at] / curve.cards[0])} x the cards"
    )


def _lost(mode, curve, lost, at) -> str:
    if not curve.works[at]:
        return f"{mode}: nothing to split"
    parts = ", ".join(f"{name} {format_share(lost[name][at])}" for name in SHOWN)
    return f"{mode}: efficiency {format_share(curve.efficiency[at])}; lost: {parts}"


def alt(result):
    """What a reader who cannot see the picture needs."""
    return (
        "Left, efficiency against the number of cards: weak scaling stays high where strong scaling falls "
        f"away; right, for {counted(result['n'], 'card')}, two bars cut into the efficiency kept and what is "
        "lost to computing, update, bubble, communication inside and across nodes."
    )


weak_strong = Lab("weak_strong", compute, build, update, readout, alt, size=(9.8, 3.8))
