"""Trace files in: found, opened, and read as a stream, so that memory stays bounded whatever their size.

A trace is a JSON object with one long list, ``traceEvents``; where it has several, all are read. A list comes
in pieces that end between two events, and each piece is decoded by itself, only where it is whole: a cut at a
wrong place cannot pass.
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
from labkit.evidence.printed import printable, printable_path
from labkit.spec.checks import amount, shown
from labkit.units import format_bytes

LARGEST = 4e9  # bytes of one trace, unpacked; a minute of a large job has less
MOST_FILES = 10_000
_PIECE = 1 << 18  # bytes decoded at a time: small enough to stay in the processor's cache
_MOST_AT_ONCE = 1 << 24  # bytes of one event, or of all that is beside the events
_BETWEEN = re.compile(rb"\}\s*,\s*\{")
_SPACE = re.compile(r"[\s,]*")
_COLON = re.compile(r"\s*:\s*")
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
        name = printable_path(path)
        try:
            inside = sorted(p for p in path.rglob("*") if _is_trace_name(p.name) and p.is_file())
            exists, is_folder = path.exists(), path.is_dir()
        except (OSError, ValueError) as error:
            said = printable(str(getattr(error, "strerror", None) or error))
            raise InputRefused(f"{name} cannot be read ({said}); check the path") from None
        if not exists or not (is_folder or path.is_file()):
            raise InputRefused(f"there is no file or folder {name}; check the path")
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
    name = printable_path(path)
    try:
        with path.open("rb") as raw:
            packed = raw.read(2) == b"\x1f\x8b"
            raw.seek(0)
            with gzip.GzipFile(fileobj=raw) if packed else raw as file:
                return _Trace(file, name, largest).read(take)
    except EOFError:
        raise InputRefused(
            f"{name} is cut off: its gzip data ends too early; copy or export it again"
        ) from None
    except (OSError, zlib.error) as error:
        said = getattr(error, "strerror", None) or "its gzip data is damaged"
        raise InputRefused(f"{name} cannot be read ({said}); copy or export it again") from None


class _Trace:
    """One open trace and what of it was read and not yet used."""

    def __init__(self, file: BinaryIO, name: str, largest: float):
        self.file, self.name, self.largest = file, name, largest
        self.data, self.size = b"", 0
        self.fields = 0  # characters of what stands beside the events

    def read(self, take: Callable[[list], None]) -> dict:
        """All events, in the order of the file, and the rest as a dict."""
        self._begin()
        if self.data[:1] == b"[":  # the list of events and nothing else, which Chrome also takes
            self._events(take)
            self._end()
            return {}
        self.data = self.data[1:]
        (beside, more), lists = self._beside(0), 0
        while more:
            self._events(take)
            lists += 1
            found, more = self._beside(lists)
            beside.update(found)
        if not lists:
            raise self._refusal("is JSON, but no trace: it has no traceEvents")
        self._end()
        return beside

    def _more(self) -> bool:
        """Reads on, as much again as there is; False at the end of the file."""
        if (length := max(len(self.data), self.fields)) > _MOST_AT_ONCE:
            raise self._refusal(f"has {format_bytes(length)} that are no event of a trace")
        more = self.file.read(max(_PIECE, len(self.data)))
        self.size += len(more)
        if self.size > self.largest:
            raise InputRefused(
                f"{self.name} has more than {format_bytes(self.largest)} unpacked; trace fewer steps, or "
                "allow more with largest="
            )
        self.data += more
        return bool(more)

    def _begin(self) -> None:
        """Reads up to the first bracket of a list or of an object."""
        self._more()
        self.data = self.data.removeprefix(b"\xef\xbb\xbf").lstrip()
        while not self.data and self._more():
            self.data = self.data.lstrip()
        if not self.data:
            raise self._refusal("is empty")
        if self.data[:1] not in (b"{", b"["):
            binary = b"\x00" in self.data[:1000] or sum(byte > 126 for byte in self.data[:1000]) > 50
            raise self._refusal("is binary data, no JSON" if binary else "is no JSON")

    def _beside(self, lists: int) -> tuple[dict, bool]:
        """The fields up to the next list of events, which is next in the data then, or up to the end of the
        object; and whether there is such a list. ``lists``: how many were before."""
        fields: dict = {}
        while True:
            text, at = self.data.decode("utf-8", "surrogateescape"), 0
            try:
                while (at := _SPACE.match(text, at).end()) < len(text) and text[at] != "}":
                    key, end = _DECODER.raw_decode(text, at)
                    end = _COLON.match(text, end).end()
                    if key == "traceEvents" and text[end : end + 1] == "[":
                        self.data = text[end:].encode("utf-8", "surrogateescape")
                        return fields, True
                    value, end = _DECODER.raw_decode(text, end)
                    if end == len(text) or type(key) is not str:  # of a number there may be more
                        break
                    fields[key], at = value, end
            except (json.JSONDecodeError, AttributeError, TypeError):
                pass  # cut off, as far as it is read, or no JSON at all
            except RecursionError:
                raise self._refusal("is nested too deep") from None
            self.data = text[at:].encode("utf-8", "surrogateescape")
            self.fields += at
            if self.data[:1] == b"}":
                self.data = self.data[1:]
                return fields, False
            if not self._more():
                behind = "is cut off behind its events, or goes on there with what is no JSON"
                raise self._refusal(behind if lists else "is no JSON, or is cut off before its events")

    def _events(self, take: Callable[[list], None]) -> None:
        """Gives all events of the list that is next in the data to ``take``."""
        self.data = self.data[1:]
        while (found := self._piece()) is not None:
            take(found)
        self.data = self.data[1:]

    def _end(self) -> None:
        """Nothing but space follows."""
        while not self.data.strip():
            self.data = b""
            if not self._more():
                return
        raise self._refusal("goes on after its end")

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

    def _refusal(self, what: str) -> InputRefused:
        again = "export it again" if "cut off" in what else _NOT_A_TRACE
        return InputRefused(f"{self.name} {what}; {again}")


def _integer(digits: str) -> int | float:
    """A whole number as orjson reads it: as a float where 64 bits do not hold it; without end, if need be.

    >>> _integer("12"), _integer("9" * 5000)
    (12, inf)
    """
    return int(digits) if len(digits) < 19 else float(digits)


_DECODER = json.JSONDecoder(strict=False, parse_int=_integer)
_LONGEST_WORD = 32  # characters of a number, or of true, false and null, that can be cut off at the end
