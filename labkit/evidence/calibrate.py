"""Calibration: the constants of a cluster, moved inside their ranges to measured steps of that cluster.

The presets come from microbenchmarks of other people's machines. A run of one's own says something about some
of them, never about all: each constant starts from its preset with a stated spread, and moves as far as the
measured steps ask for, against what is known before (least squares in logarithms with a prior, solved by
Gauss and Newton). One run already helps; what it cannot tell stays where it was, and is named.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from labkit.errors import InputRefused
from labkit.planner.step import step_time
from labkit.spec import Cluster, Plan, Transformer
from labkit.spec.checks import amount, noun, without_arrays
from labkit.spec.kernels import RANGES
from labkit.spec.rules import check_nouns
from labkit.units import digits, format_rate, format_share, format_time

MODEL_ERROR = 0.05  # spread of a step that the model predicts with the right constants: a relative error
_DIFFERENCE = 1e-3  # of a logarithm, for the derivative
_ROUNDS = 8  # steps are nearly linear in the logarithms
_TOLD = 0.8  # a constant whose spread shrinks less than to this share of the prior is not told by the runs


@dataclass(frozen=True, slots=True)
class MeasuredStep:
    """One measured run: its model, its plan, and the median seconds of its steps."""

    model: Transformer
    plan: Plan
    seconds: float

    def __post_init__(self):
        check_nouns(model=self.model, plan=self.plan)
        without_arrays("a measured step", plan=self.plan)
        amount(self.seconds, "the seconds of a measured step", arrays=False)


@dataclass(frozen=True, slots=True)
class Constant:
    """A constant that calibration may move: how to read and to set it, its range, its spread before.

    ``spread``: standard deviation of its logarithm, how far the same figure differs between machines of a
    kind.
    """

    name: str
    read: Callable[[Cluster], float]
    write: Callable[[Cluster, float], Cluster]
    low: float
    high: float
    spread: float


@dataclass(frozen=True, slots=True)
class Moved:
    """A constant before and after. ``told``: whether the runs say anything about it; ``at_edge`` of range."""

    name: str
    before: float
    after: float
    spread: float
    told: bool
    at_edge: bool


@dataclass(frozen=True, slots=True, repr=False)
class Calibration:
    """The calibrated ``cluster``, each constant's move, and predicted / measured - 1 before and after."""

    cluster: Cluster
    constants: tuple[Moved, ...]
    before: np.ndarray
    residuals: np.ndarray

    def __repr__(self):
        lines = [f"{'constant':28}{'before':>12} {'after':>12}"]
        for one in self.constants:
            said = "" if one.told else "  not told by these runs"
            said += "  at the edge of its range" if one.at_edge else ""
            lines.append(
                f"{one.name:28}{_shown(one.name, one.before):>12} {_shown(one.name, one.after):>12}{said}"
            )
        was, now = (format_share(float(np.median(np.abs(each)))) for each in (self.before, self.residuals))
        lines.append(f"median error over {self.residuals.size} runs: {was} before, {now} after")
        return "\n".join(lines)


def _shown(name: str, value: float) -> str:
    """A constant with its unit."""
    if name.endswith("bandwidth"):
        return format_rate(value)
    return digits(value) if name.split(".")[1] not in ("launch", "host", "alpha") else format_time(value)


def constants_of(cluster: Cluster) -> tuple[Constant, ...]:
    """The constants that steps depend on most, with their ranges: of kernels, and of the two links.

    Shares of peak differ by some 10 % between machines of a kind (clocks, power), bandwidths of a host by
    20 %, those of a network (other jobs, cabling) by more than half, latencies by a factor of 2.
    """
    noun(cluster, Cluster, "the cluster")
    without_arrays("a calibration", cluster=cluster)
    found = [
        _kernel(name, spread)
        for name, spread in (
            ("product", 0.1),
            ("attention_forward", 0.1),
            ("attention_backward", 0.1),
            ("streaming", 0.1),
            ("launch", 0.7),
            ("host", 0.7),
        )
    ]
    for side, spread in (("intra", 0.2), ("inter", 0.5)):
        link = getattr(cluster, side)
        most = link.rated if link.rated is not None else 1.5 * link.bandwidth
        found.append(_link(side, "bandwidth", 0.05 * link.bandwidth, max(most, link.bandwidth), spread))
        found.append(_link(side, "alpha", link.alpha / 20, 20 * max(link.alpha, 1e-7), 0.7))
    return tuple(found)


def _kernel(name: str, spread: float) -> Constant:
    def write(cluster, value):
        return replace(
            cluster, gpu=replace(cluster.gpu, kernels=replace(cluster.gpu.kernels, **{name: value}))
        )

    return Constant(f"kernels.{name}", lambda c: getattr(c.gpu.kernels, name), write, *RANGES[name], spread)


def _link(side: str, name: str, low: float, high: float, spread: float) -> Constant:
    def write(cluster, value):
        return replace(cluster, **{side: replace(getattr(cluster, side), **{name: value})})

    return Constant(f"{side}.{name}", lambda c: getattr(getattr(c, side), name), write, low, high, spread)


def calibrate(runs: Sequence[MeasuredStep], cluster: Cluster) -> Calibration:
    """The cluster with constants that fit the measured steps, none outside its range.

    A run counts as exact to ``MODEL_ERROR``. Refused: no runs, runs of another type, plans with more ranks
    than the cluster has.
    """
    noun(cluster, Cluster, "the cluster")
    without_arrays("a calibration", cluster=cluster)
    if not isinstance(runs, list | tuple) or not runs:
        raise InputRefused("there are no measured runs to calibrate with; give a list of MeasuredStep")
    for run in runs:
        noun(run, MeasuredStep, "a run of a calibration")
        if run.plan.ranks > cluster.n_gpus:
            raise InputRefused(
                f"a measured run has {run.plan.ranks} ranks and the cluster {cluster.n_gpus} GPUs; give the "
                "cluster that it ran on"
            )
    constants = [one for one in constants_of(cluster) if one.read(cluster) > 0]
    start = np.log([one.read(cluster) for one in constants])
    low, high = (np.log([getattr(one, side) for one in constants]) for side in ("low", "high"))
    start = np.clip(start, low, high)
    spread = np.array([one.spread for one in constants])
    measured = np.log([run.seconds for run in runs])

    def moved(values) -> Cluster:
        found = cluster
        for one, value in zip(constants, np.exp(values), strict=True):
            found = one.write(found, float(min(max(value, one.low), one.high)))
        return found

    def residual(values) -> np.ndarray:
        there = moved(values)
        predicted = [step_time(run.model, there, run.plan).total for run in runs]
        return np.log(predicted) - measured

    values, slope = start, None
    for _ in range(_ROUNDS):
        here = residual(values)
        slope = _slopes(residual, values, here, low, high)
        # Least squares of the runs and of the constants' own spread, one under the other.
        rows = np.vstack([slope / MODEL_ERROR, np.diag(1 / spread)])
        wanted = np.concatenate([-here / MODEL_ERROR, (start - values) / spread])
        moves = values + _step(rows, wanted, low - values, high - values)
        if np.max(np.abs(moves - values)) < 1e-4:
            break
        values = moves
    known = np.linalg.inv(slope.T @ slope / MODEL_ERROR**2 + np.diag(1 / spread**2))
    left = np.sqrt(np.diag(known))
    edge = 1e-6
    found = tuple(
        Moved(
            one.name,
            float(one.read(cluster)),
            float(np.exp(value)),
            float(after),
            bool(after < _TOLD * one.spread),
            bool(min(value - bottom, top - value) < edge and abs(value - begun) > edge),
        )
        for one, value, begun, after, bottom, top in zip(
            constants, values, start, left, low, high, strict=True
        )
    )
    return Calibration(moved(values), found, np.expm1(residual(start)), np.expm1(residual(values)))


def _step(rows, wanted, low, high) -> np.ndarray:
    """The step of least squares within bounds: what would pass one stops there, the rest is solved again."""
    step, free = np.zeros(low.size), np.ones(low.size, bool)
    while free.any():
        left = wanted - rows[:, ~free] @ step[~free]
        step[free] = np.linalg.lstsq(rows[:, free], left, rcond=None)[0]
        past = (step < low) | (step > high)
        step = np.clip(step, low, high)
        if not past.any():
            break
        free &= ~past
    return step


def _slopes(residual, values, here, low, high) -> np.ndarray:
    """How the logarithm of each run's step moves with that of each constant."""
    columns = []
    for place in range(values.size):
        there = values.copy()
        inward = -1 if there[place] + _DIFFERENCE > high[place] else 1
        there[place] += inward * _DIFFERENCE
        columns.append(inward * (residual(there) - here) / _DIFFERENCE)
    return np.stack(columns, axis=1)
