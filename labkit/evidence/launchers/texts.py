"""Other forms that settings come in: arguments printed in a log, JSON with comments, nested tables."""

import json
import re
from collections import Counter

from labkit.errors import InputRefused

_PRINTED = re.compile(r"^(?:.*?[:\]>]\s)?\s*([a-z][a-zA-Z0-9_]*) (\.{1,48}) ?(.*)$")
_LISTED = re.compile(r"\['?([\w+-]{1,40})'?\]")  # a list of one
_LEAST_PRINTED = 5  # lines; fewer are no list of arguments
_TOKEN = re.compile(
    r'"(?:[^"\\]|\\.)*"|//[^\n]*|\#[^\n]*|/\*.*?\*/|,(?=(?:\s|//[^\n]*|\#[^\n]*|/\*.*?\*/)*[}\]])', re.DOTALL
)
_FIRST_BRACE = re.compile(r"^[ \t]*\{", re.MULTILINE)  # where an object begins in a script
_MOST_JSON = 1_000_000  # characters of one object; the largest configurations have some thousand
DEEPEST = 20  # tables inside tables


def printed_arguments(text: str) -> dict[str, str]:
    """The arguments that a run printed into its log, ``name ..... value``; empty where there are none.

    Of two lists in one log the later counts: the run was started again.

    >>> names = ("seed", "rank", "lr", "fp16", "world_size")
    >>> log = "\\n".join(f"  {name} {'.' * (48 - len(name))} {len(name)}" for name in names)
    >>> printed_arguments(log)["world_size"]
    '10'
    """
    found: dict[str, str] = {}
    for line in text.split("\n"):
        match = _PRINTED.match(line) if " ." in line and len(line) < 20_000 else None
        if match and len(match[1]) + len(match[2]) in (47, 48, 49):
            value = match[3].strip()
            alone = _LISTED.fullmatch(value)
            found[match[1]] = alone[1] if alone else value
    return found if len(found) >= _LEAST_PRINTED else {}


def read_object(text: str) -> dict:
    """The first JSON object of a text, with comments and commas at the end allowed, whatever stands after it.

    Of a DeepSpeed log the object after ``json =``. Refused: a text without an object, and one that cannot be
    read, with its line.

    >>> read_object('{"stage": 2, // of ZeRO\\n "bf16": {"enabled": true,},}')
    {'stage': 2, 'bf16': {'enabled': True}}
    """
    start = text.rfind("json = {")
    first = _FIRST_BRACE.search(text) if start < 0 else None
    start = text.find("{", max(start, 0)) if first is None else first.end() - 1
    if start < 0:
        raise InputRefused("the text holds no JSON object; give the configuration from its first brace on")
    part = text[start : start + _MOST_JSON]
    bare = _TOKEN.sub(lambda token: token[0] if token[0][0] == '"' else _blank(token[0]), part)
    try:
        found, _ = json.JSONDecoder(object_pairs_hook=_once).raw_decode(bare)
    except InputRefused:
        raise
    except (ValueError, RecursionError) as error:
        at = text.count("\n", 0, start) + getattr(error, "lineno", 1)
        deep = isinstance(error, RecursionError)
        said = "it is nested too deeply" if deep else getattr(error, "msg", "a number has too many digits")
        if len(text) - start > _MOST_JSON:
            said = f"it does not end within {_MOST_JSON:,} characters"
        raise InputRefused(f"the JSON cannot be read, line {at}: {said}; mend it there") from None
    return found


def _once(pairs: list[tuple]) -> dict:
    """An object; refused where a name stands in it twice, as DeepSpeed does."""
    found = dict(pairs)
    if len(found) < len(pairs):
        twice = next(name for name, count in Counter(name for name, _ in pairs).items() if count > 1)
        raise InputRefused(f"the JSON has {twice[:60]!r} twice, which DeepSpeed refuses; keep one of them")
    return found


def _blank(token: str) -> str:
    """As many lines as a comment had."""
    return "\n" * token.count("\n") or " "


def flat(tables: dict, prefix: str = "", depth: int = 0) -> dict:
    """Values of nested tables under their dotted names.

    >>> flat({"training": {"seq_len": 8192}, "x": 1})
    {'training.seq_len': 8192, 'x': 1}
    """
    if depth > DEEPEST:
        raise InputRefused(f"the settings are nested more than {DEEPEST} deep; give the framework's own file")
    found: dict = {}
    for name, value in tables.items():
        inner = isinstance(value, dict)
        found |= flat(value, f"{prefix}{name}.", depth + 1) if inner else {f"{prefix}{name}": value}
    return found
