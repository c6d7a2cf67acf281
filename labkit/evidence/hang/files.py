"""From paths to evidence: every file below them is told by its content, read within bounds, and listed.

Nothing outside is trusted: a name means nothing but a rank, and what is too large, damaged or of another kind
becomes a sentence in ``Evidence.warnings``.
"""

import json
import os
import re
from collections.abc import Iterable
from pathlib import Path

import orjson

from labkit.errors import InputRefused
from labkit.evidence.hang.packed import TooLarge, is_packed, unpacked
from labkit.evidence.hang.paths import called, files_below, paths_of
from labkit.evidence.hang.pickles import NotPlain, load_plain
from labkit.evidence.hang.recorder import KEYS, is_dump, read_dump
from labkit.evidence.hang.records import Evidence, Source
from labkit.evidence.hang.same_rank import settle
from labkit.evidence.hang.text import read_text
from labkit.evidence.plain_text import cleaned, decoded, is_binary

LARGEST_LOG, LARGEST_DUMP, LARGEST_IN_ALL = 200_000_000, 64_000_000, 1_000_000_000  # bytes, unpacked
_SHOWN = 3  # files that a refusal names

_FOREIGN = (
    (b"PK\x03\x04", "is a zip archive, as checkpoints of PyTorch are; unpack it if there are logs in it"),
    (b"\x28\xb5\x2f\xfd", "is packed with zstd; unpack it"),
    (b"\xfd7zXZ", "is packed with xz; unpack it"),
    (b"BZh", "is packed with bzip2; unpack it"),
    (b"\x7fELF", "is a program or the image of one"),
)


class _Unread(ValueError):
    """Why a file says nothing; follows its name in a warning."""


def read_files(paths: str | os.PathLike | Iterable[str | os.PathLike]) -> Evidence:
    """All that the files at ``paths`` say: files, and folders with everything below them; gzip is unpacked.

    Every file that is read is in ``sources``, of kind ``nothing`` where it has no evidence. At most 20,000
    files, 200 MB of a log, 64 MB of a dump and 1 GB in all are read; of folders, no source code and no
    documentation; ``warnings`` says what was not. Refused: what is no path, a path that is not there, and
    paths below which nothing can be read.
    """
    whole, dumps, troubles, readable, left = Evidence(), [], [], 0, LARGEST_IN_ALL
    files, passed_over = files_below(paths_of(paths))
    for path in files:
        name = called(path)
        try:
            one, size, damage = _evidence_at(path, left, name)
            left -= size
            readable += 1
            troubles += [f"{name} {damage}"] if damage else []
        except _Unread as error:
            one = Evidence(sources=[Source(name, "nothing")])
            troubles.append(f"{name} {error}")
        if any(source.kind == "dump" for source in one.sources):
            dumps.append(one)
        else:
            whole.add(one)
    troubles = passed_over + troubles
    if not readable:
        raise InputRefused(_refusal(troubles))
    for dump in settle(dumps):
        whole.add(dump)
    whole.groups = list(dict.fromkeys(whole.groups))
    whole.warnings += troubles
    return whole


def _refusal(troubles: list[str]) -> str:
    more = f", and {len(troubles) - _SHOWN} more" if len(troubles) > _SHOWN else ""
    said = "; ".join(troubles[:_SHOWN]) or "there are only empty folders"
    return f"nothing to read: {said}{more}; give the logs of the ranks or the dumps of the flight recorder"


def _evidence_at(path: Path, left: int, name: str) -> tuple[Evidence, int, str]:
    """What a file says, by its content; how many bytes it has, and what is wrong with its packing."""
    data, damage = _bytes_of(path, left)
    size = len(data)
    dump = _dump_in(data)
    if dump is not None:
        return read_dump(dump, name), size, damage
    text = _text_in(data)
    del data  # a log of 200 MB is not held as bytes, as text and as lines at a time
    return read_text(text, name), size, damage


def _bytes_of(path: Path, left: int) -> tuple[bytes, str]:
    """What a file holds, unpacked, and what is wrong with its packing; ``left``: bytes still to be read."""
    most = min(LARGEST_LOG, left)
    bound = f"{LARGEST_LOG / 1e6:.0f} MB"
    if most < LARGEST_LOG:
        bound = f"is left of {LARGEST_IN_ALL / 1e9:g} GB in all"
    try:
        with path.open("rb") as file:
            data = file.read(most + 1)
    except OSError as error:
        raise _Unread(f"cannot be read ({error.strerror or error})") from None
    if len(data) > most:
        raise _Unread(f"has more than {bound} and is not read; cut out what matters")
    if not is_packed(data):
        return data, ""
    try:
        data, sound = unpacked(data, most)
    except TooLarge:
        raise _Unread(f"unpacks to more than {bound} and is not read; cut out what matters") from None
    if not sound and not data:
        raise _Unread("is damaged gzip of which nothing can be unpacked")
    return data, "" if sound else "is gzip that is damaged or cut off; what could be unpacked is read"


def _dump_in(data: bytes) -> dict | None:
    """The dump that the content of a file is; None where it is no dump, nor anything else that is known."""
    if not data.strip():
        raise _Unread("is empty")
    if is_pickle(data):
        return _from_pickle(data)
    if data.removeprefix(b"\xef\xbb\xbf").lstrip()[:1] == b"{" and not _is_json_lines(data):
        if any(f'"{key}"'.encode() in data for key in KEYS):
            return _from_json(data)
        if b'"traceEvents"' in data:
            raise _Unread("is the trace of a profiler; labkit profile reads it")
    for mark, what in _FOREIGN:
        if data.startswith(mark):
            raise _Unread(what)
    if data[257:262] == b"ustar":
        raise _Unread("is a tar archive; unpack it")
    return None


def _text_in(data: bytes) -> str:
    text = decoded(data)
    if is_binary(text):
        raise _Unread("is binary data, neither a log nor a dump")
    return cleaned(text)


def is_pickle(data: bytes) -> bool:
    """Whether bytes begin as a pickle does: protocols 2 to 5 by their mark, 0 and 1 by both ends.

    >>> is_pickle(b"\\x80\\x04N."), is_pickle(b"(dp0\\n."), is_pickle(b"compiled\\nby hand.")
    (True, True, False)
    """
    if data[:1] == b"\x80":
        return len(data) > 1 and data[1] <= 5
    begins = rb"[}\]]q\x00|\(([dlt]p?\d*\n|[dlt]q\x00|[dltic]|\]q)|c[\w.]+\n[\w.]+\n"
    return data[-1:] == b"." and re.match(begins, data) is not None


def _is_json_lines(data: bytes) -> bool:
    """Whether each line is JSON of its own, as collectors of logs write them; a dump is one value."""
    first, _, rest = data.lstrip().partition(b"\n")
    return first.rstrip().endswith(b"}") and rest.lstrip()[:1] == b"{"


def _from_pickle(data: bytes) -> dict:
    _check_length(data)
    try:
        value = load_plain(data)
    except NotPlain as error:
        raise _Unread(f"is a pickle that is not read: {error}") from None
    if not is_dump(value):
        raise _Unread("is a pickle, but no dump of the flight recorder")
    return value


def _from_json(data: bytes) -> dict:
    _check_length(data)
    try:
        value = _json_value(data)
    except RecursionError:
        raise _Unread("is JSON nested too deeply to be a dump") from None
    except ValueError as error:
        said = str(error) if str(error).isprintable() and len(str(error)) < 100 else "it cannot be parsed"
        raise _Unread(f"is JSON of a dump that is damaged or cut off ({said}); dump again") from None
    if not is_dump(value):
        raise _Unread("is JSON, but no dump of the flight recorder")
    return value


def _json_value(data: bytes):
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:  # also for NaN, UTF-16 and a byte-order mark, which the slower one reads
        return json.loads(decoded(data).lstrip("\ufeff"))


def _check_length(data: bytes) -> None:
    if len(data) > LARGEST_DUMP:
        raise _Unread(f"is a dump of more than {LARGEST_DUMP / 1e6:.0f} MB, which no ring of calls needs")
