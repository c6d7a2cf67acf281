"""Blocks of a timeline as few artists: all blocks of a kind are one path, all numbers one artist.

A patch or a text for each block would make a redraw ten times slower.
"""

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.font_manager import FontProperties
from matplotlib.patches import PathPatch
from matplotlib.path import Path

from labkit.show import theme
from labkit.show.words import measured
from labkit.strategies.pipeline import Run
from labkit.strategies.timeline import BACKWARD, FORWARD, INPUT_GRADIENT, WEIGHT_GRADIENT

HEIGHT = 0.62  # of a block; the rest of a rank's row shows the transfers to the next
# A backward that runs as one block has the colour of its part that the next stage waits for.
COLOURS = {
    FORWARD: theme.COLOURS["compute"],
    BACKWARD: theme.COLOURS["context"],
    INPUT_GRADIENT: theme.COLOURS["context"],
    WEIGHT_GRADIENT: theme.COLOURS["expert"],
}
TRANSFER_LINE = {"color": theme.COLOURS["communication"], "linewidth": 1.0}
END_LINE = {"color": theme.COLOURS["text"], "linewidth": 2.0}
SHRUNK = 0.75  # the least size of numbers, before they are left out


def patch(ax: Axes, linewidth=0, **look) -> PathPatch:
    """An empty shape, to be filled with the path of all blocks of a kind."""
    return ax.add_patch(PathPatch(Path(np.zeros((1, 2))), linewidth=linewidth, snap=False, **look))


def rectangles(lane, start, stop, height: float = HEIGHT) -> Path:
    """One rectangle per block, in the row of its lane; arrays of one length."""
    low, high = lane - height / 2, lane + height / 2
    return _path(
        np.stack([np.stack([start, start, stop, stop], -1), np.stack([low, high, high, low], -1)], -1)
    )


def slants(run: Run, transfer: np.ndarray, height: float = HEIGHT) -> Path:
    """One line per transfer, from the edge of the sender's block to the edge of the receiver's row.

    ``transfer``: seconds for each boundary between stages, shape (stages - 1,).
    """
    rank_of = np.zeros(run.stages, dtype=int)
    rank_of[run.stage] = run.lane
    lines = []
    for kinds, way in (((FORWARD,), 1), ((BACKWARD, INPUT_GRADIENT), -1)):
        sends = np.isin(run.kind, kinds) & (run.stage != (run.stages - 1 if way > 0 else 0))
        here, stop = run.stage[sends], run.stop[sends]
        receiver = rank_of[here + way]
        seconds = transfer[np.minimum(here, here + way)]
        # Down the rows, or up again; between chunks a micro-batch may go the other way round.
        side = np.sign(receiver - run.lane[sends]) * height / 2
        x = np.stack([stop, stop + seconds], -1)[side != 0]
        y = np.stack([run.lane[sends] + side, receiver - side], -1)[side != 0]
        lines.append(np.stack([x, y], -1))
    return _path(np.concatenate(lines))


def grid(x, y, ends: tuple[float, float]) -> Path:
    """Lines up from 0 at each x, and across from 0 at each y, to the ``ends`` (along x, along y)."""
    x, y = np.asarray(x, float), np.asarray(y, float)
    up = np.stack([np.stack([x, x], -1), np.stack([0 * x, 0 * x + ends[1]], -1)], -1)
    across = np.stack([np.stack([0 * y, 0 * y + ends[0]], -1), np.stack([y, y], -1)], -1)
    return _path(np.concatenate([up, across]))


def _path(shapes: np.ndarray) -> Path:
    """One path through the corners of many shapes, shape (shapes, corners, 2)."""
    codes = np.full(shapes.shape[:2], Path.LINETO, dtype=Path.code_type)
    codes[:, 0] = Path.MOVETO
    return Path(shapes.reshape(-1, 2), codes.ravel())


class Numbers(Artist):
    """Short texts, one for each of many blocks, at a tenth of the cost of as many ``Text`` artists.

    ``place``: ``inside``, in the middle of each block that is wide enough; or to the ``left``, the ``right``
    or ``below`` it. They also serve as ticks where limits move: Matplotlib's own cost 3 ms an axis.
    """

    def __init__(self, ax: Axes, place: str = "inside", fontsize: float = 9):
        super().__init__()
        self.place, self.fontsize, self.zorder = place, fontsize, 5
        self._texts: list[tuple[str, str]] = []
        self._ends = np.empty((0, 2, 2))
        self._height = None
        ax.add_artist(self)
        self.set_clip_on(False)

    def set_numbers(self, lane, start, stop, texts, colours=theme.COLOURS["text"], height=None) -> None:
        """What to write; arrays of one length, one value per block.

        ``colours``: one or one per text; ``height`` of the blocks, where letters should shrink with them.
        """
        texts = [str(text) for text in texts]
        colours = [colours] * len(texts) if isinstance(colours, str) else colours
        self._texts = list(zip(texts, colours, strict=True))
        self._ends = np.stack([np.stack([start, stop], -1), np.stack([lane, lane], -1)], -1)
        self._height = height
        self.stale = True

    @property
    def texts(self) -> list[str]:
        """What it writes."""
        return [text for text, _ in self._texts]

    def clear(self) -> None:
        """Writes nothing from now on."""
        self._texts = []
        self.stale = True

    def draw(self, renderer):
        """Writes each text as the renderer remembers it; letters shrink where rows or blocks are small."""
        if not self._texts or not self.get_visible():
            return
        pixels = self.axes.transData.transform(self._ends.reshape(-1, 2)).reshape(-1, 2, 2)
        points = self._points(pixels, renderer.dpi)
        font, gap = FontProperties(size=points), 3.5 * renderer.dpi / 72
        _, height, descent = measured("0", font, renderer.dpi)
        base = height / 2 - descent if self.place != "below" else height + gap
        gc = renderer.new_gc()
        for ((left, y), (right, _)), (text, colour) in zip(pixels.tolist(), self._texts, strict=True):
            width = measured(text, font, renderer.dpi)[0]
            if self.place == "inside" and right - left < width + 1:
                continue
            x = {"left": left - width - gap, "right": right + gap}.get(self.place, (left + right - width) / 2)
            gc.set_foreground(colour)
            # Pixels of a canvas count from its top.
            renderer.draw_text(gc, x, renderer.height - y + base, text, font, 0)
        gc.restore()
        self.stale = False

    def _points(self, pixels: np.ndarray, dpi: float) -> float:
        """The size of the letters: as asked, or what the rows and the narrowest block leave."""
        points = self.fontsize
        if self._height:
            row = self.axes.transData.transform([(0, 0), (0, self._height)])[:, 1]
            points = min(points, 0.9 * abs(row[1] - row[0]) * 72 / dpi)
        if self.place == "inside":
            narrowest = np.diff(pixels[:, :, 0]).min() - 2
            font = FontProperties(size=points)
            widest = max(measured(text, font, dpi)[0] for text, _ in self._texts)
            points *= float(np.clip(narrowest / widest, SHRUNK, 1))
        return round(4 * points) / 4  # few sizes, so that few letters need to be remembered
