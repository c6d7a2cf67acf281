"""Steps of a training job as requests to an allocator: activations come and go, gradients stay for a while.

Per micro-batch: each layer's activations forward, the logits; backward in reverse order, where a layer's
activations go and, with the first micro-batch of a step, its gradients come and stay until the optimizer has
run. What lies between activations when these go is what holes are made of.
"""

from dataclasses import dataclass

import numpy as np

from labkit.errors import InputRefused
from labkit.practice.allocator.caching import Block, CachingAllocator
from labkit.practice.allocator.expandable import ExpandableAllocator
from labkit.spec.checks import noun, one_of, shown, whole

# Bytes per position and hidden element that a layer keeps, 34 in all ("Reducing Activation Recomputation in
# Large Transformer Models", 2022, section 4.1, scores not stored): inputs of norms, of attention with its
# queries, keys and values, of the output product, masks, and of the MLP's two products.
KEPT = (4, 6, 3, 5, 8, 8)
_PASSING = 8  # bytes of the widest gradient of an activation, there while a layer goes backward
# Parameters of a layer's matrices over hidden squared; 2 bytes of gradient each.
MATRICES = (3, 1, 4, 4)
_LOGIT = 6  # bytes of a logit in bf16 and of its copy in fp32


@dataclass(frozen=True, slots=True)
class Job:
    """What a rank holds: ``layers`` of ``hidden`` and a head for ``vocabulary``; ``accumulation``
    micro-batches a step; ``leak``: bytes that each of them leaves behind, as a list of losses
    with their graphs does.
    """

    layers: int = 4
    hidden: int = 4096
    vocabulary: int = 32000
    accumulation: int = 2
    leak: int = 0

    def __post_init__(self):
        for name in ("layers", "hidden", "vocabulary", "accumulation"):
            whole(getattr(self, name), f"{name} of a job")
        whole(self.leak, "bytes that a micro-batch leaves behind", least=0)

    @property
    def gradient_bytes(self) -> int:
        """Bytes of the layers' gradients, which stand from the first backward to the update."""
        return self.layers * 2 * sum(MATRICES) * self.hidden**2

    def activation_bytes(self, positions: int) -> int:
        """Bytes that are in use at the widest point of a micro-batch, rounding left out."""
        return positions * (self.layers * sum(KEPT) * self.hidden + _LOGIT * self.vocabulary)


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class History:
    """Bytes over the micro-batches that ran: arrays, one value each.

    ``allocated``: the most at one moment, ``held``: at its end, gradients left out; ``reserved`` at its end.
    ``capacity`` of the device. ``failed``: the micro-batch, counted from 0, at which memory ran out, with the
    bytes ``asked`` for then, and ``at_failure`` what was allocated and reserved; None and 0 where all ran.
    ``layout``: the blocks, as (bytes, free), at that moment, or after the forward of the last micro-batch.
    """

    allocated: np.ndarray
    held: np.ndarray
    reserved: np.ndarray
    capacity: int
    layout: list[tuple[int, bool]]
    failed: int | None = None
    asked: int = 0
    at_failure: tuple[int, int] = (0, 0)

    @property
    def unused(self) -> np.ndarray:
        """Reserved and not allocated, even at the widest moment."""
        return self.reserved - self.allocated


ALLOCATORS = {"segments": CachingAllocator, "expandable segments": ExpandableAllocator}


def run_steps(shapes, capacity: int, job: Job = Job(), allocator: str = "segments") -> History:
    """The micro-batches of ``shapes`` (rows, positions in a row), one after the other, until memory is out.

    ``capacity``: bytes that weights and optimizer leave for activations and gradients. Refused: an allocator
    that is not there, shapes that are not pairs of whole numbers.
    """
    noun(job, Job, "the job")
    name = one_of(tuple(ALLOCATORS), allocator, "the allocator", arrays=False).item()
    shapes = [_shape(shape) for shape in shapes] if isinstance(shapes, tuple | list) else []
    if not shapes:
        raise InputRefused("there are no micro-batches; give a list of (rows, positions in a row)")
    device = _Device(ALLOCATORS[name](capacity), job)
    rows = []
    for number, (sequences, width) in enumerate(shapes):
        try:
            rows.append(device.micro_batch(sequences * width, number == len(shapes) - 1))
        except _OutOfMemory as failure:
            cache = device.cache
            return _history(
                rows, cache, cache.layout(), number, failure.asked, (cache.allocated, cache.reserved)
            )
        if number % job.accumulation == job.accumulation - 1:
            device.update()
    return _history(rows, device.cache, device.after_forward)


def _history(rows: list[tuple], cache: CachingAllocator, layout, *failure) -> History:
    allocated, held, reserved = np.array(rows, dtype=np.int64).reshape(-1, 3).T
    return History(allocated, held, reserved, cache.capacity, layout, *failure)


def _shape(shape) -> tuple[int, int]:
    if not isinstance(shape, tuple | list) or len(shape) != 2:
        raise InputRefused(f"a micro-batch is {shown(shape)}; give a pair, (rows, positions in a row)")
    return whole(shape[0], "rows of a micro-batch"), whole(shape[1], "positions in a row")


class _OutOfMemory(Exception):
    def __init__(self, asked: int):
        super().__init__(asked)
        self.asked = asked


class _Device:
    """One rank at work: its cache and the gradients that stand in it."""

    def __init__(self, cache: CachingAllocator, job: Job):
        self.cache, self.job = cache, job
        self._gradients: list[Block] = []
        self.after_forward: list[tuple[int, bool]] = []
        self._most = 0

    def micro_batch(self, positions: int, last: bool) -> tuple[int, int, int]:
        """Forward and backward; what was allocated at most, what stays, what is reserved then."""
        job, take, drop = self.job, self._take, self.cache.free
        self._most = self.cache.allocated
        wide = positions * job.hidden
        kept = [[take(one * wide) for one in KEPT] for _ in range(job.layers)]
        # bf16 logits, their fp32 copy for the loss, and the gradient that replaces both.
        logits = [take(one * positions * job.vocabulary) for one in (2, _LOGIT - 2)]
        gradient = take(2 * positions * job.vocabulary)
        if last:
            self.after_forward = self.cache.layout()
        for block in logits:
            drop(block)
        above = take(2 * wide)
        drop(gradient)
        for layer in reversed(kept):
            widest = take(_PASSING * wide)
            for block in reversed(layer):
                drop(block)
            if len(self._gradients) < job.layers * len(MATRICES):
                self._gradients += [take(2 * one * job.hidden**2) for one in MATRICES]
            below = take(2 * wide)
            drop(widest)
            drop(above)
            above = below
        drop(above)
        if job.leak:
            take(job.leak)
        standing = sum(block.size for block in self._gradients)
        return self._most, self.cache.allocated - standing, self.cache.reserved

    def update(self) -> None:
        """The optimizer has run; gradients are set to none."""
        for block in self._gradients:
            self.cache.free(block)
        self._gradients = []

    def _take(self, size: int) -> Block:
        block = self.cache.allocate(size)
        if block is None:
            raise _OutOfMemory(size)
        self._most = max(self._most, self.cache.allocated)
        return block
