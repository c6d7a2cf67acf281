"""Section 3.3's pipelines: one schedule at one setting, and the tables of bubbles, memory and messages."""

from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

import numpy as np

from labkit.course.table import Table, table
from labkit.errors import InputRefused
from labkit.planner.stage_times import pipeline_times
from labkit.presets import cluster, published
from labkit.spec import Transformer
from labkit.strategies.pipeline import (
    SCHEDULES,
    Run,
    StageTimes,
    bubble_over_ideal,
    bubble_share,
    gpipe,
    interleaved,
    one_f_one_b,
    peak_in_flight,
    schedule,
    sends,
    simulate,
    stage_times,
)
from labkit.strategies.pipeline.order import check_counts, coded
from labkit.units import digits, format_share

# What a reader picks; with v above 1, 1F1B is interleaved.
CHOICES = tuple(name for name in SCHEDULES if name != "interleaved 1F1B")
GUIDE_SIZES = ((4, 4), (4, 16), (4, 24), (4, 32), (8, 32))
RATIOS = (1.0, 2.0, 3.0)  # backward : forward


class Bubble(NamedTuple):
    """Idle time in three measures, by the names that ``Run`` gives them."""

    share: float
    over_ideal: float
    rate: float


@dataclass(frozen=True, slots=True, eq=False)
class Case:
    """One schedule at one setting. Times are in forwards: the forward of one micro-batch on one rank is 1.

    ``chunks``: stages that each rank has; ``asked``: the micro-batches and chunks that were asked for;
    ``head``: the output head's forward, ``spread`` over all stages or on the last.
    ``peak``: most micro-batches that each rank holds at once, shape (p,); ``crossings``: boundaries between
    ranks that a micro-batch crosses forward, as many again backward; ``ideal``: the step without any bubble,
    all work shared evenly.
    """

    name: str
    p: int
    m: int
    chunks: int
    asked: tuple[int, int]
    head: float
    spread: bool
    times: StageTimes
    run: Run
    peak: np.ndarray
    crossings: int
    ideal: float
    bubble: Bubble

    @property
    def taken(self) -> str:
        """Why another number of micro-batches or chunks was taken than the one asked for; empty if none."""
        m, v = self.asked
        parts = []
        if self.m != m:
            parts.append(f"m = {self.m}, not {m}: interleaving needs a multiple of p = {self.p}")
        if self.chunks != v:
            has = "two chunks a rank" if self.chunks == 2 else "one stage a rank"
            parts.append(f"v = {self.chunks}, not {v}: {self.name} has {has}")
        return "; ".join(parts)


def pipeline_case(
    schedule_name="1F1B", p=4, m=8, v=1, backward=2.0, transfer=0.0, head=0.0, spread=False
) -> Case:
    """A schedule of ``CHOICES`` with forward 1; ``head``: the output head's forward, on the last stage.

    What a schedule cannot do is replaced by the nearest that it can, and ``taken`` says so: chunks where it
    has a fixed number, and micro-batches that are no multiple of p under interleaving. Refused: another
    schedule, counts that are not whole or below 1, and what ``stage_times`` refuses.
    """
    if schedule_name not in CHOICES:
        raise InputRefused(f"there is no schedule {schedule_name!r}; use one of {', '.join(CHOICES)}")
    check_counts(p, m, v)
    name = "interleaved 1F1B" if schedule_name == "1F1B" and v > 1 else schedule_name
    chunks = SCHEDULES[name].chunks(v)
    used = max(1, (2 * m + p) // (2 * p)) * p if name == "interleaved 1F1B" else m
    times = stage_times(p * chunks, 1 / chunks, backward / chunks, transfer, head=head, spread=spread)
    order = coded(schedule(name, p, used, chunks, times))
    run = simulate(order, *times)
    busy = run.busy
    idle, work = float((run.span - busy).sum()), float(busy.sum())
    bubble = Bubble(idle / (idle + work), idle / work, run.bubble_rate)
    crossings = int(sends(order)[:, 0].sum())
    peak = peak_in_flight(order)
    return Case(name, p, used, chunks, (m, v), head, spread, times, run, peak, crossings, work / p, bubble)


def simulated_bubbles(p: int, m: int) -> set[str]:
    """Idle time over step, both in units of forward + backward, for GPipe and 1F1B at each of ``RATIOS``.

    >>> simulated_bubbles(4, 24)
    {'3/27'}
    """
    found = set()
    for order in (gpipe, one_f_one_b):
        for ratio in RATIOS:
            run = simulate(order(p, m), 1.0, ratio)
            found.add("/".join(digits(seconds / (1 + ratio), 9) for seconds in (run.idle.mean(), run.span)))
    return found


def bubble_table(sizes=GUIDE_SIZES) -> Table:
    """Formula and simulation at the guide's sizes, and the other convention beside it."""
    rows = [
        (
            p,
            m,
            f"{p - 1}/{m + p - 1} = {format_share(bubble_share(p, m))}",
            ", ".join(simulated_bubbles(p, m)),
            f"{p - 1}/{m} = {format_share(bubble_over_ideal(p, m))}",
        )
        for p, m in sizes
    ]
    heads = ("p", "m", "(p-1)/(m+p-1) of the step", "simulated, all six", "(p-1)/m over the ideal")
    return table(heads, rows)


def schedules_table(p=4, m=16, v=2) -> Table:
    """Every schedule with a backward of 2, half of it the weights': step, bubbles, memory, messages."""
    rows = []
    for name in SCHEDULES:
        case = pipeline_case("1F1B" if name == "interleaved 1F1B" else name, p, m, 1 if name == "1F1B" else v)
        rows.append(
            (
                name,
                digits(case.run.span, 4),
                *(format_share(bubble) for bubble in case.bubble),
                ", ".join(digits(held, 4) for held in case.peak),
                case.crossings,
            )
        )
    heads = ("schedule", "step", "of the step", "over the ideal", "own wait", "held by rank", "crossings")
    return table(heads, rows)


def in_flight_table(p=4, counts=(4, 8, 16, 32, 64)) -> Table:
    """Micro-batches that each rank holds at most, GPipe and 1F1B, against m."""
    rows = [
        (
            m,
            *(
                ", ".join(digits(held) for held in peak_in_flight(order(p, m)))
                for order in (gpipe, one_f_one_b)
            ),
        )
        for m in counts
    ]
    return table(("m", "GPipe, rank 0 to 3", "1F1B, rank 0 to 3"), rows)


class Interleaving(NamedTuple):
    """What v chunks per rank change: the bubble, the boundaries crossed, and what the first rank holds."""

    bubble: float
    formula: float
    with_transfers: float
    crossings: int
    crossings_ratio: float
    peak_ratio: float


def interleaving(p=4, m=16, v=2, transfer=0.1) -> Interleaving:
    """1F1B with ``v`` chunks per rank, against one: exact where m is a multiple of p."""
    order, plain = interleaved(p, m, v), one_f_one_b(p, m)
    run, late = (simulate(order, 1 / v, 2 / v, c) for c in (0.0, transfer))
    crossings, before = (int(sends(one)[:, 0].sum()) for one in (order, plain))
    peak = peak_in_flight(order)[0] / peak_in_flight(plain)[0]
    return Interleaving(
        run.bubble, bubble_share(p, m, v), late.bubble, crossings, crossings / before, float(peak)
    )


def interleaving_table(p=4, m=16, chunks=(1, 2, 4), layers=32) -> Table:
    """What interleaving buys and costs."""
    rows = []
    for v in chunks:
        found = interleaving(p, m, v)
        rows.append(
            (
                v,
                format_share(found.formula),
                format_share(found.bubble),
                format_share(found.with_transfers),
                f"{found.crossings} = {digits(found.crossings_ratio)}x",
                f"{digits(found.peak_ratio, 4)}x",
                layers // (p * v),
            )
        )
    heads = (
        "v",
        "(p-1)/(m v+p-1)",
        "simulated",
        "with transfers of 0.1 forward",
        "boundaries crossed",
        "held by rank 0",
        "layers a chunk",
    )
    return table(heads, rows)


@cache
def published_rates() -> tuple[tuple[dict, float], ...]:
    """The rows of the zero-bubble paper's table 5, and our rate for each from a cluster preset.

    Layer times follow from the shape and what the A100 reaches, transfers from its links; the authors put
    the time of a middle stage into all stages, and so does this: two layers more, and no head.
    """
    rates = []
    for row in published("zero_bubble_rates"):
        p, v, m = row["p"], row["v"], row["m"]
        # The vocabulary does not count without a head; it is GPT-2's.
        whole = Transformer(
            row["model"], row["layers"] + 2, row["hidden"], row["heads"], 50257, row["sequence"]
        )
        times = pipeline_times(whole, cluster("a100"), p, v, micro_batch=row["micro_batch"], head="none")
        rates.append((row, simulate(interleaved(p, m, v), *times).bubble_rate))
    return tuple(rates)


def published_errors() -> np.ndarray:
    """Ours less the published rate, in percentage points."""
    return np.array([100 * (ours - row["bubble_rate"]) for row, ours in published_rates()])


def _closed_form_errors() -> np.ndarray:
    return np.array(
        [
            100 * (bubble_share(row["p"], row["m"], row["v"]) - row["bubble_rate"])
            for row, _ in published_rates()
        ]
    )


def published_table() -> Table:
    """Published bubble rates, ours from stage and transfer times, and the closed form without transfers."""
    rows = []
    for row, ours in published_rates():
        p, v, m = row["p"], row["v"], row["m"]
        shares = (row["bubble_rate"], ours, bubble_share(p, m, v))
        name = "1F1B" if v == 1 else f"interleaved, v = {v}"
        rows.append((row["model"], p, m, name, *(f"{100 * share:.1f} %" for share in shares)))
    off = {"labkit": published_errors(), "closed form": _closed_form_errors()}
    worst = (f"{np.median(abs(each)):.1f}, {abs(each).max():.1f} points" for each in off.values())
    rows.append(("all", "", "", "off by: median, worst", "", *worst))
    return table(("model", "p", "m", "schedule", "published", "labkit", "closed form"), rows)
