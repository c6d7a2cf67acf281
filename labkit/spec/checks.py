"""Numbers, choices and nouns as they are given: checked once, refused in one sentence that names them."""

from numbers import Real

import numpy as np

from labkit.errors import InputRefused
from labkit.units import plain

LARGEST = 10**9
LARGEST_AMOUNT = 1e60  # above any bytes, FLOPs or seconds; products of a few of them still fit a float


def whole(value, what: str, least: int = 1, most: int = LARGEST, arrays: bool = False):
    """``value`` as an int, or as an array of int64 where ``arrays`` are taken; ``what`` names it.

    Refused, in one sentence: what is not a number (text, a list, None, yes or no), has a fraction, is below
    ``least`` or above ``most``.

    >>> whole(8.0, "tp"), whole(np.int32(4), "pp")
    (8, 4)
    """
    if type(value) is int and least <= value <= most:  # nearly always, and much quicker
        return value
    array = isinstance(value, np.ndarray) and value.dtype.kind in "iuf" and (arrays or value.ndim == 0)
    number = isinstance(value, Real | np.number) and not isinstance(value, bool)
    # A comparison with NaN is false; a whole number too long for a float is compared as it is.
    some = number or (array and value.size > 0)
    if some and np.all((value >= least) & (value <= most)) and _no_fraction(value):
        return plain(np.asarray(value).astype(np.int64))
    many = ", or a NumPy array of them," if arrays and isinstance(value, list) else ""
    bound = "up" if most == LARGEST and not (number and value > most) else f"to {most:,}"
    raise InputRefused(f"{what} is {shown(value)}; give a whole number{many} from {least} {bound}")


def _no_fraction(value) -> bool:
    integers = isinstance(value, np.ndarray) and value.dtype.kind in "iu"
    return integers or bool(np.all(value % 1 == 0))


def amount(value, what: str, *, zero: bool = False, endless: bool = False, arrays: bool = True) -> np.ndarray:
    """The number, or the array of numbers where ``arrays`` are taken, as floats; ``what`` names it.

    Refused, in one sentence: what is no number (text, a list, None, yes or no), not above 0 (below 0 where
    ``zero`` is allowed), NaN, above 1e60, and without end unless ``endless``.

    >>> amount(np.array([1, 2.5]), "a share").tolist(), amount(0, "bytes", zero=True).tolist()
    ([1.0, 2.5], 0.0)
    """
    array = floats(np.nan if isinstance(value, list | tuple) else value)
    least, most = (array, array) if array.ndim == 0 else (array.min(), array.max())
    if (least >= 0 if zero else least > 0) and most <= LARGEST_AMOUNT and (arrays or array.ndim == 0):
        return array  # nearly always, and much quicker; never where there is a NaN
    good = (array >= 0 if zero else array > 0) & ((array <= LARGEST_AMOUNT) | (endless & np.isinf(array)))
    if not (good.all() and (arrays or array.ndim == 0)):
        many = ", or a NumPy array of them," if arrays and isinstance(value, list) else ""
        bound = "from 0 up" if zero else "above 0"
        if np.any((array > LARGEST_AMOUNT) & np.isfinite(array)):
            bound += f" and at most {LARGEST_AMOUNT:g}"
        raise InputRefused(f"{what} is {shown(value)}; give a number{many} {bound}")
    return array


def floats(value) -> np.ndarray:
    """A number, or numbers in a list or array, as floats; one NaN for what is neither.

    >>> floats([1, 2]).tolist(), floats("8").tolist(), floats(True).tolist()
    ([1.0, 2.0], nan, nan)
    """
    try:
        if isinstance(value, Real) and not isinstance(value, bool):  # whole numbers of any length
            return np.asarray(float(value))
        array = np.asarray(value)
    except (TypeError, ValueError, OverflowError):
        return np.asarray(np.nan)
    if array.dtype.kind not in "iuf" or not array.size:
        return np.asarray(np.nan)
    return array.astype(float, copy=False)


def one_of(allowed: tuple, value, what: str, arrays: bool = True) -> np.ndarray:
    """The value, or an array of them where ``arrays`` are taken: allowed texts, numbers or truth values.

    >>> one_of(("ring", "tree"), "ring", "the algorithm").item()
    'ring'
    """
    if type(value) is type(allowed[0]) and value in allowed:  # nearly always, and much quicker
        return np.asarray(value)
    single = isinstance(value, str | int | np.generic | np.ndarray)
    same_kind = single and np.asarray(value).dtype.kind == np.asarray(allowed).dtype.kind
    fits = same_kind and np.size(value) and (arrays or np.ndim(value) == 0)
    if not (fits and np.logical_or.reduce([np.asarray(value) == one for one in allowed]).all()):
        *others, last = map(str, allowed)
        raise InputRefused(f"{what} is {shown(value)}; use {', '.join(others)} or {last}")
    return np.asarray(value)


def label(value, what: str) -> str:
    """The value, where it is one line of 1 to 100 characters: what a sentence can call something.

    >>> label("llama2-7b", "the name of a model")
    'llama2-7b'
    """
    if not (isinstance(value, str) and value.isprintable() and 0 < len(value) <= 100):
        raise InputRefused(f"{what} is {shown(value)}; give one line of 1 to 100 characters")
    return value


def broadcasting(shapes: dict[str, tuple[int, ...]], what: str) -> None:
    """Refuses shapes of the arrays in ``what`` that do not broadcast."""
    try:
        np.broadcast_shapes(*shapes.values())
    except ValueError:
        many = ", ".join(f"{name} {shape}" for name, shape in shapes.items() if shape)
        raise InputRefused(f"arrays of {what} must broadcast, not {many}; reshape them") from None


def together(what: str, **given) -> None:
    """Refuses arguments of ``what`` whose arrays do not broadcast; those inside of nouns count as well.

    >>> together("a sum", n=np.ones(2), stage=np.ones(3))
    Traceback (most recent call last):
    ...
    labkit.errors.InputRefused: arrays of a sum must broadcast, not n (2,), stage (3,); reshape them
    """
    shapes = array_shapes(**given)
    if len(set(shapes.values())) > 1:
        broadcasting(shapes, what)


def without_arrays(what: str, **given) -> None:
    """Refuses arguments of ``what`` that are arrays, or nouns with arrays in them.

    >>> without_arrays("a sum", n=np.ones(2))
    Traceback (most recent call last):
    ...
    labkit.errors.InputRefused: a sum takes single numbers, and n is an array; give one number
    """
    for name in array_shapes(**given):
        raise InputRefused(f"{what} takes single numbers, and {name} is an array; give one number")


def array_shapes(**given) -> dict[str, tuple[int, ...]]:
    """The shapes of all arrays in some arguments, by the names of these; those inside of nouns count as well.

    >>> array_shapes(n=np.ones(2), m=3)
    {'n': (2,)}
    """
    shapes: dict[str, tuple[int, ...]] = {}
    for name, value in given.items():
        if type(value) not in _SINGLE:
            _add_shapes(shapes, name, floats(value) if isinstance(value, list | tuple) else value)
    return shapes


_SINGLE = frozenset((int, float, str, bool, type(None)))  # nearly all, and never an array


def _add_shapes(shapes: dict, name: str, value) -> None:
    """Adds the shape of an array, or of those that a noun holds."""
    if isinstance(value, np.ndarray):
        if value.ndim:
            shapes[name] = value.shape
        return
    if isinstance(value, dict):
        parts = {f"{name} {key}": part for key, part in value.items() if type(part) not in _SINGLE}
    elif hasattr(type(value), "__dataclass_fields__"):
        parts = {
            f"{name}.{field}": part
            for field in value.__dataclass_fields__
            if type(part := getattr(value, field)) not in _SINGLE
        }
    else:
        return
    for name, part in parts.items():
        _add_shapes(shapes, name, part)


# Where a noun comes from, as a refusal says it.
_AS = {
    "Transformer": "labkit.model('llama2-7b') returns",
    "Cluster": "labkit.cluster('h100') returns",
    "Gpu": "labkit.cluster('h100').gpu is",
    "Link": "labkit.cluster('h100').intra is",
    "Plan": "labkit.Plan(tp=8, dp=4) is",
}


def noun(value, kind: type, what: str) -> None:
    """Refuses what is not of the kind of noun that is wanted.

    >>> noun("h100", dict, "the table")
    Traceback (most recent call last):
    ...
    labkit.errors.InputRefused: the table is 'h100'; give a dict
    """
    if not isinstance(value, kind):
        like = f", as {_AS[kind.__name__]}" if kind.__name__ in _AS else ""
        raise InputRefused(f"{what} is {shown(value)}; give a {kind.__name__}{like}")


def shown(value) -> str:
    """A value in a refusal, on one short line: numbers and text as Python writes them, else its type.

    >>> shown("8"), shown([8]), shown(10**50)
    ("'8'", 'of type list', 'a number of more than 40 digits')
    """
    if isinstance(value, np.ndarray) and value.ndim:
        return f"an array of {value.size} values, not all of which fit"
    value = value.item() if isinstance(value, np.ndarray) else value
    if isinstance(value, int) and abs(value) >= 10**40:
        return "a number of more than 40 digits"
    if not isinstance(value, str | Real | np.number | None):
        return f"of type {type(value).__name__}"
    text = str(value) if isinstance(value, np.number) else repr(value)
    return text if len(text) <= 40 else text[:37] + "..."
