"""Section 3.3's pipelines: one schedule at one setting, and the tables of bubbles, memory and messages."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from labkit.strategies.pipeline import (
    SCHEDULES,
    Order,
    Run,
    StageTimes,
    peak_in_flight,
    schedule,
    sends,
    simulate,
    stage_times,
)

# The guide's boundary tensor: micro-batch 4, sequence 2048, hidden 5120, 2 bytes.
MODEL, MICRO_BATCH, SEQUENCE = "guide-13b", 4, 2048
# What a reader picks; with v above 1, 1F1B is interleaved.
CHOICES = tuple(name for name in SCHEDULES if name != "interleaved 1F1B")


class Bubble(NamedTuple):
    """Idle time in three measures, by the names that ``Run`` gives them."""

    share: float
    over_ideal: float
    rate: float


@dataclass(frozen=True, slots=True, eq=False)
class Case:
    """One schedule at one setting. Times are in forwards: the forward of one micro-batch on one rank is 1.

    ``chunks``: stages that each rank has; ``asked``: the micro-batches and chunks that were asked for.
    ``peak``: most micro-batches that each rank holds at once, shape (p,); ``crossings``: boundaries between
    ranks that a micro-batch crosses forward, as many again backward; ``ideal``: the step without any bubble,
    all work shared evenly.
    """

    name: str
    p: int
    m: int
    chunks: int
    asked: tuple[int, int]
    times: StageTimes
    order: Order
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
    has a fixed number, and micro-batches that are no multiple of p under interleaving.
    """
    name = "interleaved 1F1B" if schedule_name == "1F1B" and v > 1 else schedule_name
    chunks = SCHEDULES[name].chunks(v)
    used = max(1, (2 * m + p) // (2 * p)) * p if name == "interleaved 1F1B" else m
    times = stage_times(p * chunks, 1 / chunks, backward / chunks, transfer, head=head, spread=spread)
    order = schedule(name, p, used, chunks, times)
    run = simulate(order, *times)
    busy = run.busy
    idle, work = float((run.span - busy).sum()), float(busy.sum())
    bubble = Bubble(idle / (idle + work), idle / work, run.bubble_rate)
    crossings = int(sends(order)[:, 0].sum())
    return Case(
        name, p, used, chunks, (m, v), times, order, run, peak_in_flight(order), crossings, work / p, bubble
    )
