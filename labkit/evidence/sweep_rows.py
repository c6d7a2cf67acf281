"""What one line of an nccl-tests table says, whatever stands around it.

A row is found by its own shape (size, count, type, then numbers), not by its place in the line, so labels
of any launcher may stand before it and debug output may be glued behind it.
"""

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

TYPE_BYTES = {
    **dict.fromkeys(("int8", "char", "uint8"), 1),
    **dict.fromkeys(("f8e4m3", "f8e5m2", "fp8_e4m3", "fp8_e5m2", "fp8e4m3", "fp8e5m2"), 1),
    **dict.fromkeys(("half", "bfloat16", "float16", "bf16", "fp16"), 2),
    **dict.fromkeys(("int32", "int", "uint32", "float", "float32"), 4),
    **dict.fromkeys(("int64", "uint64", "double", "float64"), 8),
}
REDOPS = {"sum", "prod", "max", "min", "avg", "mulsum", "none"}

_END = r"(?=[\s\[\\\"|<]|$)"
_HEAD = re.compile(r"(?<![\w.+-])(\d{1,19})\s+(\d{1,19})\s+([a-z][a-z0-9_]{2,15})" + _END)
_WORD = re.compile(r"\s+([a-z]{2,12})" + _END)
_NUMBER = re.compile(r"(\s+)(N/A|-?nan|-?inf|-?\d{1,19}(?:\.\d{0,9})?(?:[eE][+-]?\d{1,3})?)\*?" + _END)
_LIKE_A_ROW = re.compile(r"(?:\s+\S+)?(?:\s+-?\d+)?(?:\s+\d+(?:\.\d+)?){2}")
_ERROR = re.compile(r"\d(?:\.\d+)?e[+-]\d\d+")
_DEBUG = re.compile(r":\d{1,9}:\d{1,9} \[\d{1,4}\] |NCCL version ")
_LABEL_BEFORE_DEBUG = re.compile(r"\[[\d,: .-]{1,30}\](?:<\w{1,10}>:?)?\s*$")
_LABEL = re.compile(
    r"\s*(?:(?:\[[^\]\s]*\](?:<\w+>:?)?|\d{4}-\d\d-\d\d[T ][\d:.,]+(?:Z|[+-]\d\d:?\d\d)?"
    r"|std(?:out|err) F|[\w.-]+:)"
    r"(?:\s+|$))*"
)
_STUB = re.compile(r"\d{1,19}(?:\s+\d{1,19}(?:\s+[a-z]\w*)?)?\s*")
_EMPTY_HALF = 25  # an in-place-only row has 32 blanks where the out-of-place numbers would be


class Number(NamedTuple):
    """A printed number and half a unit of its last digit."""

    value: float
    rounding: float


class Half(NamedTuple):
    """The out-of-place or in-place part of a row: microseconds, GB/s, GB/s, the last cell as printed."""

    time: Number
    algbw: Number
    busbw: Number
    wrong: str


@dataclass
class Row:
    """One row: bytes, elements, and its two halves (None where the half is absent).

    ``line`` counts from 1; ``end`` is where its last number ends, counted from its type, and ``blank`` counts
    the blanks between its last word and its first number.
    """

    line: int
    size: int
    count: int
    type: str
    redop: str | None
    root: int | None
    out: Half | None = None
    inp: Half | None = None
    end: int = 0
    blank: int = 0

    @property
    def halves(self) -> list[Half]:
        """The halves that are there, out of place first."""
        return [half for half in (self.out, self.inp) if half]


def without_debug(line: str) -> str:
    """The line without NCCL's own message at its end, nor the host and the label that begin that message.

    >>> without_debug("8192  2048  float  sum  -1[0] node01:497:498 [0] NCCL INFO 8192 Bytes")
    '8192  2048  float  sum  -1'
    """
    found = _DEBUG.search(line)
    if not found:
        return line
    start = found.start()
    while start and found[0][0] == ":" and (line[start - 1].isalnum() or line[start - 1] in "_.-"):
        start -= 1
    if line[start : found.start()].strip("0123456789"):  # a number glued to the host's name is the row's
        while line[start].isdigit():
            start += 1
    return _LABEL_BEFORE_DEBUG.sub("", line[:start])


def without_label(line: str) -> str:
    """The line without launcher labels, log times and container stream names at its beginning.

    >>> without_label("[1,0]<stdout>: 5.0"), without_label("node01: 0: 5.0"), without_label("[0]     75.38")
    ('5.0', '5.0', '75.38')
    """
    return line[_LABEL.match(line).end() :]


def number(token: str) -> Number:
    """The value of a printed number and half a unit of its last digit (NaN for text)."""
    mantissa, _, power = token.lower().partition("e")
    try:
        value = float(token)
        digit = 10.0 ** (int(power or 0) - len(mantissa.partition(".")[2]))
    except (ValueError, OverflowError):
        return Number(math.nan, math.nan)
    return Number(value, digit / 2)


def measurable(time: Number, algbw: Number, busbw: Number) -> bool:
    """Whether a clock can have measured such microseconds and a machine can have reached such GB/s."""
    return 1e-6 <= time.value <= 1e15 and 0 <= algbw.value <= 1e12 and 0 <= busbw.value <= 1e12


def half_of(tokens: list[str]) -> Half | None:
    """Tokens as time, algbw, busbw, wrong (what follows is ignored); None when they cannot be that."""
    if len(tokens) < 4 or any(token[0] == "0" and token[1:2].isdigit() for token in tokens[:4]):
        return None
    time, algbw, busbw = (number(token) for token in tokens[:3])
    wrong = number(tokens[3]).value
    checked = tokens[3] in ("N/A", "nan", "-nan") or (math.isfinite(wrong) and wrong >= 0)
    return Half(time, algbw, busbw, tokens[3]) if checked and measurable(time, algbw, busbw) else None


def _numbers(text: str, start: int) -> tuple[list[str], list[int], list[int]]:
    """Numbers one after another from ``start``, the blanks before each, and ``start`` and every number's end.

    The asterisk that old rccl-tests put behind an error too large is no part of the number.
    """
    tokens, gaps, ends = [], [], [start]
    while match := _NUMBER.match(text, start):
        gaps.append(len(match[1]))
        tokens.append(match[2])
        ends.append(match.end(2))
        start = match.end()
    return tokens, gaps, ends


def _layouts(tokens: list[str], columns: int | None, alone: bool) -> Iterator[tuple[int, int, int]]:
    """Whether a root stands first (0 or 1), how many halves follow, and how many columns each may have.

    A half has 4 columns, 5 with #bitdiff, 4 more with the per-iteration report. First what fits exactly, then
    with more behind it: rccl-tests puts algorithm, protocol and channels there (N/A without a plan). Numbers
    behind it count as such columns only under a head that tells how many a half has, ``alone`` in the line.
    """
    roots = (0, 1) if tokens and re.fullmatch(r"-1|\d{1,6}", tokens[0]) else (0,)
    for per_half in (columns,) if columns else (4, 8, 5, 9):
        for halves in (2, 1) if columns or per_half == 4 else (2,):
            if len(tokens) - halves * per_half in roots:
                yield len(tokens) - halves * per_half, halves, per_half
    for halves in (2, 1):
        for root in reversed(roots):
            behind = tokens[root + halves * (columns or 4) :]
            if behind and (set(behind) == {"N/A"} or (halves == 2 and columns and alone)):
                yield root, halves, columns or 4


def read_row(line: str, at: int, columns: int | None = None) -> tuple[Row | None, str]:
    """The row in a line, or why the row that begins there cannot be read; (None, "") without a row.

    ``columns``: columns of each half, where the table's head tells. A row that has its beginning but no
    numbers yet comes back without halves: NCCL may have printed in between.
    """
    found = list(_HEAD.finditer(line))
    head = next((match for match in found if match[3] in TYPE_BYTES), None)
    if not head:
        unknown = next((match for match in found if _LIKE_A_ROW.match(line, match.end())), None)
        return None, f"its data type {unknown[3]!r} is unknown" if unknown else ""
    start, redop = head.end(), None
    if word := _WORD.match(line, start):
        redop, start = word[1], word.end()
        if redop not in REDOPS:
            return None, f"its reduction {redop!r} is unknown"
    tokens, gaps, ends = _numbers(line, start)
    row = Row(
        at,
        int(head[1]),
        int(head[2]),
        head[3],
        redop,
        None,
        end=ends[-1] - head.end(),
        blank=gaps[0] if gaps else 0,
    )
    begun = not tokens or (len(tokens) == 1 and re.fullmatch(r"-1|\d{1,6}", tokens[0]))
    if begun and not line[ends[-1] :].strip():
        row.root = int(tokens[0]) if tokens else None
        return row, ""
    layouts, best = list(_layouts(tokens, columns, len(found) == 1)), None
    for root, halves, per_half in layouts:
        parts, used = (
            [half_of(tokens[root + i * per_half :]) for i in range(halves)],
            root + halves * per_half,
        )
        if None in parts:
            continue
        agrees = all(rate_agrees(row.size, half) for half in parts)
        if agrees or (best is None and used == len(tokens)):
            best = root, used, parts
        if agrees:
            break
    if best is None:
        return (
            None,
            "its numbers are no time and bandwidths, or it is not whole" if layouts else "it is not whole",
        )
    root, used, parts = best
    row.root, row.end = int(tokens[0]) if root else None, ends[used] - head.end()
    if len(parts) == 2:
        row.out, row.inp = parts
    elif gaps[root] >= _EMPTY_HALF:
        row.inp = parts[0]
    else:
        row.out = parts[0]
    return row, ""


def row_starts(line: str) -> list[int]:
    """Where rows begin in a line, whole or not."""
    return [match.start() for match in _HEAD.finditer(line) if match[3] in TYPE_BYTES]


def piece_of(line: str) -> Half | None:
    """Half a row alone in its line (NCCL printed between the halves), else None."""
    text = " " + without_label(line).rstrip()
    tokens, _, ends = _numbers(text, 0)
    return half_of(tokens) if len(tokens) == 4 and text[ends[-1] :] in ("", "*") else None


def is_stub(line: str) -> bool:
    """Whether a line is the beginning of a row and no more: its size, or its size and count.

    >>> is_stub("    33554432       8388608     flo"), is_stub("[0]    33554432"), is_stub("8 GPUs")
    (True, True, False)
    """
    rest = without_label(line)
    apart = line[: len(line) - len(rest)].endswith("  ")  # a single number may be anything else
    return bool(_STUB.fullmatch(rest)) and (apart or len(rest.split()) > 1)


def rate_agrees(size: float, half: Half, share: float = 1.0) -> bool:
    """Whether the printed algbw is ``share`` x size / time within what printing rounds away (and 0.2 %)."""
    expected = share * size / half.time.value / 1e3
    slack = half.algbw.rounding + expected * (half.time.rounding / half.time.value + 2e-3)
    return abs(half.algbw.value - expected) <= slack


def wrong_of(half: Half, data_type: str, is_error: bool) -> float:
    """Wrong elements, NaN where nothing was checked.

    The old ``error`` column is a size of error, not a count: what the old tests themselves let pass as
    rounding (1e-5 for float, 1e-12 for double, 1e-2 for 16 bits and less) is 0 here; more is kept as printed.
    """
    value = number(half.wrong).value
    if is_error and not math.isnan(value):
        bound = (
            0.0
            if "int" in data_type or data_type == "char"
            else {4: 1e-5, 8: 1e-12}.get(TYPE_BYTES[data_type], 1e-2)
        )
        return 0.0 if value <= bound else value
    return value


def whole_error(token: str) -> bool:
    """Whether a cell of the old ``error`` column is whole: N/A, or like 1e-07."""
    return token in ("N/A", "nan", "-nan") or bool(_ERROR.fullmatch(token))
