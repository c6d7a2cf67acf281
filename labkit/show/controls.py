"""Controls as small descriptions; the widgets themselves are made when a lab is shown.

The order on the page is always topology, sizes, algorithm, view: first the machine, then what moves over it.
"""

from dataclasses import dataclass
from typing import Any

from labkit.errors import InputRefused
from labkit.units import format_size, words

GROUPS = ("topology", "sizes", "algorithm", "view")


@dataclass(frozen=True)
class Control:
    """One control: its label, its first value, its group, and either a range or a list of (words, value)."""

    kind: str
    label: str
    value: Any
    group: str
    low: float = 0
    high: float = 0
    step: float = 1
    options: tuple[tuple[str, Any], ...] = ()

    def __post_init__(self):
        if self.group not in GROUPS:
            raise InputRefused(
                f"{self.label}: {self.group!r} is no group of controls; use {', '.join(GROUPS)}"
            )
        self.check(self.value)

    def check(self, value: Any) -> None:
        """Refuses a value that the control cannot show; None would show as nothing chosen."""
        if value is None:
            raise InputRefused(f"{self.label}: None cannot be shown as chosen; offer another value for it")
        if self.options and value not in [v for _, v in self.options]:
            raise InputRefused(f"{self.label}: {value!r} is not offered; choose from {self.words()}")
        if self.kind in ("linear", "play") and not self._on_grid(value):
            raise InputRefused(
                f"{self.label}: {value!r} is outside {self.low} to {self.high} in steps of {self.step}"
            )
        if self.kind == "toggle" and not isinstance(value, bool):
            raise InputRefused(f"{self.label}: {value!r} is neither True nor False")

    def _on_grid(self, value: Any) -> bool:
        if not isinstance(value, int | float) or not (self.step > 0 and self.low <= value <= self.high):
            return False
        steps = (value - self.low) / self.step
        return abs(steps - round(steps)) < 1e-6  # 0.3 in steps of 0.1 is off by a rounding

    def words(self) -> str:
        """The offered values as the reader sees them."""
        return ", ".join(text for text, _ in self.options)


def linear(
    label: str, low: float, high: float, value: float, step: float = 1, group: str = "topology"
) -> Control:
    """A slider in equal steps; whole numbers when low, high and step are.

    >>> linear("ranks N", 2, 64, 8).group
    'topology'
    """
    return Control("linear", label, value, group, low, high, step)


def log2(label: str, low: int, high: int, value: int, group: str = "topology") -> Control:
    """A slider over the powers of two from low to high.

    >>> log2("GPUs", 1, 16, 8).words()
    '1, 2, 4, 8, 16'
    """
    return Control(
        "slider", label, value, group, options=tuple((f"{p:,}", p) for p in _powers(label, low, high))
    )


def byte_size(label: str, low: int, high: int, value: int, group: str = "sizes") -> Control:
    """A slider over sizes in bytes that steps in powers of two and reads in binary units.

    >>> byte_size("message size S", 16384, 131072, 65536).words()
    '16 KiB, 32 KiB, 64 KiB, 128 KiB'
    """
    return Control(
        "slider", label, value, group, options=tuple((format_size(p), p) for p in _powers(label, low, high))
    )


def choice(label: str, options: list | dict[str, Any], value: Any, group: str = "algorithm") -> Control:
    """One of a few: values that read as themselves, or a dict of words -> value.

    >>> choice("algorithm", ["ring", "double_tree"], "ring").words()
    'ring, double tree'
    """
    if not isinstance(options, dict):
        options = {words(str(option)): option for option in options}
    return Control("choice", label, value, group, options=tuple(options.items()))


def preset(label: str, ids: list[str], value: str, group: str = "topology") -> Control:
    """One of the presets in data/ by its id, or a reader's own file by its path.

    >>> preset("cluster", ["a100", "h100"], "h100").value
    'h100'
    """
    ids = ids if value in ids else [*ids, value]  # a reader's own file, given as the value
    return Control("choice", label, value, group, options=tuple((name, name) for name in ids))


def toggle(label: str, value: bool, group: str = "view") -> Control:
    """A tick box.

    >>> toggle("logarithmic", True).group
    'view'
    """
    return Control("toggle", label, value, group)


def play(label: str, low: int, high: int, value: int, group: str = "view") -> Control:
    """A slider through steps with play, pause and stop beside it.

    >>> play("step", 0, 14, 0).high
    14
    """
    return Control("play", label, value, group, low, high, 1)


def _powers(label: str, low: int, high: int) -> list[int]:
    if low < 1 or high < low or any(int(end) & (int(end) - 1) for end in (low, high)):
        raise InputRefused(f"{label}: {low} to {high} is no range between two powers of two")
    return [2**e for e in range(int(low).bit_length() - 1, int(high).bit_length())]
