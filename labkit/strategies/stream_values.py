"""The numbers in programs on streams: held by ranks, made by kernels, summed by collectives."""

from collections.abc import Callable, Sequence

import numpy as np

from labkit.errors import InputRefused
from labkit.spec.checks import shown
from labkit.spec.rule import counted
from labkit.strategies.communicator import Communicator


def copies(buffers) -> dict[str, np.ndarray]:
    """A rank's buffers by name, as arrays of floats of its own; refused where they are no real numbers."""
    held = {name: _floats(value) for name, value in buffers.items()} if isinstance(buffers, dict) else None
    if held is None or any(not isinstance(name, str) or array is None for name, array in held.items()):
        raise InputRefused("the buffers of a rank are arrays of numbers by name; give a dict")
    return held


def taken(what: str, buffers: dict[str, np.ndarray], names: Sequence[str]) -> list[np.ndarray]:
    """The arrays that an operation reads, read-only; refused where nobody made one."""
    unmade = [name for name in names if name not in buffers]
    if unmade:
        raise InputRefused(f"{what} reads {unmade[0]!r}, which no buffer holds yet; make it first")
    arrays = [buffers[name].view() for name in names]
    for array in arrays:
        array.flags.writeable = False
    return arrays


def computed(what: str, function: Callable[..., np.ndarray], arrays: Sequence[np.ndarray]) -> np.ndarray:
    """What a kernel's function makes of its arrays; refused where it fails, or returns no real numbers."""
    try:
        value = function(*arrays)
    except Exception as error:  # a function of the reader's: anything may go wrong in it
        raise InputRefused(
            f"the function of {what} fails with {type(error).__name__} {shown(str(error))}; give one that "
            f"takes {counted(len(arrays), 'array')}, changes none of them and returns an array"
        ) from error
    result = _floats(value)
    if result is None:
        raise InputRefused(f"the function of {what} returns {shown(value)}; return an array of real numbers")
    return result


def summed(what: str, arrays: list[np.ndarray]) -> list[np.ndarray]:
    """The sum on every rank; refused where the ranks bring unequal shapes."""
    shapes = {array.shape for array in arrays}
    if len(shapes) > 1:
        raise InputRefused(
            f"the ranks bring arrays of {len(shapes)} shapes to the {what}; a collective needs all alike"
        )
    return Communicator().all_reduce(arrays, what)


def _floats(value) -> np.ndarray | None:
    """A copy of the value as an array of floats; None where it is not one of real numbers."""
    try:
        array = np.asarray(value)
    except (TypeError, ValueError):  # such as rows of unequal lengths
        return None
    return np.array(array, float) if array.dtype.kind in "buif" and array.size else None
