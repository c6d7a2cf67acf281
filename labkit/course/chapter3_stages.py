"""Section 3.3's stages: uneven ends, what they keep in memory, what they send, and the batch they ask for."""

from dataclasses import replace
from functools import cache
from typing import NamedTuple

import numpy as np

from labkit.course.chapter3_data import CARD
from labkit.course.table import Table, table
from labkit.evidence.pipeline_job import JobReport, run_job
from labkit.planner.activations import layer_activation_bytes
from labkit.planner.rank_parameters import rank_parameters
from labkit.planner.states import state_bytes
from labkit.planner.traffic import BillRow, Workload, pipeline_stage, tensor_parallel
from labkit.presets import cluster, model
from labkit.spec import Plan, problems
from labkit.spec.rule import Problem
from labkit.spec.rules_batch import ENOUGH_MICRO_BATCHES
from labkit.strategies.pipeline import bubble_share, one_f_one_b, simulate, stage_times
from labkit.units import digits, format_bytes, format_share

# The guide's model in four stages, and the vocabularies of a small and of a large tokenizer.
MODEL, STAGES = "guide-13b", 4
MICRO_BATCH = 4  # the guide's, of which one boundary tensor is 84 MB
HELD = 2  # sequences of a micro-batch in the memory table: with 4, 1F1B does not fit the card either
VOCABULARIES = (32_000, 128_256)
EVEN, SHIFTED = (8, 8, 8, 8), (8, 8, 9, 7)  # layers of each stage; one moved off the last


def head_layers(vocabulary: int) -> float:
    """The output head of the guide's model in layers, V/(12 h), for another vocabulary.

    >>> [round(head_layers(vocabulary), 2) for vocabulary in VOCABULARIES]
    [0.52, 2.09]
    """
    return replace(model(MODEL), vocabulary=vocabulary).head_in_layers


class Load(NamedTuple):
    """One cut of the layers: work of each stage in layers, its share wasted, and the step at a given m."""

    work: np.ndarray
    wasted: float
    step: float
    bubble: float


def load(layers=EVEN, head=0.0, spread=False, m=16) -> Load:
    """1F1B over stages of so many layers, the head's work on the last or spread evenly; in forward layers.

    ``wasted`` is the idle share that more micro-batches do not cure, the part of the ranks' time between two
    finished micro-batches in which they do not work. It is read off two simulated steps.
    """
    p, layers = len(layers), np.asarray(layers, float)
    times = stage_times(p, layers, 2 * layers, head=head, spread=spread)
    run, longer = (simulate(one_f_one_b(p, count), *times) for count in (m, 2 * m))
    per_micro_batch = (longer.span - run.span) / m
    work = times.forward + times.backward
    wasted = 1 - work.mean() / per_micro_batch
    return Load(times.forward, round(float(wasted), 9), run.span, run.bubble)


def load_table(m=16) -> Table:
    """What the output head costs by its place, for a small and a large vocabulary."""
    rows = []
    for vocabulary in VOCABULARIES:
        head = head_layers(vocabulary)
        for layers, spread in ((EVEN, False), (SHIFTED, False), (EVEN, True)):
            found = load(layers, head, spread, m)
            cut = "/".join(map(str, layers)) + (", head spread" if spread else "")
            work = " ".join(digits(one) for one in found.work)
            rows.append(
                (
                    f"{vocabulary:,}",
                    digits(head),
                    cut,
                    work,
                    format_share(found.wasted),
                    digits(found.step, 4),
                    format_share(found.bubble),
                )
            )
    heads = ("vocabulary", "head", "layers", "work of stages", "wasted", f"step, m = {m}", "bubble of it")
    return table(heads, rows)


def ends_table() -> Table:
    """Model states of the first, an inner and the last stage, 16 bytes per parameter; bf16 gradients."""
    rows = []
    for vocabulary in VOCABULARIES:
        for tied in (False, True):
            shape = replace(model(MODEL), vocabulary=vocabulary, tied=tied)
            plan = Plan(pp=STAGES, accumulation=16)
            states = [
                state_bytes(rank_parameters(shape, plan, stage).total)
                for stage in ("first", "interior", "last")
            ]
            shared = format_bytes(2 * shape.parts()["embedding"]) if tied else "none"
            rows.append((f"{vocabulary:,}", "tied" if tied else "two", *map(format_bytes, states), shared))
    return table(
        ("vocabulary", "matrices", "first stage", "interior", "last stage", "AllReduce between the ends"),
        rows,
    )


class Kept(NamedTuple):
    """Bytes on the first rank: states, one micro-batch's activations, one boundary tensor; and the card's."""

    states: float
    micro_batch: float
    boundary: float
    card: float

    def gpipe(self, m, recompute=False):
        """All m micro-batches; with recompute m boundary tensors and the working set of one micro-batch."""
        return self._with(np.asarray(m, float), recompute)

    def one_f_one_b(self, m, recompute=False):
        """As many micro-batches as there are stages."""
        return self._with(np.minimum(m, STAGES), recompute)

    def most_with_gpipe(self, recompute=False) -> int:
        """Micro-batches with which GPipe just fits the card."""
        room = self.card - self.states
        return int((room - self.micro_batch) // self.boundary if recompute else room // self.micro_batch)

    def _with(self, held, recompute):
        activations = held * self.boundary + self.micro_batch if recompute else held * self.micro_batch
        return self.states + activations


def kept() -> Kept:
    """The guide's model in four stages on an 80 GB card, micro-batch 2, attention scores never stored."""
    shape = model(MODEL)
    units = (shape.sequence, HELD, shape.hidden, shape.heads)
    layers = shape.layers // STAGES
    states = state_bytes(rank_parameters(shape, Plan(pp=STAGES, accumulation=16), "first").total)
    return Kept(
        states,
        layers * layer_activation_bytes(*units, recompute="selective"),
        layer_activation_bytes(*units, recompute="full"),
        CARD,
    )


def memory_table(counts=(4, 8, 16, 32, 64)) -> Table:
    """Bytes on the first rank against m, both schedules, with and without recompute; too much is marked."""
    found = kept()
    ways = [(way, again) for way in (found.gpipe, found.one_f_one_b) for again in (False, True)]
    rows = []
    for m in counts:
        sizes = [float(way(m, again)) for way, again in ways]
        rows.append(
            (m, *(format_bytes(size) + (" (too much)" if size > found.card else "") for size in sizes))
        )
    return table(("m", "GPipe", "GPipe, recompute", "1F1B", "1F1B, recompute"), rows)


def traffic_rows() -> tuple[BillRow, BillRow]:
    """What a rank sends for one micro-batch: over its boundaries, and for TP 8 of its eight layers."""
    shape = model(MODEL)
    layers = shape.layers // STAGES
    work = Workload(shape.parameters, layers, shape.hidden, shape.sequence, MICRO_BATCH, micro_batches=1)
    return pipeline_stage(work, STAGES)[0], tensor_parallel(work, 8)[0]


def traffic_table() -> Table:
    """The same in numbers."""
    rows = [
        (row.strategy, row.collective, format_bytes(row.payload), row.count, format_bytes(row.bytes_per_rank))
        for row in traffic_rows()
    ]
    return table(("strategy, 8 layers", "collective", "payload", "count per micro-batch", "sent"), rows)


def batch_floor(p: int, dp: int, micro_batch: int = 1) -> int:
    """The smallest global batch with m >= 4 p: 4 p x dp x micro-batch.

    >>> batch_floor(4, 2), batch_floor(16, 2)
    (32, 128)
    """
    return ENOUGH_MICRO_BATCHES * p * dp * micro_batch


def batch_table(dp=2, stages=(2, 4, 8, 16)) -> Table:
    """The bubble at m = p, 4 p and 8 p, and the global batch that 4 p asks for at micro-batch 1."""
    rows = [
        (p, *(format_share(bubble_share(p, times * p)) for times in (1, 4, 8)), batch_floor(p, dp))
        for p in stages
    ]
    return table(("p", "m = p", "m = 4 p", "m = 8 p", f"global batch for 4 p, dp {dp}"), rows)


def few_micro_batches(p: int = 4, m: int = 8, dp: int = 2) -> Problem:
    """What the planner's rules say of a pipeline with ``m`` micro-batches of one sequence."""
    return _problem("micro-batches", Plan(pp=p, dp=dp, micro_batch=1, accumulation=m))


def unequal_batch() -> Problem:
    """What the rules say of a batch that does not divide: 250 over 8 replicas in micro-batches of 4."""
    return _problem("batch", Plan(tp=2, pp=4, dp=8, micro_batch=4, global_batch=250))


def _problem(rule: str, plan: Plan) -> Problem:
    machine = cluster("a100", nodes=-(-plan.ranks // 8))
    return next(found for found in problems(model(MODEL), machine, plan) if found.rule == rule)


def said_table(*found: Problem) -> Table:
    """What rules said, each with its remedy."""
    rows = [(one.severity, one.message, one.remedy) for one in found]
    return table(("severity", "what is wrong", "what to do"), rows)


@cache
def job(counts: tuple[int, ...] = (5, 4, 4), agree: bool = False) -> JobReport:
    """A real job of a few processes, watched; each is run once."""
    return run_job(counts, agree)
