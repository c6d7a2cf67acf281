"""Section 4.2's price: compute and traffic of recompute, and when a larger micro-batch repays them."""

from dataclasses import dataclass, replace

import numpy as np

from labkit.course.chapter3_tensor import split_facts
from labkit.course.chapter4_recompute import WAYS, thirteen
from labkit.course.table import Table, table
from labkit.planner.bill import step_bill
from labkit.planner.memory import memory
from labkit.planner.recompute import break_even_share, extra_compute
from labkit.planner.step import step_time
from labkit.presets import cluster, published
from labkit.spec import Cluster, Plan, Transformer
from labkit.units import GB, format_bytes, format_share, format_time

# The guide's own case: what it says of a job with long sequences, each against before.
MICRO_BATCH, STEP, THROUGHPUT = 4.0, 1.12, 2.0
MORE_FORWARD = 1 / 3  # of forward and backward, the backward being twice a forward
# How many samples a step has after it, against before, by what stays the same.
READINGS = {
    "as many micro-batches": MICRO_BATCH,
    "half as many (accumulation halved)": MICRO_BATCH / 2,
    "a quarter as many (same global batch)": 1.0,
}


def pairs_table() -> Table:
    """Any two of the guide's three figures, and the third that follows."""
    rows = []
    for reading, samples in READINGS.items():
        needs = MICRO_BATCH * STEP * THROUGHPUT / samples
        rows.append(
            (
                reading,
                f"{samples:g}x",
                f"{samples / STEP:.2f}x",
                step_change(samples),
                f"{needs:.2f}x" if samples > 1 else "impossible",
            )
        )
    heads = (
        "micro-batches a step",
        "samples",
        "4x and +12 %: throughput",
        "4x and 2x: step",
        "+12 % and 2x: micro-batch",
    )
    return table(heads, rows)


def step_change(samples: float) -> str:
    """By how much the step is longer if its samples come at the guide's throughput.

    >>> step_change(4), step_change(2), step_change(1)
    ('+100 %', '0 %', '-50 %')
    """
    longer = 100 * (samples / THROUGHPUT - 1)
    return f"{longer:+.0f} %" if longer else "0 %"


def compute_share(step, samples, rest, extra=MORE_FORWARD):
    """Share of the step before that was compute, if with recompute it is ``step`` times as long.

    Compute becomes samples x (1 + extra) times as much, all else ``rest`` times: step = samples (1 + extra) c
    + rest (1 - c), solved for c.

    >>> round(compute_share(1.12, 2, 1), 3), round(compute_share(1.12, 4, 1), 3)
    (0.072, 0.028)
    """
    return (step - rest) / (samples * (1 + extra) - rest)


def share_table() -> Table:
    """How little of the old step compute must have been for +12 %, by what the rest of it does."""
    rows = []
    for reading, samples in READINGS.items():
        fewer = samples / MICRO_BATCH
        shares = [format_share(compute_share(STEP, samples, rest)) for rest in (1.0, fewer)]
        rows.append((reading, f"{samples / STEP:.2f}x", f"{fewer:g}x", *shares))
    heads = (
        "micro-batches a step",
        "throughput",
        "micro-batches, against before",
        "compute, if the rest stays",
        "compute, if it is per micro-batch",
    )
    return table(heads, rows)


def ways_table() -> Table:
    """Extra compute of the 13B model by FLOPs, and of a measured layer (Korthikanti et al. 2022, table 4)."""
    measured = {
        row["recompute"]: row["forward_ms"] + row["backward_ms"]
        for row in published("korthikanti_2022_layer_times")
        if not row["sequence_parallel"]
    }
    rows = []
    for way in WAYS:
        extras = [format_share(extra_compute(thirteen(), way, s)) for s in (2048, 32768)]
        found = measured[way] / measured["none"] - 1
        rows.append((way, *extras, f"{measured[way]:.1f} ms", format_share(found)))
    heads = ("recompute", "extra, s = 2,048", "extra, s = 32,768", "22B layer, measured", "extra, measured")
    return table(heads, rows)


def utilisation_table() -> Table:
    """Useful and hardware utilisation of the published steps, and what dropping full recompute gained."""
    rows, before = [], None
    for row in published("korthikanti_2022_steps"):
        shape = {name: row[name] for name in ("layers", "hidden", "heads", "vocabulary", "sequence")}
        of = Transformer(row["model"], **shape)
        mfu, hfu = utilisations(of, row["seconds"], row["global_batch"], row["gpus"], row["recompute"])
        gain = f"{before / row['seconds']:.2f}x" if row["recompute"] == "selective" else ""
        before = row["seconds"]
        values = (format_share(mfu), format_share(hfu), mfu / hfu)
        rows.append((row["model"], row["recompute"], format_time(row["seconds"]), *values, gain))
    return table(("model", "recompute", "step", "MFU", "HFU", "MFU / HFU", "throughput"), rows)


def utilisations(of: Transformer, seconds, batch, gpus, recompute, peak=312e12) -> tuple[float, float]:
    """MFU, and HFU, of a step; the peak is that of an A100 in 16 bits."""
    return tuple(of.utilisation(seconds, batch, gpus, peak, recompute=way) for way in (None, recompute))


def threshold_table(growths=(2, 4, 8, 1e9), cards=("a100", "h100", "b200")) -> Table:
    """Where full recompute starts to pay, by how much larger the micro-batch becomes.

    The first column is a share of the step; the others the MFU of the step before, at the preset's reached
    share of peak, above which it only slows down.
    """
    extra, rows = extra_compute(thirteen(), "full"), []
    for growth in growths:
        share = break_even_share(extra, growth)
        limits = [format_share((1 - share) * cluster(name).gpu.reached) for name in cards]
        rows.append((f"{growth:g}x" if growth < 1e9 else "without end", format_share(share), *limits))
    heads = ("micro-batch", "cost per micro-batch above", *(f"MFU below, {name}" for name in cards))
    return table(heads, rows)


@dataclass(frozen=True, slots=True)
class Change:
    """One plan before, without recompute, and one after, with it, at the same global batch."""

    name: str
    model: Transformer
    machine: Cluster
    before: Plan
    after: Plan

    def seconds(self, plan: Plan) -> float:
        """One step, predicted."""
        return step_time(self.model, self.machine, plan).total

    def utilisation(self, plan: Plan) -> tuple[float, float]:
        """MFU and HFU."""
        gpu = self.machine.gpu
        return utilisations(
            self.model,
            self.seconds(plan),
            plan.global_batch,
            plan.ranks,
            plan.recompute,
            gpu.peak["bf16"],
        )

    @property
    def plans(self) -> tuple[Plan, Plan, Plan]:
        """Before, after, and after without recompute: the one that must not fit."""
        return self.before, self.after, self.after.changed(recompute="none")

    def memory(self, plan: Plan) -> float:
        """Bytes of the fullest card."""
        return memory(self.model, self.machine, plan).peak

    @property
    def gain(self) -> float:
        """Throughput after over before."""
        return self.seconds(self.before) / self.seconds(self.after)


def changes() -> list[Change]:
    """Full recompute for a 13B model with long sequences on 64 GPUs.

    For a micro-batch of 4 instead of 1, at 8,192 tokens; and, at 16,384, for no tensor parallel at all.
    """
    larger = {"micro_batch": 4, "global_batch": 256, "recompute": "full"}
    at_8k = (
        ("a100", "stage 3", Plan(dp=64, zero=3, micro_batch=1, global_batch=256)),
        ("h100", "tp 8", Plan(tp=8, dp=8, zero=1, micro_batch=1, global_batch=256)),
        ("cloud-25gbe", "tp 8", Plan(tp=8, dp=8, zero=1, micro_batch=1, global_batch=256)),
        ("a100-galvatron", "tp 4, stage 3", Plan(tp=4, dp=16, zero=3, micro_batch=1, global_batch=256)),
        ("cloud-25gbe", "stage 3", Plan(dp=64, zero=3, micro_batch=1, global_batch=256)),
    )
    found = [
        Change(
            f"{name}, {how}", replace(thirteen(), sequence=8192), _nodes(name), plan, plan.changed(**larger)
        )
        for name, how, plan in at_8k
    ]
    split = Plan(tp=8, dp=8, zero=1, micro_batch=1, global_batch=64)
    alone = Plan(dp=64, zero=3, micro_batch=1, global_batch=64, recompute="full")
    long = replace(thirteen(), sequence=16384)
    return [*found, Change("a100, tp 8 to stage 3", long, _nodes("a100"), split, alone)]


def _nodes(name: str) -> Cluster:
    """64 GPUs of a preset with 8 in a node."""
    return cluster(name, nodes=8)


def changes_table() -> Table:
    """Does it pay? The same global batch before and after, with memory and both utilisations."""
    rows = []
    for one in changes():
        before, after = one.utilisation(one.before), one.utilisation(one.after)
        rows.append(
            (
                one.name,
                f"{one.model.sequence:,}",
                " / ".join(f"{one.memory(plan) / GB:.0f}" for plan in one.plans),
                " / ".join(format_time(one.seconds(plan)) for plan in one.plans[:2]),
                format_share(before[0]),
                " / ".join(map(format_share, after)),
                f"{one.gain:.2f}x",
                one.gain > 1,
            )
        )
    heads = (
        "13B on 64 GPUs",
        "s",
        "GB before / after / after without",
        "step before / after",
        "MFU before",
        "MFU / HFU after",
        "throughput",
        "pays",
    )
    return table(heads, rows)


def tensor_row(recompute: str):
    """The bill's tensor-parallel row of the 13B model: tp 8, dp 8, 16 micro-batches of one sequence."""
    plan = Plan(tp=8, dp=8, micro_batch=1, accumulation=16, recompute=recompute)
    rows = step_bill(thirteen(), cluster("a100", nodes=8), plan)
    return next(row for row in rows if row.strategy == "tensor parallel")


def replay_table() -> Table:
    """All_reduces of a layer, counted on a real layer over 4 ranks, and as the bill of a step has them."""
    rows = []
    for way in WAYS:
        facts, row = split_facts(4, recompute=way), tensor_row(way)
        each = np.asarray(row.count) / (16 * thirteen().layers)
        rows.append(
            (
                way,
                facts["forward"],
                facts["backward"],
                f"{facts['traffic']:g}x",
                each,
                format_bytes(row.bytes_per_rank),
            )
        )
    heads = ("recompute", "all_reduces forward", "backward", "traffic", "per layer in the bill")
    return table((*heads, "sent, 13B, tp 8, m = 16"), rows)
