"""Section 6.3 as tables: memory in pieces, learning rate over the batch, scaling curves, a table of runs."""

from functools import cache

import numpy as np

from labkit.course import chapter1
from labkit.course.table import Table, table
from labkit.evidence.logged_run import LoggedRun
from labkit.evidence.runs_compare import Nearest, nearest
from labkit.evidence.runs_table import run_rows
from labkit.planner.step import step_time
from labkit.practice.allocator import (
    ALLOCATORS,
    WAYS,
    History,
    Job,
    batches,
    diagnose,
    draw_lengths,
    run_steps,
)
from labkit.practice.learning_rate import RULES, rate_factor, warm_ups
from labkit.practice.noisy_quadratic import METHODS, best_rate, loss_after
from labkit.practice.scaling import CAUSES, MODES, Curve, scaling_curves
from labkit.presets import cluster, model
from labkit.spec import Plan
from labkit.units import GB, MB, digits, format_bytes, format_share, format_time

# ---- memory in pieces (6.3-a, 6.3-i): the lab's job, 80 micro-batches of two sequences

ROOM, ENDLESS = 15 * GB, 1e12
LONGEST, ROWS = 8192, 2
SEGMENTS, EXPANDABLE = ALLOCATORS


def lengths() -> np.ndarray:
    """160 documents, half of them shorter than 1,500 tokens, none longer than 8,192."""
    return draw_lengths(160, 1500, LONGEST)


@cache
def ran(way="as they come", room=ROOM, allocator=SEGMENTS, leak=0.0, start=0) -> History:
    """The job with its batches made one way, in ``room`` bytes, from micro-batch ``start`` on."""
    made = batches(lengths(), ROWS, LONGEST, way)
    return run_steps(list(made.shapes[start:]), int(room), Job(leak=int(leak)), allocator)


def remedies_table() -> Table:
    """Claims 6.3-a and 6.3-i: what batches cost in padding, and what both allocators reserve for them."""
    rows = []
    for way in WAYS:
        made = batches(lengths(), ROWS, LONGEST, way)
        plain, pages = (ran(way, ENDLESS, name) for name in ALLOCATORS)
        rows.append(
            (
                way,
                len(made.shapes),
                len(set(made.shapes)),
                format_share(made.padding),
                format_bytes(plain.allocated.max()),
                f"{format_bytes(plain.reserved.max())}: x {digits(over(plain))}",
                f"{format_bytes(pages.reserved.max())}: x {digits(over(pages))}",
            )
        )
    heads = ("batches", "micro-batches", "shapes", "padding", "allocated", "reserved", "expandable segments")
    return table(heads, rows)


def over(history: History) -> float:
    """Reserved at most over allocated at most."""
    return history.reserved.max() / history.allocated.max()


def long_batch() -> History:
    """Batches of one length, and a single one eight times as long, in 80 % of the memory it needs."""
    need = run_steps(_LONG, int(ENDLESS), allocator=EXPANDABLE).allocated.max()
    return run_steps(_LONG, int(0.8 * need), allocator=EXPANDABLE)


_LONG = [(ROWS, 1024)] * 30 + [(ROWS, LONGEST)] + [(ROWS, 1024)] * 30
LEAK, LEAKING = 200 * MB, 20 * GB


def causes() -> dict[str, tuple[History, History]]:
    """Three runs that ended out of memory, each with what a restart after it brings."""
    pieces = ran()
    leak = ran(room=LEAKING, allocator=EXPANDABLE, leak=LEAK)
    long = long_batch()
    return {
        "lengths as they come": (pieces, ran(start=pieces.failed)),
        "200 MB kept a micro-batch": (leak, ran("as they come", LEAKING, EXPANDABLE, LEAK, leak.failed)),
        "one batch of 8,192": (long, run_steps(_LONG[long.failed + 1 :], long.capacity)),
    }


def causes_table() -> Table:
    """Claim 6.3-i: what tells fragmentation, a leak and a long batch apart; a restart does not."""
    rows = []
    for name, (history, again) in causes().items():
        found = diagnose(history)
        allocated, reserved = history.at_failure
        rows.append(
            (
                name,
                history.failed + 1,
                format_bytes(history.asked),
                format_bytes(history.capacity - allocated),
                format_bytes(reserved - allocated),
                format_bytes(found.grown),
                found.verdict,
                f"{len(again.allocated)} more run",
            )
        )
    heads = ("run", "failed at", "asked for", "not allocated", "of it in pieces", "held has grown by")
    return table((*heads, "so it is", "after a restart"), rows)


# ---- learning rate (6.3-c, 6.3-l)

BATCHES = (64, 512)
SAMPLES = 2**14  # that the toy sees
WARM_UP, STEPS = 2000, 100_000


def warm_up_table() -> Table:
    """Claim 6.3-l: 2,000 of 100,000 steps of warm-up at eight times the batch, by three rules."""
    batch, new = BATCHES
    rows = [
        (
            f.rule,
            f"{f.steps:,.0f}",
            f"{STEPS * batch / new:,.0f}",
            f"x {f.samples / WARM_UP / batch:g}",
            format_share(f.share),
        )
        for f in warm_ups(WARM_UP, STEPS, batch, new)
    ]
    return table(("warm-up", "steps", "of a run of", "samples", "share of the run"), rows)


def toy_table() -> Table:
    """Claim 6.3-l: both rules tried on both kinds of update, from a batch of 64 to one of 512."""
    rows = []
    for method in METHODS:
        rate = best_rate(SAMPLES, BATCHES[0], method)
        before = loss_after(SAMPLES, BATCHES[0], rate, method)
        factors = (1.0, *(rate_factor(*BATCHES, rule) for rule in RULES))
        losses = [loss_after(SAMPLES, BATCHES[1], rate * factor, method) / before for factor in factors]
        best = best_rate(SAMPLES, BATCHES[1], method) / rate
        rows.append((method, *(f"x {digits(loss)}" for loss in losses), f"x {digits(best)}"))
    named = (f"{rule} (x {digits(rate_factor(*BATCHES, rule))})" for rule in RULES)
    return table(("toy: loss, with the rate", "as it was", *named, "best rate"), rows)


# ---- scaling (6.3-g, 6.3-o)

MODEL, CARDS = "gpt3-13b", (8, 16, 32, 64, 128)
BASE = Plan(tp=8, micro_batch=1, global_batch=64)


@cache
def curves() -> dict[str, Curve]:
    """13B (40 layers), one replica on each node of eight A100, a global batch of 64 on the first."""
    return scaling_curves(model(MODEL), cluster("a100", nodes=16), BASE, list(CARDS))


def scaling_table() -> Table:
    """Claims 6.3-g and 6.3-o: both curves of one plan from one model."""
    rows = []
    for i, n in enumerate(CARDS):
        row = [n]
        for mode in MODES:
            curve = curves()[mode]
            row += [
                f"{int(curve.batch[i]):,}",
                format_time(curve.step.total[i]),
                format_share(curve.efficiency[i]),
            ]
        rows.append(row)
    heads = ["cards", *(f"{mode}: {what}" for mode in MODES for what in ("batch", "step", "efficiency"))]
    return table(heads, rows)


def lost_table() -> Table:
    """Where the efficiency of 128 cards goes."""
    shown = [cause for cause in CAUSES if cause != "waiting"]
    rows = [
        (
            mode,
            format_share(curve.efficiency[-1]),
            *(f"{100 * curve.lost[cause][-1]:.2f} %" for cause in shown),
        )
        for mode, curve in curves().items()
    ]
    return table((f"{CARDS[-1]} cards", "efficiency", *shown), rows)


def story() -> dict[str, np.ndarray]:
    """Chapter 1's throughput at 8, 16, 32 and 64 cards, over that of 8, under both kinds of scaling."""
    return {mode: chapter1.story(mode=mode).throughput for mode in MODES}


# ---- the table of runs (6.3-h, 6.3-r)

ABOVE = (1.08, 1.07, 1.09, 1.12, 1.15)  # invented: measured over predicted, a run


@cache
def example_runs() -> tuple[LoggedRun, ...]:
    """Five runs of 13B with invented step times, some percent above what was predicted."""
    machine, shape = cluster("a100", nodes=8), model(MODEL)
    tuned = BASE.changed(tp=4, dp=2, zero=1, micro_batch=1, global_batch=64)
    grown = [
        BASE.changed(dp=dp, micro_batch=1, global_batch=batch) for dp, batch in ((2, 128), (4, 256), (4, 64))
    ]
    runs = []
    for number, (plan, times) in enumerate(zip((BASE, *grown, tuned), ABOVE, strict=True), 1):
        step = step_time(shape, machine, plan)
        seconds = tuple(step.total * times * (1 + late) for late in (0.0, 0.0, 0.01, 0.02, 0.1))
        when = f"2026-01-0{number}T00:00:00.000000+00:00"
        runs.append(LoggedRun(number, f"{number:032x}", when, shape, machine, plan, seconds, step))
    return tuple(runs)


def run_table(runs=None) -> Table:
    """Claim 6.3-r: the columns of 6.3 and of 5.5, a row for every run of a log (or of the example)."""
    rows = [
        (
            row.number,
            row.settings,
            row.cards,
            format_time(row.step),
            format_time(row.p99),
            f"{row.per_card:,.0f}",
            "unknown" if row.exposed is None else f"{format_share(row.exposed)} ({row.share_from})",
            format_share(row.efficiency)
            + ("" if row.scaling == "base" else f" of run {row.base}, {row.scaling}"),
        )
        for row in run_rows(list(example_runs() if runs is None else runs))
    ]
    heads = ("run", "关键参数 settings", "cards", "单步时间 step", "P99", "tokens/s a card 每卡吞吐")
    return table((*heads, "通信占比 exposed", "扩展效率 efficiency"), rows)


def new_case() -> Nearest:
    """The earlier run of the example that a new case, tp 4 on 32 cards, is most like."""
    case = BASE.changed(tp=4, dp=8, zero=1, micro_batch=1, global_batch=64)
    return nearest(list(example_runs()), model(MODEL), cluster("a100", nodes=4), case)
