"""A canvas that remembers the words it has drawn: text is most of the cost of a redraw.

Matplotlib 3.11 shapes and renders every glyph of every text each time, some 3 ms a text. Here each string is
rendered once, by Matplotlib itself, and then copied; the copy stands on whole pixels. A number that has not
been seen before is put together from letters that have: hinted letters are whole pixels wide, so the result
is the same to the pixel.
"""

import math
from functools import lru_cache

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg, RendererAgg
from matplotlib.font_manager import FontProperties

_MARGIN = 4  # pixels round a rendered string, for strokes that reach out of their box
_LETTERS = frozenset("0123456789 .,:()+–%×=/kMGBNimsµgp")  # numbers with their units
_KERNED = "BG"  # the one pair of these that moves closer together


class Renderer(RendererAgg):
    """RendererAgg with a memory for upright and vertical text."""

    def draw_text(self, gc, x, y, s, prop, angle, ismath=False, mtext=None):
        """Copies the string if it has been drawn before; formulas and slanted text are left to Matplotlib."""
        if ismath or angle not in (0, 90) or not (math.isfinite(x) and math.isfinite(y)):
            super().draw_text(gc, x, y, s, prop, angle, ismath, mtext)
            return
        coverage, left, below = _rendered(s, prop.copy(), self.dpi, angle)
        self._renderer.draw_text_image(coverage, round(x) - left, round(y) + below, 0, gc)

    def get_text_width_height_descent(self, s, prop, ismath):
        """Numbers are measured letter by letter, which needs no shaping."""
        if ismath or not _is_number(s):
            return super().get_text_width_height_descent(s, prop, ismath)
        return measured(s, prop.copy(), self.dpi)


def _is_number(s: str) -> bool:
    """Whether a string can be put together from single letters."""
    return len(s) > 1 and _LETTERS.issuperset(s) and _KERNED not in s


@lru_cache(maxsize=4000)
def measured(s: str, prop: FontProperties, dpi: float) -> tuple[float, float, float]:
    """Width, height and descent of a string in pixels."""
    if not _is_number(s):
        return RendererAgg(1, 1, dpi).get_text_width_height_descent(s, prop, False)
    letters = _alphabet(prop.copy(), dpi)
    sizes = [letters[letter][2] for letter in s]
    above, descent = max(height - below for _, height, below in sizes), max(below for _, _, below in sizes)
    return sum(width for width, _, _ in sizes), above + descent, descent


class _Alphabet(dict):
    """Of each letter of one look: coverage, depth of its origin, and size; rendered when first asked for."""

    def __init__(self, prop: FontProperties, dpi: float):
        super().__init__()
        self._look = prop, dpi

    def __missing__(self, letter: str):
        coverage, _, depth = _rendered(letter, *self._look, 0)
        self[letter] = coverage, depth, measured(letter, *self._look)
        return self[letter]


@lru_cache(maxsize=100)
def _alphabet(prop: FontProperties, dpi: float) -> _Alphabet:
    return _Alphabet(prop, dpi)


@lru_cache(maxsize=4000)
def _rendered(s: str, prop: FontProperties, dpi: float, angle: float) -> tuple[np.ndarray, int, int]:
    """Coverage (0 to 255) of the string, and how far in from left and bottom its origin is, in pixels."""
    if angle == 0 and _is_number(s):
        return _composed(s, prop, dpi)
    width, height, descent = measured(s, prop, dpi)
    along, across = math.ceil(width) + 2 * _MARGIN, math.ceil(height) + 2 * _MARGIN
    base = _MARGIN + math.ceil(height - descent)  # from the top of the letters' box to the baseline
    if angle == 0:
        canvas, left, down = RendererAgg(along, across, dpi), _MARGIN, base
    else:
        canvas, left, down = RendererAgg(across, along, dpi), base, along - _MARGIN
    canvas.draw_text(canvas.new_gc(), left, down, s, prop, angle)
    coverage = np.array(np.asarray(canvas.buffer_rgba())[:, :, 3])
    return coverage, left, coverage.shape[0] - down


def _composed(s: str, prop: FontProperties, dpi: float) -> tuple[np.ndarray, int, int]:
    """The same, put together from the letters; where two overlap, the darker counts."""
    alphabet = _alphabet(prop, dpi)
    letters = [alphabet[letter] for letter in s]
    below = max(depth for _, depth, _ in letters)
    above = max(len(coverage) - depth for coverage, depth, _ in letters)
    whole = np.zeros((above + below, int(sum(size[0] for _, _, size in letters)) + 2 * _MARGIN), np.uint8)
    x = 0
    for coverage, depth, size in letters:
        top = above + depth - len(coverage)
        here = whole[top : top + len(coverage), x : x + coverage.shape[1]]
        np.maximum(here, coverage[:, : here.shape[1]], out=here)
        x += int(size[0])
    return whole, _MARGIN, below


class Canvas(FigureCanvasAgg):
    """A canvas that draws with ``Renderer``."""

    def get_renderer(self):
        """The one renderer of this canvas."""
        if not isinstance(getattr(self, "renderer", None), Renderer):
            width, height = self.get_width_height(physical=True)
            self.renderer = Renderer(width, height, self.figure.dpi)
        return self.renderer
