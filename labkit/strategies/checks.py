"""What strategies are given, checked once: counts, shares, arrays of a shape, and functions."""

import numpy as np

from labkit.errors import InputRefused
from labkit.spec.checks import amount, shown, whole


def numbers(value, what: str, *, zero: bool = False, endless: bool = False) -> np.ndarray:
    """Numbers above 0 (from 0 up with ``zero``), finite unless ``endless``: one, a list or an array of them.

    >>> numbers([1, 2.5], "the seconds").tolist()
    [1.0, 2.5]
    """
    array = _array(value) if isinstance(value, list | tuple) else value
    if np.size(array) == 0:
        raise InputRefused(f"{what} is an empty list; give at least one number")
    return amount(array, what, zero=zero, endless=endless)


def counts(value, what: str) -> np.ndarray:
    """Whole numbers from 1 up, one or many, as integers; ``what`` names them.

    >>> counts([4, 8.0], "the ranks").tolist()
    [4, 8]
    """
    return np.asarray(whole(numbers(value, what), what, arrays=True))


def single(value, what: str, *, zero: bool = False, endless: bool = False) -> float:
    """One number above 0 (from 0 up with ``zero``), finite unless ``endless``, as a float."""
    number = numbers(value, what, zero=zero, endless=endless)
    if number.ndim:
        raise InputRefused(f"{what} has the shape {number.shape}; give one number")
    return number.item()


def share(value, what: str) -> float:
    """One number from 0 to 1.

    >>> share(1.5, "the balance")
    Traceback (most recent call last):
    ...
    labkit.errors.InputRefused: the balance is 1.5; use 0 to 1
    """
    number = single(value, what, zero=True)
    if number > 1:
        raise InputRefused(f"{what} is {shown(value)}; use 0 to 1")
    return number


def shaped(value, what: str, *shape: int | str) -> np.ndarray:
    """Finite numbers of a shape, as they are; where a name stands for a length, any from 1 up.

    The same name stands for the same length.

    >>> shaped(np.ones((2, 3)), "x", "positions", 4)
    Traceback (most recent call last):
    ...
    labkit.errors.InputRefused: x has the shape (2, 3); give finite numbers of the shape (positions, 4)
    """
    array = _array(value)
    lengths: dict[str, int] = {}
    fits = array.dtype.kind in "buif" and array.ndim == len(shape) and 0 not in array.shape
    for length, wanted in zip(array.shape, shape, strict=False):
        fits = fits and length == (lengths.setdefault(wanted, length) if isinstance(wanted, str) else wanted)
    if not (fits and np.isfinite(array).all()):
        has = f"has the shape {array.shape}" if array.ndim else f"is {shown(value)}"
        wanted = ", ".join(map(str, shape)) + ("," if len(shape) == 1 else "")
        raise InputRefused(f"{what} {has}; give finite numbers of the shape ({wanted})")
    return array


def places(value, what: str, size: int, below: int) -> np.ndarray:
    """``size`` whole numbers from 0 to ``below`` - 1: which place each of so many things has."""
    array = shaped(value, what, size)
    if array.dtype.kind not in "ui" or array.min() < 0 or array.max() >= below:
        raise InputRefused(f"{what} must be whole numbers from 0 to {below - 1}; correct the others")
    return array


def flag(value, what: str) -> None:
    """Refuses what is neither True nor False."""
    if not isinstance(value, bool | np.bool_):
        raise InputRefused(f"{what} is {shown(value)}; use True or False")


def _array(value) -> np.ndarray:
    """The value as an array; without shape and numbers if it is none."""
    try:
        return np.asarray(value)
    except ValueError:  # rows of unequal lengths
        return np.asarray(None)


def function(value, what: str) -> None:
    """Refuses what cannot be called."""
    if not callable(value):
        raise InputRefused(f"{what} is {shown(value)}; give a function")
