"""Two ways to write a PNG: at once, for the live picture, and small, for a stored notebook."""

import io
import struct
import zlib

import numpy as np
from PIL import Image

from labkit.show import theme

_COLOURS, _MOST_EXACT = 32, 20
_PLACES = np.array([65536, 256, 1])
_THEME = np.array(sorted({int(c[1:], 16) for c in (*theme.COLOURS.values(), *theme.RANKS, "#FFFFFF")}))
_WORTH_KEEPING = 40  # pixels; below that a colour is a blend at the edge of a letter


def fast(pixels: np.ndarray) -> bytes:
    """RGBA pixels (height, width, 4) as a PNG, without row filters at deflate level 1.

    Pillow tries all five filters on every row; on flat drawings that takes four times as long for nothing.
    (PNG specification, 3rd edition, sections 5.3, 9 and 10.)

    >>> fast(np.zeros((2, 3, 4), np.uint8))[:8]
    b'\\x89PNG\\r\\n\\x1a\\n'
    """
    height, width, _ = pixels.shape
    rows = np.zeros((height, 1 + 4 * width), np.uint8)  # each row starts with its filter: 0, none
    rows[:, 1:] = pixels.reshape(height, 4 * width)
    header = struct.pack(">IIBBBBB", width, height, 8, 6, 0, 0, 0)  # 8 bits, RGBA, not interlaced
    data = zlib.compress(rows, 1)
    return b"\x89PNG\r\n\x1a\n" + _chunk(b"IHDR", header) + _chunk(b"IDAT", data) + _chunk(b"IEND", b"")


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def small(pixels: np.ndarray) -> bytes:
    """RGBA pixels as a PNG with a palette of 32 colours, packed well: a quarter of the size.

    The theme's colours that occur keep their exact values, so that a thin line and a small patch of a legend
    look as they should; a median cut of all other pixels fills the rest of the palette.
    """
    rgb = pixels[:, :, :3].astype(np.int64)
    packed = rgb @ _PLACES
    found, where, count = np.unique(packed, return_inverse=True, return_counts=True)
    of_theme = np.isin(found, _THEME) & (count >= _WORTH_KEEPING)
    exact = found[of_theme][np.argsort(-count[of_theme], kind="stable")][:_MOST_EXACT]
    others = _unpacked(packed[~np.isin(packed, exact)])
    palette = _unpacked(exact)
    if len(others):
        cut = Image.fromarray(others[None]).quantize(_COLOURS - len(exact), method=Image.Quantize.MEDIANCUT)
        palette = np.concatenate([palette, np.array(cut.getpalette(), np.uint8).reshape(-1, 3)])[:_COLOURS]
    apart = _unpacked(found)[:, None].astype(int) - palette.astype(int)
    nearest = (apart**2).sum(axis=-1).argmin(axis=1).astype(np.uint8)
    image = Image.fromarray(nearest[where].reshape(packed.shape))
    image.putpalette(palette.ravel().tolist())
    out = io.BytesIO()
    image.save(out, "png", optimize=True)
    return out.getvalue()


def _unpacked(colours: np.ndarray) -> np.ndarray:
    """Colours as one number each, as rows of red, green and blue."""
    return np.stack([colours // place % 256 for place in _PLACES], axis=-1).astype(np.uint8)
