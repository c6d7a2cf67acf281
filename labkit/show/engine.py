"""One persistent figure per lab: only what moved is drawn again, over a kept background (blitting).

A new figure for each setting costs 300 ms, a full redraw of a kept one about 60, this about 15. The rule for
it to be right: whatever ``update`` does not return must look the same at every setting.
"""

import copy
import functools
import textwrap
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
from matplotlib.artist import Artist
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from labkit.show import png, theme
from labkit.show.lab import Lab
from labkit.show.words import Canvas

SCREEN = 100  # screen pixels an inch
DPI = 144  # drawn pixels an inch: sharp on dense screens and projectors, and no slower than 100 when blitting

_DRAWING = threading.RLock()


def one_at_a_time(function: Callable) -> Callable:
    """The function, which waits while another thread is in one of these.

    JupyterLab hands cells and sliders to different threads of one kernel (comms over subshells), and a
    figure, like Matplotlib's settings, is one for all of them: two at once draw into each other's picture.
    """

    @functools.wraps(function)
    def waits(*args, **kwargs):
        with _DRAWING:
            return function(*args, **kwargs)

    return waits


class Picture:
    """The figure of one lab, drawn setting after setting."""

    def __init__(self, lab: Lab):
        self.lab = lab
        self.figure, self._canvas = _figure(lab.size)
        with theme.style():
            self.artists = lab.build(self.figure)
        self._moving: list[Artist] = []
        self._background = None
        self._limits: list[tuple] = []
        self._ghosts: list[Line2D] = []
        self._message = None
        self._shown = self._canvas

    @property
    def width(self) -> int:
        """Width on the page, in pixels."""
        return round(self.lab.size[0] * SCREEN)

    @property
    def height(self) -> int:
        """Height on the page, in pixels."""
        return round(self.lab.size[1] * SCREEN)

    def draw(self, result: Any) -> bytes:
        """The picture of ``result`` as a PNG made for speed."""
        with theme.style():
            moved = self.lab.update(self.artists, result)
            if moved is None:
                self._background = None
                if not self._moving:
                    # The limits stand now: a lab that seldom moves them tells here what else moves.
                    moved = self.lab.update(self.artists, result)
            new = [artist for artist in moved or [] if artist not in self._moving]
            for artist in new:
                artist.set_animated(True)
            if new:
                self._moving += new
                self._background = None
            self._paint()
        return png.fast(self._pixels())

    def _paint(self) -> None:
        self._moving = [artist for artist in self._moving if artist.get_figure() is not None]
        limits = [ax.viewLim.bounds for ax in self.figure.axes]
        if limits != self._limits and self._ghosts:
            self._background = None  # grey copies stand in it, where the limits were others
        self._limits = limits
        if self._background is None:
            self._canvas.draw()
            self._background = self._canvas.copy_from_bbox(self.figure.bbox)
        else:
            self._canvas.restore_region(self._background)
        for artist in sorted(self._moving, key=lambda artist: artist.get_zorder()):
            self.figure.draw_artist(artist)
        self._shown = self._canvas

    def keep(self) -> None:
        """Leaves grey copies of the lines behind, as they stand now; earlier copies go."""
        self.forget()
        moving = [artist for artist in self._moving if isinstance(artist, Line2D)]
        for line in moving or [line for ax in self.figure.axes for line in ax.lines]:
            if line.axes is None or not line.get_visible():
                continue
            ghost = Line2D([], [])
            ghost.update_from(line)
            ghost.set_data(*(copy.copy(data) for data in line.get_data(orig=True)))
            ghost.set(color=theme.COLOURS["ghost"], zorder=1.5, animated=False, label="_ghost")
            ghost.set(markerfacecolor=theme.COLOURS["ghost"], markeredgecolor=theme.COLOURS["ghost"])
            limits = line.axes.viewLim.frozen()
            line.axes.add_line(ghost)
            line.axes.viewLim.set(limits)
            self._ghosts.append(ghost)
        self._background = None

    def forget(self) -> None:
        """Takes the grey copies away."""
        for ghost in self._ghosts:
            if ghost.axes is not None:
                ghost.remove()
        self._ghosts = []
        self._background = None

    @property
    def keeps(self) -> bool:
        """Whether grey copies stand in the figure."""
        return bool(self._ghosts)

    def say(self, sentence: str) -> bytes:
        """A blank picture of the same size with one calm sentence in it."""
        if self._message is None:
            figure, canvas = _figure(self.lab.size)
            with theme.style():
                text = figure.text(
                    0.5, 0.5, "", ha="center", va="center", color=theme.COLOURS["muted"], fontsize=13
                )
                text.set_linespacing(1.5)
            self._message = canvas, text
        canvas, text = self._message
        text.set_text(textwrap.fill(sentence, width=int(self.lab.size[0] * 8)).replace("$", r"\$"))
        with theme.style():
            canvas.draw()
        self._shown = canvas
        return png.fast(self._pixels())

    def _pixels(self) -> np.ndarray:
        return np.asarray(self._shown.buffer_rgba())

    def stored(self) -> bytes:
        """What is shown now, as a small PNG for a stored notebook."""
        return png.small(self._pixels())


def _figure(size: tuple[float, float]) -> tuple[Figure, Canvas]:
    with theme.style():
        figure = Figure(figsize=size, dpi=DPI)
        return figure, Canvas(figure)
