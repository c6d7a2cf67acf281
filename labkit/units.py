"""Sizes, times and rates: plain SI floats inside, three significant digits outside.

Decimal units (kB, MB, GB) are powers of 1000; binary units (KiB, MiB, GiB) are powers of 1024 and are
used only for message sizes, which come in powers of two.
"""

import math
import re

from labkit.errors import InputRefused

KiB, MiB, GiB, TiB = 2**10, 2**20, 2**30, 2**40
KB, MB, GB, TB = 1e3, 1e6, 1e9, 1e12
us, ms = 1e-6, 1e-3

_SIZES = {
    "": 1,
    "B": 1,
    "KIB": KiB,
    "MIB": MiB,
    "GIB": GiB,
    "TIB": TiB,
    "KB": KB,
    "MB": MB,
    "GB": GB,
    "TB": TB,
}


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
    """The largest unit that leaves at least 1 before the point, after rounding."""
    value = float(value)
    if not math.isfinite(value):
        return digits(value)
    rounded = float(f"{abs(value):.{significant - 1}e}")
    for scale, name in units:
        if rounded >= scale:
            return f"{digits(value / scale, significant)} {name}"
    scale, name = units[-1]
    return f"{digits(value / scale, significant)} {name}"


def format_bytes(size: float) -> str:
    """Bytes in decimal units: what links and memory are sold in.

    >>> format_bytes(83_886_080), format_bytes(24.5e9), format_bytes(512)
    ('83.9 MB', '24.5 GB', '512 B')
    """
    return _scaled(size, [(TB, "TB"), (GB, "GB"), (MB, "MB"), (KB, "kB"), (1, "B")])


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


def parse_bytes(text: str | float) -> float:
    """Bytes of a size as people write it: ``64KiB``, ``1.5 GB``, ``4096``; nccl-tests' bare K, M, G: binary.

    >>> parse_bytes("64 KiB"), parse_bytes("8M"), parse_bytes("1.5GB"), parse_bytes(4096)
    (65536.0, 8388608.0, 1500000000.0, 4096.0)
    """
    match = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?)\s*([A-Za-z]*)\s*", str(text))
    unit = match and (
        match[2].upper() + "IB" if match[2].upper() in ("K", "M", "G", "T") else match[2].upper()
    )
    if not match or unit not in _SIZES:
        raise InputRefused(f"{text!r} is not a size; write a number with B, KiB, MiB, GiB, kB, MB or GB")
    return float(match[1]) * _SIZES[unit]
