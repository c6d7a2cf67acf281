"""What follows from an order alone, whatever the times are: activations held and messages sent."""

from itertools import pairwise

import numpy as np

from labkit.strategies.checks import share
from labkit.strategies.pipeline.order import Coded, Order, coded
from labkit.strategies.timeline import BACKWARD, FORWARD, INPUT_GRADIENT, WEIGHT_GRADIENT


def peak_in_flight(order: Order | Coded, kept: float = 1.0) -> np.ndarray:
    """Most micro-batches that each rank holds at once, shape (p,): forward begun, backward not yet finished.

    Where the backward is split, the weight gradient ends it, and the input gradient frees all but ``kept``
    (M_W/M_B in "Zero Bubble Pipeline Parallelism", Qi et al. 2024, table 1). The unit is all that a rank
    keeps of one micro-batch: with v chunks per rank a stage counts 1/v. It follows from the order alone: a
    rank does one thing at a time.

    >>> from labkit.strategies.pipeline import interleaved, one_f_one_b, zb_h1
    >>> peak_in_flight(one_f_one_b(4, 16)).tolist(), peak_in_flight(one_f_one_b(4, 16, warmup=2)).tolist()
    ([4.0, 3.0, 2.0, 1.0], [7.0, 5.0, 3.0, 1.0])
    >>> peak_in_flight(interleaved(4, 16, 2)).tolist(), peak_in_flight(zb_h1(4, 16)).tolist()
    ([5.5, 4.5, 3.5, 2.5], [4.0, 4.0, 4.0, 4.0])
    """
    numbers, change = coded(order), change_of(kept)
    of_kind = np.array([change[kind] for kind in numbers.kinds])
    per_kind = numbers.stages * numbers.m  # codes
    most = [np.cumsum(of_kind[np.array(rank) // per_kind]).max() for rank in numbers.codes]
    return np.array(most) * numbers.p / numbers.stages


def change_of(kept: float) -> dict[str, float]:
    """By how many stage activations an operation of each kind changes what its rank holds."""
    kept = share(kept, "the share kept for the weight gradient")
    return {FORWARD: 1.0, BACKWARD: -1.0, INPUT_GRADIENT: kept - 1, WEIGHT_GRADIENT: -kept}


def sends(order: Order | Coded) -> np.ndarray:
    """Messages that each rank sends per micro-batch, shape (p, 2): activations up, gradients down.

    Interleaving with v chunks sends v activations from every rank but the last, which sends v - 1: p v - 1
    boundaries crossed instead of p - 1.

    >>> from labkit.strategies.pipeline import interleaved, one_f_one_b
    >>> sends(one_f_one_b(4, 8))[:, 0].tolist(), sends(interleaved(4, 8, 2))[:, 0].tolist()
    ([1, 1, 1, 0], [2, 2, 2, 1])
    """
    numbers = coded(order)
    counts = np.zeros((numbers.p, 2), dtype=int)
    for lower, upper in pairwise(numbers.rank_of):
        if lower != upper:
            counts[lower, 0] += 1
            counts[upper, 1] += 1
    return counts
