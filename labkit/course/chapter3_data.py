"""Section 3.1 as tables: what a data-parallel rank holds, that it learns the same, where it stops scaling.

The worked model has 1.3 B parameters (24 layers x 2048): its states fit one card, so plain data parallelism
is possible at all. Table 3.1-a takes 13e9 parameters as the guide gives them.
"""

from dataclasses import replace

import numpy as np

from labkit.collectives import reduce_loss, volume
from labkit.collectives.scaling import BACKWARD_SHARE, Setting, knee
from labkit.course.table import Table, table
from labkit.planner.compute import compute_time
from labkit.planner.states import FP32, FP32_GRADIENTS, MIXED, largest_model, state_bytes
from labkit.planner.traffic import Workload, data_parallel
from labkit.presets import cluster
from labkit.spec import Cluster, Transformer
from labkit.strategies.data import gradient, synchronised
from labkit.strategies.pipeline import one_f_one_b, simulate
from labkit.strategies.timeline import BACKWARD
from labkit.units import GB, format_bytes, format_share, format_time

GUIDE_PARAMETERS = 13e9
CARD = 80 * GB
SMALL = Transformer(
    "1.3 B", layers=24, hidden=2048, heads=16, vocabulary=50257, sequence=2048, learned_positions=2048
)
RECIPES = {
    "bf16, gradients in bf16": MIXED,
    "bf16, gradients in fp32": FP32_GRADIENTS,
    "fp32 throughout": FP32,
}


# ---- memory


def memory_table(parameters=GUIDE_PARAMETERS) -> Table:
    """Claim 3.1-l: the guide's missing table, what one rank of plain data parallelism holds."""
    items = (
        ("weights 参数", "bf16", MIXED.weights),
        ("gradients 梯度", "bf16", MIXED.gradients),
        ("fp32 weights 主参数", "fp32", MIXED.master),
        ("first moment 一阶动量", "fp32", MIXED.first_moment),
        ("second moment 二阶动量", "fp32", MIXED.second_moment),
        ("sum 合计", "", MIXED.total),
    )
    return table(
        ("item 项目", "precision 精度", "bytes/parameter 字节/参数", f"{parameters / 1e9:g}B"),
        ((name, kind, each, format_bytes(each * parameters)) for name, kind, each in items),
    )


def recipe_table(parameters=GUIDE_PARAMETERS, memory=CARD) -> Table:
    """Claims 3.1-g and 3.1-h: states by precision recipe, and the largest model for a card."""
    rows = []
    for name, recipe in RECIPES.items():
        sent = volume("all_reduce", "ring", parameters * recipe.gradients, 8).busiest
        rows.append(
            (
                name,
                recipe.total,
                format_bytes(state_bytes(parameters, recipe=recipe)),
                format_bytes(state_bytes(parameters, 8, 1, recipe)),
                f"{largest_model(memory, recipe=recipe) / 1e9:.2f} B",
                format_bytes(sent),
            )
        )
    return table(
        (
            "recipe",
            "bytes/parameter",
            f"{parameters / 1e9:g}B, plain",
            "optimizer sharded over 8",
            f"largest plain model, {memory / 1e9:g} GB",
            "a rank sends per step, N = 8",
        ),
        rows,
    )


# ---- the same gradient


def small_loss(weights, inputs, targets, batch_norm=False):
    """Mean squared error of a network of 3 inputs, 4 tanh units and 1 output; weights of length 16.

    ``batch_norm``: its units are normalised over the batch, so that a sample's loss depends on all others.
    """
    hidden = np.tanh(inputs @ weights[:12].reshape(3, 4))
    if batch_norm:
        hidden = (hidden - hidden.mean(0)) / np.sqrt(((hidden - hidden.mean(0)) ** 2).mean(0) + 1e-5)
    return ((hidden @ weights[12:] - targets) ** 2).mean()


def small_batch(samples=32):
    """Inputs (samples, 3), targets (samples,) and weights (16,), from a fixed seed."""
    rng = np.random.default_rng(3)
    return rng.normal(size=(samples, 3)), rng.normal(size=samples), rng.normal(size=16)


def shard_gradients(counts, batch_norm=False):
    """Gradients of the shards of so many samples each, shape (n, 1, 16), and that of their whole batch."""
    inputs, targets, weights = small_batch(sum(counts))
    ends = np.cumsum(counts)
    shards = [slice(end - count, end) for end, count in zip(ends, counts, strict=True)]

    def of(part):
        return gradient(lambda w: small_loss(w, inputs[part], targets[part], batch_norm), weights)

    return np.stack([of(part) for part in shards])[:, None], of(slice(None))


def gap(counts, by_tokens=False, batch_norm=False) -> float:
    """How far the reduced gradient is from that of the whole batch: largest difference over its norm."""
    gradients, whole = shard_gradients(counts, batch_norm)
    reduced = synchronised(gradients, np.array(counts)[:, None] if by_tokens else None)
    return float(np.abs(reduced - whole).max() / np.linalg.norm(whole))


def equality_table() -> Table:
    """Claim 3.1-f: when data parallelism computes the gradient of the whole batch."""
    cases = (
        ("equal shards, plain mean", (8, 8, 8, 8), {}),
        ("unequal shards, plain mean", (2, 6, 8, 16), {}),
        ("unequal shards, by tokens", (2, 6, 8, 16), {"by_tokens": True}),
        ("equal shards, batch norm", (8, 8, 8, 8), {"batch_norm": True}),
    )

    def words(difference):
        return "equal to rounding" if difference < 1e-12 else f"off by {format_share(difference)}"

    return table(
        ("case", "samples per rank", "against the gradient of the whole batch"),
        ((name, str(counts), words(gap(counts, **how))) for name, counts, how in cases),
    )


def accumulated_losses() -> Table:
    """A mean of means and the mean by tokens: over ranks (2.1-i), and over micro-batches."""
    cases = (
        ("2 ranks", (4.0, 2.0), (1000, 3000)),
        ("2 micro-batches", (4.0, 2.0), (10, 90)),
    )
    rows = []
    for name, losses, tokens in cases:
        by_tokens, of_means = reduce_loss(losses, tokens)
        rows.append((name, str(losses), str(tokens), by_tokens, of_means))
    return table(("over", "losses", "tokens", "by tokens", "mean of means"), rows)


# ---- the wall: volume, batch, knee


def machine_of(name: str, n) -> Cluster:
    """A preset with room for ``n`` ranks."""
    one = cluster(name)
    return replace(one, nodes=int(np.ceil(np.max(n) / one.gpus_per_node)))


def job(machine: Cluster, tokens, parameters=None, gradient_bytes=2.0, **changes) -> Setting:
    """The data-parallel job on 8 ranks: ``tokens`` per step of all 8; 6 FLOPs per parameter and token."""
    parameters = SMALL.parameters if parameters is None else parameters
    compute = compute_time(6 * parameters * tokens / 8, machine.gpu)
    return Setting(gradient=parameters * gradient_bytes, compute=compute, **changes)


def batch_table(n=64, name="a100", sequences=(1, 2, 4, 8, 16)) -> Table:
    """Claim 3.1-b: the bytes do not know the batch, the share does. Nothing hidden."""
    machine, rows = machine_of(name, n), []
    for each in sequences:
        work = Workload(SMALL.parameters, SMALL.layers, SMALL.hidden, SMALL.sequence, micro_batch=each)
        compute = compute_time(work.flops, machine.gpu)
        (row,) = data_parallel(work, n, domain=machine.domain)
        seconds = row.seconds(machine)
        share = format_share(seconds / (seconds + compute))
        rows.append(
            (each, format_bytes(row.bytes_per_rank), format_time(compute), format_time(seconds), share)
        )
    return table(
        ("sequences per rank", "a rank sends", "compute", "all_reduce", "its share of the step, unhidden"),
        rows,
    )


def knee_table(tokens=2**19, largest=65_536) -> Table:
    """Claims 3.1-c and 3.1-i: N at which communication takes all of compute, or all of the backward pass."""
    rows = []
    for name in ("a100", "cloud-25gbe"):
        machine = cluster(name)
        for mode in ("strong", "weak"):
            for times in (1, 8):
                one = job(machine, times * tokens, mode=mode)
                found = (knee(machine, one, largest, budget) for budget in (1.0, BACKWARD_SHARE))
                rows.append((name, mode, f"{times * tokens:,}", *found))
    heads = ("cluster", "scaling", "tokens per step on 8 ranks", "N where it equals compute")
    return table((*heads, "N where it equals the backward pass"), rows)


# ---- accumulation


def accumulation_table(n=64, name="a100", micro_batches=(1, 2, 4, 8, 16)) -> Table:
    """Claim 3.1-k: m micro-batches of one sequence, one synchronisation, or one each. Nothing hidden."""
    machine, rows = machine_of(name, n), []
    for m in micro_batches:
        work = Workload(SMALL.parameters, SMALL.layers, SMALL.hidden, SMALL.sequence, 1, m)
        compute = compute_time(work.flops, machine.gpu)
        once, each = (
            sum(row.seconds(machine) for row in data_parallel(work, n, domain=machine.domain, deferred=how))
            for how in (True, False)
        )
        ratios = (format_share(seconds / compute) for seconds in (once, each))
        rows.append((m, format_time(compute), format_time(once), *ratios))
    heads = (
        "micro-batches m",
        "compute",
        "one all_reduce",
        "deferred, of compute",
        "one for each, of compute",
    )
    return table(heads, rows)


STEP, STAGES, SHARD = 1.8, 4, GUIDE_PARAMETERS * 2 / 16  # section 5.5: TP 4 x PP 4, DP 2


def left_to_hide(m, stage=0, step=STEP, stages=STAGES) -> float:
    """Seconds from the start of a stage's last backward to the end of a 1F1B step of ``step`` seconds.

    Under it a stage's gradients can be reduced, if they are at all deferred to the last micro-batch. Forward
    takes one, backward two parts; equal stages, free transfers.
    """
    run = simulate(one_f_one_b(stages, m), forward=1.0, backward=2.0)
    last = run.start[(run.lane == stage) & (run.kind == BACKWARD)].max()
    return float(step * (1 - last / run.span))


def deferral_table(micro_batches=(8, 16, 32), rates=(50 * GB, 25 * GB)) -> Table:
    """Claim 3.1-k: what is left under which to hide the all_reduce of section 5.5's shard, DP 2."""
    sent = volume("all_reduce", "ring", SHARD, 2).busiest
    needs = [f"{format_time(sent / rate)} at {rate / GB:g} GB/s" for rate in rates]
    return table(
        ("micro-batches m", *(f"stage {stage} has" for stage in range(STAGES)), "needed"),
        (
            (m, *(format_time(left_to_hide(m, stage)) for stage in range(STAGES)), "; ".join(needs))
            for m in micro_batches
        ),
    )
