"""Seconds of pure computation."""

import numpy as np

from labkit.errors import InputRefused
from labkit.spec import Gpu


def compute_time(flops, gpu: Gpu, precision: str | None = None):
    """Seconds one GPU needs for ``flops`` operations (float or array): FLOPs / (peak x reached share).

    The reached share belongs to the GPU preset and is the one figure of large matrix products there; small
    products, launches and waiting are not in it. ``precision`` is bf16 unless given, or fp16 on a GPU without
    bf16. Refused: a precision that the GPU has no peak for.

    >>> round(compute_time(312e12 / 2, Gpu("half of A100", 80e9, {"bf16": 312e12}, reached=0.5)), 12)
    1.0
    """
    precision = precision or ("bf16" if "bf16" in gpu.peak else "fp16")
    if precision not in gpu.peak:
        raise InputRefused(f"{gpu.name} has no peak for {precision}; use one of {', '.join(gpu.peak)}")
    seconds = np.asarray(flops, float) / (gpu.peak[precision] * gpu.reached)
    return seconds.item() if seconds.ndim == 0 else seconds
