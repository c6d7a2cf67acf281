"""The best five plans of a model on a cluster: where their steps go, what their fullest cards hold."""

from dataclasses import dataclass, field, replace
from functools import lru_cache

import numpy as np

from labkit.evidence.best_plans import lead_of
from labkit.planner.search import plan_of, search
from labkit.planner.step import step_time
from labkit.presets import cluster as load_cluster
from labkit.presets import model as load_model
from labkit.show import blocks, step_parts, theme
from labkit.show.lab import Lab
from labkit.spec import Cluster, Plan, StepTime, Transformer
from labkit.spec.plan_words import said
from labkit.spec.rule import counted
from labkit.units import GB, format_bytes, format_share, format_time

# What a control has time for: equal stages in plain and interleaved 1F1B, context parallel as a ring, and
# sequence parallel wherever there is tensor parallel.
FEWER = {"schedule": "1f1b", "stage_layers": None, "context": "ring", "sequence_parallel": True}
YOURS = "yours"
COUNT = 5
ROWS = np.arange(float(COUNT))
TERMS = ("compute", "tp", "cp", "ep", "pp", "dp", "optimizer", "launch", "bubble")
CUT, WIDE = 1.3, 1.8  # times the first plan's step: bars end at the first, the axis has room for words
FULL, LETTERS = 1.35, 0.37  # times a card's memory: the axis has room for words, which are as wide
KEY = (0.037, 0.129, 0.207, 0.291, 0.370, 0.459, 0.579, 0.678, 0.774)  # where each term's square stands
HEIGHT, BELOW = 0.42, 0.14  # of a bar, and how far below the middle of its row: the plan's words are above


@dataclass(frozen=True)
class Timed:
    """One of the best plans, its step, and the bytes of its fullest card."""

    plan: Plan
    step: StepTime
    memory: float


@dataclass(frozen=True)
class Result:
    """What was searched, what is left of it, and the best of that; ``most``: bytes allowed of a card.

    ``table``: plans within ``most``; ``fitting``: how many fit the card.
    """

    model: Transformer
    machine: Cluster
    batch: int
    most: float
    table: object
    fitting: int
    best: tuple[Timed, ...]


@dataclass(frozen=True)
class _Key:
    """What ``_found`` remembers a cluster by."""

    name: str
    machine: Cluster = field(compare=False)


def compute(
    model="llama2-13b", cluster="h100", nodes=2, global_batch=512, most_GB=80.0, yours=None
) -> Result:
    """The best five of the plans of ``FEWER`` that take no more than ``most_GB`` of a card.

    ``yours``: a Cluster for ``cluster="yours"``, whose nodes are replaced; else a preset or a file.
    """
    own = cluster == YOURS and isinstance(yours, Cluster)
    machine = replace(yours, nodes=nodes) if own else load_cluster(cluster, nodes=nodes)
    key = _Key(f"{machine!r}", machine)
    shape, table = _found(model, key, global_batch)
    most = min(most_GB * GB, machine.gpu.usable)
    within = table[table["memory"].to_numpy() <= most]
    best = []
    for place in range(min(COUNT, len(within))):
        row = within.iloc[place]
        plan = plan_of(row)
        best.append(Timed(plan, step_time(shape, machine, plan), float(row["memory"])))
    return Result(shape, machine, global_batch, most, within, len(table), tuple(best))


@lru_cache(maxsize=32)
def _found(model: str, key: _Key, batch: int) -> tuple:
    """The model and the table of its plans: what does not hang on the limit of memory."""
    shape = load_model(model)
    return shape, search(shape, key.machine, batch, FEWER)


def build(figure):
    """Left: stacked bars of the five steps, the first = 1; right: memory of the fullest card, its limit."""
    step = theme.axes(figure, left=0.035, right=0.70, bottom=0.12, top=0.815)
    card = theme.axes(figure, left=0.725, right=0.985, bottom=0.12, top=0.815)
    step.set(xlim=(0, WIDE), xlabel="time of a step, the first plan = 1 (grey: within the model's error)")
    step.set_xticks([0, 0.25, 0.5, 0.75, 1, 1.25])
    step.set_yticks(ROWS, [str(int(row) + 1) for row in ROWS])
    card.set(xlim=(0, FULL), xlabel="of the fullest card's memory")
    card.set_xticks([0, 0.5, 1], ["0", "½", "1"])
    card.set_yticks([])
    for ax in (step, card):
        ax.set_ylim(COUNT - 0.45, -0.55)
        ax.grid(False)
        ax.tick_params(axis="y", length=0)
    for term, x in zip(TERMS, KEY, strict=True):
        figure.text(x, 0.9, "■", color=step_parts.COLOURS[term], va="center", fontsize=13)
        figure.text(x + 0.017, 0.9, step_parts.WORDS[term], va="center", fontsize=10)
    limit = dict(color=theme.COLOURS["warning"], ha="center", va="bottom", fontsize=10)
    bold = dict(y=0.98, va="top", fontsize=12, weight="bold")
    return dict(
        bars={term: blocks.patch(step, facecolor=step_parts.COLOURS[term]) for term in TERMS},
        near=step.axvspan(1, 1, color=theme.COLOURS["grid"], zorder=0.5, lw=0),
        held=blocks.patch(card, facecolor=theme.COLOURS["ideal"]),
        limit=card.axvline(1, color=theme.COLOURS["warning"], lw=1.6, zorder=4),
        said=card.text(1, 1.01, "limit", transform=card.get_xaxis_transform(), **limit),
        names=[step.text(0.006, row - 0.27, "", va="center", fontsize=10.5) for row in ROWS],
        says=blocks.Numbers(step, "right", fontsize=10.5),
        sizes=blocks.Numbers(card, "right", fontsize=10.5),
        subject=figure.text(x=0.015, s="", ha="left", **bold),
        verdict=figure.text(x=0.985, s="", ha="right", **bold),
    )


def update(artists, result: Result):
    """Fills the bars and the words; rows without a plan stay empty."""
    best, capacity = result.best, result.machine.gpu.usable
    rows = ROWS[: len(best)] + BELOW
    first = best[0].step.total if best else 1.0
    start = np.zeros(len(best))
    for term, patch in artists["bars"].items():
        stop = start + np.array([getattr(one.step, term) / first for one in best])
        patch.set_path(blocks.rectangles(rows, np.minimum(start, CUT), np.minimum(stop, CUT), HEIGHT))
        start = stop
    held = np.array([one.memory / capacity for one in best])
    artists["held"].set_path(blocks.rectangles(rows, 0 * held, held, HEIGHT))
    limit = result.most / capacity
    artists["limit"].set_xdata([limit] * 2)
    artists["said"].set_x(limit)
    words = [
        f"{'→ ' if end > CUT else ''}{format_time(one.step.total)}, {_speed(one)}"
        for one, end in zip(best, start, strict=True)
    ]
    error = result.machine.gpu.kernels.residual
    artists["near"].set_width(error)
    clear = np.clip(start, 1 + error, CUT)
    artists["says"].set_numbers(rows, 0 * rows, clear, words)
    right = np.where(held + LETTERS > limit, limit, held)  # words beside the line, not across it
    artists["sizes"].set_numbers(rows, 0 * rows, right, [format_bytes(one.memory) for one in best])
    for place, text in enumerate(artists["names"]):
        text.set_text(_words(best[place].plan) if place < len(best) else "")
    artists["subject"].set_text(_subject(result))
    text, colour = _verdict(result)
    artists["verdict"].set(text=text, color=theme.COLOURS[colour])
    single = ("near", "held", "limit", "said", "says", "sizes", "subject", "verdict")
    return [*artists["bars"].values(), *artists["names"], *(artists[name] for name in single)]


def _subject(result: Result) -> str:
    card = result.machine.gpu.name.split("-")[0]
    return f"{result.model.name} on {result.machine.n_gpus} × {card}, batch {result.batch}"


def _words(plan: Plan) -> str:
    """A plan in words, without what all have: sequence parallel beside tensor parallel, context as a ring."""
    return said(plan.changed(sequence_parallel=False)).replace(" ring", "")


def _speed(one: Timed) -> str:
    return f"{one.step.tokens_per_s_per_gpu:,.0f} tokens/s"


def _verdict(result: Result) -> tuple[str, str]:
    """How far the second is, in words and as a colour."""
    if not result.best:
        return "no plan fits", "warning"
    if len(result.best) == 1:
        return "one plan fits", "text"
    lead = lead_of(result.table)
    if lead.sure:
        return f"the second takes {format_share(lead.gap)} longer", "good"
    return f"{counted(lead.near, 'more plan')} within the model's error", "text"


def readout(result: Result) -> list[str]:
    """What was searched, the five plans, and how sure the first place is."""
    refused = result.table.attrs["refused"]
    rules = sum(number for name, number in refused.items() if name != "memory")
    lines = [
        f"{_subject(result)} x {result.model.sequence:,} tokens: {rules:,} plans break a rule, "
        f"{result.fitting:,} fit the card",
        f"within {format_bytes(result.most)} of a card: {len(result.table):,} plans; tokens/s are a GPU's",
    ]
    for place in range(COUNT):
        if place >= len(result.best):
            lines.append(f"{place + 1}: no further plan")
            continue
        one = result.best[place]
        figures = f"{format_time(one.step.total)}, {_speed(one)}, {format_bytes(one.memory)}"
        lines.append(f"{place + 1}: {_words(one.plan)}: {figures}")
    if len(result.best) < 2:
        return [*lines, f"{_verdict(result)[0]}: take more nodes, or a smaller batch"]
    lead = lead_of(result.table)
    how = "more" if lead.sure else "less"
    return [
        *lines,
        f"the second takes {format_share(lead.gap)} longer, {how} than the model's error of "
        f"{format_share(lead.error)}; {lead.near:,} more within it",
    ]


def alt(result: Result) -> str:
    """What a reader who cannot see the picture needs."""
    names = "; ".join(f"{_words(one.plan)} {format_time(one.step.total)}" for one in result.best)
    return (
        f"Stacked bars of the steps of the best plans of {_subject(result)}, by cause: "
        f"{names or 'none fits'}. Beside them bars of memory, with a line at the limit of "
        f"{format_bytes(result.most)}."
    )


your_plans = Lab("your_plans", compute, build, update, readout, alt, size=(9.8, 4.6))
