"""From the guide's first round to another plan of the same 64 sequences: which term gains, by what (5.5)."""

import re
from dataclasses import dataclass
from textwrap import shorten

import numpy as np

from labkit.course.chapter5_gain import said
from labkit.course.chapter5_rounds import BATCH, CARDS, FIRST, MODEL, cards, first_that_works
from labkit.errors import InputRefused
from labkit.planner.why import Difference, difference, named
from labkit.presets import model as load_model
from labkit.show import blocks, step_parts, theme, ticks
from labkit.show.lab import Lab
from labkit.spec import Plan
from labkit.spec.rule import Problem
from labkit.units import format_share, format_time

TERMS = ("compute", "bubble", "tp", "pp", "dp", "launch", "optimizer")
ROWS = np.arange(len(TERMS) + 2.0)
NAMES = ("round 1", *(step_parts.WORDS[term] for term in TERMS), "yours")
LONGEST, WIDE = 3.0, 5.7  # seconds: the bars end at the first; the axis has room for words
HEIGHT = 0.6


@dataclass(frozen=True)
class Result:
    """The plan that is compared with round 1, why it is not the one asked for, and the difference."""

    plan: Plan
    broken: Problem | None
    found: Difference


def compute(
    cluster="a100",
    tp=4,
    pp=4,
    v=2,
    micro_batch=2,
    zero=0,
    recompute="none",
    sequence_parallel=False,
) -> Result:
    """Round 1 (tp 4, pp 4, dp 2, m 16 x 2) and a plan with the other 32 / (tp pp) cards as replicas.

    A plan that cannot be is replaced by the first that the ways out of its broken rules lead to.
    """
    share = CARDS / (tp * pp)
    if share != int(share) and share > 1:
        raise InputRefused(f"tp {tp} x pp {pp} cards do not divide {CARDS}; choose powers of two.")
    machine = cards(cluster)
    if machine.n_gpus != CARDS:
        raise InputRefused(f"These are plans of {CARDS} cards; choose a cluster with nodes of eight.")
    asked = Plan(
        tp=tp,
        pp=pp,
        dp=max(1, int(share)),
        v=v,
        micro_batch=micro_batch,
        global_batch=BATCH,
        zero=zero,
        recompute=recompute,
        sequence_parallel=sequence_parallel,
    )
    plan, broken = first_that_works(machine, asked)
    return Result(plan, broken, difference(load_model(MODEL), machine, FIRST.plan, plan))


def build(figure):
    """A waterfall from above: the step of round 1, what each term adds or takes, the step of the plan."""
    ax = theme.axes(figure, left=0.115, right=0.985, bottom=0.12, top=0.89)
    ax.set(xlim=(0, WIDE), ylim=(ROWS[-1] + 0.55, -0.55), xlabel="seconds of a step")
    ax.xaxis.set_label_coords(0.263, -0.085)
    ticks.scale(ax.xaxis, "time")
    ax.set_xticks([0, 1, 2, 3])
    ax.set_yticks(ROWS, NAMES)
    ax.grid(False)
    ax.tick_params(axis="y", length=0)
    bold = dict(y=0.975, va="top", fontsize=11, weight="bold")
    return dict(
        ends=blocks.patch(ax, facecolor=theme.COLOURS["muted"]),
        less=blocks.patch(ax, facecolor=theme.COLOURS["good"]),
        more=blocks.patch(ax, facecolor=theme.COLOURS["warning"]),
        links=blocks.patch(ax, linewidth=1.0, fill=False, edgecolor=theme.COLOURS["muted"]),
        says=blocks.Numbers(ax, "right", fontsize=10.5),
        subject=figure.text(x=0.015, s="", ha="left", **bold),
        verdict=figure.text(x=0.985, s="", ha="right", **bold),
    )


def update(artists, result: Result):
    """Bars from where the one before ended, and the causes beside them."""
    found = result.found
    before, after = found.before.total, found.after.total
    changes = np.array([found.by_term[term] for term in TERMS])
    stops = np.minimum(before + np.cumsum(changes), LONGEST)
    starts = np.minimum(before + np.cumsum(changes) - changes, LONGEST)
    inner = ROWS[1:-1]
    for name, here in (("less", changes < 0), ("more", changes > 0)):
        artists[name].set_path(blocks.rectangles(inner[here], starts[here], stops[here], HEIGHT))
    ends = np.minimum([before, after], LONGEST)
    artists["ends"].set_path(blocks.rectangles(ROWS[[0, -1]], 0 * ends, ends, HEIGHT))
    joints = np.minimum(np.append(before, before + np.cumsum(changes)), LONGEST)
    artists["links"].set_path(blocks.rectangles(ROWS[:-1] + 0.5, joints, joints, 1 - HEIGHT))
    right = np.concatenate([ends[:1], np.maximum(starts, stops), ends[1:]])
    texts = [_ends(before), *(_cause(found, term) for term in TERMS), _ends(after)]
    artists["says"].set_numbers(ROWS, 0 * ROWS, right, texts)
    artists["subject"].set_text(said(result.plan))
    text, colour = _verdict(result)
    artists["verdict"].set(text=text, color=theme.COLOURS[colour])
    return list(artists.values())


def _ends(seconds: float) -> str:
    """The seconds of a whole step; an arrow where its bar is cut."""
    return f"{'→ ' if seconds > LONGEST else ''}{format_time(seconds)}"


def _cause(found: Difference, term: str) -> str:
    """The change of a term, and the one or two settings that do most of it, by their short names."""
    causes = found.causes(term)
    if not causes:
        return "as it was"
    short = dict(zip(found.settings, map(_short, found.fields), strict=True))
    total, most = _signed(found.by_term[term]), abs(causes[0][1])
    if len(causes) == 1:
        return f"{total}: {short[causes[0][0]]}"
    named = [f"{short[name]} {_signed(seconds)}" for name, seconds in causes[:2] if abs(seconds) > 0.1 * most]
    return f"{total}: {', '.join(named)}"


def _short(fields: tuple[str, ...]) -> str:
    """Settings that change together by the name of the first; of degrees, the cut."""
    return "the cut" if {"tp", "pp", "dp"} & set(fields) else named(fields[0])


def _signed(seconds: float) -> str:
    return f"{'+' if seconds >= 0 else '−'}{format_time(abs(seconds))}"


def _verdict(result: Result) -> tuple[str, str]:
    """How it compares with round 1, in words and as a colour."""
    found = result.found
    if result.broken:
        return "nearest possible plan", "warning"
    if not found.settings:
        return "as round 1", "text"
    share = found.total / found.before.total
    word = "longer" if share > 0 else "shorter"
    return f"{format_share(abs(share))} {word}", "warning" if share > 0 else "good"


def readout(result: Result) -> list[str]:
    """The plan, the two steps, and by setting what each changes in all."""
    found = result.found
    before, after = format_time(found.before.total), format_time(found.after.total)
    short = dict(zip(found.settings, map(_short, found.fields), strict=True))
    most, *rest = sorted(found.by_setting.items(), key=lambda pair: -abs(pair[1])) or [("no setting", 0.0)]
    others = ", ".join(f"{short[name]} {_signed(seconds)}" for name, seconds in rest)
    terms = [f"{step_parts.WORDS[term]} {_signed(found.by_term[term])}" for term in TERMS]
    return [
        f"{said(result.plan)}: {_verdict(result)[0]}",
        f"of {BATCH} sequences round 1 takes {before}, this plan {after}: {_signed(found.total)}",
        f"by term: {', '.join(terms[:4])}",
        f"{', '.join(terms[4:])}",
        f"by {most[0]}: {_signed(most[1])}",
        f"by others: {others or 'none differs'}",
        f"asked for: {_first_clause(result.broken.message)}" if result.broken else "the plan breaks no rule",
    ]


def _first_clause(text: str, most: int = 98) -> str:
    """As much of a message as one line of the readout takes."""
    return shorten(re.split("[;:] ", text)[0], most, placeholder=" ...")


def alt(result: Result) -> str:
    """What a reader who cannot see the picture needs."""
    found = result.found
    return (
        f"A waterfall from the step of the guide's round 1, {format_time(found.before.total)}, by what each "
        f"term adds or takes, to that of the plan {said(result.plan)}, {format_time(found.after.total)}; "
        "beside each term the settings that change it."
    )


plan_difference = Lab("plan_difference", compute, build, update, readout, alt, size=(9.6, 4.2))
