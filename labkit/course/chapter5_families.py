"""Section 5.5: six ways to cut 13B over 32 cards, each with its best micro-batch, on networks of any rate."""

from dataclasses import dataclass, replace

import numpy as np

from labkit.course.chapter5_rounds import BATCH, CARDS, MACHINE, MODEL, cards
from labkit.errors import InputRefused
from labkit.planner.memory import memory
from labkit.planner.step import step_time
from labkit.presets import model
from labkit.spec import Cluster, Plan, Transformer
from labkit.spec.checks import whole
from labkit.spec.rules import allowed
from labkit.units import GB

FAMILIES = {
    "tp 4 × pp 4": dict(tp=4, pp=4, dp=2),
    "interleaved": dict(tp=4, pp=4, dp=2, v=2),
    "tp 8 + ZeRO-1": dict(tp=8, dp=4, zero=1, sequence_parallel=True),
    "tp 2 + ZeRO-3": dict(tp=2, dp=16, zero=3, sequence_parallel=True),
    "ZeRO-1 alone": dict(dp=32, zero=1),
    "ZeRO-3 alone": dict(dp=32, zero=3),
}
_USUAL = dict(tp=1, pp=1, v=1, zero=0, sequence_parallel=False)
MICRO_BATCHES = (1, 2, 4, 8)
RATES = GB * np.geomspace(1, 100, 25)  # bytes/s of a port


@dataclass(frozen=True, slots=True)
class Families:
    """The best that each family does: arrays of shape (families, rates), NaN where none fits.

    ``mfu``: model FLOPs over the peak; ``tokens``: per second and card. ``micro_batch``: the best one, 0
    where there is none.
    """

    model: Transformer
    machine: Cluster
    rates: np.ndarray
    mfu: np.ndarray
    tokens: np.ndarray
    micro_batch: np.ndarray

    @property
    def leader(self) -> np.ndarray:
        """The number of the fastest family at each rate."""
        return np.nan_to_num(self.mfu, nan=-1.0).argmax(axis=0)


def families(
    name: str = MACHINE, sequence=2048, global_batch=BATCH, rates=RATES, overlap: bool = True
) -> Families:
    """The families on 32 cards of a preset cluster, with ports of other rates.

    ``overlap`` False: gradients wait for the end of the backward pass, and nothing is gathered ahead.
    Refused: a batch that is no multiple of 32, which not all families could share.
    """
    if whole(global_batch, "the global batch") % CARDS:
        raise InputRefused(
            f"A batch of {global_batch} is no multiple of {CARDS}; choose one, as {2 * CARDS}."
        )
    shape = replace(model(MODEL), sequence=sequence, learned_positions=0)
    machine = cards(name)
    there = replace(machine, inter=replace(machine.inter, bandwidth=np.asarray(rates, float)))
    mfu = np.full((len(FAMILIES), np.size(rates)), np.nan)
    tokens, best = mfu.copy(), np.zeros(mfu.shape, int)
    numbers, plans = _that_fit(shape, machine, global_batch, overlap)
    step = step_time(shape, there, plans, overlap=overlap)
    for row, number in enumerate(numbers):
        better = ~(step.mfu[row] <= mfu[number])  # than none as well
        mfu[number] = np.where(better, step.mfu[row], mfu[number])
        tokens[number] = np.where(better, step.tokens_per_s_per_gpu[row], tokens[number])
        best[number] = np.where(better, plans.micro_batch[row, 0], best[number])
    return Families(shape, machine, np.asarray(rates, float), mfu, tokens, best)


def _that_fit(shape, machine, global_batch, overlap) -> tuple[np.ndarray, Plan]:
    """Families with each micro-batch that divides and fits: their numbers, and a Plan of shape (plans, 1)."""
    rows = [
        (number, {**_USUAL, **cut, "micro_batch": micro})
        for number, cut in enumerate(FAMILIES.values())
        for micro in MICRO_BATCHES
        if global_batch % (cut["dp"] * micro) == 0
    ]
    numbers, fields = zip(*rows, strict=True)
    columns = {name: np.array([one[name] for one in fields])[:, None] for name in fields[0]}
    plan = Plan(global_batch=global_batch, prefetch=int(overlap), **columns)
    held = np.asarray(memory(shape, machine, plan).peak)
    good = (np.asarray(allowed(shape, machine, plan)) & (held <= machine.gpu.usable))[:, 0]
    columns = {name: values[good] for name, values in columns.items()}
    plan = Plan(global_batch=global_batch, prefetch=int(overlap), **columns)
    return np.array(numbers)[good], plan
