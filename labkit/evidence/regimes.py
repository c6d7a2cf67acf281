"""Regimes of a sweep: T = alpha + S / bandwidth piece by piece, their number chosen by left-out rows.

One alpha and one bandwidth seldom describe a sweep from 8 bytes to 16 GiB: the library changes protocol and
algorithm on the way. So the sizes are cut into at most three stretches, each with its own alpha-beta line
(Hockney, *The communication challenge for MPP*, 1994), fitted to relative errors: 1 us of 20 counts as much
as 1 ms of 20 ms.

Robust: the error r = log(fitted / measured) of a row counts as r^2 / (1 + r^2 / c^2) (Geman and McClure,
1985), which levels off, so that a cold first row or an outlier costs the same wherever the cuts are and
cannot buy its own regime. What does not level off is a fall of the fitted time from one regime to the next
that the rows do not show: two or more rows beside a cut that are off are no outliers.
"""

from itertools import pairwise
from typing import NamedTuple

import numpy as np

MOST_REGIMES, FEWEST_ROWS, FOLDS = 3, 4, 5
# Over less than a factor of four in size alpha and slope trade against each other.
LEAST_SPAN = 4.0
# An error of 15 % is a miss, and 150 % is not a greater one.
MISS = 0.15
# A further regime must bring the mean error on left-out rows down by at least a hundredth of a percent.
WORTH = 1e-4
# Beyond so many rows (a linear sweep has thousands) the cuts are looked for between groups of rows.
MOST_CUT_ROWS = 36


class Regime(NamedTuple):
    """``alpha + size / bandwidth`` seconds from ``smallest`` to ``largest`` bytes, both of them measured.

    ``rows``: sizes in it. ``bandwidth`` is infinite where time does not grow. The errors are standard errors,
    NaN where the rows leave none.
    """

    smallest: float
    largest: float
    alpha: float
    bandwidth: float
    rows: int
    alpha_error: float
    bandwidth_error: float


@np.errstate(all="ignore")
def fit_regimes(size: np.ndarray, time: np.ndarray) -> tuple[Regime, ...]:
    """The regimes, smallest first, of four or more rising ``size`` (bytes) and their ``time`` (s, positive).

    >>> size = 2.0 ** np.arange(10, 30)
    >>> regime, = fit_regimes(size, 20e-6 + size / 100e9)
    >>> round(regime.alpha * 1e6, 3), round(regime.bandwidth / 1e9, 3)
    (20.0, 100.0)
    """
    # Units in which the middle row is 1: the answer is the same in bytes and bits, and nothing overflows.
    unit_size, unit_time = np.exp(np.log(size).mean()), np.exp(np.log(time).mean())
    x, log_time = size / unit_size, np.log(time / unit_time)
    inside = [(x >= low) & (x <= high) for low, high in _choose(*_grouped(x, log_time))]
    weight = np.array(inside, dtype=float)
    alpha, slope, error = _lines(x, log_time, weight)
    alpha_error, slope_error = _standard_errors(x, log_time, weight, error)
    bandwidth = np.where(slope > 0, 1 / slope, np.inf)
    bandwidth_error = np.where(slope > 0, slope_error * bandwidth**2, np.nan)
    seconds, rate = np.array([alpha, alpha_error]) * unit_time, np.array([bandwidth, bandwidth_error])
    rate *= unit_size / unit_time
    return tuple(
        Regime(*map(float, (size[rows][0], size[rows][-1], *ends)), int(rows.sum()), *map(float, errors))
        for rows, ends, errors in zip(
            inside, zip(seconds[0], rate[0], strict=True), zip(seconds[1], rate[1], strict=True), strict=True
        )
    )


def predict(regimes: tuple[Regime, ...], size) -> np.ndarray:
    """Seconds at ``size`` bytes (any shape): each regime's line, and from end to end straight between two."""
    size = np.asarray(size, dtype=float)
    result = regimes[0].alpha + size / regimes[0].bandwidth
    for left, right in pairwise(regimes):
        start = left.alpha + left.largest / left.bandwidth
        stop = right.alpha + right.smallest / right.bandwidth
        share = (size - left.largest) / (right.smallest - left.largest)
        result = np.where(size > left.largest, start + share * (stop - start), result)
        result = np.where(size >= right.smallest, right.alpha + size / right.bandwidth, result)
    return result


def _grouped(x, log_time):
    """The rows themselves or, where there are too many, the middles of groups equally wide in log size."""
    if len(x) <= MOST_CUT_ROWS:
        return x, log_time, x, x
    place = np.log(x / x[0]) / np.log(x[-1] / x[0])
    group = np.minimum((place * MOST_CUT_ROWS).astype(int), MOST_CUT_ROWS - 1)
    members = [np.flatnonzero(group == k) for k in np.unique(group)]
    middle = np.array([np.exp(np.log(x[rows]).mean()) for rows in members])
    level = np.array([np.median(log_time[rows]) for rows in members])
    first, last = (np.array([x[rows[end]] for rows in members]) for end in (0, -1))
    return middle, level, first, last


def _choose(x, log_time, first, last) -> list[tuple[float, float]]:
    """Lowest and highest size of each regime: the best cuts for every number of regimes, then the number.

    Cuts are compared by the error of each row if it were left out of its regime, and by ``_falls``. The
    number is the smallest whose error on rows left out of everything (every fifth, five ways) is at most half
    a standard error above the best: the one-standard-error rule of Breiman et al. (*Classification and
    Regression Trees*, 1984), halved, because a regime missed costs more than one too many.
    """
    rows = np.arange(len(x))
    keep = np.vstack([np.ones(len(x), bool), *(rows % FOLDS != fold for fold in range(FOLDS))])
    low, high = np.triu_indices(len(x) + 1, FEWEST_ROWS)
    # Not those that leave a rest too short for a regime; the whole sweep always counts as one.
    lone = (low == 0) & (high == len(x))
    fits = ((low == 0) | (low >= FEWEST_ROWS)) & ((high == len(x)) | (high <= len(x) - FEWEST_ROWS))
    usable = lone | fits & (x[high - 1] >= LEAST_SPAN * x[low] * (1 - 1e-9))
    low, high = low[usable], high[usable]
    member = (rows >= low[:, None]) & (rows < high[:, None])
    weight = (keep[:, None, :] & member).astype(float)
    whole = _lines(x, log_time, weight[0])
    parts = _lines(x, log_time, weight[1:], near=whole[2])
    alpha, slope, error = (np.concatenate([one[None], five]) for one, five in zip(whole, parts, strict=True))
    left_out = error / (1 - _leverage(x, log_time, weight, alpha, slope, error))
    cost = np.full((len(keep), len(x) + 1, len(x) + 1), np.inf)
    cost[:, low, high] = (weight * _loss(left_out)).sum(-1)
    where = np.full((len(x) + 1, len(x) + 1), -1)
    where[low, high] = np.arange(len(low))
    fitted = error + log_time
    start, end = np.zeros_like(cost), np.zeros_like(cost)
    start[:, low, high], end[:, low, high] = (fitted[:, np.arange(len(low)), at] for at in (low, high - 1))
    # A fold does not look at the time of its left-out rows: it reads them off between their neighbours.
    level = np.array([np.interp(rows, rows[kept], log_time[kept]) for kept in keep])
    into, out_of = _falls(start, end, level)

    options, misses = [], []
    for count in range(1, min(MOST_REGIMES, len(x) // FEWEST_ROWS) + 1):
        cuts = _best_cuts(cost, into, out_of, count)
        if any(where[i, j] < 0 for i, j in cuts[0]):
            break
        options.append(cuts[0])
        miss = np.zeros(len(x))
        for fold in range(FOLDS):
            kept, out = keep[fold + 1], ~keep[fold + 1]
            lines = [
                (x[i:j][kept[i:j]], alpha[fold + 1, where[i, j]], slope[fold + 1, where[i, j]])
                for i, j in cuts[fold + 1]
            ]
            regimes = tuple(Regime(xs[0], xs[-1], a, 1 / b, len(xs), np.nan, np.nan) for xs, a, b in lines)
            miss[out] = np.abs(np.log(predict(regimes, x[out])) - log_time[out])
        misses.append(np.fmin(miss, MISS))
    best = int(np.argmin([miss.mean() for miss in misses]))
    for number in range(best + 1):
        worse = misses[number] - misses[best]
        if worse.mean() <= 0.5 * worse.std(ddof=1) / np.sqrt(len(x)) + WORTH:
            break
    return [(first[i], last[j - 1]) for i, j in options[number]]


def _falls(start, end, level):
    """Cost, for every fold and rows [i, j), of the fall from [0, i) into them and out of them into [j, last).

    ``start``, ``end``: log fitted time at the first and last row of [i, j). From one regime to the next the
    fitted time may fall as far as ``level``, the log measured time, does there. A further fall means that a
    line runs past the rows at the cut, which then belong to the other side: it counts as an error that does
    not level off, r^2 / c^2.
    """
    measured = np.pad(np.maximum(level[:, :-1] - level[:, 1:], 0), ((0, 0), (1, 1)))
    into = end[:, 0, :, None] - start - measured[:, :, None]
    out_of = end - start[:, None, :, -1] - measured[:, None, :]
    return (np.maximum(into, 0) / MISS) ** 2, (np.maximum(out_of, 0) / MISS) ** 2


def _best_cuts(cost, into, out_of, count: int) -> list[list[tuple[int, int]]]:
    """For each fold the rows [i, j) of ``count`` adjoining stretches with the least total cost."""
    folds, ends = cost.shape[:2]
    to_end = cost[:, :, -1]
    if count == 1:
        inner = [()] * folds
    elif count == 2:
        inner = [(cut,) for cut in (cost[:, 0] + to_end + into[:, :, -1]).argmin(-1)]
    else:
        total = cost[:, 0, :, None] + into + cost + out_of + to_end[:, None, :]
        inner = list(zip(*np.unravel_index(total.reshape(folds, -1).argmin(-1), (ends, ends)), strict=True))
    bounds = [(0, *map(int, cut), ends - 1) for cut in inner]
    return [list(pairwise(bound)) for bound in bounds]


def _loss(error):
    square = (error / MISS) ** 2
    return square / (1 + square)


def _trust(error):
    """What is left of a row's weight at this error: the slope of ``_loss`` against that of the square."""
    return 1 / (1 + (error / MISS) ** 2) ** 2


def _moments(x, weight, fitted):
    """Sums of the squares and product of d log T / d alpha = 1 / T and d log T / d slope = x / T."""
    sums = weight / fitted**2 @ np.stack([np.ones_like(x), x, x * x], axis=-1)
    return sums[..., 0], sums[..., 1], sums[..., 2]


def _lines(x, log_time, weight, near=None):
    """alpha and slope, both >= 0, for every set of weights (..., rows); log(fitted / measured) of all rows.

    Gauss-Newton on the logarithm, reweighted: first towards least absolute errors, which one wild row
    cannot draw away, then by ``_trust``. ``near``: errors of a close solution, to start from.
    """
    basis = np.stack([np.ones_like(x), x], axis=-1)
    error = np.zeros(weight.shape) if near is None else np.broadcast_to(near, weight.shape)
    for step in range(20) if near is None else range(5, 9):
        fitted = np.exp(log_time + error)
        if step == 0:
            reweighted = weight
        elif step < 5:
            reweighted = weight / np.maximum(np.abs(error), 0.01)
        else:
            reweighted = weight * _trust(error)
        uu, uv, vv = _moments(x, reweighted, fitted)
        target = (reweighted / fitted * (1 - error)) @ basis
        uy, vy = target[..., 0], target[..., 1]
        spread = uu * vv - uv * uv
        known = spread > 1e-12 * uu * vv
        alpha, slope = (vv * uy - uv * vy) / spread, (uu * vy - uv * uy) / spread
        through_zero, flat = ~known | (alpha <= 0), known & (slope < 0)
        alpha = np.where(through_zero, 0.0, np.where(flat, uy / uu, alpha))
        slope = np.where(through_zero, vy / vv, np.where(flat, 0.0, slope))
        # No step changes a time more than fourfold: far from the solution the logarithm is no straight line.
        step_to = np.log(alpha[..., None] + slope[..., None] * x) - log_time
        error = np.clip(step_to, error - 1.4, error + 1.4)
    # Times that no line comes near (each a thousand times the next) leave nothing: then their middle, flat.
    sound = np.isfinite(alpha) & np.isfinite(slope) & (alpha + slope > 0)
    alpha = np.where(sound, alpha, np.exp((weight * log_time).sum(-1) / weight.sum(-1)))
    slope = np.where(sound, slope, 0.0)
    return alpha, slope, np.log(alpha[..., None] + slope[..., None] * x) - log_time


def _leverage(x, log_time, weight, alpha, slope, error):
    """How far each row pulls its own fitted value, 0 to 1: left out, its error is error / (1 - this)."""
    fitted, trusted = np.exp(log_time + error), weight * _trust(error)
    uu, uv, vv = (each[..., None] for each in _moments(x, trusted, fitted))
    both = (vv - 2 * uv * x + uu * x * x) / (uu * vv - uv * uv)
    one = np.where(alpha[..., None] == 0, x * x / vv, np.where(slope[..., None] == 0, 1 / uu, both))
    return np.clip(np.nan_to_num(trusted / fitted**2 * one, nan=1.0), 0.0, 0.99)


def _standard_errors(x, log_time, weight, error):
    """Of alpha and slope, from the scatter of the rows that the fit trusts; NaN where none is left over."""
    trusted = weight * _trust(error)
    uu, uv, vv = _moments(x, trusted, np.exp(log_time + error))
    free = trusted.sum(-1) - 2
    scatter = np.where(free > 0, (trusted * error**2).sum(-1) / free, np.nan)
    spread = uu * vv - uv * uv
    return np.sqrt(scatter * vv / spread), np.sqrt(scatter * uu / spread)
