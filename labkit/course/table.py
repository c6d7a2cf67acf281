"""One kind of table for the whole course: aligned text, and Markdown for the page."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from unicodedata import east_asian_width

import numpy as np

from labkit.units import digits


@dataclass(frozen=True, slots=True, repr=False)
class Table:
    """Column heads and rows of ready text. Deterministic, so that a stored notebook can be compared."""

    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def __repr__(self):
        lines = [self.heads, *self.rows]
        widths = [max(_width(line[i]) for line in lines) for i in range(len(self.heads))]
        padded = (
            "  ".join(c + " " * (w - _width(c)) for c, w in zip(line, widths, strict=True)) for line in lines
        )
        return "\n".join(line.rstrip() for line in padded)

    def _repr_markdown_(self):
        lines = [self.heads, (":--",) * len(self.heads), *self.rows]
        return "\n".join(f"| {' | '.join(map(_escaped, line))} |" for line in lines)


def _escaped(text: str) -> str:
    """Text that Markdown leaves as it is."""
    return re.sub(r"([\\|*_`<>\[\]$~#])", r"\\\1", text)


def _width(text: str) -> int:
    """Columns a terminal needs: Chinese characters take two."""
    return sum(2 if east_asian_width(c) in "WF" else 1 for c in text)


def cell(value) -> str:
    """A value as text: numbers with three significant digits, NaN as ``none``, everything else as it is."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool | np.bool_):
        return "yes" if value else "no"
    return "none" if np.isnan(value) else digits(value)


def table(heads: Sequence[str], rows: Iterable[Sequence]) -> Table:
    """A table from rows of text and numbers."""
    return Table(tuple(heads), tuple(tuple(cell(value) for value in row) for row in rows))
