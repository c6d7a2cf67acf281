"""Section 3.1's gradient buckets: PyTorch's own on ResNet-18, the best size, and how much overlap hides."""

from collections.abc import Callable
from math import prod

import numpy as np

from labkit.collectives import bandwidth_share, bucket_for_share, collective_cost
from labkit.course.chapter2_bandwidth import NOMINAL, sample
from labkit.course.chapter3_data import SMALL, machine_of
from labkit.course.table import Table, table
from labkit.presets import cluster
from labkit.spec import Cluster, Gpu, Link, Transformer
from labkit.strategies.buckets import CAP, FIRST_CAP, bucket_warnings, ddp_buckets
from labkit.strategies.model_blocks import transformer_blocks
from labkit.strategies.overlap import Block, BucketSearch, best_bucket, step_timeline
from labkit.strategies.timeline import Timeline
from labkit.units import GB, MiB, digits, format_bytes, format_share, format_size, format_time, us

# Claim 3.1-j: the link on which 90 % needs 18, 144 and 1,152 MB.
HOP = Link(5 * us, 50 * GB)
MEGATRON_LEAST, MEGATRON_PER_RANK = 40e6, 1e6  # gradients per bucket: Megatron-LM, distributed data parallel


def resnet18_sizes() -> list[int]:
    """Bytes of ResNet-18's 62 fp32 gradients in the order of registration (He et al. 2015, table 1)."""
    shapes = [(64, 3, 7, 7), (64,), (64,)]
    for before, width in ((64, 64), (64, 128), (128, 256), (256, 512)):
        for first, shrinks in ((before, before != width), (width, False)):
            shapes += [(width, first, 3, 3), (width,), (width,), (width, width, 3, 3), (width,), (width,)]
            shapes += [(width, first, 1, 1), (width,), (width,)] if shrinks else []
    return [4 * prod(shape) for shape in [*shapes, (1000, 512), (1000,)]]


def resnet18_table() -> Table:
    """The all_reduces of ResNet-18 by cap, as PyTorch forms them."""
    rows = []
    for cap, first in ((CAP, FIRST_CAP), (35 * MiB, FIRST_CAP), (35 * MiB, 35 * MiB)):
        sizes = [f"{bucket.size:,.0f}" for bucket in ddp_buckets(resnet18_sizes(), cap, first)]
        rows.append((format_size(cap), format_size(first), ", ".join(sizes)))
    return table(("cap", "first bucket's cap", "bytes of the all_reduces, in order"), rows)


def blocks_of(model: Transformer, gpu: Gpu, sequences=1, gradient_bytes=2.0) -> list[Block]:
    """The model's blocks on one GPU at its reached share of the bf16 (or fp16) peak."""
    rate = gpu.peak.get("bf16", gpu.peak.get("fp16")) * gpu.reached
    return transformer_blocks(model, sequences, rate, gradient_bytes)


def ring_on(place: Link | Cluster, n) -> Callable[[np.ndarray], np.ndarray]:
    """Seconds of a ring all_reduce over ``n`` ranks as a function of its bytes."""
    return lambda size: collective_cost("all_reduce", "ring", size, n, place).seconds


def half_busbw(place: Link | Cluster, n) -> float:
    """Bytes at which a ring all_reduce over ``n`` ranks spends as long on latency as on bytes.

    There it reaches half of its largest busbw. On a plain link it is ``bucket_for_share(0.5, n, link)``.
    """
    latency, whole = ring_on(place, n)(np.array([0.0, GB]))
    return float(latency / (whole - latency) * GB)


def mebibytes(size: float) -> str:
    """A bucket size as its setting is given: three digits in MiB."""
    return f"{digits(size / MiB)} MiB"


def share_table(bucket=25e6, ranks=(8, 64, 512), link=HOP) -> Table:
    """Claim 3.1-j: what one bucket of 25 MB reaches, and what 90 % takes; what a framework scales it to."""
    scaled = [2 * max(MEGATRON_LEAST, MEGATRON_PER_RANK * n) for n in ranks]
    return table(
        (
            "ranks N",
            f"share reached by {format_bytes(bucket)}",
            "bucket for 90 %",
            "Megatron-LM, bf16",
            "reaches",
        ),
        (
            (
                n,
                format_share(bandwidth_share(bucket, n, link)),
                format_bytes(bucket_for_share(0.9, n, link)),
                format_bytes(default),
                format_share(bandwidth_share(default, n, link)),
            )
            for n, default in zip(ranks, scaled, strict=True)
        ),
    )


def optimum(n, name="a100", sequences=2, slow_down=1.0, model=SMALL) -> BucketSearch:
    """The best bucket size for ``n`` ranks (several: shape (k, 1)) of a preset."""
    machine = machine_of(name, n)
    blocks = blocks_of(model, machine.gpu, sequences)
    return best_bucket(blocks, ring_on(machine, n), slow_down=slow_down)


def optimum_table(ranks=(8, 64, 512, 1024), names=("a100", "cloud-25gbe"), sequences=2) -> Table:
    """Claims 3.1-d and 3.1-j: the bucket size with the shortest step, by ranks and cluster."""
    rows = []
    for name in names:
        for n in ranks:
            found = optimum(n, name, sequences)
            at_cap = overlapped(sequences, n, name).span
            rows.append(
                (
                    name,
                    n,
                    mebibytes(found.best),
                    f"{mebibytes(found.low)} to {mebibytes(found.high)}",
                    format_time(found.seconds.min()),
                    f"+{format_share(at_cap / found.seconds.min() - 1)}",
                )
            )
    return table(("cluster", "ranks N", "best bucket", "within 1 %", "step", "at 25 MiB"), rows)


def warning_table(ranks=(8, 64, 512), link=HOP) -> Table:
    """Case E17: is the default cap too small on this link? One answer for each N."""
    rows = []
    for n in ranks:
        half = bucket_for_share(0.5, n, link)
        rows.append((n, format_bytes(half), "; ".join(bucket_warnings(CAP, half)) or "fine"))
    return table(("ranks N", "half of the busbw at", f"a cap of {format_size(CAP)}"), rows)


def sweep_table() -> Table:
    """Case E17 on measured links: half of the busbw, the default cap, and the best size by each sweep's fit.

    The best size is that of 2 sequences per rank of the 1.3 B model, on the card of the sweep.
    """
    rows = []
    for name in sorted(NOMINAL):
        sweep, fit = sample(name)
        if sweep.collective != "all_reduce" or not np.isfinite(fit.half_power):
            continue
        gpu = cluster("a100" if name.startswith("a100") else "h100").gpu
        found = best_bucket(blocks_of(SMALL, gpu, 2), fit.predict)
        near = f"{mebibytes(found.low)} to {mebibytes(found.high)}"
        says = "too small" if fit.half_power > CAP else "fine"
        rows.append((name, fit.n_ranks, format_bytes(fit.half_power), says, near))
    return table(
        ("sweep", "ranks", "half of the busbw at", f"a cap of {format_size(CAP)}", "best within 1 %"), rows
    )


# ---- how much overlap hides


def overlapped(sequences, n, name="a100", cap=CAP, slow_down=1.0, gradient_bytes=2.0) -> Timeline:
    """One step of the 1.3 B model on ``n`` ranks of a preset, ``sequences`` of 2,048 tokens on each."""
    machine = machine_of(name, n)
    blocks = blocks_of(SMALL, machine.gpu, sequences, gradient_bytes)
    return step_timeline(blocks, ring_on(machine, n), cap, slow_down=slow_down)


CASES = (("a100", 8), ("a100", 64), ("a100", 512), ("h100", 64), ("cloud-25gbe", 64))


def coverage_table(sequences=(1, 2, 4, 8, 16, 64)) -> Table:
    """Claim 3.1-e: the hidden share of the communication, by cluster, ranks and sequences per rank."""
    return table(
        ("cluster", "ranks N", *(f"{each} seq/rank" for each in sequences), "60 to 80 % at"),
        (
            (
                name,
                n,
                *(format_share(overlapped(each, n, name).coverage) for each in sequences),
                "{:.2g} to {:.2g} seq/rank".format(*(sequences_for(c, n, name) for c in (0.6, 0.8))),
            )
            for name, n in CASES
        ),
    )


def sequences_for(coverage, n, name) -> float:
    """Sequences per rank at which so much of the communication hides; bisected, NaN where never."""
    low, high = 2.0**-6, 2.0**12
    if overlapped(high, n, name).coverage < coverage:
        return float("nan")
    for _ in range(24):
        middle = (low * high) ** 0.5
        low, high = (low, middle) if overlapped(middle, n, name).coverage >= coverage else (middle, high)
    return high


def saved(n=64, sequences=2, name="a100", slow_down=1.0, cap=CAP) -> float:
    """Share of the communication time by which overlap shortens the step, slowed computing counted.

    Against the same buckets reduced after the backward pass. It is the coverage where nothing is slowed.
    """
    t = overlapped(sequences, n, name, cap, slow_down)
    compute = overlapped(sequences, n, name, cap).busy[0]
    return float(1 - (t.span - compute) / t.communication[0])


def slow_down_for(share, n=64, sequences=2, name="a100") -> float:
    """The slow-down at which overlap saves ``share`` of the communication time; bisected, 1 where never."""
    low, high = 1.0, 4.0
    for _ in range(24):
        middle = (low + high) / 2
        low, high = (middle, high) if saved(n, sequences, name, middle) >= share else (low, middle)
    return low


def slow_down_table(n=64, sequences=2, slow_downs=(1.0, 1.05, 1.1, 1.2, 1.3)) -> Table:
    """What overlap wins once computing beside an all_reduce is slower."""
    rows = []
    for slow_down in slow_downs:
        t = overlapped(sequences, n, slow_down=slow_down)
        share = format_share(saved(n, sequences, slow_down=slow_down))
        rows.append((slow_down, format_share(t.coverage), format_time(t.span), share))
    return table(("slow-down", "coverage", "step", "communication time saved"), rows)
