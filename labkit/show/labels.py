"""Names beside lines instead of a legend; they keep out of each other's way and inside the picture."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.text import Text
from matplotlib.transforms import IdentityTransform


class EndLabels:
    """The names of lines, written right of their last visible point, never over one another.

    Make it in ``build`` with room at the right (``theme.axes(figure, right=0.82)``); call ``place()`` in
    ``update`` and return its texts among the moved artists. Text and colour of each are those of its line;
    ``gap`` is in points, more where dots stand on the ends.
    """

    def __init__(self, ax: Axes, lines: list[Line2D], fontsize: float = 11, gap: float = 6):
        self.ax, self.lines, self.fontsize, self.gap = ax, lines, fontsize, gap
        self.texts = [
            ax.text(0, 0, "", transform=IdentityTransform(), va="center", ha="left", fontsize=fontsize)
            for _ in lines
        ]

    def place(self) -> list[Text]:
        """Writes the labels beside the lines as they stand now; returns the texts, for blitting."""
        ends = [_end(self.ax, line) for line in self.lines]
        for line, text, end in zip(self.lines, self.texts, ends, strict=True):
            text.set(text=line.get_label(), color=line.get_color(), visible=end is not None)
        shown = [(text, end) for text, end in zip(self.texts, ends, strict=True) if end is not None]
        pixels = self.ax.figure.dpi / 72
        heights = spread([y for _, (_, y) in shown], 1.2 * self.fontsize * pixels, *self.ax.bbox.intervaly)
        for (text, (x, _)), y in zip(shown, heights, strict=True):
            text.set_position((x + self.gap * pixels, y))
        return self.texts


def _end(ax: Axes, line: Line2D) -> tuple[float, float] | None:
    """The last point of the line within the limits of x, in pixels, its height held inside the axes."""
    if not line.get_visible() or len(line.get_xdata()) == 0:
        return None
    x, y = (np.ma.filled(np.asarray(d, float), np.nan) for d in line.get_data())
    inside = np.isfinite(x) & np.isfinite(y) & (x >= min(ax.get_xlim())) & (x <= max(ax.get_xlim()))
    if not inside.any():
        return None
    last = np.flatnonzero(inside)[np.argmax(x[inside])]
    with np.errstate(all="ignore"):
        across, up = ax.transData.transform((x[last], y[last]))
    bottom, top = ax.bbox.intervaly
    return float(across), float(
        np.clip(np.nan_to_num(up, nan=bottom, posinf=top, neginf=bottom), bottom, top)
    )


def spread(wanted: list[float], apart: float, low: float, high: float) -> list[float]:
    """Positions nearest to the wanted ones, at least ``apart`` from each other and within low to high.

    Least squares: positions that would collide move together by the same amount (pool adjacent violators).
    Where all of them do not fit, they share the room evenly.

    >>> spread([10, 12, 50], 10, 0, 100)
    [6.0, 16.0, 50.0]
    """
    n = len(wanted)
    if n == 0:
        return []
    apart = min(apart, (high - low) / max(1, n - 1))
    order = sorted(range(n), key=lambda i: (wanted[i], i))
    blocks: list[list[float]] = []  # mean of (wanted - rank * apart), number of labels
    for rank, i in enumerate(order):
        blocks.append([wanted[i] - rank * apart, 1])
        while len(blocks) > 1 and blocks[-2][0] > blocks[-1][0]:
            (a, m), (b, k) = blocks[-2:]
            blocks[-2:] = [[(a * m + b * k) / (m + k), m + k]]
    places = np.repeat([mean for mean, _ in blocks], [int(count) for _, count in blocks])
    places = np.clip(places, low, high - (n - 1) * apart) + apart * np.arange(n)
    result = [0.0] * n
    for rank, i in enumerate(order):
        result[i] = float(places[rank])
    return result


def beside(text: Text, x: float, y: float, gap: float = 7) -> Text:
    """Moves a text next to a data point, on the side with more room, so that it stays inside the axes.

    Returns the text, for the list of moved artists. ``gap`` is in points.
    """
    ax = text.axes
    right, up = ax.transAxes.inverted().transform(ax.transData.transform((x, y)))
    ha, va = "left" if right < 0.5 else "right", "bottom" if up < 0.8 else "top"
    across, height = ax.transData.transform((x, y))
    pixels = gap * ax.figure.dpi / 72
    text.set_transform(IdentityTransform())
    text.set(
        x=across + (pixels if ha == "left" else -pixels), y=height + (pixels if va == "bottom" else -pixels)
    )
    text.set(ha=ha, va=va)
    return text
