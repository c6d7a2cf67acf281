"""Seconds of each stage, with the vocabulary's work on the end stages or spread over all of them."""

from typing import NamedTuple

import numpy as np

from labkit.errors import InputRefused
from labkit.spec.checks import whole
from labkit.strategies.checks import flag, numbers

LONGEST = 10**6  # stages, or forwards of an order, which take some seconds to simulate


class StageTimes(NamedTuple):
    """Seconds per micro-batch, in the order in which ``simulate`` and ``greedy`` take them.

    ``forward``, ``backward`` (the whole of it) and ``weight_gradient`` (its part) are one per stage;
    ``transfer`` is one per boundary, shape (stages - 1,).
    """

    forward: np.ndarray
    backward: np.ndarray
    transfer: np.ndarray
    weight_gradient: np.ndarray


def stage_times(
    stages: int,
    forward=1.0,
    backward=2.0,
    transfer=0.0,
    weight_gradient=None,
    *,
    embedding: float = 0.0,
    head: float = 0.0,
    spread: bool = False,
) -> StageTimes:
    """Times of ``stages`` stages, each argument one value or one per stage (``transfer``: per boundary).

    With v chunks per rank a stage is one chunk: ``stages`` = p v, and a chunk takes 1/v of the rank's time.
    ``weight_gradient`` is half of ``backward`` unless given: a matrix product has two gradients of equal
    FLOPs. ``embedding`` and ``head``: seconds forward of the vocabulary's work, twice as many backward, half
    of these for the weights. It sits on the first and the last stage, or, ``spread``, evenly on all
    (vocabulary parallelism: Yeung et al. 2024, "Balancing Pipeline Parallelism with Vocabulary Parallelism";
    the exchanges it needs are not in it). Refused: times not finite, not above zero (``transfer``,
    ``embedding``, ``head``: below zero), of another shape, and a weight gradient that is not less than its
    backward.

    >>> stage_times(4, 1, 2, head=0.5).forward.tolist()
    [1.0, 1.0, 1.0, 1.5]
    >>> stage_times(4, 1, 2, head=0.5, spread=True).backward.tolist()
    [2.25, 2.25, 2.25, 2.25]
    """
    stages = whole(stages, "the number of stages", most=LONGEST)
    forward = _times(forward, stages, "forward", "stage")
    backward = _times(backward, stages, "backward", "stage")
    transfer = _times(transfer, stages - 1, "transfer", "boundary", zero_allowed=True)
    weight = backward / 2 if weight_gradient is None else weight_gradient
    weight = _times(weight, stages, "weight gradient", "stage")
    if not np.all(weight < backward):
        raise InputRefused(
            "the weight gradient is a part of the backward and must take less; give the whole backward time"
        )
    vocabulary = np.zeros(stages)
    vocabulary[0] += _times(embedding, 1, "embedding", "model", zero_allowed=True)[0]
    vocabulary[-1] += _times(head, 1, "head", "model", zero_allowed=True)[0]
    flag(spread, "spread")
    if spread:
        vocabulary[:] = vocabulary.sum() / stages
    return StageTimes(forward + vocabulary, backward + 2 * vocabulary, transfer, weight + vocabulary)


def _times(value, count: int, name: str, per: str, zero_allowed: bool = False) -> np.ndarray:
    """``value`` as one float for each of ``count`` stages or boundaries."""
    if not count and np.size(value) == 0:
        return np.zeros(0)
    times = numbers(value, f"the {name} time", zero=zero_allowed)
    if times.shape not in ((), (count,)):
        raise InputRefused(
            f"{name} times have the shape {times.shape}; give one value or one per {per}, shape ({count},)"
        )
    return np.broadcast_to(times, (count,))
