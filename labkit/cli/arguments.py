"""What several commands take on their command line, each refused in one sentence where it is not that."""

import argparse
import math
import re
import sys

from labkit.errors import InputRefused
from labkit.evidence.sweep_source import read_text_of
from labkit.units import GB, KB, MB, TB, GiB, KiB, MiB, TiB

_UNITS = {
    "b": 1,
    "kb": KB,
    "mb": MB,
    "gb": GB,
    "tb": TB,
    "kib": KiB,
    "mib": MiB,
    "gib": GiB,
    "tib": TiB,
}
_SIZE = re.compile(r"(\d{1,15}(?:\.\d{1,9})?)\s*([a-z]{0,3})")
_NUMBER = re.compile(r"\d{1,10}")


def ranks(text: str) -> int:
    """A number of ranks."""
    if len(text) > 20:  # int() itself refuses some thousand digits
        raise argparse.ArgumentTypeError(f"{text[:20]}... is far too large a number of ranks")
    return int(text)


def rate(text: str) -> float:
    """Bytes/s of a rate in GB/s."""
    value = float(text[:40]) * GB
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"{text[:40]} is no rate above 0 GB/s")
    return value


def size(text: str) -> float:
    """Bytes of a size with its unit.

    >>> size("75GiB") / 2**30, size("1.5 GB")
    (75.0, 1500000000.0)
    """
    found = _SIZE.fullmatch(text.strip().lower()[:40])
    if not found or found[2] not in _UNITS:
        raise argparse.ArgumentTypeError(
            f"{text[:40]!r} is no size; write a number and its unit, as 75GiB or 80GB"
        )
    return float(found[1]) * _UNITS[found[2]]


def count(text: str) -> int:
    """A whole number from 1 up."""
    if not _NUMBER.fullmatch(text.strip()) or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is no whole number from 1 up")
    return int(text)


def standard_input() -> str:
    """What stands for a file named ``-``. Refused: one that is closed, cannot be read, or is too large."""
    if sys.stdin is None:
        raise InputRefused("standard input is closed; give the name of a file")
    try:
        return read_text_of(sys.stdin.buffer, "standard input") + "\n"
    except OSError as error:
        raise InputRefused(f"standard input cannot be read ({error.strerror}); give a file") from None


def settings(text: str) -> dict:
    """Fields of a plan and their values.

    >>> settings("tp=8,zero=1,sequence_parallel=true")
    {'tp': 8, 'zero': 1, 'sequence_parallel': True}
    """
    found = {}
    for part in text[:1000].split(","):
        name, equals, value = part.strip().partition("=")
        if not equals:
            raise argparse.ArgumentTypeError(f"{part[:40]!r} sets nothing; write settings as tp=8,zero=1")
        number = _NUMBER.fullmatch(value)
        found[name] = int(value) if number else {"true": True, "false": False}.get(value.lower(), value)
    return found
