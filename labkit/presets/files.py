"""Files as presets read them: found, bounded in size, parsed, each figure checked once.

Only this wing knows where ``data/`` is; formulas need not check again what was checked here.
"""

import os
import tomllib
from difflib import get_close_matches
from functools import cache
from pathlib import Path

from labkit.errors import InputRefused
from labkit.spec.checks import shown

LARGEST_FILE = 200_000  # bytes; the shipped files are about a tenth of it


def data_path(name: str) -> Path:
    """Where the shipped file or folder ``name`` lies: ``labkit/data`` in a wheel, ``data`` in a checkout.

    >>> data_path("hardware.toml").name
    'hardware.toml'
    """
    package = Path(__file__).resolve().parent.parent
    for folder in (package / "data", package.parent / "data"):
        if os.path.exists(folder / name):  # False, too, for what cannot be a path
            return folder / name
    raise InputRefused(
        f"no shipped data file {shown(name)}; reinstall labkit-workbook or run from a complete checkout"
    )


def sample_sweeps() -> dict[str, Path]:
    """The shipped sweep logs by name, in alphabetical order: ``data/sweeps/NAME.txt``."""
    return {path.stem: path for path in sorted(data_path("sweeps").glob("*.txt"))}


def sample_traces() -> dict[str, Path]:
    """The shipped profiler traces by name: files of ``data/traces``, and folders, a file for each rank."""
    paths = sorted(data_path("traces").iterdir())
    return {path.name.split(".")[0]: path for path in paths if path.is_dir() or path.suffix == ".gz"}


def path_of(id: str | os.PathLike, what: str, known: list[str], others: str) -> Path:
    """The path that an id may be, or a refusal of what is neither text nor a path."""
    if not isinstance(id, str | os.PathLike):
        raise unknown_id(id, what, known, others)
    return Path(str(id))


def called(path: Path) -> str:
    """A file's name as a refusal says it, on one short line.

    >>> called(Path("my/cluster.toml")), called(Path("two\\nlines.toml"))
    ('cluster.toml', "'two\\\\nlines.toml'")
    """
    return path.name if path.name.isprintable() and len(path.name) <= 60 else shown(path.name)


def read_bounded(path: Path, kind: str) -> str:
    """The text of a small file; ``kind`` says in a refusal what such a file is."""
    try:
        with open(path, "rb") as file:
            raw = file.read(LARGEST_FILE + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputRefused(f"{called(path)} cannot be read ({reason}); check the path") from None
    if len(raw) > LARGEST_FILE:
        raise InputRefused(f"{called(path)} is larger than {LARGEST_FILE:,} bytes; {kind}")
    try:
        return raw.decode("utf-8-sig")
    except ValueError as error:
        raise InputRefused(f"{called(path)} is not a text file in UTF-8 ({error}); {kind}") from None


def load_toml(path: Path, kind: str, like: str) -> dict:
    """A TOML file as a dict; ``like`` is the shipped file of the same form."""
    try:
        return tomllib.loads(read_bounded(path, kind))
    except (ValueError, RecursionError) as error:
        if isinstance(error, InputRefused):
            raise
        said = str(error) if str(error).isprintable() and len(str(error)) <= 100 else "it cannot be parsed"
        raise InputRefused(
            f"{called(path)} is not a TOML file ({said}); compare it with data/{like}"
        ) from None


@cache
def shipped(name: str) -> dict:
    """The shipped TOML file ``name``, read once."""
    return load_toml(data_path(name), "reinstall labkit-workbook", name)


def unknown_id(id, what: str, known: list[str], others: str) -> InputRefused:
    """The refusal of an id that no preset has, with the nearest one."""
    text = id if isinstance(id, str) else ""
    begins = [one for one in known if text and one.startswith(text)]
    near = begins or get_close_matches(text.lower(), known, n=1)
    hint = f"; did you mean {near[0]}?" if near else ""
    return InputRefused(f"no {what} {shown(id)}: known are {', '.join(known)}, or {others}{hint}")


def sub_table(parent: dict, key: str, where: str, prefix: str) -> dict:
    """The table under a key, or a refusal when something else stands there."""
    if not isinstance(parent[key], dict):
        raise InputRefused(f"{where}: {prefix}{key} is not a table; write it as [{prefix}{key}]")
    return parent[key]


def check_keys(
    table: dict, where: str, at: str, required: set[str], optional: set[str], like="hardware.toml"
) -> None:
    """Refuses a table that lacks a key or has one nobody reads: a misspelt figure must not be ignored."""
    for key in sorted(required - table.keys()):
        raise InputRefused(f"{where}: {at} lacks {key}; add it as in data/{like}")
    for key in sorted(table.keys() - required - optional):
        near = get_close_matches(key, required | optional, n=1)
        hint = (
            f"; did you mean {near[0]}?" if near else f"; known are {', '.join(sorted(required | optional))}"
        )
        raise InputRefused(f"{where}: {at} has an unknown key {shown(key)}{hint}")


def number(
    table: dict, key: str, where: str, at: str, *, whole=False, least=None, above=None, most=None
) -> float:
    """The figure as a float within its bounds."""
    value = table[key]
    wanted = ("a whole number" if whole else "a number") + "".join(
        f" {word} {bound}"
        for word, bound in (("from", least), ("above", above), ("up to", most))
        if bound is not None
    )
    good = (
        isinstance(value, int | float)
        and not isinstance(value, bool)
        and abs(value) < 1e15  # also keeps out infinity, NaN and integers too long for a float
        and (not whole or value == int(value))
        and (least is None or value >= least)
        and (above is None or value > above)
        and (most is None or value <= most)
    )
    if not good:
        raise InputRefused(f"{where}: {at} has {key} = {shown(value)}; it must be {wanted}")
    return float(value)


def source_texts(table: dict, where: str, at: str) -> dict[str, str]:
    """Where each figure of a table is from: its ``sources``."""
    sources = table.get("sources", {})
    figures = {
        key
        for key, value in table.items()
        if not isinstance(value, str) and key not in ("sources", "intra", "inter", "kernels")
    }
    if not isinstance(sources, dict) or not all(isinstance(text, str) for text in sources.values()):
        raise InputRefused(
            f'{where}: the sources of {at} are not texts; write key = "where the figure is from"'
        )
    check_keys(sources, where, f"the sources of {at}", required=set(), optional=figures)
    return sources
