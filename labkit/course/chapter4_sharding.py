"""Section 4.1 as tables: what each stage of sharding holds and sends, by formula and on real arrays.

The stage tables take 13e9 parameters as the guide gives them.
"""

from functools import cache

import numpy as np

from labkit.course.chapter3_data import GUIDE_PARAMETERS
from labkit.course.table import Table, table
from labkit.planner.states import FP32_ACCUMULATION, MIXED, state_bytes
from labkit.planner.traffic import Workload, data_parallel, sharded
from labkit.spec import Transformer
from labkit.spec.rule import counted
from labkit.strategies.data import gradient
from labkit.strategies.sharded_step import ShardedRun, sharded_training
from labkit.units import GB, digits, format_bytes, plain

STAGES = (
    ("plain 不切", "nothing"),
    ("stage 1 第一档", "optimizer states"),
    ("stage 2 第二档", "+ gradients"),
    ("stage 3 第三档", "+ parameters"),
)


# ---- what a rank holds and sends


def units(stage, micro_batches=1, n=8, keep_gradients=False) -> float:
    """What a rank sends per step at a sharding stage, in units of S(N-1)/N, S the bytes of all parameters."""
    work = Workload(GUIDE_PARAMETERS, 40, 5120, 2048, micro_batches=micro_batches)
    how = {"keep_gradients": keep_gradients} if stage == 3 else {}
    rows = sharded(work, n, stage, **how) if stage else data_parallel(work, n)
    return sum(row.bytes_per_rank for row in rows) / (work.weight_bytes * (n - 1) / n)


def formula(stage, recipe=MIXED) -> str:
    """Bytes per parameter as the guide writes them: what is kept + what is divided / N.

    >>> [formula(stage) for stage in range(4)]
    ['16', '4 + 12/N', '2 + 14/N', '16/N']
    """
    # At two ranks half of what is divided is left: that tells the two parts apart.
    divided = 2 * (recipe.total - state_bytes(1.0, 2, stage, recipe))
    kept = recipe.total - divided
    parts = [f"{kept:g}"] * (kept > 0) + [f"{divided:g}/N"] * (divided > 0)
    return " + ".join(parts)


def stage_table(ranks=(8, 64), micro_batches=(1, 16), parameters=GUIDE_PARAMETERS) -> Table:
    """Claims 4.1-a, 4.1-b, 4.1-d and 4.1-j: the guide's missing table, with accumulation beside it."""
    heads = ["stage 档位", "sharded 切什么", "bytes/parameter 字节/参数"]
    heads += [f"{parameters / 1e9:g}B, N = {n}" for n in ranks]
    heads += [f"sends 通信量, m = {m}" for m in micro_batches]
    rows = []
    for stage, (name, what) in enumerate(STAGES):
        held = [f"{digits(state_bytes(parameters, n, stage) / GB, 4)} GB" for n in ranks]
        sent = [f"{units(stage, m) / units(0, m):.3g}x" for m in micro_batches]
        rows.append((name, what, formula(stage), *held, *sent))
    return table(heads, rows)


def traffic_table(micro_batches=(1, 4, 16, 32), n=8) -> Table:
    """Claim 4.1-d: what a rank sends per step, in units of S(N-1)/N, and in bytes for 13B."""
    unit = 2 * GUIDE_PARAMETERS * (n - 1) / n
    cases = [
        (name, "2" if stage < 2 else {2: "m + 1", 3: "3m"}[stage], stage, False)
        for stage, (name, _) in enumerate(STAGES)
    ]
    cases.append(("stage 3, full gradients kept", "2m + 1", 3, True))
    rows = []
    for name, law, stage, kept in cases:
        times = [units(stage, m, n, kept) for m in micro_batches]
        rows.append((name, law, *times, format_bytes(times[-2] * unit)))
    heads = ("stage", "sent, x S(N-1)/N", *(f"m = {m}" for m in micro_batches))
    return table((*heads, f"13B, N = {n}, m = {micro_batches[-2]}"), rows)


# ---- the same on real arrays

LAYERS, WIDTH, RANKS, SAMPLES = 4, 8, 4, 6


def toy_weights() -> np.ndarray:
    """Weights of four layers of eight, from a fixed seed."""
    return np.random.default_rng(41).normal(size=(LAYERS, WIDTH))


@cache
def toy_samples(rank, micro_batch) -> tuple[np.ndarray, np.ndarray]:
    """Inputs and targets of one micro-batch on one rank, each (samples, width)."""
    rng = np.random.default_rng([rank, micro_batch])
    return rng.normal(size=(SAMPLES, WIDTH)), rng.normal(size=(SAMPLES, WIDTH))


def toy_loss(weights, rank, micro_batch):
    """Mean squared error of four layers h -> tanh(w h + its neighbour) on a rank's own samples."""
    hidden, target = toy_samples(rank, micro_batch)
    for layer in weights.reshape(LAYERS, WIDTH):
        hidden = np.tanh(layer * hidden + np.roll(hidden, 1, axis=1))
    return ((hidden - target) ** 2).mean()


def toy_gradient(rank, micro_batch, weights) -> np.ndarray:
    """Its gradient, in the shape of the weights."""
    return gradient(lambda w: toy_loss(w, rank, micro_batch), weights.ravel()).reshape(weights.shape)


@cache
def toy_run(stage, micro_batches=1, steps=3, gather=True) -> ShardedRun:
    """The toy trained at a sharding stage."""
    how = dict(micro_batches=micro_batches, steps=steps, gather=gather)
    return sharded_training(toy_gradient, toy_weights(), RANKS, stage, **how)


def moved_table(micro_batches=(1, 4)) -> Table:
    """Claims 4.1-b, 4.1-d and 4.1-h on real arrays: counted, not computed from a formula."""
    plain, rows = toy_run(0, micro_batches[-1]).weights, []
    for stage, (name, _) in enumerate(STAGES):
        runs = [toy_run(stage, m) for m in micro_batches]
        held = runs[-1].held
        equal = np.allclose(runs[-1].weights, plain, rtol=1e-9)
        counts = (f"{run.sent():.3g} in {counted(run.collectives, 'collective')}" for run in runs)
        rows.append((name, *counts, *(f"{held[part]:g}" for part in held), equal))
    heads = ("stage", *(f"sent, x S(N-1)/N, m = {m}" for m in micro_batches), "parameters held", "gradients")
    return table((*heads, "moments", "same result as plain"), rows)


def half_table(steps=(1, 3, 10)) -> Table:
    """Claim 4.1-e: reduce_scatter alone, and with the all_gather after the update. Stage 1, four ranks."""
    rows = []
    for words, gather in (("reduce_scatter alone", False), ("and all_gather of new parameters", True)):
        runs = [toy_run(1, 1, count, gather) for count in steps]
        sent = [f"{runs[0].sent(part):g}" for part in ("gradients", "new weights")]
        rows.append((words, *sent, *(f"{run.divergence:.3g}" for run in runs)))
    first, *later = (f"after {counted(count, 'step')}" for count in steps)
    heads = ("stage 1", "gradients sent, x S(N-1)/N", "parameters sent", f"ranks apart {first}", *later)
    return table(heads, rows)


# ---- hybrid sharding


def shards_inside(n, domain):
    """Ranks that share the shards under hybrid sharding: the largest power of two in N and in the domain.

    Sets of them fill N, and each sits among the fast links: of a rack's 72 ranks a set takes 64.

    >>> shards_inside(np.array([4, 64, 128, 512]), 72).tolist(), shards_inside(64, 8)
    ([4, 64, 64, 64], 8)
    """
    n = np.asarray(n)
    return plain(np.minimum(n & -n, 2 ** int(np.log2(domain))))


# ---- conventions


def conventions_table(parameters=7e9, n=8) -> Table:
    """Case D1: three published sums for stage 2 of 7B on 8 ranks (DeepSpeed issues 4076, 5102, pull 5099)."""
    copied = FP32_ACCUMULATION
    # The old sum: weights and gradients whole, and the rest divided, an fp32 copy of the gradients with it.
    old = parameters * (copied.weights + copied.gradients + (copied.optimizer + copied.accumulation) / n)
    cases = (
        ("gradients not sharded at all", "4P + 16P/N", old),
        ("gradients in 16 bits, sharded", "2P + 14P/N", state_bytes(parameters, n, 2)),
        ("and an fp32 copy of them, sharded", "2P + 18P/N", state_bytes(parameters, n, 2, copied)),
    )
    return table(
        ("convention", "states of stage 2", f"{parameters / 1e9:g}B, N = {n}"),
        ((words, law, f"{size / GB:.2f} GB") for words, law, size in cases),
    )


V100_MODEL = Transformer("60 x 6144", layers=60, hidden=6144, heads=48, vocabulary=50257, sequence=1024)


def one_rank_table(tp=8, ranks=(1, 2, 4), memory=32 * GB) -> Table:
    """Case D3: stage 2 with one data-parallel rank shards nothing (DeepSpeed issue 237)."""
    held, rows = V100_MODEL.parameters / tp, []
    for dp in ranks:
        size = state_bytes(held, dp, 2)
        says = "shards nothing: there is no other rank" if dp == 1 else f"divided by {dp}"
        fits = "states alone do not fit" if size > memory else "states fit, before activations"
        rows.append((dp, says, f"{size / GB:.1f} GB", f"{size / 2**30:.1f} GiB", fits))
    heads = ("data-parallel ranks", "stage 2", "states per rank", "in GiB", f"card of {memory / GB:g} GB")
    return table(heads, rows)
