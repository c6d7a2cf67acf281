"""All plans of the guide's 13B on 32 cards: speed against memory, what limits each, and the front (5.5)."""

from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from matplotlib.patheffects import withStroke

from labkit.course.chapter5_gain import said
from labkit.course.chapter5_rounds import BATCH, FIRST, MODEL, SECOND, cards, third
from labkit.planner.ranking import front
from labkit.planner.search import LOSSES, plan_of, search
from labkit.planner.step import step_time
from labkit.presets import model as load_model
from labkit.show import step_parts, theme, ticks
from labkit.show.lab import Lab
from labkit.show.labels import spread
from labkit.spec import Cluster, Transformer
from labkit.units import GB, digits, format_bytes, format_rate, format_share, format_time

# What a slider has time for: equal stages in plain and interleaved 1F1B, no context parallel, and sequence
# parallel wherever there is tensor parallel.
FEWER = {"schedule": "1f1b", "stage_layers": None, "cp": 1, "sequence_parallel": True}
LIMITS = ("bubble", "tp", "dp", "pp", "launch", "optimizer")
MOST_GB, FASTEST = 92.0, 4200.0  # of the axes: GB of a card, tokens/s of a card
ROUNDS = ("1", "2", "3")
_ACROSS = "memory of the fullest card, GB (line: no other plan beats these in both; circles: the rounds)"
APART, CLOSE = 200.0, 3.0  # tokens/s between two numbers; GB between circles that would touch
_HALO = [withStroke(linewidth=3, foreground="white")]
_NUMBER = {"fontsize": 11, "weight": "bold", "zorder": 7, "path_effects": _HALO}
_LIMIT = {"ha": "center", "va": "bottom", "fontsize": 10}


@dataclass(frozen=True)
class Result:
    """The table, where its plans are within the limit of memory, and the guide's rounds as (GB, tokens/s)."""

    model: Transformer
    machine: Cluster
    batch: int
    most: float
    table: object
    front: object
    rounds: list[tuple[float, float]]

    @property
    def within(self) -> np.ndarray:
        """Which plans stay within the limit."""
        return self.table["memory"].to_numpy() <= self.most

    @property
    def best(self):
        """The fastest plan within the limit, a row of the table; None where there is none."""
        inside = np.flatnonzero(self.within)
        return self.table.iloc[inside[0]] if inside.size else None


def compute(global_batch=BATCH, sequence=2048, network=1.0, most_GB=80.0) -> Result:
    """Every plan of ``FEWER`` that fits the card; ``network``: times what a port of the A100 nodes reaches.

    ``most_GB``: what a plan may take of a card. The guide's rounds keep their own batches.
    """
    shape, machine, table, edge, rounds = _found(global_batch, sequence, network)
    return Result(shape, machine, global_batch, most_GB * GB, table, edge, rounds)


@lru_cache(maxsize=64)
def _found(batch: int, sequence: int, network: float) -> tuple:
    """What does not hang on the limit of memory."""
    shape, machine, rounds = _rounds(sequence, network)
    table = search(shape, machine, batch, FEWER)
    return shape, machine, table, front(table), rounds


@lru_cache(maxsize=64)
def _rounds(sequence: int, network: float) -> tuple:
    """Model and cluster; GB and tokens/s of a card in the guide's rounds, in buckets of the usual size."""
    shape, machine = replace(load_model(MODEL), sequence=sequence), cards()
    rate = network * machine.inter.bandwidth
    machine = replace(machine, inter=replace(machine.inter, bandwidth=rate))
    plans = [one.plan for one in (FIRST, SECOND, third())]
    unlike = ("micro_batch", "global_batch", "recompute")
    many = {name: np.array([getattr(plan, name) for plan in plans]) for name in unlike}
    step = step_time(shape, machine, plans[0].changed(**many))
    return shape, machine, list(zip(step.peak_memory / GB, step.tokens_per_s_per_gpu, strict=True))


def build(figure):
    """A cloud of plans with a colour for what limits them, the front as a line, marks for best and rounds."""
    ax = theme.axes(figure, left=0.09, right=0.975, bottom=0.13, top=0.80)
    ax.set(xlim=(0, MOST_GB), ylim=(0, FASTEST), xlabel=_ACROSS)
    ax.set_ylabel("tokens/s of a card")
    ticks.scale(ax.yaxis, "number")
    dots = {
        name: ax.plot(
            [], [], ls="", marker="s", ms=2.6, mec="none", color=step_parts.COLOURS[name], zorder=2
        )[0]
        for name in LIMITS
    }
    beyond = ax.plot([], [], ls="", marker="s", ms=2.6, mec="none", color=theme.COLOURS["ghost"], zorder=1)[0]
    edge = ax.plot([], [], color=theme.COLOURS["text"], lw=1.3, drawstyle="steps-post", zorder=3)[0]
    limit = ax.axvline(0, color=theme.COLOURS["warning"], lw=1.6, zorder=2.5)
    star = dict(ls="", marker="*", ms=17, mec="none", color=theme.COLOURS["text"], zorder=6)
    ring = dict(ls="", marker="o", ms=8, mec=theme.COLOURS["text"], mew=1.6, color="white", zorder=5)
    for x, name in zip(np.linspace(0.205, 0.88, len(LIMITS)), LIMITS, strict=True):
        figure.text(x, 0.87, "■", color=step_parts.COLOURS[name], va="center", fontsize=13)
        figure.text(x + 0.02, 0.87, step_parts.WORDS[name], va="center", fontsize=10)
    figure.text(0.09, 0.87, "limited by:", va="center", fontsize=10)
    above = ax.get_xaxis_transform()
    bold = dict(va="top", fontsize=12, weight="bold")
    return dict(
        dots=dots,
        beyond=beyond,
        edge=edge,
        limit=limit,
        said=ax.text(0, 1.01, "limit", color=theme.COLOURS["warning"], transform=above, **_LIMIT),
        best=ax.plot([], [], **star)[0],
        rounds=ax.plot([], [], **ring)[0],
        numbers=[ax.text(0, 0, name, va="center", **_NUMBER) for name in ROUNDS],
        subject=figure.text(0.015, 0.98, "", ha="left", **bold),
        chosen=figure.text(0.985, 0.98, "", ha="right", **bold),
    )


def _words(row) -> str:
    """The plan of a row; sequence parallel is said where there is tensor parallel."""
    plan = plan_of(row)
    return said(plan.changed(sequence_parallel=plan.tp > 1))


def update(artists, result: Result):
    """Moves the cloud, the front, the limit and the marks."""
    table, within, best = result.table, result.within, result.best
    x, y = table["memory"].to_numpy() / GB, table["tokens_per_s_per_gpu"].to_numpy()
    limits = table["limit"].cat.codes.to_numpy()
    for name, dots in artists["dots"].items():
        here = within & (limits == LOSSES.index(name))
        dots.set_data(x[here], y[here])
    artists["beyond"].set_data(x[~within], y[~within])
    edge = result.front.iloc[::-1]
    artists["edge"].set_data(edge["memory"].to_numpy() / GB, edge["tokens_per_s_per_gpu"].to_numpy())
    artists["limit"].set_xdata([result.most / GB] * 2)
    artists["said"].set_x(result.most / GB)
    star = [] if best is None else [(best["memory"] / GB, best["tokens_per_s_per_gpu"])]
    artists["best"].set_data(*np.reshape(star, (-1, 2)).T)
    artists["rounds"].set_data(*zip(*result.rounds, strict=True))
    heights = spread([speed for _, speed in result.rounds], APART, 0, FASTEST)
    for text, (held, speed), height in zip(artists["numbers"], result.rounds, heights, strict=True):
        close = (x for x, y in result.rounds if abs(x - held) < CLOSE and abs(y - speed) < APART)
        text.set_position((max(close) + 1.2, height))  # on no other circle
    artists["subject"].set_text(f"batch {result.batch} × {result.model.sequence}")
    artists["chosen"].set_text("none within the limit" if best is None else f"★ {_words(best)}")
    single = ("beyond", "edge", "limit", "said", "best", "rounds", "subject", "chosen")
    return [*artists["dots"].values(), *(artists[name] for name in single), *artists["numbers"]]


def readout(result: Result) -> list[str]:
    """What was searched, the best and how much it needs, what limits most plans, and the rounds."""
    table, best, within = result.table, result.best, result.within
    refused = table.attrs["refused"]
    rules = sum(number for name, number in refused.items() if name != "memory")
    counts = table["limit"].to_numpy()[within].astype(str)
    names, numbers = np.unique(counts, return_counts=True)
    order = np.argsort(-numbers, kind="stable")[:3]
    most = [f"{step_parts.WORDS[names[i]]} {format_share(numbers[i] / counts.size)}" for i in order]
    chosen = ["best: no plan stays within the limit", "so none is chosen"]
    if best is not None:
        speed = f"{format_time(best['seconds'])}, {best['tokens_per_s_per_gpu']:,.0f} tokens/s a card"
        chosen = [f"best: {_words(best)}", f"it takes {speed} and {digits(best['memory'] / GB)} GB of a card"]
    rounds = zip(ROUNDS, result.rounds, strict=True)
    return [
        f"{len(table):,} plans run, {refused.get('memory', 0):,} do not fit, {rules:,} break a rule; "
        f"ports of {format_rate(result.machine.inter.bandwidth)}",
        f"within {format_bytes(result.most)}: {within.sum():,} plans; on the front {len(result.front)}",
        *chosen,
        f"what limits most of them: {', '.join(most) or 'nothing'}",
        "the guide's rounds: "
        + ", ".join(f"{name}: {speed:,.0f} tokens/s at {held:.1f} GB" for name, (held, speed) in rounds),
    ]


def alt(result: Result) -> str:
    """What a reader who cannot see the picture needs."""
    best = result.best
    star = "no star" if best is None else f"a star on the best, {_words(best)}"
    return (
        f"A dot for each of {len(result.table):,} plans of the guide's 13B on 32 cards: memory of the "
        "fullest card against tokens per second of a card, coloured by what limits it; a line along the "
        f"plans that no other beats, circles for the guide's three rounds, and {star}."
    )


plan_search = Lab("plan_search", compute, build, update, readout, alt, size=(9.6, 4.4))
