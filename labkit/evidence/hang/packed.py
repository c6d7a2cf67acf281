"""gzip, unpacked no further than a bound: a file of kilobytes may claim terabytes."""

import zlib

_PIECE = 65_536
_MOST_MEMBERS = 10_000
_GZIP = 31  # zlib's number for "gzip header and largest window"


class TooLarge(ValueError):
    """What is packed has more bytes than are read."""


def is_packed(data: bytes) -> bool:
    """Whether bytes begin as gzip does."""
    return data[:2] == b"\x1f\x8b"


def unpacked(data: bytes, most: int) -> tuple[bytes, bool]:
    """What gzip holds, all members of it, and whether it is whole; of a damaged one as much as can be had.

    ``most``: bytes; raises TooLarge where there are more.

    >>> import gzip
    >>> unpacked(gzip.compress(b"one") + gzip.compress(b"two"), 10), unpacked(gzip.compress(b"one")[:-4], 10)
    ((b'onetwo', True), (b'one', False))
    """
    out, at, members = bytearray(), 0, 0
    while data[at : at + 2] == b"\x1f\x8b":
        members += 1
        member = zlib.decompressobj(_GZIP)
        while not member.eof:
            piece = data[at : at + _PIECE]
            if not piece or members > _MOST_MEMBERS:
                return bytes(out), False
            at += len(piece)
            try:
                out += member.decompress(piece, most + 1 - len(out))
            except zlib.error:
                return bytes(out), False
            if len(out) > most:
                raise TooLarge
            at -= len(member.unused_data)
    return bytes(out), not data[at:].strip(b"\0")
