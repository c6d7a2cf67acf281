"""Sizes, times and rates: plain SI floats inside, three significant digits outside.

Decimal units (kB, MB, GB) are powers of 1000; binary units (KiB, MiB, GiB) are powers of 1024, used for
what comes in powers of two: message sizes, and a card's memory as its driver reports it.
"""

import math
import textwrap

import numpy as np

KiB, MiB, GiB, TiB = 2**10, 2**20, 2**30, 2**40
KB, MB, GB, TB = 1e3, 1e6, 1e9, 1e12
us, ms = 1e-6, 1e-3
COLUMNS = 104  # of a text: what a page of 1280 pixels shows of a line


def plain(value):
    """A single value (0-d array or NumPy scalar) as a Python one, any other array as it is.

    >>> plain(np.float64(2.5)), plain(np.array("inside")), plain(np.ones(2)).tolist()
    (2.5, 'inside', [1.0, 1.0])
    """
    value = np.asarray(value)
    return value.item() if value.ndim == 0 else value


def wrapped(words: str, start: str = "", indent: str = "    ") -> list[str]:
    """``words`` on lines of a page, the first behind ``start``, those after it behind ``indent``.

    >>> wrapped("of " * 40 + "it", "next  ", "      ")[1]
    '      of of of of of of of it'
    """
    return textwrap.wrap(
        words, COLUMNS, initial_indent=start, subsequent_indent=indent, break_on_hyphens=False
    ) or [start.rstrip()]


def digits(value: float, significant: int = 3) -> str:
    """``value`` with so many significant digits, without an exponent or trailing zeros after the point.

    >>> digits(0.00123456), digits(98765.4), digits(20.0)
    ('0.00123', '98765', '20')
    """
    value = float(value)
    if not math.isfinite(value):
        return {math.inf: "∞", -math.inf: "-∞"}.get(value, "unknown")
    if value == 0:
        return "0"
    decimals = max(0, significant - 1 - math.floor(math.log10(abs(value))))
    text = f"{value:.{decimals}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _scaled(value: float, units: list[tuple[float, str]], significant: int = 3) -> str:
    """The largest unit that leaves at least 1 before the point, after rounding; thousands set apart."""
    value = float(value)
    if not math.isfinite(value):
        return digits(value)
    rounded = float(f"{abs(value):.{significant - 1}e}")
    scale, name = next((unit for unit in units if rounded >= unit[0]), units[-1])
    if rounded >= 1000 * scale:
        return f"{value / scale:,.0f} {name}"
    return f"{digits(value / scale, significant)} {name}"


def format_bytes(size: float) -> str:
    """Bytes in decimal units: what links and memory are sold in.

    >>> format_bytes(83_886_080), format_bytes(24.5e9), format_bytes(512), format_bytes(1.52e15)
    ('83.9 MB', '24.5 GB', '512 B', '1,520 TB')
    """
    return _scaled(size, [(TB, "TB"), (GB, "GB"), (MB, "MB"), (KB, "kB"), (1, "B")])


def format_memory(size: float) -> str:
    """Memory of a card in GB and, as drivers and estimators print it, in GiB; in TB and TiB where it is more.

    >>> format_memory(80 * GiB), format_memory(13e9 * 16), format_memory(1.52e15)
    ('85.9 GB (80 GiB)', '208 GB (194 GiB)', '1,520 TB (1,382 TiB)')
    """
    return f"{format_bytes(size)} ({_scaled(size, [(TiB, 'TiB'), (GiB, 'GiB')])})"


def format_size(size: float) -> str:
    """A message size in binary units when it is a small whole number of them, else in decimal units.

    >>> format_size(65536), format_size(8 * MiB), format_size(1e6), format_size(14e9)
    ('64 KiB', '8 MiB', '1 MB', '14 GB')
    """
    for scale, name in ((TiB, "TiB"), (GiB, "GiB"), (MiB, "MiB"), (KiB, "KiB")):
        if scale <= size < 10_000 * scale and size % scale == 0:
            return f"{int(size // scale)} {name}"
    return format_bytes(size)


def format_time(seconds: float) -> str:
    """Seconds in the unit that reads best.

    >>> format_time(0.49), format_time(5e-6), format_time(62), format_time(0)
    ('490 ms', '5 µs', '62 s', '0 s')
    """
    if seconds == 0:
        return "0 s"
    return _scaled(seconds, [(1, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns")])


def format_rate(bytes_per_second: float) -> str:
    """Bytes per second in decimal units.

    >>> format_rate(25e9), format_rate(98.7e6)
    ('25 GB/s', '98.7 MB/s')
    """
    return _scaled(bytes_per_second, [(TB, "TB/s"), (GB, "GB/s"), (MB, "MB/s"), (KB, "kB/s"), (1, "B/s")])


def format_share(share: float) -> str:
    """A fraction as a percentage.

    >>> format_share(3 / 7), format_share(0.0861)
    ('42.9 %', '8.61 %')
    """
    return f"{digits(100 * share)} %"


def words(name: str) -> str:
    """A name of the code as words.

    >>> words("recursive_doubling")
    'recursive doubling'
    """
    return name.replace("_", " ")
