"""``fit_products``: a GPU's constants of matrix products from timings of products, by robust least squares.

Residuals are logarithms of predicted over measured, so that a product of 10 us counts like one of 10 ms. Each
step is Gauss-Newton, damped (Levenberg-Marquardt), on the logarithms of the constants inside their ranges;
rows far off weigh less (Huber's pseudo loss), for a library does not always take the tile that it should.
"""

from dataclasses import dataclass, replace

import numpy as np

from labkit.errors import InputRefused
from labkit.planner.compute import usual_precision
from labkit.planner.products import product_seconds
from labkit.presets.published import published
from labkit.spec import Gpu
from labkit.spec.checks import amount, noun, one_of
from labkit.spec.kernels import OF_PRODUCTS, RANGES, Kernels

FEWEST_ROWS, MOST_ROWS = 30, 100_000
_FAR = 0.08  # a residual beyond which a row weighs less
_STEPS, _TRIES, _NUDGE, _SETTLED = 60, 8, 0.02, 1e-6
_AT_EDGE = 0.01  # of the width of a range, in logarithms
_BADLY = 0.2  # standard error of the logarithm: 20 %
_COLUMNS = ("m", "n", "k", "microseconds")


@dataclass(frozen=True)
class ProductFit:
    """``kernels`` with the fitted constants; ``residuals``: predicted / measured - 1 of each row, in order.

    ``errors``: relative standard error by constant. ``warnings``: which constants the rows do not tell, and
    which end at the edge of their range.
    """

    kernels: Kernels
    residuals: np.ndarray
    errors: dict[str, float]
    warnings: tuple[str, ...]

    @property
    def median(self) -> float:
        """Half of the rows are predicted nearer than this, as a share of the time measured."""
        return float(np.median(np.abs(self.residuals)))

    @property
    def ninetieth(self) -> float:
        """Nine of ten rows are predicted nearer than this."""
        return float(np.quantile(np.abs(self.residuals), 0.9))


def fit_products(rows: list[dict], gpu: Gpu, precision: str | None = None) -> ProductFit:
    """The seven constants of ``Kernels`` that predict the rows best; the others stay those of ``gpu``.

    ``rows``: dicts with ``m``, ``n``, ``k`` and ``microseconds`` of one product (m, k) x (k, n), timed by
    repeating it; small and large, narrow and square ones, or some constants stay unknown (``warnings``).
    What is fixed must be right: the peak, memory bandwidth, multiprocessors, tile and cache of ``gpu``.
    Refused: fewer than 30 rows, and rows without these four numbers above 0.

    >>> card = Gpu("mine", 24e9, {"bf16": 165e12}, 0.7, memory_bandwidth=1e12)
    >>> timed = replace(card, kernels=replace(card.kernels, product=0.6, launch=4e-6))
    >>> sizes = [256, 512, 1024, 2048, 4096, 8192]
    >>> rows = [{"m": m, "n": n, "k": k, "microseconds": 1e6 * product_seconds(m, n, k, timed, repeated=True)}
    ...         for m in sizes for n in sizes for k in sizes]
    >>> fit = fit_products(rows, card)
    >>> round(fit.kernels.product, 3), round(1e6 * fit.kernels.launch, 2), fit.ninetieth < 0.001
    (0.6, 4.0, True)
    """
    usual_precision(gpu, precision)
    columns = _columns(rows)
    measured = np.log(columns.pop("microseconds") * 1e-6)
    names = list(OF_PRODUCTS)
    low, high = np.log([RANGES[name] for name in names]).T

    def residuals(point):
        constants = dict(zip(names, np.exp(point).tolist(), strict=True))
        card = replace(gpu, kernels=replace(gpu.kernels, **constants))
        return np.log(product_seconds(**columns, gpu=card, precision=precision, repeated=True)) - measured

    inside = 1e-9  # so that exp(log(edge)) does not fall outside by rounding
    start = np.log([float(getattr(gpu.kernels, name)) for name in names])
    point, left, slopes = _descend(residuals, start, low + inside, high - inside)
    errors = dict(zip(names, _errors(slopes, left).tolist(), strict=True))
    constants = dict(zip(names, np.exp(point).tolist(), strict=True))
    edge = _AT_EDGE * (high - low)
    told = [
        f"{name} ends at the edge of its range, {constants[name]:.3g}: the rows want to say something that "
        "this constant does not mean; check peak, bandwidth and multiprocessors of the GPU"
        for name, at, least, most, near in zip(names, point, low, high, edge, strict=True)
        if not least + near < at < most - near
    ]
    told += [
        f"{name} is badly determined (its error is {100 * min(error, 9.99):.0f} %); "
        f"time {_HELP[name]} as well"
        for name, error in errors.items()
        if error > _BADLY
    ]
    return ProductFit(replace(gpu.kernels, **constants), np.expm1(left), errors, tuple(told))


# Which products tell a constant.
_HELP = {
    "product": "large square products",
    "edge": "products of less than one tile a multiprocessor, 512 to 2048 on a side",
    "prologue": "large products with k of 128 to 1024",
    "wave": "products with a little more than a whole number of waves",
    "memory": "products with n = 32 and large m and k",
    "throttle": "products of 10 ms and more",
    "launch": "products of a few microseconds",
}


def published_products(gpu: str) -> list[dict]:
    """The timings of ``data/published/matrix_products.csv`` on one GPU: a100, h100, h200 or b200.

    >>> published_products("h100")[0]
    {'m': 512, 'n': 32, 'k': 51200, 'microseconds': 24.41}
    """
    table = published("matrix_products")
    one_of(tuple(table[0])[3:], gpu, "the GPU of the published products", arrays=False)
    return [
        {"m": row["m"], "n": row["n"], "k": row["k"], "microseconds": row[gpu]}
        for row in table
        if row[gpu] != ""
    ]


def halves(rows: list[dict], seed: int = 0) -> tuple[list[dict], list[dict]]:
    """The rows dealt into two halves by a seeded shuffle: one to fit, one that the fit has not seen."""
    order = np.random.default_rng(seed).permutation(len(rows))
    middle = len(rows) // 2
    return [rows[at] for at in order[:middle]], [rows[at] for at in order[middle:]]


def _columns(rows) -> dict[str, np.ndarray]:
    """The four columns as arrays, or a refusal of the first row that cannot be used."""
    noun(rows, list, "the rows of timings")
    if not FEWEST_ROWS <= len(rows) <= MOST_ROWS:
        raise InputRefused(
            f"{len(rows)} rows of timings cannot be fitted; give {FEWEST_ROWS} to {MOST_ROWS:,} products"
        )
    for number, row in enumerate(rows, 1):
        noun(row, dict, f"row {number} of the timings")
        for name in _COLUMNS:
            amount(row.get(name), f"{name} in row {number} of the timings", arrays=False)
    return {name: np.array([float(row[name]) for row in rows]) for name in _COLUMNS}


def _loss(left) -> float:
    return float(np.sum(np.sqrt(1 + (left / _FAR) ** 2) - 1))


def _descend(residuals, point, low, high):
    """The point with the least loss, its residuals and their slopes there, weighted."""
    point = np.clip(point, low, high)
    left, damping = residuals(point), 1e-2
    for _ in range(_STEPS):
        slopes = _slopes(residuals, point, left, high)
        weight = 1 / np.sqrt(1 + (left / _FAR) ** 2)
        normal, pull = slopes.T @ (slopes * weight[:, None]), slopes.T @ (weight * left)
        for _ in range(_TRIES):
            diagonal = np.diag(damping * np.diag(normal) + 1e-9)
            tried = np.clip(point - np.linalg.solve(normal + diagonal, pull), low, high)
            there = residuals(tried)
            gained = 1 - _loss(there) / max(_loss(left), 1e-300)
            if gained > 0:
                point, left, damping = tried, there, max(damping / 5, 1e-6)
                break
            damping *= 4
        if gained < _SETTLED:
            break
    weight = 1 / np.sqrt(1 + (left / _FAR) ** 2)
    return point, left, _slopes(residuals, point, left, high) * np.sqrt(weight)[:, None]


def _slopes(residuals, point, left, high):
    """Change of each residual with the logarithm of each constant."""
    columns = []
    for index in range(len(point)):
        nudge = _NUDGE if point[index] + _NUDGE <= high[index] else -_NUDGE
        moved = point.copy()
        moved[index] += nudge
        columns.append((residuals(moved) - left) / nudge)
    return np.array(columns).T


def _errors(slopes, left):
    """Standard errors of the logarithms: from the slopes and the scatter that is left."""
    spread = np.median(np.abs(left)) / 0.6745  # of a normal scatter, whatever the far rows do
    normal = slopes.T @ slopes
    return spread * np.sqrt(np.maximum(np.diag(np.linalg.pinv(normal)), 0)) + np.where(
        np.diag(normal) > 0, 0.0, np.inf
    )
