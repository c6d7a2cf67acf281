"""What fills a card: memory by part, a bar for every pipeline stage, against what the card leaves."""

from dataclasses import dataclass, replace

import numpy as np
from matplotlib.patches import Rectangle
from matplotlib.ticker import MaxNLocator

from labkit.errors import InputRefused
from labkit.planner.memory import ACTIVATIONS, LIBRARIES, PARTS, PASSING, STATES, Memory, memory
from labkit.presets import cluster as load_cluster
from labkit.presets import model as load_model
from labkit.show import blocks, memory_parts, theme, ticks
from labkit.show.lab import Lab
from labkit.spec import Cluster, Plan, Transformer, problems
from labkit.spec.rule import IMPOSSIBLE, counted
from labkit.spec.rules_batch import ENOUGH_MICRO_BATCHES
from labkit.units import GB, digits, format_bytes, format_memory, format_share

# What is kept for the backward pass: the plan's recompute, and whether attention is fused.
KEPT = {
    "none": ("none", True),
    "none, scores stored": ("none", False),
    "selective": ("selective", False),
    "full": ("full", True),
}
CUT, WIDE = 1.45, 1.5  # the bars end here, and the axis, in multiples of what the card leaves
SLOT, THICK = 0.76, 0.12  # a bar's share of its row, and the most, of the height of the picture
_GAP = 0.35  # between groups of parts, in rows
_FIRST = {group[0] for group in (ACTIVATIONS, PASSING, LIBRARIES)}
_ROW = np.arange(len(PARTS)) + _GAP * np.cumsum([part in _FIRST for part in PARTS])


@dataclass(frozen=True)
class Result:
    """The plan that was asked for, the words for what it keeps, and its memory."""

    model: Transformer
    machine: Cluster
    plan: Plan
    kept: str
    memory: Memory

    @property
    def unsharded(self) -> bool:
        """A stage of sharding was chosen, and there is one replica: nobody to share with."""
        return self.plan.zero > 0 and self.plan.dp == 1

    @property
    def left(self) -> float:
        """Bytes that the fullest stage leaves free; below 0 what it lacks."""
        return self.memory.capacity - self.memory.peak


def compute(
    model="llama2-13b",
    cluster="a100",
    n=16,
    tp=2,
    pp=4,
    zero=0,
    micro_batch=4,
    sequence=4096,
    recompute="none",
) -> Result:
    """Memory of every stage of a preset model on ``n`` cards: dp = n / (tp pp), 4 pp micro-batches a step.

    ``recompute``: one of ``KEPT``; sequence parallel comes with tensor parallel.
    """
    if recompute not in KEPT:
        raise InputRefused(f"recompute is {recompute!r}; choose one of {'; '.join(KEPT)}")
    if n < 1 or n % (tp * pp):
        raise InputRefused(
            f"A replica takes tp {tp} x pp {pp} = {tp * pp} cards; N = {n} is no multiple of it. "
            "Choose more cards or a smaller cut."
        )
    machine, of = load_cluster(cluster), replace(load_model(model), sequence=sequence)
    node = min(n, machine.gpus_per_node)
    machine = replace(machine, nodes=-(-n // node), gpus_per_node=node, domain=node)
    way, fused = KEPT[recompute]
    plan = Plan(
        tp=tp,
        pp=pp,
        dp=n // (tp * pp),
        zero=zero,
        micro_batch=micro_batch,
        accumulation=ENOUGH_MICRO_BATCHES * pp,
        recompute=way,
        fused_attention=fused,
        sequence_parallel=tp > 1,
    )
    for problem in problems(of, machine, plan):
        if problem.severity == IMPOSSIBLE:
            raise InputRefused(f"Impossible: {problem.message}. Choose another tp, pp or model.")
    return Result(of, machine, plan, recompute, memory(of, machine, plan))


def build(figure):
    """Left a bar for each stage, in multiples of the capacity; right the parts of the fullest, in rows."""
    stages = theme.axes(figure, left=0.085, right=0.48, bottom=0.125, top=0.83)
    parts = theme.axes(figure, left=0.77, right=0.905, bottom=0.125, top=0.83)
    stages.set(xlim=(0, WIDE), ylim=(1, 0))
    stages.set_xlabel("GB on a card of each stage", labelpad=20)
    parts.set(xlim=(0, 1), ylim=(_ROW[-1] + 0.6, -0.6), xlabel="share of the peak")
    ticks.scale(parts.xaxis, "share", most=2)
    parts.set_xticks([0, 0.5, 1])
    parts.set_yticks(_ROW, [memory_parts.WORDS[part] for part in PARTS])
    for ax in (stages, parts):
        ax.grid(False)
        ax.tick_params(axis="y", length=0)
    stages.set_xticks([])
    stages.set_yticks([])
    parts.tick_params(axis="y", pad=20)
    # A square before each name, so that a part of no bytes has its colour as well.
    square = dict(transform=parts.get_yaxis_transform(), clip_on=False)
    for row, part in zip(_ROW, PARTS, strict=True):
        colour = memory_parts.COLOURS[part]
        parts.add_patch(Rectangle((-0.16, row - 0.33), 0.08, 0.66, facecolor=colour, **square))
    bold = dict(transform=figure.transFigure, va="top", fontsize=12, weight="bold")
    above = dict(y=1.02, s="", va="bottom")
    return dict(
        grid=blocks.patch(stages, fill=False, linewidth=0.9, edgecolor=theme.COLOURS["grid"], zorder=0.5),
        bars={part: blocks.patch(stages, facecolor=memory_parts.COLOURS[part]) for part in PARTS},
        card=stages.axvline(1, color=theme.COLOURS["text"], lw=1.8, zorder=4),
        leaves=stages.text(x=1, transform=stages.get_xaxis_transform(), ha="center", **above),
        ticks=blocks.Numbers(stages, "below", fontsize=11),
        names=blocks.Numbers(stages, "left", fontsize=11),
        totals=blocks.Numbers(stages, "right", fontsize=11),
        fullest=parts.text(x=1.3, transform=parts.transAxes, ha="right", **above),
        pieces=parts.barh(_ROW, [0.0] * len(PARTS), 0.66, color=[memory_parts.COLOURS[p] for p in PARTS]),
        sizes=blocks.Numbers(parts, "right"),
        subject=figure.text(0.015, 0.975, "", ha="left", **bold),
        verdict=figure.text(0.985, 0.975, "", ha="right", **bold),
    )


def update(artists, result: Result):
    """Fills the bars of all stages and the rows of the fullest; limits stand in multiples of the capacity."""
    found, pp = result.memory, result.plan.pp
    middle, thick = (np.arange(pp) + 0.5) / pp, min(SLOT / pp, THICK)
    start = np.zeros(pp)
    for part, bar in artists["bars"].items():
        stop = start + found.parts[part] / found.capacity
        bar.set_path(blocks.rectangles(middle, np.minimum(start, CUT), np.minimum(stop, CUT), thick))
        start = stop
    artists["names"].set_numbers(middle, 0 * middle, 0 * middle, [f"stage {one}" for one in range(pp)])
    _fill_totals(artists["totals"], result, middle)
    most = WIDE * found.capacity / GB
    gb = MaxNLocator(6, steps=[1, 2, 5, 10]).tick_values(0, most)
    gb = gb[gb <= most]
    at = gb * GB / found.capacity
    artists["ticks"].set_numbers(0 * at + 1, at, at, map(digits, gb))
    artists["grid"].set_path(blocks.grid(at, [], (WIDE, 1)))
    artists["leaves"].set_text(f"{result.machine.gpu.name} leaves {format_memory(found.capacity)}")
    _fill_parts(artists, result)
    artists["subject"].set_text(_subject(result))
    artists["verdict"].set(text=_verdict(result), color=theme.COLOURS["good" if found.fits else "warning"])
    single = ("grid", "card", "leaves", "ticks", "names", "totals", "fullest", "sizes", "subject", "verdict")
    return [*artists["bars"].values(), *artists["pieces"], *(artists[name] for name in single)]


def _fill_totals(totals: blocks.Numbers, result: Result, middle) -> None:
    """The sum of each stage in a column; an arrow where the bar is cut."""
    found = result.memory
    over, fullest = found.total > CUT * found.capacity, found.fullest
    texts = [
        f"{'→ ' if cut else ''}{format_bytes(size)}{', peak' if stage == fullest else ''}"
        for stage, (size, cut) in enumerate(zip(found.total, over, strict=True))
    ]
    colours = [theme.COLOURS["text" if size <= found.capacity else "warning"] for size in found.total]
    totals.set_numbers(middle, 0 * middle, 0 * middle + WIDE, texts, colours)


def _fill_parts(artists, result: Result) -> None:
    """The fullest stage, a row for each part."""
    found = result.memory
    sizes = np.array([found.parts[part][found.fullest] for part in PARTS])
    for piece, share in zip(artists["pieces"], sizes / found.peak, strict=True):
        piece.set_width(share)
    words = [format_bytes(size) if size else "none" for size in sizes]
    colours = [theme.COLOURS["text" if size else "muted"] for size in sizes]
    artists["sizes"].set_numbers(_ROW, 0 * sizes, sizes / found.peak, words, colours)
    artists["fullest"].set_text(f"stage {found.fullest} by part: {format_memory(found.peak)}")


def _subject(result: Result) -> str:
    plan = result.plan
    cut = f"tp {plan.tp} × pp {plan.pp} × dp {plan.dp}"
    return f"{result.model.name} on {counted(plan.ranks, 'card')}, {cut}, {_sharding(result)}"


def _sharding(result: Result) -> str:
    """The stage of sharding, and where there is one replica, that it does nothing."""
    if result.unsharded:
        return f"ZeRO-{result.plan.zero}: dp 1, nothing is sharded"
    return f"ZeRO-{result.plan.zero}" if result.plan.zero else "nothing sharded"


def _verdict(result: Result) -> str:
    return f"{format_bytes(abs(result.left))} {'left' if result.memory.fits else 'too much'}"


def readout(result: Result) -> list[str]:
    """The setting, the peak against the card, the fullest stage in sums, and all stages together."""
    plan, found = result.plan, result.memory
    at = found.fullest
    states, held, passing, libraries = (
        found.sum(names)[at] for names in (STATES, ACTIVATIONS, PASSING, LIBRARIES)
    )
    flying = found.parts["in_flight"][at]
    mean, least = found.total.mean(), int(found.total.argmin())
    above = format_share(found.peak / mean - 1)
    verdict = "left" if found.fits else "too much"
    return [
        f"{_subject(result)}; {digits(result.model.layers / plan.pp)} layers a stage",
        f"micro-batch {plan.micro_batch} x {result.model.sequence:,} tokens, m = {plan.accumulation}, "
        f"recompute {result.kept}",
        f"peak: stage {at} with {format_memory(found.peak)} of {format_memory(found.capacity)}, "
        f"{format_memory(abs(result.left))} {verdict}",
        f"stage {at}: states {format_bytes(states)}, activations {format_bytes(held)} "
        f"({format_bytes(flying)} in flight), the rest {format_bytes(passing + libraries)}",
        f"mean of all stages ({plan.pp}) {format_bytes(mean)}, the peak {above} above it; emptiest: stage "
        f"{least}, {format_bytes(found.total[least])}",
    ]


def alt(result: Result):
    """What a reader who cannot see the picture needs."""
    found = result.memory
    fits = int((found.total <= found.capacity).sum())
    return (
        f"Memory by part, a bar for each of {counted(result.plan.pp, 'pipeline stage')}, against a line "
        f"at what the card leaves, {format_memory(found.capacity)}; {fits} of them end before it. Beside "
        f"them the parts of the fullest, stage {found.fullest}, {format_memory(found.peak)}, one in each row."
    )


memory_breakdown = Lab("memory_breakdown", compute, build, update, readout, alt, size=(9.8, 4.4))
