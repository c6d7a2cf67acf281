"""``fit_sweep``: the latency and bandwidth of a measured collective, how sure they are, and where they hold.

The model is T = alpha + S / bandwidth for the whole collective, S being the size column of nccl-tests, so
``bandwidth`` is the limit of **algbw** (busbw is that times the factor of the operation). ``LinkFit.link``
turns both into the link of one hop for a named algorithm. Times are fitted piece by piece, see ``regimes``.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from labkit.collectives import collective_cost
from labkit.errors import InputRefused
from labkit.evidence import findings as stand_out
from labkit.evidence.findings import SweepFinding
from labkit.evidence.regimes import FEWEST_ROWS, Regime, fit_regimes, predict
from labkit.spec import Link
from labkit.units import format_bytes, format_rate, format_size, format_time

# alpha (or the bandwidth) is told only by rows in which it makes at least so much of the time.
LEAST_SHARE = 0.25
EARLY_START = 2**10  # bytes; a sweep that starts here or below can show its latency
# Published sweeps of one node reach half their bandwidth between 8 and 32 MiB; one that starts later has seen
# no latency, whatever intercept its line has.
LATEST_START = 8 * 2**20
# What a row may hold: beyond these it is damaged (bytes; seconds).
MOST_BYTES, SHORTEST, LONGEST = 1e18, 1e-12, 1e9


class Region(NamedTuple):
    """A stretch of sizes in bytes; ``name`` is ``latency``, ``climb`` or ``plateau``."""

    name: str
    smallest: float
    largest: float


@dataclass(frozen=True)
class LinkFit:
    """What a sweep says of T = alpha + S / bandwidth (s, bytes, bytes/s); NaN where its rows cannot tell.

    ``alpha`` comes from the smallest regime, ``bandwidth`` (algbw) from the largest; ``alpha_error`` and
    ``bandwidth_error`` are their standard errors. ``knee`` = alpha x bandwidth, where both terms of one line
    are equal; ``half_power``: the smallest size that reaches half the bandwidth on the fitted curve.
    ``range``: smallest and largest size fitted, ``rows``: how many. ``plateau``: median busbw of the largest
    size down to a quarter of it; ``plateau_share``: of the nominal rate, where one was given. ``regions``:
    *latency*, where time is within a quarter of alpha; *plateau*, where algbw is at least 80 % of the
    bandwidth; *climb*, between them. ``warnings`` say what cannot be told, ``findings`` what stands out.
    """

    alpha: float
    bandwidth: float
    regimes: tuple[Regime, ...]
    knee: float
    range: tuple[float, float]
    alpha_error: float
    bandwidth_error: float
    half_power: float
    plateau: float
    plateau_share: float
    regions: tuple[Region, ...]
    collective: str | None
    n_ranks: int | None
    rows: int
    warnings: tuple[str, ...]
    findings: tuple[SweepFinding, ...]

    def __repr__(self) -> str:
        """The figures in one line."""
        low, high = map(format_size, self.range)
        return (
            f"LinkFit(alpha {format_time(self.alpha)}, bandwidth {format_rate(self.bandwidth)}, "
            f"knee {format_bytes(self.knee)}, from {low} to {high})"
        )

    def predict(self, size):
        """Seconds at ``size`` bytes (float or array) on the fitted pieces, straight between two of them.

        Outside ``range`` the outermost pieces go on; ``warn_outside`` says so. NaN without a fit.
        """
        size = np.asarray(size, dtype=float)
        if not (size >= 0).all():
            raise InputRefused("a size to predict is negative or not a number; give bytes, 0 or more")
        result = predict(self.regimes, size) if self.regimes else np.full(size.shape, np.nan)
        return float(result) if result.ndim == 0 else result

    def warn_outside(self, size) -> str:
        """A sentence if any ``size`` (bytes) is outside the sizes the fit rests on, else an empty string."""
        low, high = self.range
        size = np.atleast_1d(np.asarray(size, dtype=float))
        outside = size[~((size >= low) & (size <= high))]
        if not outside.size:
            return ""
        return (
            f"{format_size(outside[0])} is outside {format_size(low)} to {format_size(high)}, the sizes "
            "this fit rests on: the value is extrapolated"
        )

    def share_of(self, nominal: float) -> float:
        """The plateau as a share of ``nominal``, the rate in bytes/s of one direction of the link."""
        if not nominal > 0:
            raise InputRefused(f"the nominal rate is {nominal!r}; give bytes/s of one direction, above 0")
        return self.plateau / nominal

    def link(self, algorithm: str, segments: int = 1) -> Link:
        """The link of one hop with which ``collective_cost`` by ``algorithm`` gives alpha + S / bandwidth.

        ``collective_cost`` itself says how many alphas and how many S / bandwidth the algorithm pays: for a
        ring all_reduce alpha is divided by 2(N-1) and the bandwidth multiplied by 2(N-1)/N. Refused without
        collective and ranks, or where alpha or bandwidth is unknown.
        """
        if self.collective is None or self.n_ranks is None:
            missing = "collective" if self.collective is None else "number of ranks"
            raise InputRefused(f"the sweep does not say its {missing}, which a hop needs; name it")
        if not (np.isfinite(self.alpha) and np.isfinite(self.bandwidth)):
            raise InputRefused(f"this sweep gives no link: {self.warnings[0]}")
        if segments is None:
            raise InputRefused("the best number of segments depends on the link sought; give a whole number")
        latency, whole = (
            collective_cost(self.collective, algorithm, size, self.n_ranks, Link(1.0, 1.0), segments).seconds
            for size in (0.0, 1.0)
        )
        return Link(self.alpha / latency, self.bandwidth * (whole - latency))


@np.errstate(all="ignore")
def fit_sweep(sweep, nominal: float | None = None) -> LinkFit:
    """Fit a ``Sweep``; ``nominal`` is the line rate in bytes/s of one direction, to compare the plateau with.

    Rows without size or time, or with wrong results, are left out; several rows of a size count as their
    median. Fewer than four sizes, or a single rank, give no fit, which ``warnings`` says. Refused: a sweep
    without a usable row.

    >>> from types import SimpleNamespace
    >>> size = 2.0 ** np.arange(10, 31)
    >>> time = 28e-6 + size / 100e9
    >>> fit = fit_sweep(SimpleNamespace(collective="all_reduce", n_ranks=8, size=size, time=time,
    ...                                 busbw=1.75 * size / time, wrong=0 * size, in_place=None))
    >>> fit
    LinkFit(alpha 28 µs, bandwidth 100 GB/s, knee 2.8 MB, from 1 KiB to 1 GiB)
    >>> [region.name for region in fit.regions]
    ['latency', 'climb', 'plateau']
    >>> link = fit.link("ring")
    >>> round(link.alpha * 1e6, 3), round(link.bandwidth / 1e9, 3)
    (2.0, 175.0)
    """
    if nominal is not None and not nominal > 0:
        raise InputRefused(f"the nominal rate is {nominal!r}; give bytes/s of one direction, above 0")
    size, time, busbw, in_place, found = _usable(sweep)
    plateau = _median(busbw[size >= size[-1] / 4])
    warnings, regimes, fitted = [], (), None
    if sweep.n_ranks == 1:
        warnings.append(
            "one rank only: no communication was measured, so there is no link to fit; run two ranks"
        )
    elif len(size) < FEWEST_ROWS:
        sizes = "1 size is" if len(size) == 1 else f"{len(size)} sizes are"
        warnings.append(f"{sizes} too few for a fit; it takes {FEWEST_ROWS} or more")
    else:
        regimes = fit_regimes(size, time)
        fitted = predict(regimes, size)
    alpha, alpha_error, bandwidth, bandwidth_error, told = _ends(regimes)
    warnings += told
    if regimes:
        found += stand_out.row_findings(size, time, fitted)
        found += stand_out.in_place_finding(size, time, in_place)
        found += stand_out.range_findings(size[0], size[-1], 1 - regimes[-1].alpha / fitted[-1])
    if nominal is not None:
        found += stand_out.line_rate_finding(plateau, nominal, size[-1])
    if np.isnan(plateau) and sweep.n_ranks != 1:
        warnings.append("busbw is unknown for the largest sizes: say how many ranks took part")
    half_power, regions = _landmarks(regimes, alpha, bandwidth)
    return LinkFit(
        alpha=alpha,
        bandwidth=bandwidth,
        regimes=regimes,
        knee=alpha * bandwidth,
        range=(float(size[0]), float(size[-1])),
        alpha_error=alpha_error,
        bandwidth_error=bandwidth_error,
        half_power=half_power,
        plateau=plateau,
        plateau_share=np.nan if nominal is None else plateau / nominal,
        regions=regions,
        collective=sweep.collective,
        n_ranks=sweep.n_ranks,
        rows=len(size),
        warnings=tuple(warnings),
        findings=tuple(found),
    )


def _usable(sweep):
    """Rising sizes, their median time, busbw and in-place time (NaN: unknown), and findings of ``wrong``."""
    size, time, busbw, wrong = _columns(sweep)
    plain = (size >= 1) & (size <= MOST_BYTES) & (time >= SHORTEST) & (time <= LONGEST)
    found = stand_out.wrong_finding(size[plain & (wrong > 0)], wrong[plain & (wrong > 0)], "out of place")
    used = plain & ~(wrong > 0)
    if not used.any():
        raise InputRefused("the sweep has no row with a size, a time and right results: nothing to fit")
    sizes = np.unique(size[used])
    medians = [
        np.array([_median(values[used & (size == each)]) for each in sizes]) for values in (time, busbw)
    ]
    in_place = np.full(len(sizes), np.nan)
    if sweep.in_place is not None:
        other, other_time, _, other_wrong = _columns(sweep.in_place)
        bad = other_wrong > 0
        found += stand_out.wrong_finding(other[bad], other_wrong[bad], "in place")
        in_place = np.array([_median(other_time[other == each]) for each in sizes])
    return sizes, *medians, in_place, found


def _columns(sweep):
    """size, time, busbw and wrong as float arrays of one length."""
    columns = [
        np.atleast_1d(np.asarray(each, float)) for each in (sweep.size, sweep.time, sweep.busbw, sweep.wrong)
    ]
    if len({each.shape for each in columns}) > 1:
        raise InputRefused("size, time, busbw and wrong of the sweep differ in length; give one each per row")
    return columns


def _median(values):
    values = values[np.isfinite(values) & (values > 0)]
    return float(np.median(values)) if values.size else np.nan


def _ends(regimes):
    """alpha and bandwidth with their errors and the warnings where they cannot be told."""
    if not regimes:
        return np.nan, np.nan, np.nan, np.nan, []
    first, last, told = regimes[0], regimes[-1], []
    at_first, at_last = predict(regimes, [first.smallest, last.largest])
    alpha, alpha_error = first.alpha, first.alpha_error
    share = alpha / at_first
    if share < LEAST_SHARE or alpha_error > alpha or first.smallest > LATEST_START:
        where = f"{format_size(first.smallest)}, the smallest size"
        if share < LEAST_SHARE or first.smallest > LATEST_START:
            why = f"the fitted constant makes {stand_out.share_of_time(share)} at {where}"
        else:
            why = f"the rows scatter, so that its error is larger than the fitted constant at {where}"
        early = first.smallest <= EARLY_START
        help_ = (
            "measure the small sizes in more iterations (-n)"
            if early
            else "start the sweep at 1 KiB or below"
        )
        told.append(f"the latency cannot be told: {why}; {help_}")
        alpha = alpha_error = np.nan
    bandwidth, bandwidth_error = last.bandwidth, last.bandwidth_error
    share = 1 - last.alpha / at_last
    if share < LEAST_SHARE or bandwidth_error > bandwidth:
        told.append(
            f"the bandwidth cannot be told: at {format_size(last.largest)}, the largest size, "
            f"{stand_out.share_of_time(share)} goes with the size; go on to larger sizes"
        )
        bandwidth = bandwidth_error = np.nan
    return alpha, alpha_error, bandwidth, bandwidth_error, told


def _landmarks(regimes, alpha, bandwidth):
    """The half-power size (NaN unless inside the range) and the three regions, from the fitted curve."""
    if not regimes:
        return np.nan, ()
    low, high = regimes[0].smallest, regimes[-1].largest
    size = np.geomspace(low, high, 2001)
    size[0], size[-1] = low, high
    time = predict(regimes, size)
    flat = size[time <= 1.25 * alpha]
    level = size[size / time >= 0.8 * bandwidth]
    reached = float(level[0]) if level.size else high
    left = min(float(flat[-1]), reached) if flat.size else low
    regions = (Region("latency", low, left), Region("climb", left, reached), Region("plateau", reached, high))
    half_power = _crossing(size, size / time, bandwidth / 2)
    return half_power, tuple(region for region in regions if region.largest > region.smallest)


def _crossing(size, value, wanted) -> float:
    """Where ``value`` first rises through ``wanted``; NaN where it never does, or starts above."""
    above = np.flatnonzero(value >= wanted)
    if not above.size or above[0] == 0:
        return np.nan
    pair = slice(above[0] - 1, above[0] + 1)
    return float(np.interp(wanted, value[pair], size[pair]))
