"""Gradient buckets under the backward pass: who is busy when, and which bucket size gives the shortest step.

One rank, two streams. The backward pass runs block by block from the end of the model; a block's gradients
become ready when it stops. A bucket's all_reduce starts when the bucket is full **and** the one before is
done: one communication stream, as in PyTorch's DistributedDataParallel (Li et al. 2020, section 3.2.3). While
it runs, computing is ``slow_down`` times slower, because both share the GPU (``contention.py``). What an
all_reduce costs is asked of a function of its bytes, so that a link, a cluster or a fitted sweep can answer.

``step_timeline`` follows the two streams event by event; ``step_seconds`` is a recurrence over blocks that
takes many bucket sizes and links at once. Tests hold the two equal.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from labkit.errors import InputRefused
from labkit.spec.checks import shown
from labkit.strategies.buckets import CAP, FIRST_CAP, ddp_buckets
from labkit.strategies.checks import flag, function, numbers, shaped, single
from labkit.strategies.contention import slow_down_factor
from labkit.strategies.timeline import BACKWARD, FORWARD, TRANSFER, Timeline
from labkit.strategies.two_streams import Task, two_streams
from labkit.units import plain


@dataclass(frozen=True, slots=True)
class Block:
    """A stretch of a model whose gradients become ready together, when its backward stops.

    ``forward``, ``backward``: seconds; ``gradients``: bytes of each parameter's, in registration order.
    """

    forward: float
    backward: float
    gradients: tuple[float, ...]

    def __post_init__(self):
        single(self.forward, "a block's forward", zero=True)
        single(self.backward, "a block's backward", zero=True)
        if not isinstance(self.gradients, tuple | list):
            raise InputRefused(f"a block's gradients are {shown(self.gradients)}; give a tuple of sizes")
        if self.gradients:
            numbers(self.gradients, "the bytes of a gradient")


def step_timeline(
    blocks: Sequence[Block],
    all_reduce: Callable[[np.ndarray], np.ndarray],
    cap: float = CAP,
    first: float = FIRST_CAP,
    slow_down: float = 1.0,
    overlap: bool = True,
) -> Timeline:
    """When one rank computes and communicates in one step, from the first forward to the last all_reduce.

    ``blocks``: in the order of the forward pass. ``all_reduce``: seconds for each of an array of sizes.
    ``overlap`` off: all buckets wait for the end of the backward pass. Items are blocks for computing and
    buckets for transfers, both counted from 0. Refused: no blocks, none of which computes, a ``slow_down``
    below 1, and what ``ddp_buckets`` refuses.

    >>> blocks = [Block(1, 2, (4,)), Block(1, 2, (4,)), Block(1, 2, (4,))]
    >>> t = step_timeline(blocks, all_reduce=lambda size: 3 * size / 4, cap=4, first=4)
    >>> t.span, t.coverage  # backward from 3 to 9; all_reduces from 5, 8 and 11, of 3 s each
    (14.0, 0.4444444444444444)
    """
    sizes, last = _filled(blocks, cap, first, slow_down)
    seconds = _costs(all_reduce, sizes, ()).tolist()
    flag(overlap, "overlap")
    tasks = [Task(FORWARD, item, block.forward) for item, block in enumerate(blocks)]
    tasks += [Task(BACKWARD, item, blocks[item].backward) for item in reversed(range(len(blocks)))]
    final = len(tasks) - 1  # the backward of block 0
    tasks += [
        Task(TRANSFER, bucket, each, (final - item if overlap else final,))
        for bucket, (each, item) in enumerate(zip(seconds, last.tolist(), strict=True))
    ]
    return two_streams(tasks, slow_down)


def step_seconds(
    blocks: Sequence[Block],
    all_reduce: Callable[[np.ndarray], np.ndarray],
    caps=CAP,
    first: float | None = FIRST_CAP,
    slow_down: float = 1.0,
):
    """Seconds of the step for each bucket size in ``caps`` (a float, or shape (k,)), shape (..., k).

    ``all_reduce`` takes an array of sizes, shape (b,), and may answer with more axes in front, (..., b): one
    row for each link or rank count. ``first``: cap of the first bucket; None: that of the others.
    Refused: what ``step_timeline`` refuses.

    >>> blocks = [Block(1, 2, (4,)), Block(1, 2, (4,)), Block(1, 2, (4,))]
    >>> step_seconds(blocks, lambda size: 3 * size / 4, caps=np.array([4, 12]), first=None).tolist()
    [14.0, 18.0]
    """
    each = np.atleast_1d(numbers(caps, "a bucket's cap", endless=True))
    if each.ndim > 1:
        raise InputRefused(f"the caps have the shape {each.shape}; give one, or a list of them")
    filled = [_filled(blocks, cap, cap if first is None else first, slow_down) for cap in each]
    # The buckets of all sizes are costed in one call.
    seconds = _costs(all_reduce, np.concatenate([sizes for sizes, _ in filled]))
    row = np.repeat(np.arange(each.size), [sizes.size for sizes, _ in filled])
    place = len(blocks) - 1 - np.concatenate([last for _, last in filled])
    durations = np.zeros((*seconds.shape[:-1], each.size, len(blocks)))
    np.add.at(durations, (..., row, place), seconds)
    backward = [block.backward for block in reversed(blocks)]
    seconds = sum(block.forward for block in blocks) + backward_seconds(backward, durations, slow_down)
    return plain(seconds if np.ndim(caps) else seconds[..., 0])


def backward_seconds(backward: Sequence[float], durations, slow_down: float = 1.0):
    """Seconds from the start of the backward pass until it and all all_reduces are done.

    ``backward``: seconds of each block in the order in which the backward pass runs, shape (l,);
    ``durations``: seconds of the all_reduces that become ready with it, shape (..., l). A block that starts
    while the wire is busy for u more seconds takes b + min((s - 1) b, (1 - 1/s) u) instead of b, at slow-down
    s; the wire is then busy until max(its own end, the block's) + the new durations.
    """
    backward = shaped(numbers(backward, "a block's backward", zero=True), "the array of backwards", "blocks")
    durations = numbers(durations, "the duration of an all_reduce", zero=True)
    if durations.shape[-1:] != backward.shape:
        raise InputRefused(
            f"{len(backward)} blocks need as many durations of all_reduces; got the shape {durations.shape}"
        )
    slow_down = slow_down_factor(slow_down)
    now = free = np.zeros(durations.shape[:-1])
    for item, seconds in enumerate(backward):
        busy = np.maximum(free - now, 0.0)
        now = now + seconds + np.minimum((slow_down - 1) * seconds, (1 - 1 / slow_down) * busy)
        free = np.maximum(free, now) + durations[..., item]
    return plain(free)


@dataclass(frozen=True, slots=True)
class BucketSearch:
    """Step times (s), shape (..., k), of the bucket sizes ``caps`` (bytes, shape (k,)).

    ``best``: the size with the shortest step; ``low`` to ``high``: the sizes around it within 1 % of that
    step, between which nothing is gained by tuning. All of the shape in front of k.
    """

    caps: np.ndarray
    seconds: np.ndarray
    best: float
    low: float
    high: float


NEAR = 1.01  # within 1 % of the shortest step


def best_bucket(
    blocks: Sequence[Block],
    all_reduce: Callable[[np.ndarray], np.ndarray],
    caps: np.ndarray | None = None,
    first: float | None = FIRST_CAP,
    slow_down: float = 1.0,
) -> BucketSearch:
    """The bucket size with the shortest step, looked for among ``caps``: two per doubling unless given.

    These run from 256 KiB to all gradients in one bucket. Other arguments as in ``step_seconds``.
    """
    if caps is None:
        _check_blocks(blocks)
        whole = sum(sum(block.gradients) for block in blocks)
        steps = max(2, int(np.ceil(2 * np.log2(max(whole, 2**19) / 2**18))) + 1)
        caps = 2**18 * 2 ** (np.arange(steps) / 2)
    caps = np.atleast_1d(numbers(caps, "a bucket's cap", endless=True))
    seconds = np.asarray(step_seconds(blocks, all_reduce, caps, first, slow_down))
    at = np.argmin(seconds, axis=-1)
    near = seconds <= NEAR * np.min(seconds, axis=-1, keepdims=True)
    index = np.arange(caps.size)
    # The stretch of near sizes that holds the best one ends where the first one is not near any more.
    above = np.where(~near & (index > at[..., None]), index, caps.size).min(axis=-1) - 1
    below = np.where(~near & (index < at[..., None]), index, -1).max(axis=-1) + 1
    return BucketSearch(caps, seconds, *(plain(caps[i]) for i in (at, below, above)))


def _filled(blocks: Sequence[Block], cap, first, slow_down) -> tuple[np.ndarray, np.ndarray]:
    """Bytes of each bucket, and the block whose backward fills it, in the order of reduction."""
    _check_blocks(blocks)
    slow_down_factor(slow_down)
    buckets = ddp_buckets([size for block in blocks for size in block.gradients], cap, first)
    owner = np.repeat(np.arange(len(blocks)), [len(block.gradients) for block in blocks])
    return np.array([bucket.size for bucket in buckets]), owner[[bucket.parameters[-1] for bucket in buckets]]


def _check_blocks(blocks) -> None:
    good = isinstance(blocks, Sequence) and all(isinstance(block, Block) for block in blocks)
    if not good or not sum(block.backward for block in blocks) > 0:
        raise InputRefused("there is no block whose backward takes time; give a list of Blocks with one")


def _costs(all_reduce, sizes: np.ndarray, rows: tuple[int, ...] | None = None) -> np.ndarray:
    """What the all_reduces of these sizes cost: seconds, shape (..., sizes), or (*rows, sizes)."""
    function(all_reduce, "the all_reduce")
    seconds = numbers(all_reduce(sizes), "the seconds of an all_reduce", zero=True)
    if seconds.shape[-1:] != sizes.shape or (rows is not None and seconds.shape[:-1] != rows):
        raise InputRefused(
            f"the all_reduce answered with the shape {seconds.shape}; give one time for each of the "
            f"{sizes.size} sizes"
        )
    return seconds
