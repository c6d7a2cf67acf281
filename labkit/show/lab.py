"""What a lab is: three functions, a readout and a description, bundled under one name."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from labkit.errors import InputRefused


@dataclass(frozen=True)
class Lab:
    """A figure that answers to settings; plain functions, so that tests call them without a notebook.

    ``compute(**settings) -> result`` does the mathematics; its default values are the lab's default settings.
    ``build(figure) -> artists`` makes the axes once, with limits that hold for all the controls offer.
    ``update(artists, result)`` writes the result into the artists and returns those that moved; it returns
    None when limits or ticks had to change, which costs a full redraw.
    ``readout(result) -> list[str]`` says the plotted numbers in words: the same number of lines at every
    setting, each at most 110 characters, so that the page does not jump.
    ``alt`` describes the picture in one sentence: a text, or a function of the result.
    ``name`` is the name the lab is imported under; ``size`` is in inches, at 100 screen pixels an inch.
    """

    name: str
    compute: Callable[..., Any]
    build: Callable[[Any], Any]
    update: Callable[[Any, Any], list | None]
    readout: Callable[[Any], list[str]]
    alt: str | Callable[[Any], str]
    size: tuple[float, float] = (9, 3.8)

    def settings(self, given: dict[str, Any]) -> dict[str, Any]:
        """The settings ``compute`` takes, in its order: the given ones, else its own defaults."""
        wanted = inspect.signature(self.compute).parameters
        unknown = [name for name in given if name not in wanted]
        if unknown:
            raise InputRefused(f"{self.name} has no setting {unknown[0]!r}; it takes {', '.join(wanted)}")
        missing = [name for name, p in wanted.items() if name not in given and p.default is p.empty]
        if missing:
            raise InputRefused(f"{self.name} needs a value for {', '.join(missing)}")
        return {name: given.get(name, p.default) for name, p in wanted.items()}

    def describe(self, result: Any) -> str:
        """The alternative text of the picture of ``result``."""
        return self.alt(result) if callable(self.alt) else self.alt

    def line(self, settings: dict[str, Any]) -> str:
        """The setting as one line to copy; a value that is no number or text stands under its own name."""
        arguments = [f"{key}={_literal(key, value)}" for key, value in settings.items()]
        return f"lk.still({', '.join([f'labs.{self.name}', *arguments])})"


def _literal(name: str, value: Any) -> str:
    plain = value is None or isinstance(value, int | float | str)
    if isinstance(value, tuple | list):
        plain = all(item is None or isinstance(item, int | float | str) for item in value)
    return repr(value) if plain else name
