"""A small lab with everything a lab can do: fixed axes, axes that move, a refusal and a failure."""

from types import SimpleNamespace

import numpy as np
import pytest

from labkit.errors import InputRefused
from labkit.show import Lab, theme

X = np.linspace(0, 1, 21)


def compute(n=8, size=1024, way="up", far=False):
    """y = n x, or n (1 - x); ``far`` makes the axis ten times as tall."""
    if n == 1:
        raise InputRefused("One rank has nobody to talk to; choose n of at least 2")
    if n == 13:
        raise ZeroDivisionError("thirteen")
    return SimpleNamespace(n=n, size=size, far=far, y=n * (X if way == "up" else 1 - X))


def build(figure):
    ax = theme.axes(figure)
    ax.set(xlim=(0, 1), ylim=(0, 64), title="a line")
    (fixed,) = ax.plot(X, 30 + 0 * X, "--", color="black")
    (line,) = ax.plot([], [], color=theme.COLOURS["ring"], label="line")
    return SimpleNamespace(ax=ax, line=line, fixed=fixed)


def update(artists, result):
    artists.line.set_data(X, result.y)
    top = 640 if result.far else 64
    if artists.ax.get_ylim()[1] != top:
        artists.ax.set_ylim(0, top)
        return None
    return [artists.line]


def readout(result):
    return [
        f"n = {result.n}, size = {result.size}",
        f"y ends at {result.y[-1]:g} and starts at {result.y[0]:g}",
    ]


@pytest.fixture
def lab():
    return Lab(
        "toy", compute, build, update, readout, lambda r: f"a line that ends at {r.y[-1]:g}", size=(6, 3)
    )
