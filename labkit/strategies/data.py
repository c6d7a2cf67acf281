"""Data parallelism on real arrays: the gradients of shards, averaged by an all_reduce."""

from collections.abc import Callable

import numpy as np

from labkit.collectives import run, trace
from labkit.errors import InputRefused
from labkit.spec.checks import shown
from labkit.strategies.checks import function, numbers, shaped

_STEP = 1e-30  # of the complex step: small enough to be lost in every real part


def gradient(loss: Callable[[np.ndarray], complex], weights: np.ndarray) -> np.ndarray:
    """The gradient of ``loss`` at ``weights``, shape (length,), exact to rounding.

    Complex step (Squire and Trapp 1998): the imaginary part of loss(w + i h e), over h, has no difference in
    it that could cancel. ``loss`` must take complex weights and be smooth: no abs, maximum or comparison.

    >>> gradient(lambda w: w[0] ** 2 * w[1], np.array([3.0, 2.0])).tolist()
    [12.0, 9.0]
    """
    function(loss, "the loss")
    weights = shaped(weights, "the array of weights", "length").astype(complex)
    steps = 1j * _STEP * np.eye(weights.size)
    return np.array([np.imag(loss(weights + step)) / _STEP for step in steps])


def synchronised(gradients: np.ndarray, tokens=None, algorithm: str = "ring") -> np.ndarray:
    """The gradient of one step on every rank, shape (n, length), after one all_reduce.

    ``gradients``: of the **mean** loss of each micro-batch on each rank, shape (n, m, length). Each rank adds
    up its m micro-batches and the ranks reduce once. With ``tokens``, shape (n, m), a micro-batch counts by
    its tokens and the result is the gradient of the whole batch; the counts travel in the same all_reduce.
    Without, it is the mean of means, the same only where all counts are equal. Refused: other shapes, counts
    below 0, and no tokens at all.

    >>> gradients = np.array([[[4.0]], [[2.0]]])
    >>> synchronised(gradients)[0].item(), synchronised(gradients, [[10], [90]])[1].item()
    (3.0, 2.2)
    """
    gradients = shaped(gradients, "the array of gradients", "ranks", "micro-batches", "length")
    if not isinstance(algorithm, str):
        raise InputRefused(f"the algorithm is {shown(algorithm)}; give its name, as 'ring'")
    n, m, length = gradients.shape
    counts = np.ones((n, m)) if tokens is None else numbers(tokens, "the number of tokens", zero=True)
    if counts.shape != (n, m) or not counts.sum() > 0:
        raise InputRefused(
            f"give one number of tokens for each of {n} ranks and {m} micro-batches, 0 or more, not all 0"
        )
    added = (gradients * counts[..., None]).sum(axis=1)
    sent = np.concatenate([added, counts.sum(axis=1, keepdims=True)], axis=1)
    reduced = np.stack(run(trace("all_reduce", algorithm, n), sent))
    return reduced[:, :length] / reduced[:, length:]
