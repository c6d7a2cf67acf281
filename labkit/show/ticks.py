"""Axes that read in sizes, times, rates and shares; few ticks, because a redraw spends its time on ticks."""

import numpy as np
from matplotlib.axis import Axis
from matplotlib.ticker import FuncFormatter, Locator, LogLocator, MaxNLocator, NullFormatter, NullLocator

from labkit.errors import InputRefused
from labkit.units import digits, format_bytes, format_rate, format_share, format_size, format_time

_FORMATS = {
    "size": format_size,
    "bytes": format_bytes,
    "time": format_time,
    "rate": format_rate,
    "share": format_share,
    "number": lambda value: digits(value) if abs(value) < 1000 else f"{value:,.0f}",
}


class PowersOfTwo(Locator):
    """Ticks at powers of two, equally far apart, at most ``most`` of them.

    >>> PowersOfTwo(6).tick_values(2**10, 2**30).tolist()
    [1024.0, 32768.0, 1048576.0, 33554432.0, 1073741824.0]
    """

    def __init__(self, most: int = 7):
        self.most = most

    def __call__(self):
        """Locations within the limits of the axis."""
        return self.tick_values(*self.axis.get_view_interval())

    def tick_values(self, vmin, vmax):
        """Locations between the two limits."""
        low, high = np.ceil(np.log2(min(vmin, vmax)) - 1e-9), np.floor(np.log2(max(vmin, vmax)) + 1e-9)
        step = next(
            (s for s in (1, 2, 3, 5) if (high - low) // s < self.most), max(1, -(-(high - low) // self.most))
        )
        return 2.0 ** np.arange(low, high + 1, step)


def scale(axis: Axis, kind: str, log: int | None = None, most: int = 6) -> None:
    """Makes ``ax.xaxis`` or ``ax.yaxis`` read as ``kind``: size, bytes, time, rate, share or number.

    ``log`` is None for a linear axis, or the base 2 or 10; ``most`` is about the greatest number of ticks.
    """
    if kind not in _FORMATS:
        raise InputRefused(f"{kind!r} is no kind of axis; use one of {', '.join(_FORMATS)}")
    words = _FORMATS[kind]
    if log is None:
        axis.set_major_locator(MaxNLocator(most, steps=[1, 2, 5, 10]))
    else:
        getattr(axis.axes, f"set_{axis.axis_name}scale")("log", base=log)
        axis.set_major_locator(PowersOfTwo(most) if log == 2 else LogLocator(10, numticks=most + 1))
    axis.set_minor_locator(NullLocator())
    axis.set_minor_formatter(NullFormatter())
    axis.set_major_formatter(FuncFormatter(lambda value, _: words(value)))
