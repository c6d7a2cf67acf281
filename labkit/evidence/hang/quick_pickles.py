"""Pickles as PyTorch writes its dumps, by Python's own unpickler in C once nothing else can be in them.

Two bars, each enough to keep a file from running anything: a stream is loaded only where one grammar fits it
from its first byte to its last, and the unpickler refuses to import. The grammar has containers, texts and
numbers with all their bytes in place, numbers of at most 64 bits, and numbered places for at most a million
values: Python makes a table as long as the largest. Tuples become lists as soon as they are made: as keys
they could be nested so that hashing one takes for ever, and lists Python refuses as keys.
"""

import io
import pickle
import re

_TUPLES = frozenset((b")", b"t", b"\x85", b"\x86", b"\x87"))
_LENGTHS = {b"X": 4, b"\x8c": 1}  # bytes of the length of a text, BINUNICODE and SHORT_BINUNICODE
_LONG = b"|".join(b"\\x%02x.{%d}" % (length, length) for length in range(9))
# Possessive: no byte is tried in two ways.
_FIXED = re.compile(
    rb"(?:[hqK\x80]."  # BINGET, BINPUT, BININT1, PROTO
    rb"|[(\]}N\x88\x89\x94aesu]"  # marks, containers, None, booleans, MEMOIZE, and what fills
    rb"|[jJ].{4}|r..[\x00-\x0f]\x00|M..|G.{8}|\x95.{8}"  # LONG_BINGET, BININT, LONG_BINPUT to FRAME
    rb"|\x8a(?:" + _LONG + rb"))*+",  # LONG1
    re.DOTALL,
)


class _Unpickler(pickle.Unpickler):
    """Makes lists of the tuples that ``_marked`` marks, and imports nothing."""

    def find_class(self, module, name):
        raise pickle.UnpicklingError("a dump of plain values names nothing")

    def persistent_load(self, made):
        return list(made)


def quick_plain(data: bytes, most: int):
    """The value in a pickle of plain values; NotImplemented where it is damaged, or has any other opcode.

    ``most``: containers; from a file that may hold more, nothing is made here. Its depth is not looked at,
    nor whether a value contains itself.

    >>> quick_plain(b"\\x80\\x02]K\\x01K\\x02\\x86a.", 9), quick_plain(b"cos\\nsystem\\n.", 9)
    ([[1, 2]], NotImplemented)
    """
    if sum(map(data.count, (b"]", b"}", *_TUPLES))) > most:
        return NotImplemented
    marked = _marked(data)
    if marked is None:
        return NotImplemented
    try:
        return _Unpickler(io.BufferedReader(io.BytesIO(marked))).load()
    except Exception:  # whatever Python has against it, the slower reader says it in a sentence
        return NotImplemented


def _marked(data: bytes) -> bytes | None:
    """The pickle with a mark, BINPERSID, behind each tuple; None where the grammar does not fit all of it."""
    pieces, start, at = [], 0, 0
    while True:
        at = _FIXED.match(data, at).end()
        code = data[at : at + 1]
        if code in _LENGTHS:
            begin = at + 1 + _LENGTHS[code]
            at = begin + int.from_bytes(data[at + 1 : begin], "little")
            if at > len(data):
                return None
        elif code in _TUPLES:
            at += 1
            pieces.append(data[start:at])
            start = at
        elif code == b"." and at + 1 == len(data):
            pieces.append(data[start:])
            return b"Q".join(pieces)
        else:
            return None
