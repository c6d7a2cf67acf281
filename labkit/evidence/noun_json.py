"""Nouns as JSON text and back: a noun that is read is made anew, so that its own checks hold for it."""

import json
from dataclasses import MISSING, fields, is_dataclass
from typing import Any, get_args, get_type_hints

import numpy as np

from labkit.errors import InputRefused
from labkit.spec import Plan
from labkit.spec.checks import noun, shown, without_arrays

LONGEST = 100_000  # characters of a noun; a cluster with all its sources has about 5,000
_BATCH = ("micro_batch", "accumulation", "global_batch")


def to_json(value) -> str:
    """The fields of a noun (Transformer, Cluster, Plan, StepTime ...) as one line of JSON.

    Floats keep every digit. Refused: a noun that holds arrays, and what is no noun.

    >>> from labkit.spec import Link
    >>> to_json(Link(2e-6, 50e9))
    '{"alpha": 2e-06, "bandwidth": 50000000000.0, "rated": null}'
    """
    if not is_dataclass(value) or isinstance(value, type):
        raise InputRefused(f"{shown(value)} is no noun; give a Transformer, Cluster, Plan or StepTime")
    without_arrays("the text of a noun", noun=value)
    return json.dumps(_plain(value), ensure_ascii=False)


def _plain(value) -> Any:
    if is_dataclass(value):
        names = [field.name for field in fields(value)]
        if isinstance(
            value, Plan
        ):  # of a batch that does not come out whole, two numbers give the third again
            names = [name for name in names if name not in _BATCH or getattr(value, name) % 1 == 0]
        return {name: _plain(getattr(value, name)) for name in names}
    if isinstance(value, dict):
        return {str(key): _plain(part) for key, part in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(part) for part in value]
    return value.item() if isinstance(value, np.generic | np.ndarray) else value


def from_json(text, kind: type, what: str):
    """The noun of a ``kind`` that such a text describes; ``what`` names it in refusals.

    Refused: what is no JSON object or longer than 100,000 characters, a field that this kind does not have, a
    missing one without a usual value, and whatever the noun itself refuses.

    >>> from labkit.spec import Link
    >>> from_json('{"alpha": 2e-06, "bandwidth": 50000000000.0}', Link, "the link")
    Link(alpha=2e-06, bandwidth=50000000000.0, rated=None)
    """
    value = parsed(text, what)
    noun(value, dict, what)
    return _made(value, kind, what)


def parsed(text, what: str, longest: int = LONGEST):
    """What a JSON text says; refused where it is no text, too long or no JSON."""
    if not isinstance(text, str) or len(text) > longest:
        size = f"has {len(text):,} characters" if isinstance(text, str) else f"is {shown(text)}"
        raise InputRefused(f"{what} {size}; give JSON of at most {longest:,} characters")
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputRefused(f"{what} is no JSON ({str(error)[:80]}); write it with labkit") from None


def _made(value: dict, kind: type, what: str):
    known = {field.name: field for field in fields(kind)}
    unknown = [name for name in value if name not in known]
    if unknown:
        raise InputRefused(
            f"{what} has {unknown[0][:40]!r}, which a {kind.__name__} does not have; another version of "
            "labkit may have written it"
        )
    needed = [
        name
        for name, field in known.items()
        if field.default is MISSING and field.default_factory is MISSING and name not in value
    ]
    if needed:
        raise InputRefused(f"{what} has no {needed[0]}, which a {kind.__name__} needs; add it")
    hints = get_type_hints(kind)
    parts = {name: _part(part, hints[name], f"{name} of {what}") for name, part in value.items()}
    return kind(**parts)


def _part(value, hint, what: str):
    """A field's value: a noun where the field holds one, else as it was read."""
    nouns = [one for one in (hint, *get_args(hint)) if is_dataclass(one)]
    if nouns and value is not None:
        noun(value, dict, what)
        return _made(value, nouns[0], what)
    return value
