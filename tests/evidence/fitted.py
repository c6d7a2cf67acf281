"""Sweeps for the tests of the fit: made from known alpha and bandwidth, and read from published tables."""

import csv
from pathlib import Path

import numpy as np

from labkit.evidence.sweep import Sweep

PUBLISHED = Path(__file__).resolve().parents[3] / "shared" / "data" / "published" / "nccl"
# Its index says "very noisy mid sizes: not for fitting".
NOT_FOR_FITTING = {"dgxh100_2x8_noisy"}


def sweep(size, time, n_ranks=8, collective="all_reduce", factor=1.75, wrong=None, in_place_time=None):
    """A ``Sweep`` of these bytes and seconds."""
    size, time = np.asarray(size, float), np.asarray(time, float)
    with np.errstate(all="ignore"):
        algbw = size / time
    wrong = np.zeros_like(size) if wrong is None else np.asarray(wrong, float)
    other = None if in_place_time is None else sweep(size, in_place_time, n_ranks, collective, factor)
    return Sweep(collective, n_ranks, size, time, algbw, algbw * factor, wrong, other)


def doubling(first=3, last=34):
    """Message sizes 2^first .. 2^last, as ``-f 2`` steps them."""
    return 2.0 ** np.arange(first, last + 1)


def line(size, alpha=20e-6, bandwidth=200e9):
    """alpha + S / bandwidth."""
    return alpha + size / bandwidth


def published(fewest_rows):
    """Name -> (size, time) of the published sweeps with so many rows; none where the folder is absent."""
    found = {}
    for path in sorted(PUBLISHED.glob("*.csv")):
        with path.open(newline="") as lines:
            rows = [row for row in csv.DictReader(lines) if row.get("size_B") and "time_us" in row]
        if len(rows) < fewest_rows or path.stem in NOT_FOR_FITTING:
            continue
        column = "time_us" if rows[0]["time_us"] else "time_us_inplace"
        size = np.array([float(row["size_B"]) for row in rows])
        found[path.stem] = size, np.array([float(row[column]) for row in rows]) * 1e-6
    return found
