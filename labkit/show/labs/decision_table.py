"""The table of decisions: ten judgements with this model's numbers; rows that hold light up (section 5.2)."""

import re
import textwrap
from dataclasses import dataclass, replace

import numpy as np
from matplotlib.collections import PolyCollection
from matplotlib.colors import to_rgb

from labkit.planner.procedure import Procedure, named, procedure
from labkit.planner.procedure_rows import JUDGEMENTS
from labkit.presets import cluster as load_cluster
from labkit.presets import model as load_model
from labkit.show import blocks, theme
from labkit.show.lab import Lab
from labkit.spec import Cluster, Transformer
from labkit.spec.rule import counted
from labkit.strategies.pipeline import bubble_share
from labkit.units import digits, format_bytes, format_share

ROWS = np.arange(len(JUDGEMENTS))
# Places along the width, in inches of the figure: number, judgement, bar, answer, action.
NUMBER, WORDS, BAR, ANSWER, ACTION, END = 0.1, 0.4, 4.2, 5.78, 6.28, 9.4
MOST, PER_ROOM = 2.0, 0.5  # bars are cut at twice the room there is, which is so many inches
COMPARED = (0, 1, 2, 3, 4, 7)  # rows that compare bytes with the room for them
GAP = 0.05  # inches between the edge of a block and what blocks.Numbers writes beside it
WIDE = 41  # letters of an action on a line
LIT = 0.28 * np.array(to_rgb(theme.COLOURS["good"])) + 0.72
DARK = np.array(to_rgb("white"))


@dataclass(frozen=True)
class Result:
    """The model on its machine, and the table for it."""

    model: Transformer
    machine: Cluster
    found: Procedure


def compute(
    model="llama2-70b", cluster="a100", nodes=8, global_batch=512, micro_batch=1, sequence=4096
) -> Result:
    """The ten answers for a preset model, at any sequence length, on the nodes of a preset cluster."""
    shape, machine = replace(load_model(model), sequence=sequence), load_cluster(cluster, nodes=nodes)
    return Result(shape, machine, procedure(shape, machine, global_batch, micro_batch))


def build(figure):
    """A table without a grid: bands behind its rows, a bar of what each compares, and words."""
    ax = theme.axes(figure, left=0, right=1, bottom=0.005, top=0.855)
    ax.set(xlim=(0, END), ylim=(len(ROWS), 0))
    ax.axis("off")
    bands = ax.add_collection(PolyCollection([_band(i) for i in ROWS], edgecolor="white", lw=2.0))
    bar = blocks.patch(ax, facecolor=theme.COLOURS["activations"], zorder=2)
    over = blocks.patch(ax, facecolor=theme.COLOURS["warning"], zorder=2)
    # The line of what there is room for, beside the rows that compare bytes.
    pieces = [y for i in COMPARED for y in (i + 0.1, i + 0.9, np.nan)]
    line = ax.plot([BAR + PER_ROOM] * len(pieces), pieces, color=theme.COLOURS["text"], lw=1.2, zorder=3)[0]
    heads = {
        WORDS: "judgement, and its numbers here",
        BAR: "of its room",
        ANSWER: "holds",
        ACTION: "what to do",
    }
    for x, words in heads.items():
        figure.text(x / END, 0.868, words, color=theme.COLOURS["muted"], fontsize=10, va="bottom")
    return dict(
        bands=bands,
        bar=bar,
        over=over,
        line=line,
        number=blocks.Numbers(ax, "right", fontsize=10.5),
        judgement=blocks.Numbers(ax, "right", fontsize=10.5),
        times=blocks.Numbers(ax, "right", fontsize=9.5),
        condition=blocks.Numbers(ax, "right", fontsize=9.5),
        answer=blocks.Numbers(ax, "right", fontsize=10.5),
        action=blocks.Numbers(ax, "right", fontsize=9.5),
        subject=figure.text(0.013, 0.985, "", ha="left", va="top", fontsize=12, weight="bold"),
        title=figure.text(0.987, 0.985, "", ha="right", va="top", fontsize=12, weight="bold"),
    )


def update(artists, result: Result):
    """Lights the rows that hold, and fills in bars and words."""
    rows = result.found.rows
    holds = [row.holds for row in rows]
    artists["bands"].set_facecolor([LIT if one else DARK for one in holds])
    load = np.array([row.load for row in rows])
    within, beyond = np.clip(np.nan_to_num(load), 0, 1), np.clip(np.nan_to_num(load), 1, MOST)
    start, room = np.full(len(rows), BAR), BAR + PER_ROOM
    ends = BAR + PER_ROOM * beyond
    artists["bar"].set_path(blocks.rectangles(ROWS + 0.5, start, BAR + PER_ROOM * within, 0.34))
    artists["over"].set_path(blocks.rectangles(ROWS + 0.5, 0 * start + room, ends, 0.34))
    muted, text = theme.COLOURS["muted"], theme.COLOURS["text"]

    def write(name, lanes, x, words, colours):
        x = np.broadcast_to(np.asarray(x, float) - GAP, np.shape(lanes))
        artists[name].set_numbers(lanes, x, x, words, colours)

    write("number", ROWS + 0.31, NUMBER, [row.number for row in rows], muted)
    write("judgement", ROWS + 0.31, WORDS, [row.judgement for row in rows], text)
    write("condition", ROWS + 0.71, WORDS, [row.condition for row in rows], muted)
    times = [f"{digits(one, 2)} ×" if np.isfinite(one) else "" for one in load]
    write("times", ROWS + 0.5, ends + GAP, times, muted)
    colours = [theme.COLOURS["good"] if one else muted for one in holds]
    write("answer", ROWS + 0.5, ANSWER, ["yes" if one else "no" for one in holds], colours)
    lanes, words, shades = [], [], []
    for i, row in enumerate(rows):
        together = re.sub(r"(?<=\d) (?=GB|TB|MB|%)|(?<=bubble) ", "\u00a0", row.action)  # a number, its unit
        lines = textwrap.wrap(together, WIDE, break_on_hyphens=False)
        lanes += [i + 0.5] if len(lines) == 1 else [i + 0.3, i + 0.7]
        words += lines
        shades += [text if row.holds else muted] * len(lines)
    write("action", np.array(lanes), ACTION, words, shades)
    artists["subject"].set_text(_subject(result))
    artists["title"].set_text(_outcome(result))
    return list(artists.values())


def _band(i):
    return [(0.04, i), (END - 0.04, i), (END - 0.04, i + 1), (0.04, i + 1)]


def _subject(result: Result) -> str:
    cards = f"{result.machine.n_gpus:,} × {result.machine.gpu.name}"
    return f"{result.model.name}, {digits(result.model.parameters / 1e9)} B, on {cards}"


def _outcome(result: Result) -> str:
    plan = result.found.plan
    recompute = "" if plan.recompute == "none" else f", {plan.recompute} recompute"
    return f"{named(plan).replace(' x ', ' × ')}, stage {plan.zero}{recompute}"


def readout(result: Result) -> list[str]:
    """The plan, the rows that hold, the fullest rank, and the batch."""
    plan, held = result.found.plan, result.found.memory
    yes = ", ".join(str(row.number) for row in result.found.rows if row.holds)
    parts = (held.states, held.activations, held.others, held.total, result.machine.gpu.usable)
    states, activations, others, total, room = map(format_bytes, parts)
    bubble = f", bubble {format_share(bubble_share(plan.pp, plan.accumulation))}" if plan.pp > 1 else ""
    batch = f"{plan.global_batch:,} x {result.model.sequence:,} tokens a step"
    steps, replicas = counted(plan.accumulation, "micro-batch"), counted(plan.dp, "replica")
    return [
        f"{_subject(result)}: {_outcome(result)}",
        f"rows that hold: {yes}",
        f"fullest rank: states {states} + activations {activations} + {others} besides = {total} of {room}",
        f"{batch}: {steps} of {plan.micro_batch} on {replicas}{bubble}",
    ]


def alt(result: Result) -> str:
    """What a reader who cannot see the picture needs."""
    yes = [row.judgement.lower() for row in result.found.rows if row.holds]
    return (
        f"A table of ten judgements for {result.model.name}; these hold: {'; '.join(yes)}. It leads to "
        f"{_outcome(result)}."
    )


decision_table = Lab("decision_table", compute, build, update, readout, alt, size=(9.4, 4.9))
