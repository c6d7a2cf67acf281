"""Tensor parallel's overlaps as programs on two streams: one that is forbidden, three that are legal.

Two blocks on t ranks. A block's products end in a summand of its output on each rank, tanh(x) W_r, and the
sum of them over the ranks is the input of the next block. Why these are legal: ``tensor_overlap``, which has
their timelines.
"""

from typing import NamedTuple

import numpy as np

from labkit.spec.checks import one_of, whole
from labkit.strategies.streams import COMMUNICATION, COMPUTE, AllReduce, Kernel, Operation, Record, Wait

ROWS, HIDDEN, MOST_RANKS = 4, 6, 8


class Case(NamedTuple):
    """Programs and buffers of all ranks, and what each rank must hold in the end, by buffer."""

    programs: list[list[Operation]]
    buffers: list[dict[str, np.ndarray]]
    expected: dict[str, np.ndarray]


def tensor_case(way: str, t: int = 2) -> Case:
    """One of ``WAYS`` on ``t`` ranks, with small random matrices. Refused: another way, t not 1 to 8.

    >>> from labkit.strategies.stream_check import check
    >>> {way: [finding.kind for finding in check(tensor_case(way).programs)] for way in WAYS}
    {'beside the next block': ['race'], 'in turn': [], 'in chunks': [], 'half batches': [],
     'beside weight gradients': []}
    """
    one_of(tuple(WAYS), way, "the way", arrays=False)
    t = whole(t, "the tensor-parallel degree", most=MOST_RANKS)
    draw = np.random.default_rng(0)
    x, gradient = draw.normal(size=(2, ROWS, HIDDEN))
    first, second = draw.normal(size=(2, t, HIDDEN, HIDDEN))
    y = np.tanh(x) @ first.sum(axis=0)
    upper, lower = np.split(x, 2)
    shared = {"x": x, "x0": upper, "x1": lower, "gradient": gradient}
    results = {
        "z": np.tanh(y) @ second.sum(axis=0),
        "input gradient": gradient @ first.sum(axis=0).T,
        "weight gradient": x.T @ gradient,
    }
    results |= dict(zip(("z0", "z1"), np.split(results["z"], 2), strict=True))
    program = WAYS[way]()
    made = {name for one in program if isinstance(one, Kernel) for name in (one.writes,)}
    return Case(
        [program] * t,
        [{**shared, "w1": first[rank], "w2": second[rank]} for rank in range(t)],
        {name: result for name, result in results.items() if name in made},
    )


def _beside_the_next_block() -> list[Operation]:
    """The second block's products start beside the all_reduce of their own input."""
    return [*_block(1, "x", "y"), *_block(2, "y", "z"), *_awaited("z")]


def _in_turn() -> list[Operation]:
    """The second block waits for its input: legal, and nothing overlaps."""
    return [*_block(1, "x", "y"), *_awaited("y"), *_block(2, "y", "z"), *_awaited("z")]


def _in_chunks() -> list[Operation]:
    """Half of the rows travel while the other half is computed; the second block waits for both."""
    join = Kernel("join", ("y0", "y1"), "y", lambda *halves: np.concatenate(halves))
    first = [*_block(1, "x0", "y0"), *_block(1, "x1", "y1")]
    return [*first, *_awaited("y0", "y1"), join, *_block(2, "y", "z"), *_awaited("z")]


def _half_batches() -> list[Operation]:
    """Two halves of the micro-batch in turn: one computes while the other one's sum travels."""
    first = [*_block(1, "x0", "y0"), *_block(1, "x1", "y1")]
    second = [*_awaited("y0"), *_block(2, "y0", "z0"), *_awaited("y1"), *_block(2, "y1", "z1")]
    return [*first, *second, *_awaited("z0", "z1")]


def _beside_weight_gradients() -> list[Operation]:
    """Backward: the weight gradient needs nothing of the all_reduce of the input gradient."""
    inputs = Kernel("input gradient", ("gradient", "w1"), "input gradient", lambda g, w: g @ w.T)
    weights = Kernel("weight gradient", ("x", "gradient"), "weight gradient", lambda x, g: x.T @ g)
    return [inputs, *_summed("input gradient"), weights, *_awaited("input gradient")]


WAYS = {
    "beside the next block": _beside_the_next_block,
    "in turn": _in_turn,
    "in chunks": _in_chunks,
    "half batches": _half_batches,
    "beside weight gradients": _beside_weight_gradients,
}


def _block(number: int, source: str, target: str) -> list[Operation]:
    """A block's products, a summand of its output on each rank, and the all_reduce that sums them."""
    products = Kernel(
        f"block {number} of {source}", (source, f"w{number}"), target, lambda x, w: np.tanh(x) @ w
    )
    return [products, *_summed(target)]


def _summed(buffer: str) -> list[Operation]:
    """An all_reduce that waits for what was computed before it, and an event when it is done."""
    computed, done = f"{buffer} computed", f"{buffer} summed"
    return [
        Record(computed, COMPUTE),
        Wait(computed, COMMUNICATION),
        AllReduce(buffer),
        Record(done, COMMUNICATION),
    ]


def _awaited(*buffers: str) -> list[Operation]:
    """Computing waits until these are summed."""
    return [Wait(f"{buffer} summed", COMPUTE) for buffer in buffers]
