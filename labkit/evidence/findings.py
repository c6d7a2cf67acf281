"""What stands out in a sweep: rows that the alpha-beta lines do not explain, each with the usual reason."""

from dataclasses import dataclass

import numpy as np

from labkit.units import digits, format_rate, format_share, format_size, format_time

# A quarter off is no scatter of a sound sweep: nccl-tests averages 20 or more iterations.
ODD = 1.25
LATENCY_REGION = 64 * 2**10


@dataclass(frozen=True, slots=True)
class SweepFinding:
    """One observation: ``kind`` for programs, ``message`` for people, ``size`` in bytes where it is one row.

    Kinds: ``wrong cold_first_row dip outlier noisy in_place_differs above_line_rate late_start early_end``.
    """

    kind: str
    message: str
    size: float | None = None


def share_of_time(share: float) -> str:
    """A fraction of the time in words; what rounding leaves of nothing is not spelled out.

    >>> share_of_time(0.125), share_of_time(5.6e-16)
    ('12.5 % of the time', 'less than 0.1 % of the time')
    """
    return f"{'less than 0.1 %' if share < 1e-3 else format_share(share)} of the time"


def row_findings(size, time, fitted) -> list[SweepFinding]:
    """Cold first row, dips and outliers.

    ``size`` (bytes, rising), ``time`` (s) and ``fitted`` (s) are arrays of the rows used, four or more. An
    outlier is more than a quarter off the fit, and at most two stand side by side; a dip is a time below
    those of the two smaller sizes before it, where those are no outliers.
    """
    found, explained = [], np.zeros(len(size), bool)
    off = np.log(time / fitted)
    odd = np.abs(off) > np.log(ODD)
    warm = np.min(time[1:3])
    if time[0] > ODD * warm:
        explained[0] = True
        found.append(_cold(size[0], time[0], warm))
    for row in range(2, len(size)):
        falls = time[row] < min(time[row - 1] / 1.1, time[row - 2] / 1.03)
        if falls and not explained[row - 2] and off[row - 2] < np.log(ODD):
            explained[row - 1 : row + 1] = True
            found.append(_dip(size[row - 1 : row + 1], time[row - 1 : row + 1]))
    if odd.sum() > len(size) / 4:
        return [*found, _noisy(odd.sum(), len(size))]
    lone = np.flatnonzero(odd & ~_in_row_of_three(odd) & ~explained)
    return [*found, *(_outlier(size[row], time[row], fitted[row]) for row in lone)]


def _cold(size, time, warm):
    message = (
        f"the first row, {format_size(size)}, took {format_time(time)}, longer than larger sizes after it "
        f"({format_time(warm)}): a cold start, connections are set up on first use; more warm-up "
        "iterations (-w) remove it"
    )
    return SweepFinding("cold_first_row", message, float(size))


def _dip(size, time):
    message = (
        f"time falls from {format_time(time[0])} at {format_size(size[0])} to {format_time(time[1])} at "
        f"{format_size(size[1])} while the size grows: the library changed protocol or algorithm there; "
        "NCCL_DEBUG=INFO with NCCL_DEBUG_SUBSYS=TUNING names them"
    )
    return SweepFinding("dip", message, float(size[1]))


def _noisy(odd, rows):
    message = (
        f"{odd} of {rows} rows are more than {format_share(ODD - 1)} off the fit: the times scatter, so do "
        "not trust its figures further than that; repeat the sweep with more iterations (-n) on idle nodes"
    )
    return SweepFinding("noisy", message)


def _outlier(size, time, fitted):
    message = (
        f"{format_size(size)} took {format_time(time)} where the fit expects {format_time(fitted)}: off the "
        "line for no known reason; repeat it"
    )
    return SweepFinding("outlier", message, float(size))


def _in_row_of_three(odd):
    """Members of three or more neighbours that are all true: too many for a chance disturbance."""
    padded = np.concatenate([[False, False], odd, [False, False]])
    three = padded[:-2] & padded[1:-1] & padded[2:]
    return three[:-2] | three[1:-1] | three[2:]


def in_place_finding(size, time, in_place) -> list[SweepFinding]:
    """Sizes (bytes) whose two times (s, ``in_place`` NaN where none) are more than a quarter apart."""
    ratio = np.where(in_place > 0, time / in_place, 1.0)
    apart = np.maximum(ratio, 1 / ratio)
    far = int((apart > ODD).sum())
    if not far:
        return []
    row = int(np.argmax(apart))
    message = (
        f"out of place and in place are more than {format_share(ODD - 1)} apart at {far} of {len(size)} "
        f"sizes, most at {format_size(size[row])} ({format_time(time[row])} and "
        f"{format_time(in_place[row])}): the same transfer twice, so one of the two was disturbed; the fit "
        "uses the out-of-place times"
    )
    return [SweepFinding("in_place_differs", message, float(size[row]))]


def range_findings(smallest, largest, bandwidth_share) -> list[SweepFinding]:
    """Sweeps that start after the latency region or end before the plateau.

    ``bandwidth_share``: the part of the time at the ``largest`` size (bytes) that goes with the size.
    """
    found = []
    if smallest > LATENCY_REGION:
        message = (
            f"the sweep starts at {format_size(smallest)} and cannot show the latency region below 64 KiB; "
            "alpha is at best an upper bound; start at 1 KiB or below (-b 1K)"
        )
        found.append(SweepFinding("late_start", message, float(smallest)))
    if bandwidth_share < 0.8:
        message = (
            f"the sweep ends at {format_size(largest)}, before its plateau: only "
            f"{share_of_time(bandwidth_share)} there goes with the size; go on to larger sizes "
            "(-e 8G)"
        )
        found.append(SweepFinding("early_end", message, float(largest)))
    return found


def line_rate_finding(plateau, nominal, size) -> list[SweepFinding]:
    """busbw above the line rate ``nominal`` (bytes/s of one direction), with the reasons that are sound."""
    if not plateau > nominal:
        return []
    message = (
        f"busbw {format_rate(plateau)} is {digits(plateau / nominal)} times the line rate "
        f"{format_rate(nominal)}: busbw assumes a ring, and reduction in the switch (NVLS, SHARP) or a tree "
        "over two nodes sends fewer bytes over that link; if neither ran, the line rate is not that of one "
        "direction"
    )
    return [SweepFinding("above_line_rate", message, float(size))]


def wrong_finding(size, wrong, where) -> list[SweepFinding]:
    """Rows with ``wrong`` elements; ``size`` in bytes, ``where`` is "out of place" or "in place"."""
    if not len(size):
        return []
    rows = "1 row has" if len(size) == 1 else f"{len(size)} rows have"
    message = (
        f"{rows} wrong results {where}, the first at {format_size(size[0])} "
        f"({digits(wrong[0])} elements); no figure of this run can be trusted until memory, links and "
        "library are checked"
    )
    return [SweepFinding("wrong", message, float(size[0]))]
