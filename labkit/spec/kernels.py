"""Kernels: what the kernels of a GPU get out of it, from microbenchmarks alone; no training step is in it."""

from dataclasses import dataclass, fields

import numpy as np

from labkit.errors import InputRefused
from labkit.spec.checks import amount, broadcasting, whole
from labkit.units import plain

# What each constant can be. A fit stays inside; one at the edge stands for something else than it says.
RANGES = {
    "product": (0.3, 1.0),  # shares of a peak are below 1
    "edge": (0.005, 0.95),  # from "operands cost nothing" to "operands are all that costs"
    "prologue": (10.0, 500.0),  # a few stages of 32 to 64 steps of k, and the store of the result
    "wave": (0.05, 1.0),  # 1: a multiprocessor without a tile waits until the last tile is done
    "memory": (0.3, 1.0),
    "throttle": (0.002, 0.3),
    "launch": (0.5e-6, 20e-6),  # an empty kernel takes 1 to 3 us on any driver of the last ten years
    "host": (1e-6, 100e-6),
    "attention_forward": (0.1, 1.0),
    "attention_backward": (0.1, 1.0),
    "streaming": (0.3, 1.0),
}
SECONDS = ("launch", "host")  # the other constants have no unit
OF_PRODUCTS = ("product", "edge", "prologue", "wave", "memory", "throttle", "launch")
# Large products reach less than ``product``, for waves, prologue, heat: by this much on the GPUs measured.
_ABOVE_REACHED = 1.1


@dataclass(frozen=True, slots=True)
class Kernels:
    """Constants of one GPU type, floats; what they mean exactly stands in the formulas that use them.

    Seven for matrix products (``planner.products``), fitted to timings of single products:
    ``product``: share of the peak that one tile of 256 x 128 reaches once it runs; ``edge``: part of such a
    tile's time that grows with its edges, which are fetched, not with its area, which is multiplied;
    ``prologue``: steps of k by which a tile takes longer, to start and to store; ``wave``: how much of the
    last, partly filled wave of tiles is lost; ``memory``: share of the memory bandwidth;
    ``throttle``: how much slower a product of e - 1 ms runs than a very short one, for power and heat;
    ``launch``: seconds of a kernel that has nothing to do.

    ``attention_forward``, ``attention_backward``: share of the peak of fused attention with many heads of
    128 (``planner.kernels``). ``streaming``: share of the memory bandwidth of what only reads and writes.
    ``host``: seconds that the host takes to issue one kernel; where kernels are short, the GPU waits for it.

    Facts of the chip: ``multiprocessors``; ``tile``: columns of the largest tile of 256 rows, 128, or 256
    where two multiprocessors share their operands (Hopper and later); ``cache``: bytes of the last level.
    ``residual``: median relative error of single products under these constants, on timings that the fit has
    not seen: two steps that differ by less cannot be told apart.
    """

    product: float
    edge: float = 0.05
    prologue: float = 130.0
    wave: float = 0.4
    memory: float = 0.85
    throttle: float = 0.05
    launch: float = 2.5e-6
    host: float = 10e-6
    attention_forward: float = 0.6
    attention_backward: float = 0.5
    streaming: float = 0.85
    multiprocessors: int = 132
    tile: int = 256
    cache: float = 0.0
    residual: float = 0.05

    def __post_init__(self):
        for name, (low, high) in RANGES.items():
            value = amount(getattr(self, name), f"{name} of a GPU's kernels")
            if np.any((value < low) | (value > high)):
                raise InputRefused(
                    f"{name} of a GPU's kernels lies outside {low:g} to {high:g}; give a value inside"
                )
        whole(self.multiprocessors, "the multiprocessors of a GPU", arrays=True)
        if whole(self.tile, "the tile of a GPU's kernels") not in (128, 256):
            raise InputRefused("the tile of a GPU's kernels has 128 or 256 columns; give one of these")
        amount(self.cache, "the cache of a GPU, in bytes,", zero=True)
        amount(self.residual, "the residual of a GPU's kernels", zero=True)
        broadcasting({field.name: np.shape(getattr(self, field.name)) for field in fields(self)}, "kernels")

    @classmethod
    def usual(cls, reached) -> "Kernels":
        """Of a GPU known only by the share of peak that its large products reach: the rest as on Hopper.

        >>> round(Kernels.usual(0.5).product, 3)
        0.55
        """
        low, high = RANGES["product"]
        reached = amount(reached, "the reached share of a GPU's peak")
        return cls(product=plain(np.clip(_ABOVE_REACHED * reached, low, high)))
