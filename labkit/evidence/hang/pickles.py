"""Pickles of plain values, read by an interpreter that can make nothing else.

Python's own unpickler runs what a file names (PyTorch's analyzer reads dumps with it). This one knows the
opcodes of containers, texts and numbers, in protocols 0 to 5; those that import, call, or fetch an object
from elsewhere have no step here. A length is held against what is left of the file before anything is
made of it. What is damaged or unusual comes here; dumps as PyTorch writes them are loaded by
``quick_pickles``, ten times as fast. Opcodes: PEP 307, PEP 3154, PEP 574 and ``pickletools`` of Python.
"""

import struct
from collections.abc import Callable

from labkit.evidence.hang.quick_pickles import quick_plain

MOST_CONTAINERS = 3_000_000  # an empty set takes a byte of the file and 216 of memory
MOST_VALUES = 20_000_000  # also of what a value holds more than once, each time counted
_UNFOLDED = 1000  # values for each byte of a file: what checking it may cost
DEEPEST = 100
_LONGEST_NUMBER = 40  # characters of a number written as text

_MARK = object()
_HOLDERS = frozenset((dict, list))
Plain = dict | list | set | frozenset | str | bytes | int | float | bool | None


class NotPlain(ValueError):
    """A pickle that is damaged, cut off or holds more than plain values; the words end "it ..."."""


def load_plain(data: bytes) -> Plain:
    """The one value in a pickle of dicts, lists, tuples, sets, texts, bytes, numbers, booleans and None.

    Tuples come as lists, as in JSON. Raises NotPlain for anything else, for whole numbers of more than 64
    bits, for keys and members of sets that are containers, for values deeper than 100 or of more than 20
    million parts, and for a pickle that ends early. Nothing in the file is ever imported or called.

    >>> load_plain(b"\\x80\\x02}q\\x00X\\x01\\x00\\x00\\x00aK\\x01s.")
    {'a': 1}
    """
    value = quick_plain(data, MOST_CONTAINERS)
    if value is NotImplemented:
        value = _Reader(data).value()
    _check_size(value, min(MOST_VALUES, _UNFOLDED * len(data)))
    return value


class _Reader:
    """Where the reading stands: the bytes, the stack, and what was put aside under a number."""

    __slots__ = ("at", "data", "made", "memo", "stack")

    def __init__(self, data: bytes):
        self.data, self.at, self.made, self.stack, self.memo = data, 0, 0, [], {}

    def value(self) -> Plain:
        """What the pickle leaves when it stops."""
        while (code := self.byte()) != 0x2E:  # STOP
            step = _STEPS.get(code)
            if step is None:
                what = _FORBIDDEN.get(code)
                raise NotPlain(
                    f"it asks to {what}, which a dump of plain values never does: a crafted or foreign pickle"
                    if what
                    else f"it is damaged: byte {self.at - 1:,} is no opcode that plain values need"
                )
            step(self)
        if len(self.stack) != 1 or self.stack[0] is _MARK:
            raise NotPlain("it is damaged: it ends with no value, or with more than one")
        return self.stack[0]

    def byte(self) -> int:
        if self.at >= len(self.data):
            raise NotPlain("it is cut off: the file ends before the pickle does")
        self.at += 1
        return self.data[self.at - 1]

    def take(self, length: int) -> bytes:
        if length > len(self.data) - self.at or length < 0:
            raise NotPlain("it is cut off or damaged: a length in it goes past the end of the file")
        self.at += length
        return self.data[self.at - length : self.at]

    def counted(self, width: int) -> bytes:
        """Bytes after their length, which has ``width`` bytes."""
        return self.take(int.from_bytes(self.take(width), "little"))

    def line(self) -> bytes:
        end = self.data.find(b"\n", self.at)
        if end < 0:
            raise NotPlain("it is cut off: the file ends within a line of the pickle")
        return self.take(end + 1 - self.at)[:-1]

    def pop(self):
        if not self.stack or self.stack[-1] is _MARK:
            raise NotPlain("it is damaged: it takes a value that it never made")
        return self.stack.pop()

    def top(self, kind: type):
        if not self.stack or type(self.stack[-1]) is not kind:
            raise NotPlain(f"it is damaged: it fills a {kind.__name__} that it never made")
        return self.stack[-1]

    def since_mark(self) -> list:
        """The values above the last mark; they and the mark leave the stack."""
        stack = self.stack
        for at in range(len(stack) - 1, -1, -1):
            if stack[at] is _MARK:
                found = stack[at + 1 :]
                del stack[at:]
                return found
        raise NotPlain("it is damaged: it goes back to a mark that it never set")


def _check_size(value: Plain, most: int) -> None:
    """Refuses what is too deep, as all that contains itself is, or unfolds to more values than ``most``."""
    level, total = [value] if type(value) in _HOLDERS else [], 1
    for _ in range(DEEPEST):
        total += sum(len(one) * (1 + (type(one) is dict)) for one in level)
        if total > most:
            raise NotPlain(f"it unfolds to more than {most:,} values")
        level = [
            part
            for one in level
            for part in (one.values() if type(one) is dict else one)
            if type(part) in _HOLDERS
        ]
        if not level:
            return
    raise NotPlain(f"it is nested more than {DEEPEST} deep, or contains itself")


def _key(value):
    """A key or a member of a set: a scalar, so that hashing it takes no time to speak of."""
    if not isinstance(value, str | bytes | int | float | None):
        raise NotPlain("it has a key that is no text or number")
    return value


def _whole(value: int) -> int:
    # Longer ones would hash alike by design, and nothing in a dump needs them.
    if not -(2**63) <= value < 2**64:
        raise NotPlain("it has a whole number of more than 64 bits")
    return value


def _number_in_text(kind: type, line: bytes):
    text = line.rstrip(b"L") if kind is int else line
    try:
        value = kind(text[:_LONGEST_NUMBER])
    except ValueError:
        raise NotPlain("it is damaged: a number in it cannot be read") from None
    return _whole(value) if kind is int else value


def _old_int(reader: _Reader) -> int:
    line = reader.line()
    return line == b"01" if line in (b"00", b"01") else _number_in_text(int, line)


def _long(reader: _Reader, width: int) -> None:
    raw = reader.counted(width)
    if len(raw) > 9:
        raise NotPlain("it has a whole number of more than 64 bits")
    reader.stack.append(_whole(int.from_bytes(raw, "little", signed=True)))


def _text(raw: bytes, encoding: str = "utf-8") -> str:
    return raw.decode(encoding, errors="replace")


def _quoted(reader: _Reader) -> None:
    """A text of protocol 0 as Python writes it; escapes are left as they stand."""
    line = reader.line()
    if len(line) < 2 or line[:1] not in b"'\"" or line[:1] != line[-1:]:
        raise NotPlain("it is damaged: a text in it has no quotes")
    reader.stack.append(_text(line[1:-1]))


def _put(reader: _Reader, number: int) -> None:
    if not reader.stack:
        raise NotPlain("it is damaged: it puts aside a value that it never made")
    reader.memo[number] = reader.stack[-1]


def _get(reader: _Reader, number: int) -> None:
    if number not in reader.memo:
        raise NotPlain("it is damaged: it asks for a value that it never put aside")
    reader.stack.append(reader.memo[number])


def _append(reader: _Reader, values: list) -> None:
    reader.top(list).extend(values)


def _fill(target: dict, values: list) -> dict:
    if len(values) % 2:
        raise NotPlain("it is damaged: a key in it has no value")
    for key, value in zip(values[::2], values[1::2], strict=True):
        target[_key(key)] = value
    return target


def _set_items(reader: _Reader, values: list) -> None:
    _fill(reader.top(dict), values)


def _add_items(reader: _Reader, values: list) -> None:
    reader.top(set).update(map(_key, values))


def _tuple(reader: _Reader, length: int) -> list:
    return [reader.pop() for _ in range(length)][::-1]


def _push(make: Callable) -> Callable:
    return lambda reader: reader.stack.append(make(reader))


def _container(make: Callable) -> Callable:
    def step(reader: _Reader) -> None:
        reader.made += 1
        if reader.made > MOST_CONTAINERS:
            raise NotPlain(f"it makes more than {MOST_CONTAINERS / 1e6:.0f} million containers")
        reader.stack.append(make(reader))

    return step


def _unpacked(form: str) -> Callable:
    width = struct.calcsize(form)
    return _push(lambda reader: struct.unpack(form, reader.take(width))[0])


def _fixed(width: int) -> Callable:
    return lambda reader: int.from_bytes(reader.take(width), "little")


_u1, _u4 = _fixed(1), _fixed(4)
_NAMED = {
    # marks, and what only announces
    "(": lambda reader: reader.stack.append(_MARK),
    "\x80": lambda reader: reader.take(1),  # the protocol
    "\x95": lambda reader: reader.take(8),  # the length of a frame: nothing is made of it
    # constants and numbers
    "N": _push(lambda reader: None),
    "\x88": _push(lambda reader: True),
    "\x89": _push(lambda reader: False),
    "I": _push(_old_int),
    "J": _unpacked("<i"),
    "K": _unpacked("<B"),
    "M": _unpacked("<H"),
    "L": _push(lambda reader: _number_in_text(int, reader.line())),
    "\x8a": lambda reader: _long(reader, 1),
    "\x8b": lambda reader: _long(reader, 4),
    "F": _push(lambda reader: _number_in_text(float, reader.line())),
    "G": _unpacked(">d"),
    # texts and bytes
    "S": _quoted,
    "T": _push(lambda reader: _text(reader.counted(4))),
    "U": _push(lambda reader: _text(reader.counted(1))),
    "V": _push(lambda reader: _text(reader.line(), "raw-unicode-escape")),
    "X": _push(lambda reader: _text(reader.counted(4))),
    "\x8c": _push(lambda reader: _text(reader.counted(1))),
    "\x8d": _push(lambda reader: _text(reader.counted(8))),
    "B": _push(lambda reader: reader.counted(4)),
    "C": _push(lambda reader: reader.counted(1)),
    "\x8e": _push(lambda reader: reader.counted(8)),
    # containers
    "]": _container(lambda reader: []),
    "l": _container(lambda reader: reader.since_mark()),
    "a": lambda reader: _append(reader, [reader.pop()]),
    "e": lambda reader: _append(reader, reader.since_mark()),
    "}": _container(lambda reader: {}),
    "d": _container(lambda reader: _fill({}, reader.since_mark())),
    "s": lambda reader: _set_items(reader, [reader.pop(), reader.pop()][::-1]),
    "u": lambda reader: _set_items(reader, reader.since_mark()),
    ")": _container(lambda reader: []),
    "t": _container(lambda reader: reader.since_mark()),
    "\x85": _container(lambda reader: _tuple(reader, 1)),
    "\x86": _container(lambda reader: _tuple(reader, 2)),
    "\x87": _container(lambda reader: _tuple(reader, 3)),
    "\x8f": _container(lambda reader: set()),
    "\x90": lambda reader: _add_items(reader, reader.since_mark()),
    "\x91": _container(lambda reader: frozenset(map(_key, reader.since_mark()))),
    # values put aside, and fetched again
    "p": lambda reader: _put(reader, _number_in_text(int, reader.line())),
    "q": lambda reader: _put(reader, _u1(reader)),
    "r": lambda reader: _put(reader, _u4(reader)),
    "\x94": lambda reader: _put(reader, len(reader.memo)),
    "g": lambda reader: _get(reader, _number_in_text(int, reader.line())),
    "h": lambda reader: _get(reader, _u1(reader)),
    "j": lambda reader: _get(reader, _u4(reader)),
}
_STEPS = {ord(name): step for name, step in _NAMED.items()}
_FORBIDDEN = {
    **dict.fromkeys(b"c\x93", "import something"),
    **dict.fromkeys(b"R\x81\x92", "call something"),
    **dict.fromkeys(b"bio", "build an object"),
    **dict.fromkeys(b"PQ\x82\x83\x84\x97\x98", "fetch an object from elsewhere"),
}
