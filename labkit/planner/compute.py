"""Seconds of pure computation."""

import numpy as np

from labkit.errors import InputRefused
from labkit.spec import Gpu
from labkit.units import plain


def compute_time(flops, gpu: Gpu, precision: str | None = None):
    """Seconds one GPU needs for ``flops`` operations (float or array): FLOPs / (peak x reached share).

    The reached share belongs to the GPU preset and is the one figure of large matrix products there; small
    products, launches and waiting are not in it. ``precision`` is bf16 unless given, or fp16 on a GPU without
    bf16. Refused: a precision that the GPU has no peak for, and operations below 0.

    >>> round(compute_time(312e12 / 2, Gpu("half of A100", 80e9, {"bf16": 312e12}, reached=0.5)), 12)
    1.0
    """
    precision = precision or ("bf16" if "bf16" in gpu.peak else "fp16")
    if precision not in gpu.peak:
        raise InputRefused(f"{gpu.name} has no peak for {precision}; use one of {', '.join(gpu.peak)}")
    flops = np.asarray(flops, float)
    if not (flops >= 0).all():
        raise InputRefused("the number of operations must be 0 or more; correct the negative or missing one")
    return plain(flops / (gpu.peak[precision] * gpu.reached))
