"""The files below some paths: folders gone through to the bottom, links followed once, each file once."""

import os
import re
import stat
from collections.abc import Iterable
from pathlib import Path

from labkit.errors import InputRefused
from labkit.spec.checks import shown
from labkit.spec.rule import counted

MOST_FILES, DEEPEST = 20_000, 40
# Files that quote messages and leave none: source code and documentation, by the ends of their names.
_WRITTEN = {
    *(".py", ".pyi", ".ipynb", ".md", ".rst", ".adoc", ".tex", ".html", ".sh", ".c", ".cc", ".cpp", ".h"),
    *(".hpp", ".cu", ".cuh", ".java", ".js", ".ts", ".go", ".rs", ".cmake", ".patch", ".diff", ".toml"),
    *(".yaml", ".yml", ".ini", ".cfg", ".pyc", ".so"),
}
_NAMED = 3  # files passed over that are named


def paths_of(given: str | os.PathLike | Iterable[str | os.PathLike]) -> list[Path]:
    """The paths as a list; refused: what is no path, none at all, and a path that is not there."""
    several = [given] if isinstance(given, str | os.PathLike) else given
    if isinstance(several, bytes | dict) or not isinstance(several, Iterable):
        raise InputRefused(f"evidence is read from paths of files or folders, not from {shown(given)}")
    paths = []
    for one in several:
        if not isinstance(one, str | os.PathLike) or isinstance(os.fspath(one), bytes):
            raise InputRefused(f"{shown(one)} is no path; give paths of files or folders as text")
        text = os.fspath(one)
        if not text.strip() or not text.isprintable() or not os.path.lexists(text):
            raise InputRefused(f"there is no file or folder {shown(text)}; check the path")
        paths.append(Path(text))
        if len(paths) > MOST_FILES:
            raise InputRefused(f"more than {MOST_FILES:,} paths are given; give the folders that hold them")
    if not paths:
        raise InputRefused("no path is given; name the files or folders with dumps and logs")
    return paths


def files_below(paths: list[Path]) -> tuple[list[Path], list[str]]:
    """Every file at or below the paths, in the order of names with numbers in them, and what was passed over.

    A folder or file that is reached twice, by a link or by two paths, is taken once. In a folder, source code
    and documentation are passed over: they quote messages. A file that is named itself is always taken.
    """
    files, troubles, written, seen = [], [], [], set()
    for path in paths:
        _walk(path, 0, files, troubles, written, seen)
    if written:
        first = sorted(written, key=_by_numbers)[:_NAMED]
        named = ", ".join(called(path) for path in first) + (" ..." if len(written) > len(first) else "")
        troubles.append(
            f"{counted(len(written), 'file')} of source code or documentation passed over ({named}); to read "
            "one, name it"
        )
    return files, troubles


def _walk(path: Path, depth: int, files: list, troubles: list[str], written: list, seen: set) -> None:
    try:
        about = path.stat()
        if (about.st_dev, about.st_ino) in seen:
            return
        if depth and stat.S_ISREG(about.st_mode) and path.suffix.lower() in _WRITTEN:
            written.append(path)
            return
        seen.add((about.st_dev, about.st_ino))
        if stat.S_ISREG(about.st_mode):
            if len(files) < MOST_FILES:
                files.append(path)
            elif len(files) == MOST_FILES and troubles[-1:] != [_TOO_MANY]:
                troubles.append(_TOO_MANY)
        elif not stat.S_ISDIR(about.st_mode):
            troubles.append(f"{called(path)} is a pipe, socket or device, not a file")
        elif depth == DEEPEST:
            troubles.append(f"{called(path)} is more than {DEEPEST} folders deep and is not looked into")
        else:
            for one in sorted(path.iterdir(), key=_by_numbers):
                _walk(one, depth + 1, files, troubles, written, seen)
    except OSError as error:
        troubles.append(f"{called(path)} cannot be read ({error.strerror or error})")


_TOO_MANY = f"only the first {MOST_FILES:,} files are read; give a smaller folder"


def _by_numbers(path: Path) -> list:
    """A key that puts rank 2 before rank 10."""
    parts = re.split(r"([0-9]{1,18})", path.name)
    return [(int(part), "") if at % 2 else (0, part) for at, part in enumerate(parts)]


def called(path: str | os.PathLike) -> str:
    """A path as a sentence says it, on one line whatever is in it."""
    text = os.fspath(path)
    return text if text.isprintable() else shown(text)
