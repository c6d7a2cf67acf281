"""A canvas that remembers the words it has drawn: text is most of the cost of a redraw.

Matplotlib 3.11 shapes and renders every glyph of every text each time, some 3 ms a text. Here each string is
rendered once, by Matplotlib itself, and then copied; the copy stands on whole pixels.
"""

import math
from functools import lru_cache

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg, RendererAgg
from matplotlib.font_manager import FontProperties

_MARGIN = 4  # pixels round a rendered string, for strokes that reach out of their box


class Renderer(RendererAgg):
    """RendererAgg with a memory for upright and vertical text."""

    def draw_text(self, gc, x, y, s, prop, angle, ismath=False, mtext=None):
        """Copies the string if it has been drawn before; formulas and slanted text are left to Matplotlib."""
        if ismath or angle not in (0, 90) or not (math.isfinite(x) and math.isfinite(y)):
            super().draw_text(gc, x, y, s, prop, angle, ismath, mtext)
            return
        coverage, left, below = _rendered(s, prop.copy(), self.dpi, angle)
        self._renderer.draw_text_image(coverage, round(x) - left, round(y) + below, 0, gc)


@lru_cache(maxsize=2000)
def _rendered(s: str, prop: FontProperties, dpi: float, angle: float) -> tuple[np.ndarray, int, int]:
    """Coverage (0 to 255) of the string, and how far in from left and bottom its origin is, in pixels."""
    width, height, descent = RendererAgg(1, 1, dpi).get_text_width_height_descent(s, prop, False)
    along, across = math.ceil(width) + 2 * _MARGIN, math.ceil(height) + 2 * _MARGIN
    base = _MARGIN + math.ceil(height - descent)  # from the top of the letters' box to the baseline
    if angle == 0:
        canvas, left, down = RendererAgg(along, across, dpi), _MARGIN, base
    else:
        canvas, left, down = RendererAgg(across, along, dpi), base, along - _MARGIN
    canvas.draw_text(canvas.new_gc(), left, down, s, prop, angle)
    coverage = np.array(np.asarray(canvas.buffer_rgba())[:, :, 3])
    return coverage, left, coverage.shape[0] - down


class Canvas(FigureCanvasAgg):
    """A canvas that draws with ``Renderer``."""

    def get_renderer(self):
        """The one renderer of this canvas."""
        if not isinstance(getattr(self, "renderer", None), Renderer):
            width, height = self.get_width_height(physical=True)
            self.renderer = Renderer(width, height, self.figure.dpi)
        return self.renderer
