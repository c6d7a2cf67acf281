"""The guide's 13B on 32 cards: where a step goes and what a card holds, beside the guide's three rounds."""

from dataclasses import dataclass
from functools import cache

import numpy as np

from labkit.course.chapter5_rounds import (
    BATCH,
    CARDS,
    FIRST,
    MODEL,
    SECOND,
    Round,
    cards,
    first_that_works,
    learning_rates,
    third,
)
from labkit.errors import InputRefused
from labkit.planner.memory import memory
from labkit.planner.step import BUCKET
from labkit.presets import model as load_model
from labkit.show import blocks, memory_parts, step_parts, theme
from labkit.show.lab import Lab
from labkit.spec import Cluster, Plan, StepTime
from labkit.spec.rule import Problem
from labkit.units import format_bytes, format_memory, format_share, format_size, format_time

TERMS = ("compute", "tp", "pp", "dp", "optimizer", "launch", "bubble")
ROWS = np.arange(4.0)
NAMES = ("yours", "round 1", "round 2", "round 3")
CUT, WIDE = 1.75, 2.55  # of round 1: the bars end here, and the axis, which has room for numbers
FULL, CARD_WIDE = 1.3, 1.8  # the same of a card's memory
HEIGHT, PALE = 0.62, 0.45  # of a bar; how much of its colour a round keeps
BATCH_64 = "64 / (m dp)"


@dataclass(frozen=True)
class Timed:
    """A plan with its step, and what the fullest card holds, in three sums."""

    plan: Plan
    step: StepTime
    held: dict[str, float]

    @property
    def per_token(self) -> float:
        """Seconds that a token takes of one card."""
        return 1 / self.step.tokens_per_s_per_gpu

    @property
    def bytes(self) -> float:
        """All bytes on the fullest card."""
        return sum(self.held.values())


@dataclass(frozen=True)
class Result:
    """The plan that is drawn, why it is not the one that was asked for, and the guide's rounds."""

    machine: Cluster
    yours: Timed
    bucket: float
    broken: Problem | None
    rounds: tuple[Timed, ...]

    @property
    def rows(self) -> tuple[Timed, ...]:
        """Yours and the rounds, from top to bottom."""
        return (self.yours, *self.rounds)

    @property
    def fits(self) -> bool:
        """Whether yours fits the card."""
        return self.yours.bytes <= self.machine.gpu.usable


def compute(
    cluster="a100",
    tp=4,
    pp=4,
    v=1,
    m=16,
    micro_batch=2,
    zero=0,
    recompute="none",
    bucket=BUCKET,
) -> Result:
    """The step and the memory of the guide's 13B on 32 cards; dp = 32 / (tp pp), batch = dp m micro-batch.

    ``micro_batch`` may be ``BATCH_64``: what a global batch of 64 leaves. A plan that cannot be is replaced
    by the nearest that can: the first way out that each broken rule offers.
    """
    machine = cards(cluster)
    batch = {"global_batch": BATCH} if micro_batch == BATCH_64 else {"micro_batch": micro_batch}
    share = CARDS / (tp * pp)
    if share != int(share) and share > 1:
        raise InputRefused(f"tp {tp} x pp {pp} cards do not divide {CARDS}; choose powers of two.")
    asked = Plan(
        tp=tp, pp=pp, v=v, dp=max(1, int(share)), accumulation=m, zero=zero, recompute=recompute, **batch
    )
    plan, broken = first_that_works(machine, asked)
    return Result(machine, _timed(machine, Round("yours", plan, bucket)), bucket, broken, _rounds(cluster))


@cache
def _rounds(cluster: str) -> tuple[Timed, ...]:
    """The guide's rounds on a preset cluster."""
    return tuple(_timed(cards(cluster), one) for one in (FIRST, SECOND, third()))


def _timed(machine: Cluster, one: Round) -> Timed:
    held = memory(load_model(MODEL), machine, one.plan).at_peak
    return Timed(one.plan, one.step(machine), {name: getattr(held, name) for name in memory_parts.SUMS})


def build(figure):
    """Left: card time of a token by cause, in multiples of round 1; right: memory of the fullest card."""
    step = theme.axes(figure, left=0.085, right=0.66, bottom=0.125, top=0.72)
    card = theme.axes(figure, left=0.695, right=0.985, bottom=0.125, top=0.72)
    step.set(xlim=(0, WIDE), xlabel="time of a token, round 1 = 1")
    step.set_xticks([0, 0.5, 1, 1.5])
    step.set_yticks(ROWS, NAMES)
    card.set(xlim=(0, CARD_WIDE), xlabel="of a card's memory")
    card.set_xticks([0, 0.5, 1], ["0", "½", "1"])
    card.set_yticks([])
    for ax in (step, card):
        ax.set_ylim(3.55, -0.55)
        ax.grid(False)
        ax.tick_params(axis="y", length=0)
        ax.axhline(0.5, color=theme.COLOURS["grid"], lw=1.0)
    step.axvline(1, color=theme.COLOURS["ghost"], lw=1.2, ls=(0, (3, 3)), zorder=0.5)
    card.axvline(1, color=theme.COLOURS["warning"], lw=1.6, zorder=4)
    card.legend(
        handles=memory_parts.key(memory_parts.SUMS),
        ncols=3,
        loc="lower left",
        bbox_to_anchor=(-0.02, 0.99),
        **_LEGEND,
    )
    bold = dict(va="top", fontsize=12, weight="bold")
    return dict(
        bars={term: _two(step, step_parts.COLOURS[term]) for term in TERMS},
        held={name: _two(card, memory_parts.COLOURS[name]) for name in memory_parts.SUMS},
        says=blocks.Numbers(step, "right", fontsize=10.5),
        sizes=blocks.Numbers(card, "right", fontsize=10.5),
        key=_key(figure),
        shares=figure.text(*_place(len(TERMS)), "", va="center", fontsize=10),
        subject=figure.text(0.015, 0.98, "", ha="left", **bold),
        verdict=figure.text(0.985, 0.98, "", ha="right", **bold),
    )


_LEGEND = {"fontsize": 10, "handlelength": 1, "columnspacing": 1, "handletextpad": 0.4, "borderpad": 0}


def _two(ax, colour):
    """Patches of one colour for the chosen plan and, paler, for the rounds."""
    return blocks.patch(ax, facecolor=colour), blocks.patch(ax, facecolor=colour, alpha=PALE)


def _place(i: int) -> tuple[float, float]:
    """Where the i-th entry of the key stands."""
    return 0.087 + 0.153 * (i % 4), (0.875, 0.805)[i // 4]


def _key(figure) -> dict:
    """A square, a name and a number for each term of the chosen plan, in two lines above the bars."""
    found = {}
    for i, term in enumerate(TERMS):
        x, y = _place(i)
        figure.text(x, y, "■", color=step_parts.COLOURS[term], va="center", fontsize=13)
        found[term] = figure.text(x + 0.017, y, "", va="center", fontsize=10)
    return found


def update(artists, result: Result):
    """Fills both groups of bars, the numbers beside them and the key."""
    unit, capacity = result.rounds[0].per_token, result.machine.gpu.usable
    parts = {
        term: [getattr(one.step, term) / one.step.total * one.per_token / unit for one in result.rows]
        for term in TERMS
    }
    ends = _fill(artists["bars"], parts, CUT)
    words = [
        f"{'→ ' if end > CUT else ''}{_speed(one)}, {format_time(one.step.total)}"
        for one, end in zip(result.rows, ends, strict=True)
    ]
    artists["says"].set_numbers(ROWS, 0 * ROWS, np.clip(ends, 1.0, CUT), words)  # right of the dashes
    held = {name: [one.held[name] / capacity for one in result.rows] for name in memory_parts.SUMS}
    full = _fill(artists["held"], held, FULL)
    words = [f"{'→ ' if end > FULL else ''}{format_bytes(end * capacity)}" for end in full]
    colours = [theme.COLOURS["warning" if end > 1 else "text"] for end in full]
    artists["sizes"].set_numbers(ROWS, 0 * ROWS, np.clip(full, 1.0, FULL), words, colours)
    step = result.yours.step
    for term, text in artists["key"].items():
        seconds = getattr(step, term)
        text.set_text(f"{step_parts.WORDS[term]} {format_time(seconds) if seconds else 'none'}")
    artists["shares"].set_text(f"communication {_shares(step)}")
    artists["subject"].set_text(_subject(result))
    artists["verdict"].set(text=_verdict(result)[0], color=theme.COLOURS[_verdict(result)[1]])
    patches = [patch for name in ("bars", "held") for pair in artists[name].values() for patch in pair]
    single = (artists[name] for name in ("says", "sizes", "shares", "subject", "verdict"))
    return [*patches, *artists["key"].values(), *single]


def _fill(patches: dict, parts: dict, most: float) -> np.ndarray:
    """Stacks the parts of all rows, cut at ``most``; returns where the bars end in truth."""
    start = np.zeros(ROWS.size)
    for name, pair in patches.items():
        stop = start + np.array(parts[name])
        low, high = np.minimum(start, most), np.minimum(stop, most)
        for patch, rows in zip(pair, (slice(0, 1), slice(1, None)), strict=True):
            patch.set_path(blocks.rectangles(ROWS[rows], low[rows], high[rows], HEIGHT))
        start = stop
    return start


def _subject(result: Result) -> str:
    plan = result.yours.plan
    cut = f"tp {plan.tp} × pp {plan.pp} × dp {plan.dp}" + (f", v {plan.v}" if plan.v > 1 else "")
    batch = f"m {plan.accumulation} × {plan.micro_batch}, batch {plan.global_batch}"
    return f"{cut}, {batch} on {result.machine.gpu.name.split('-')[0]}"


def _shares(step: StepTime) -> str:
    """Communication of the step, all of it and what shows."""
    return (
        f"{format_share(step.communication / step.total)}, {format_share(step.exposed / step.total)} exposed"
    )


def _verdict(result: Result) -> tuple[str, str]:
    """What to think of the plan, in words and as a colour."""
    if result.broken:
        return "impossible: shown is the nearest", "warning"
    if not result.fits:
        return "breaks no rule, does not fit", "warning"
    gain = result.rounds[0].per_token / result.yours.per_token - 1
    if abs(gain) < 5e-4:
        return "as round 1", "text"
    return (
        f"{100 * abs(gain):.1f} % {'faster' if gain > 0 else 'slower'} than round 1",
        "good" if gain > 0 else "warning",
    )


def readout(result: Result) -> list[str]:
    """The plan, what is wrong with it and the way out, the step, communication and memory."""
    plan, step, card = result.yours.plan, result.yours.step, result.machine.gpu
    left = card.usable - result.yours.bytes
    rounds = ", ".join(_speed(one) for one in result.rounds)
    return [
        f"{_subject(result)}, ZeRO-{plan.zero}, recompute {plan.recompute}, "
        f"buckets {format_size(result.bucket)}",
        *_judged(result),
        f"step {format_time(step.total)}, {_speed(result.yours)} a card, MFU {format_share(step.mfu)}; "
        f"the rounds: {rounds}",
        f"communication {_shares(step)}; bubble {format_share(step.bubble / step.total)} of the step",
        f"fullest card: {format_memory(result.yours.bytes)} of {format_bytes(card.usable)}, "
        f"{format_bytes(abs(left))} {'left' if left >= 0 else 'too much'}",
    ]


def _judged(result: Result) -> list[str]:
    """Two lines: what is wrong and what to do, or how good it is and what its batch means."""
    if result.broken:
        return [_short(f"impossible: {result.broken.message}"), _short(f"so: {result.broken.remedy}")]
    plan = result.yours.plan
    linear, root = learning_rates(plan.global_batch)
    return [
        f"by the model: {_verdict(result)[0]}",
        f"batch {plan.micro_batch} x {plan.accumulation} x {plan.dp} = {plan.global_batch}; a learning rate "
        f"that was right at {BATCH}: {linear} (linear) or {root} (square root)",
    ]


def _speed(one: Timed) -> str:
    return f"{one.step.tokens_per_s_per_gpu:,.0f} tokens/s"


def _short(text: str, most: int = 110) -> str:
    """The text in one line of the readout: whole clauses, as far as they go."""
    while len(text) > most:
        text = text[: max(text.rfind(mark, 0, most) for mark in ("; ", ", ", " ("))]
    return text


def alt(result: Result) -> str:
    """What a reader who cannot see the picture needs."""
    return (
        f"Stacked bars of the time that a token takes, by cause, for this plan and the guide's three rounds: "
        f"{', '.join(map(' '.join, zip(NAMES, map(_speed, result.rows), strict=True)))} a card; beside them "
        f"the memory of the fullest card, {format_bytes(result.yours.bytes)} for this plan."
    )


walkthrough = Lab("walkthrough", compute, build, update, readout, alt, size=(9.8, 4.0))
