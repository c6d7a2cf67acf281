"""The names of the files in a folder, or in a listing of it by find, tar -t, ls -R, ls -l or tree."""

import os
import re

from labkit.errors import InputRefused
from labkit.spec.checks import shown

MOST_FILES = 1_000_000
LONGEST_TEXT = 100_000_000  # characters
LONGEST_NAME = 4096
_TREE = re.compile(r"^((?:[│|]?[\s\xa0]{3,4}|[│|][\s\xa0]+)*)(?:├──|└──|\|--|`--|\+--)[\s\xa0]?(.+)$")
_LONG = re.compile(
    r"^[-dl][rwxsStT-]{9}[.+@]?\s+\d+\s+\S+\s+\S+\s+\S+\s+"  # mode, links, user, group, size
    r"(?:\w{3}\s+\d+\s+[\d:]+|\d{4}-\d\d-\d\d\s+[\d:.]+(?:\s+[+-]\d{4})?)\s+(.+)$"  # date, name
)


def file_names(source) -> list[str]:
    """Paths of files, with forward slashes, in no order that counts.

    ``source``: a folder, which is walked (links to folders are not followed, nothing is opened); a list of
    paths; or a text of more than one line, as the commands above print it. Refused: what is none of these,
    what cannot be read, and more than a million names.
    """
    if isinstance(source, list | tuple):
        names = source
    elif isinstance(source, str) and "\n" in source:
        if len(source) > LONGEST_TEXT:
            raise InputRefused(f"the listing has {len(source):,} characters; give at most {LONGEST_TEXT:,}")
        names = _of_text(source)
    elif isinstance(source, str | os.PathLike):
        names = _of_folder(source)
    else:
        raise InputRefused(f"the checkpoint is {shown(source)}; give a folder, a list of names, or a listing")
    if len(names) > MOST_FILES:
        raise InputRefused(f"the checkpoint has more than {MOST_FILES:,} files; give one checkpoint alone")
    wrong = next((name for name in names if not isinstance(name, str) or len(name) > LONGEST_NAME), None)
    if wrong is not None:
        raise InputRefused(
            f"a name in the list is {shown(wrong)}; give paths of at most {LONGEST_NAME} letters"
        )
    return [os.path.normpath(name.replace("\\", "/")).replace("\\", "/") for name in names if name.strip()]


def _of_folder(source) -> list[str]:
    try:
        root = os.fsdecode(source)
        here = os.path.isdir(root)
    except (TypeError, ValueError):
        root, here = "", False
    if not here:
        raise InputRefused(f"there is no folder {shown(source)}; give that of a checkpoint, or its listing")
    names: list[str] = []
    denied: list[OSError] = []
    for folder, _, files in os.walk(root, onerror=denied.append):
        names += [os.path.relpath(os.path.join(folder, file), root) for file in files]
        if len(names) > MOST_FILES:
            break
    if denied:
        reason = denied[0].strerror or "it cannot be read"
        raise InputRefused(
            f"a folder of the checkpoint cannot be listed ({reason}), so files may be out of view; give "
            "one that can be read"
        )
    return names


def _of_text(text: str) -> list[str]:
    """Paths out of the lines of a listing, whichever command printed it."""
    names, above, folder = [], [], ""
    for line in text.splitlines():
        line = line.rstrip()
        drawn = _TREE.match(line)
        if drawn:
            depth = len(re.findall(r"[│|][\s\xa0]{1,3}|[\s\xa0]{4}", drawn[1]))
            name = drawn[2].split(" -> ")[0].rstrip("/*@")
            above = [*above[:depth], name]
            names.append("/".join(above))
        elif line.endswith(":") and not _LONG.match(line):
            folder = line[:-1]
        elif line and not re.match(r"^(?:total \d|\d+ director)", line):
            long = _LONG.match(line)
            name = long[1].split(" -> ")[0] if long else line.strip()
            names.append(f"{folder}/{name}" if folder and not name.startswith(("/", "./")) else name)
    return names
