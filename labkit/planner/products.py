"""Seconds of one matrix product: tiles that multiprocessors compute in waves, or what the memory moves.

A kernel cuts the result into tiles; each multiprocessor computes one tile after the other, step by step along
k, with a start and an end that a short k does not repay. The last wave of tiles leaves multiprocessors
without work. Where tiles are few, k is cut as well, and partial sums are added up. (NVIDIA, Matrix
Multiplication Background User's Guide: tile and wave quantisation; Williams et al. 2009: the roofline.)
The library has several tiles and takes a good one: here the quickest of six. Constants: ``spec.kernels``.
"""

import numpy as np

from labkit.planner.compute import usual_precision
from labkit.spec import Gpu
from labkit.spec.checks import amount, one_of, together
from labkit.units import plain

# Rows and columns of tiles; a GPU uses those from its largest down to an eighth of it.
_TILES = ((256, 256), (256, 128), (128, 256), (128, 128), (128, 64), (64, 128), (64, 64))
_AREA, _EDGES = 256 * 128, 256 + 128  # of the tile that the share of peak is given for
_WAVES, _MOST_PARTS = (1, 2, 4), 8  # k is cut so that the tiles fill so many waves, into at most 8 parts
# A partial sum is written and read again, 4 bytes each way, through the cache: at 1.5 x the memory bandwidth.
_PARTIAL_SUM = 2 * 4 / 1.5
# The longer a benchmark's product, the lower the clocks. In training the load never ends: products run there
# as the longest of the published timings do, those of 50 ms and more (data/published/matrix_products.csv).
_THROTTLED_AFTER, _SUSTAINED = 1e-3, 50e-3  # seconds
# Repeating a product finds its operands in the cache, unless they need more than 60 % of it; what is found
# costs 30 % of a read from memory. Read off the products with n = 32, the same for all GPUs.
_KEPT, _CACHED = 0.6, 0.3
_ELEMENT = {"fp64": 8.0, "fp32": 4.0, "tf32": 4.0, "fp8": 1.0, "fp4": 0.5}


def product_seconds(m, n, k, gpu: Gpu, count=1, precision: str | None = None, repeated: bool = False):
    """Seconds of ``count`` independent products (m, k) x (k, n) in one kernel, with one ``kernels.launch``.

    Numbers or arrays that broadcast. Where starts of kernels are counted apart, take ``gpu.kernels.launch``
    off once (where k is cut, the start of the kernel that adds up the parts stays in). ``precision``: a key
    of ``gpu.peak``; bf16 unless given, or fp16 on a GPU without bf16. ``repeated``: the same product over and
    over, as a benchmark times it, so that operands are still in the cache and the clock falls with the
    product's own length; in training other operands have been there since, and the clock is that of a long
    load. Without a memory bandwidth only the multiplying counts. Refused: sizes not above 0, and a precision
    without a peak.

    >>> card = Gpu("round", 80e9, {"bf16": 300e12}, 0.8, memory_bandwidth=2e12)
    >>> large, narrow = product_seconds(8192, np.array([8192, 32]), 8192, card)
    >>> print(f"{2 * 8192**3 / large / 300e12:.2f} {2 * 8192**2 * 32 / narrow / 300e12:.2f} of the peak")
    0.73 0.16 of the peak
    """
    precision = usual_precision(gpu, precision)
    m, n, k, count = (
        amount(value, f"{name} of a product")
        for name, value in (("m", m), ("n", n), ("k", k), ("count", count))
    )
    one_of((False, True), repeated, "repeated", arrays=False)
    together("a product", m=m, n=n, k=k, count=count, gpu=gpu)
    use = gpu.kernels
    inputs, output = count * (m * k + k * n), count * m * n
    read = np.inf if gpu.memory_bandwidth is None else gpu.memory_bandwidth
    math = _multiplying(m, n, k, count, gpu, gpu.peak[precision], read)
    under_load = math if repeated else np.maximum(math, _SUSTAINED)
    math = math * (1 + use.throttle * np.log1p(under_load / _THROTTLED_AFTER))
    size = element_bytes(precision)
    if repeated and np.all(np.asarray(use.cache) > 0):
        beyond = ((inputs + output) * size / use.cache - _KEPT) / (1 - _KEPT)
        inputs = inputs * (_CACHED + (1 - _CACHED) * np.clip(beyond, 0, 1))
    moving = (inputs + output) * size / (read * use.memory)
    # Near the corner of the roofline both limits are felt.
    return plain(use.launch + np.cbrt(math * math * math + moving * moving * moving))


def _multiplying(m, n, k, count, gpu, peak, bandwidth):
    """Seconds of the tiles, with the tile and the cut of k that take least."""
    use = gpu.kernels
    per_step = 2 * _AREA * use.multiprocessors / (peak * use.product)
    adding = _PARTIAL_SUM * count * m * n / bandwidth
    best = np.inf
    for rows, columns in _TILES:
        if not 256 * use.tile / 8 <= rows * columns <= 256 * use.tile:
            continue
        step = (1 - use.edge) * (rows * columns / _AREA) + use.edge * ((rows + columns) / _EDGES)
        step = step * per_step
        tiles = np.ceil(m / rows) * np.ceil(n / columns) * count
        best = np.minimum(best, _waves(tiles, use) * step * (k + use.prologue))
        for filled in _WAVES:
            parts = np.clip(np.floor(filled * use.multiprocessors / tiles), 1, _MOST_PARTS)
            if np.any(parts > 1):
                cut = _waves(tiles * parts, use) * step * (k / parts + use.prologue)
                best = np.minimum(best, cut + adding * parts + use.launch)  # a kernel of its own adds
    return best


def _waves(tiles, use):
    """Waves of tiles; of the last one the part without work counts by ``wave``."""
    waves = tiles / use.multiprocessors
    return waves + use.wave * (np.ceil(waves) - waves)


def element_bytes(precision: str) -> float:
    """Bytes of one element in memory; 2 of the half precisions and of a precision with another name.

    >>> element_bytes("bf16"), element_bytes("fp8")
    (2.0, 1.0)
    """
    return _ELEMENT.get(precision, 2.0)
