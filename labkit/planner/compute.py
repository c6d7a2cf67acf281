"""Seconds of pure computation."""

from labkit.errors import InputRefused
from labkit.spec import Gpu
from labkit.spec.checks import amount, noun, shown, together
from labkit.units import plain


def compute_time(flops, gpu: Gpu, precision: str | None = None):
    """Seconds one GPU needs for ``flops`` operations (float or array): FLOPs / (peak x reached share).

    The reached share belongs to the GPU preset and is the one figure of large matrix products there; small
    products, launches and waiting are not in it (``planner.products`` has them). ``precision`` is bf16 unless
    given, or fp16 on a GPU without bf16. Refused: a precision that the GPU has no peak for, and operations
    below 0.

    >>> round(compute_time(312e12 / 2, Gpu("half of A100", 80e9, {"bf16": 312e12}, reached=0.5)), 12)
    1.0
    """
    precision = usual_precision(gpu, precision)
    together("compute time", flops=flops, gpu=gpu)
    return plain(amount(flops, "the number of operations", zero=True) / (gpu.peak[precision] * gpu.reached))


def usual_precision(gpu: Gpu, precision: str | None) -> str:
    """The precision, or bf16 where none is given, or fp16 on a GPU without bf16; refused without a peak."""
    noun(gpu, Gpu, "the gpu")
    if precision is None:
        precision = "bf16" if "bf16" in gpu.peak else "fp16"
    if not isinstance(precision, str) or precision not in gpu.peak:
        known = f"use one of {', '.join(gpu.peak)}" if gpu.peak else "give its peak"
        raise InputRefused(f"{gpu.name} has no peak for {shown(precision)}; {known}")
    return precision
