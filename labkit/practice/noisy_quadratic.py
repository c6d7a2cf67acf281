"""A toy on which the rules of the learning rate can be seen: a quadratic bowl with noise on its gradient.

As in Zhang et al. (2019), "Which Algorithmic Choices Matter at Which Batch Sizes?": curvature 1/i in
direction i, and noise of variance 1/i per sample. Expected losses are computed, not drawn, so there is no
seed: the mean square of a coordinate goes from step to step in closed form.
"""

import numpy as np

from labkit.errors import InputRefused
from labkit.spec.checks import amount, one_of, together, whole
from labkit.units import plain

METHODS = ("gradient descent", "sign descent")
DIRECTIONS = 32
_MOST_STEPS = 10**5
_CURVATURE = 1 / np.arange(1, DIRECTIONS + 1)


def loss_after(samples: int, batch: int, rate, method: str = "gradient descent", noise=8.0):
    """Expected loss after ``samples`` in batches, at a constant ``rate`` (a float or an array of rates).

    All coordinates start as normal numbers of variance 1. ``noise`` x sqrt(curvature): standard deviation
    of the gradient of one sample. Gradient descent: exact, m' = (1 - rate h)^2 m + rate^2 noise^2 h / batch.
    ``sign descent`` steps by the sign of each coordinate's gradient alone, the plainest relative of Adam (it
    is Adam without averages); the coordinate is taken as normal at every step, an approximation.

    >>> [round(loss_after(4096, batch, rate), 4) for batch, rate in ((8, 0.01), (16, 0.02), (16, 0.01))]
    [0.4985, 0.4985, 0.7371]
    """
    samples, batch = whole(samples, "the samples", most=10**8), whole(batch, "the batch")
    name = one_of(METHODS, method, "the method", arrays=False).item()
    together("a loss", rate=rate, noise=noise)
    rate, noise = amount(rate, "the learning rate")[..., None], amount(noise, "the noise")[..., None]
    steps = samples // batch
    if not 1 <= steps <= _MOST_STEPS:
        raise InputRefused(
            f"{samples:,} samples in batches of {batch:,} are {steps:,} steps; use 1 to {_MOST_STEPS:,}"
        )
    spread = noise**2 * _CURVATURE / batch  # variance of the batch's gradient
    start = np.ones(DIRECTIONS)
    if name == "gradient descent":
        square = _descent(start, steps, rate, spread)
    else:
        square = _sign(start, steps, rate, spread)
    return plain(0.5 * np.sum(_CURVATURE * square, axis=-1))


def _descent(start, steps, rate, spread):
    """The sum of the geometric series that steps of gradient descent are."""
    kept = (1 - rate * _CURVATURE) ** 2
    # A rate that diverges may overflow: the loss is endless then.
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        power = kept**steps
        series = np.where(kept == 1, steps, (1 - power) / (1 - kept))
        found = power * start + rate**2 * spread * series
    return np.where(np.isfinite(found), found, np.inf)


def _sign(start, steps, rate, spread):
    """x' = x - rate sign(h x + noise): with x normal of variance m, E[x erf(c x)] has a closed form."""
    square = np.broadcast_to(start, np.broadcast_shapes(start.shape, np.shape(rate * spread))).copy()
    slope = _CURVATURE / np.sqrt(2 * spread)
    for _ in range(steps):
        drift = 2 * slope * square / np.sqrt(np.pi * (1 + 2 * slope**2 * square))
        square = np.maximum(square - 2 * rate * drift + rate**2, 0.0)
    return square


def best_rate(samples: int, batch: int, method: str = "gradient descent", noise=8.0) -> float:
    """The constant rate with the least loss after ``samples``, to about 1 %.

    >>> found = [best_rate(2**14, batch) for batch in (16, 32)]
    >>> round(found[1] / found[0], 1)
    2.0
    """
    noise = amount(noise, "the noise", arrays=False)
    low, high = 1e-6, 10.0
    for _ in range(3):  # ever finer around the best
        rates = np.geomspace(low, high, 33)
        place = int(np.argmin(loss_after(samples, batch, rates, method, noise)))
        low, high = rates[max(place - 1, 0)], rates[min(place + 1, 32)]
    return float(rates[place])
