"""Section 5.5's sums, checked: what 1.8 s to 1.2 s would ask for, what has to fit, what buckets can save.

They take 13e9 parameters as the guide gives them, 32 layers of hidden 5120, and what a card has as 80 GB.
"""

import numpy as np

from labkit.collectives.cost import collective_cost
from labkit.collectives.scaling import BACKWARD_SHARE
from labkit.course.chapter3_data import GUIDE_PARAMETERS
from labkit.course.chapter5_rounds import BATCH, CARDS, FIRST, LARGER_BUCKET, MODEL, SAID, cards, cut, third
from labkit.course.table import Table, table
from labkit.planner.activations import layer_activation_bytes
from labkit.planner.in_flight import in_flight
from labkit.planner.memory import memory
from labkit.planner.products import product_seconds
from labkit.planner.step import BUCKET, step_time
from labkit.presets import model
from labkit.spec import Cluster, Gpu, Link, Plan
from labkit.strategies.pipeline import bubble_over_ideal, bubble_share
from labkit.units import GB, TB, format_bytes, format_share, format_time, us

PEAKS = {"312 TFLOP/s": 312e12, "989 TFLOP/s": 989e12}
USUAL = 0.40, 0.55  # the guide's range of utilisation, section 5.4
HOP, NETWORK = 10 * us, 50 * GB  # one message across nodes, and bytes/s of a card, as claim 5.5-k has them


# ---- time: is 1.2 s possible?


def without_bubble(seconds=SAID[0], plan: Plan = FIRST.plan) -> float:
    """Seconds of a step of which the whole pipeline bubble is removed.

    >>> round(without_bubble(), 3)
    1.516
    """
    return seconds * (1 - bubble_share(plan.pp, plan.accumulation))


def allowed_compute(seconds=SAID[1], plan: Plan | None = None) -> float:
    """The most that round 1 may compute, in seconds, so that round 3 can take 1.2 s for the same sequences.

    Round 3 does the forward, a third of the compute, again, and has a bubble over all of it; communication
    and launches are left out, so that less than this is left in truth.

    >>> round(allowed_compute(), 9)
    0.8
    """
    plan = plan or third().plan
    again = 1 - BACKWARD_SHARE
    return seconds / ((1 + again) * (1 + bubble_over_ideal(plan.pp, plan.accumulation)))


def not_compute() -> float:
    """Share of round 1's 1.8 s that was neither compute nor bubble, if round 3 took 1.2 s."""
    return (without_bubble() - allowed_compute()) / SAID[0]


def reached(seconds, batch=BATCH, parameters=GUIDE_PARAMETERS) -> float:
    """FLOP/s of a card: 6 FLOPs a parameter and token, on 32 cards."""
    return 6 * parameters * batch * model(MODEL).sequence / CARDS / seconds


def utilisation_table() -> Table:
    """Claim 5.5-i: what the guide's seconds ask of a card, beside its own range of 40 to 55 %."""
    cases = (
        ("1.8 s, batch 64", SAID[0], BATCH),
        ("1.2 s, batch 64", SAID[1], BATCH),
        ("1.2 s, batch 192", SAID[1], third().plan.global_batch),
    )
    rows = []
    for words, seconds, batch in cases:
        rate = reached(seconds, batch)
        rows.append(
            (words, f"{rate / TB:.0f} TFLOP/s", *(f"{100 * rate / peak:.0f} %" for peak in PEAKS.values()))
        )
    return table(("step", "a card reaches", *(f"of {name}" for name in PEAKS)), rows)


def most_gain() -> tuple[float, float]:
    """How much faster a step can get between 40 and 55 % of any peak, and the seconds 1.8 s becomes."""
    gain = USUAL[1] / USUAL[0]
    return gain, SAID[0] / gain


# ---- memory: what has to fit


def held(tp, micro_batch=2, fused=True) -> tuple[float, float]:
    """Bytes on stage 0 of four: states of 13e9 parameters at 16 bytes, and activations in flight."""
    shape, plan = model(MODEL), cut(micro_batch=micro_batch, accumulation=16).changed(tp=tp)
    layers = shape.layers / plan.pp
    how = "selective" if fused else "none"  # the formula calls dropped scores selective
    layer = layer_activation_bytes(shape.sequence, micro_batch, shape.hidden, shape.heads, tp, recompute=how)
    return 16 * GUIDE_PARAMETERS / (tp * plan.pp), in_flight(plan, 0) * layers * layer


def fits_table(name="a100") -> Table:
    """Claims 5.5-j and 5.5-q: stage 0 by tensor-parallel degree, as a sum, and as labkit's ``memory``."""
    machine, rows = cards(name), []
    for tp, micro in ((1, 2), (2, 2), (4, 2), (4, 4)):
        states, kept = held(tp, micro)
        _, stored = held(tp, micro, fused=False)
        plan = Plan(tp=tp, pp=4, dp=CARDS // (4 * tp), micro_batch=micro, accumulation=16)
        rows.append(
            (
                f"tp {tp}, micro-batch {micro}",
                format_bytes(states),
                format_bytes(states + kept),
                format_bytes(states + stored),
                format_bytes(memory(model(MODEL), machine, plan).peak),
            )
        )
    heads = ("pp 4", "states of 13e9", "+ activations", "+ scores stored", "labkit's memory, 10.3 B")
    return table(heads, rows)


def layer_table() -> Table:
    """Claims 5.5-a and 5.5-p: one layer, as the guide divides it and as hidden 5120 makes it."""
    shape, forty = model(MODEL), model("gpt3-13b")
    layers = {"13e9 / 32": GUIDE_PARAMETERS / 32, "of hidden 5120": shape.layer_parameters}
    rows = [
        (words, f"{each / 1e9:.2f} B", format_bytes(2 * each), format_bytes(16 * each))
        for words, each in layers.items()
    ]
    for words, one in (("32 of them and the embedding", shape), ("40 of them, gpt3-13b", forty)):
        count = one.parameters
        rows.append((words, f"{count / 1e9:.1f} B", format_bytes(2 * count), format_bytes(16 * count)))
    return table(("layer", "parameters", "weights in bf16", "with gradient and optimizer"), rows)


def recompute_costs(machine: Cluster, plan: Plan) -> tuple[float, float, float]:
    """Peak bytes without recompute and with full, and what full recompute adds to the step, as a share."""
    shape = model(MODEL)
    plans = [plan.changed(recompute=how) for how in ("none", "full")]
    without, full = (step_time(shape, machine, one) for one in plans)
    return without.peak_memory, full.peak_memory, full.total / without.total - 1


# ---- buckets and kernels: what is small


def buckets(size=BUCKET) -> int:
    """Buckets of a card's gradients: 13e9 parameters in 16 bits over tensor 4 x pipeline 4.

    >>> buckets(), buckets(32e6)
    (65, 51)
    """
    return int(np.ceil(gradients() / size))


def gradients() -> float:
    """Bytes of gradients on a card of the guide's cut: 1.625 GB."""
    return 2 * GUIDE_PARAMETERS / FIRST.plan.model_ranks


def bucket_gain(dp=2, alpha=HOP) -> float:
    """Seconds that 32 MB saves against 25 MB: the latency of rings not run, 2 (DP - 1) hops each.

    >>> round(1e3 * bucket_gain(), 9)
    0.28
    """
    steps = collective_cost("all_reduce", "ring", BUCKET, dp, Link(alpha, NETWORK)).steps
    return (buckets() - buckets(LARGER_BUCKET)) * steps * alpha


def unhidden(dp=2, bandwidth=NETWORK) -> float:
    """Seconds of a card's gradients through its port, nothing hidden and no latency."""
    return collective_cost("all_reduce", "ring", gradients(), dp, Link(0.0, bandwidth)).seconds


def bucket_table(degrees=(2, 4, 8, 16, 64)) -> Table:
    """Claim 5.5-k for any DP: what a larger bucket can save, beside what the gradients take at most."""
    rows = []
    for dp in degrees:
        gain, most = bucket_gain(dp), unhidden(dp)
        rows.append(
            (
                dp,
                format_time(gain),
                format_share(gain / SAID[0]),
                format_time(most),
                format_share(most / SAID[0]),
            )
        )
    heads = ("DP", "32 MB saves against 25 MB", "of 1.8 s", "gradients, all exposed", "of 1.8 s")
    return table(heads, rows)


def products(micro_batch=1, tp=4) -> dict[str, tuple[int, int, int]]:
    """Rows, columns and depth of a layer's forward matrix products on one card."""
    h, rows = model(MODEL).hidden, micro_batch * model(MODEL).sequence
    return {
        "query, key, value": (rows, 3 * h // tp, h),
        "projection": (rows, h, h // tp),
        "MLP, first": (rows, 4 * h // tp, h),
        "MLP, second": (rows, h, 4 * h // tp),
    }


def half_of_peak_seconds(micro_batch=1) -> dict[str, list[float]]:
    """Seconds of these products at half of each peak: no kernel model, only FLOPs."""
    shapes = products(micro_batch).values()
    return {name: [2 * m * n * k / (peak / 2) for m, n, k in shapes] for name, peak in PEAKS.items()}


def message(micro_batch) -> float:
    """Bytes of one tensor-parallel all_reduce: a micro-batch of activations in 16 bits."""
    return 2.0 * micro_batch * model(MODEL).sequence * model(MODEL).hidden


def grain_table(name="a100", micro_batches=(4, 2, 1)) -> Table:
    """Claim 5.5-l: what a smaller micro-batch makes worse, at the same 64 sequences."""
    machine, rows = cards(name), []
    gpu: Gpu = machine.gpu
    for micro in micro_batches:
        plan = cut(global_batch=BATCH, micro_batch=micro)
        step = step_time(model(MODEL), machine, plan)
        shapes = products(micro)
        smallest = min(product_seconds(*shape, gpu) for shape in shapes.values())
        flops = sum(2 * m * n * k for m, n, k in shapes.values())
        rate = flops / sum(product_seconds(*shape, gpu) for shape in shapes.values())
        rows.append(
            (
                f"{micro}, m = {plan.accumulation}",
                format_time(smallest),
                format_share(rate / gpu.peak["bf16"]),
                format_bytes(message(micro)),
                *(format_time(part) for part in (step.compute, step.launch, step.tp)),
            )
        )
    heads = (
        "micro-batch",
        "shortest product",
        "products reach",
        "all_reduce of",
        "compute",
        "launches",
        "tensor",
    )
    return table(heads, rows)


def said_seconds() -> str:
    """The guide's gain in its own words: less time, and more throughput at equal batch."""
    before, after = SAID
    return f"{format_share(1 - after / before)} less time, {format_share(before / after - 1)} more throughput"
