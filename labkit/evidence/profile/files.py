"""Trace files in: found, opened, and read as a stream, so that memory stays bounded whatever their size.

A trace is JSON of one long list, ``traceEvents``. It is read in pieces that end between two events, and each
piece is decoded by itself; a piece is decoded only where it is whole, so a cut at a wrong place cannot pass.
"""

import gzip
import json
import os
import re
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

import orjson

from labkit.errors import InputRefused
from labkit.spec.checks import amount, shown
from labkit.units import format_bytes

LARGEST = 4e9  # bytes of one trace, unpacked; a minute of a large job has less
MOST_FILES = 10_000
_PIECE = 1 << 18  # bytes decoded at a time: small enough to stay in the processor's cache
_MOST_AT_ONCE = 1 << 26  # bytes of one event, or of all that is beside the events
_EVENTS = re.compile(rb'"traceEvents"\s*:\s*\[')
_BETWEEN = re.compile(rb"\}\s*,\s*\{")
_SPACE = re.compile(r"[\s,]*")
_NOT_A_TRACE = "give a trace that torch.profiler exported, .json or .json.gz"


def trace_files(paths) -> list[tuple[Path, bool]]:
    """The files of one path or of a list of them, each with whether it was named itself.

    Of folders all ``.json`` and ``.json.gz`` files are taken, those of folders inside of them too. Refused:
    what is no path, is not there, and a folder without such a file.
    """
    given = [paths] if isinstance(paths, str | os.PathLike) else paths
    if not isinstance(given, list | tuple) or not all(isinstance(one, str | os.PathLike) for one in given):
        raise InputRefused(f"the traces are {shown(paths)}; give a path, or a list of paths")
    if not given:
        raise InputRefused(f"there is no trace in an empty list; {_NOT_A_TRACE}")
    found: dict[Path, bool] = {}
    for one in given:
        path = Path(one)
        name = str(path) if len(str(path)) < 200 else str(path)[:80] + "..."
        try:
            inside = sorted(p for p in path.rglob("*") if _is_trace_name(p.name) and p.is_file())
            exists, is_folder = path.exists(), path.is_dir()
        except (OSError, ValueError) as error:
            raise InputRefused(f"{shown(name)} cannot be read ({error}); check the path") from None
        if not exists or not (is_folder or path.is_file()):
            raise InputRefused(f"there is no file or folder {name!r}; check the path")
        if is_folder and not inside:
            raise InputRefused(f"the folder {name} has no .json or .json.gz file; {_NOT_A_TRACE}")
        found.update({one: one in found and found[one] for one in inside} if is_folder else {path: True})
    if len(found) > MOST_FILES:
        raise InputRefused(
            f"there are {len(found):,} files, more than {MOST_FILES:,}; name those of some ranks"
        )
    return list(found.items())


def _is_trace_name(name: str) -> bool:
    return name.lower().endswith((".json", ".json.gz"))


def read_events(path: Path, take: Callable[[list], None], largest: float = LARGEST) -> dict:
    """Gives the events of a trace to ``take``, some thousand at a time; returns what stands beside them.

    Packed files are known by their first bytes, not by their name. Refused: what cannot be opened, is empty,
    binary, no JSON, no trace or cut off, and what has more than ``largest`` bytes unpacked.
    """
    largest = float(amount(largest, "the largest size of a trace, in bytes,", arrays=False))
    try:
        with path.open("rb") as raw:
            packed = raw.read(2) == b"\x1f\x8b"
            raw.seek(0)
            with gzip.GzipFile(fileobj=raw) if packed else raw as file:
                return _Trace(file, str(path), largest).read(take)
    except EOFError:
        raise InputRefused(
            f"{path} is cut off: its gzip data ends too early; copy or export it again"
        ) from None
    except (OSError, ValueError, zlib.error) as error:
        if isinstance(error, InputRefused):
            raise
        said = getattr(error, "strerror", None) or "its gzip data is damaged"
        raise InputRefused(f"{path} cannot be read ({said}); copy or export it again") from None


class _Trace:
    """One open trace and what of it was read and not yet used."""

    def __init__(self, file: BinaryIO, name: str, largest: float):
        self.file, self.name, self.largest = file, name, largest
        self.data, self.size = b"", 0
        self.alone = False  # whether the file is the list of events and nothing else, as Chrome also takes it

    def read(self, take: Callable[[list], None]) -> dict:
        """All events, in the order of the file, and the rest as a dict."""
        head = self._head()
        while (found := self._piece()) is not None:
            take(found)
        return {**head, **self._tail()}

    def _more(self) -> bool:
        """Reads on, as much again as there is; False at the end of the file."""
        if len(self.data) > _MOST_AT_ONCE:
            raise self._refusal(f"has {format_bytes(len(self.data))} that are no event of a trace")
        more = self.file.read(max(_PIECE, len(self.data)))
        self.size += len(more)
        if self.size > self.largest:
            raise InputRefused(
                f"{self.name} has more than {format_bytes(self.largest)} unpacked; trace fewer steps, or "
                "allow more with largest="
            )
        self.data += more
        return bool(more)

    def _head(self) -> dict:
        """What stands before the events; they are next in the data then."""
        self._more()
        self.data = self.data.removeprefix(b"\xef\xbb\xbf").lstrip()
        while not self.data and self._more():
            self.data = self.data.lstrip()
        if not self.data:
            raise self._refusal("is empty")
        if self.data[:1] == b"[":
            self.data, self.alone = self.data[1:], True
            return {}
        if self.data[:1] != b"{":
            binary = b"\x00" in self.data[:1000] or sum(byte > 126 for byte in self.data[:1000]) > 50
            raise self._refusal("is binary data, no JSON" if binary else "is no JSON")
        while True:
            for found in _EVENTS.finditer(self.data):
                head = _decoded(self.data[: found.end()] + b"]}")
                if head is not None:
                    self.data = self.data[found.end() :]
                    del head["traceEvents"]
                    return head
            if not self._more():
                break
        if _decoded(self.data) is None:
            raise self._refusal("is no JSON, or is cut off before its events")
        raise self._refusal("is JSON, but no trace: it has no traceEvents")

    def _piece(self) -> list | None:
        """The next events; None at the end of their list, which is next in the data then."""
        while True:
            found, ended = self._up_to_last_cut(), False
            if not found:
                found, ended = self._one_by_one()
            if found:
                return found
            if ended:
                return None
            if not self._more():
                raise self._refusal("is cut off inside of its events")

    def _up_to_last_cut(self) -> list:
        """The events before the last place that looks like one between two events; none where it is not."""
        cuts = list(_BETWEEN.finditer(self.data, max(0, len(self.data) - _PIECE // 4)))
        if not cuts:
            return []
        try:
            found = orjson.loads(b"[" + self.data[: cuts[-1].start() + 1] + b"]")
        except ValueError:  # that place is inside of an event, or behind the last one
            return []
        self.data = self.data[cuts[-1].end() - 1 :]
        self._more()
        return found

    def _one_by_one(self) -> tuple[list, bool]:
        """Events decoded singly, as far as they are whole, and whether their list ends there.

        Slower, and takes what Python's own reader takes: NaN, Infinity, control characters in a text.
        """
        text, at, found = self.data.decode("utf-8", "surrogateescape"), 0, []
        try:
            while (at := _SPACE.match(text, at).end()) < len(text) and text[at] != "]":
                event, at = _DECODER.raw_decode(text, at)
                found.append(event)
        except json.JSONDecodeError as error:
            unfinished = error.msg.startswith("Unterminated string") or error.pos >= len(text) - _LONGEST_WORD
            if not found and not unfinished:
                raise self._refusal(
                    f"is no JSON {format_bytes(self.size - len(text) + error.pos)} in"
                ) from None
        except RecursionError:
            raise self._refusal("has an event that is nested too deep") from None
        self.data = text[at:].encode("utf-8", "surrogateescape")
        return found, self.data[:1] == b"]"

    def _tail(self) -> dict:
        """What stands behind the events."""
        while self._more():
            pass
        rest = self.data[1:].strip()
        tail = _decoded(b"{" + rest.removeprefix(b",")) if not self.alone else {} if not rest else None
        if tail is None:
            raise self._refusal("is cut off behind its events, or goes on after its end")
        return tail

    def _refusal(self, what: str) -> InputRefused:
        again = "export it again" if "cut off" in what else _NOT_A_TRACE
        return InputRefused(f"{self.name} {what}; {again}")


_DECODER = json.JSONDecoder(strict=False)
_LONGEST_WORD = 32  # characters of a number, or of true, false and null, that can be cut off at the end


def _decoded(data: bytes) -> dict | None:
    """A JSON object; None for what is none."""
    try:
        value = json.loads(data.decode("utf-8", "replace"), strict=False)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None
