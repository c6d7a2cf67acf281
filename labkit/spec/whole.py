"""Whole numbers as the nouns take them: checked once, where a noun is made."""

from numbers import Real

import numpy as np

from labkit.errors import InputRefused
from labkit.units import plain

LARGEST = 10**9


def whole(value, what: str, least: int = 1, most: int = LARGEST, arrays: bool = False):
    """``value`` as an int, or as an array of int64 where ``arrays`` are taken; ``what`` names it.

    Refused, in one sentence: what is not a number (text, a list, None, yes or no), has a fraction, is below
    ``least`` or above ``most``.

    >>> whole(8.0, "tp"), whole(np.int32(4), "pp")
    (8, 4)
    """
    array = isinstance(value, np.ndarray) and value.dtype.kind in "iuf" and (arrays or value.ndim == 0)
    number = isinstance(value, Real | np.number) and not isinstance(value, bool)
    # A comparison with NaN is false; a whole number too long for a float is compared as it is.
    if (array or number) and np.all((value >= least) & (value <= most)) and np.all(value % 1 == 0):
        return plain(np.asarray(value).astype(np.int64))
    many = ", or a NumPy array of them," if arrays and isinstance(value, list) else ""
    bound = "up" if most == LARGEST and not (number and value > most) else f"to {most:,}"
    raise InputRefused(f"{what} is {shown(value)}; give a whole number{many} from {least} {bound}")


def shown(value) -> str:
    """A value in a refusal, on one short line: numbers and text as Python writes them, else its type.

    >>> shown("8"), shown([8]), shown(10**50)
    ("'8'", 'of type list', 'a number of more than 40 digits')
    """
    if isinstance(value, np.ndarray):
        return f"an array of {value.size} values, not all of which fit"
    if isinstance(value, int) and abs(value) >= 10**40:
        return "a number of more than 40 digits"
    if not isinstance(value, str | Real | np.number | None):
        return f"of type {type(value).__name__}"
    text = str(value) if isinstance(value, np.number) else repr(value)
    return text if len(text) <= 40 else text[:37] + "..."
