"""What a process was busy with outside of collectives when its log stops: loading, saving, evaluating.

A line of that kind counts only where nothing ordinary follows it before the first message of a timeout: every
job begins with loading, and most of them go on.
"""

import re

from labkit.evidence.hang.lines import rank_of, whole_line
from labkit.evidence.hang.records import Evidence, Note

_BAR = re.compile(
    r"([^|\r\n]{0,80}?)(\d{1,3})%\|.{0,200}?\|\s*\S{1,20}/\S{1,20}\s*"
    r"\[(\d[\d:]{0,12})<([\d:?]{1,13})(?:,\s*([^\]]{0,40}))?"
)
_BYTES = re.compile(r"[kMGT]?i?B/s")
_WORDS = (
    r"load|sav|read|writ|eval|valid|download|upload|tokeniz|preproc|shard|checkpoint|extract|generat|copy|map"
)
_LABEL = re.compile(_WORDS, re.IGNORECASE)
_LINE = re.compile(
    r"\b(?:(?:re)?loading|saving|reading|writing|downloading|uploading|evaluating|validating|preprocessing"
    r"|tokenizing|running)\b.{0,60}?(?:checkpoint|weight|shard|model|state|data|optimizer|file|sample|eval"
    r"|valid|split)",
    re.IGNORECASE,
)


class BusyReader:
    """Takes the lines that are no message of a library, in order; ``finish`` gives what is unfinished."""

    def __init__(self, path: str, rank: int | None):
        self.path, self.rank = path, rank
        self.notes: dict[int | None, Note] = {}
        self.over = False

    def stop(self) -> None:
        """From the first message of a timeout on, nothing more is taken."""
        self.over = True

    def take(self, line: str, at: int) -> None:
        """Sort one line."""
        if self.over or not ("%|" in line or self.notes or "ing" in line):
            return
        if "%|" in line:
            for state in whole_line(line):
                if bar := _BAR.search(state):
                    self._bar(bar, state, at)
            return
        if not line.strip():
            return
        rank = rank_of(line)
        self.notes.pop(rank, None)
        if "ing" in line and (found := _LINE.search(line[:400])):
            self._note(rank, found.string[found.start() :].strip(), at)

    def _bar(self, bar: re.Match, state: str, at: int) -> None:
        label, percent, elapsed, left, rate = bar.groups()
        rank = rank_of(state)
        self.notes.pop(rank, None)
        concerned = _BYTES.search(rate or "") or _LABEL.search(label)
        if int(percent) < 100 and concerned:
            words = f"{label.strip(' :') or 'a transfer'}: {percent} % after {elapsed}, {left} left"
            self._note(rank, words, at, _seconds(elapsed), _seconds(left))

    def _note(self, rank: int | None, words: str, at: int, elapsed=None, left=None) -> None:
        told = self.rank if rank is None else rank
        where = f"{self.path}:{at + 1}"
        self.notes[rank] = Note("loading", words[:200], where, told, elapsed=elapsed, seconds=left)

    def finish(self, evidence: Evidence) -> None:
        """Add what was under way when the log, or its ordinary part, ends."""
        evidence.notes += self.notes.values()


def _seconds(clock: str) -> float | None:
    parts = clock.split(":")
    if not all(part.isdigit() for part in parts):
        return None
    total = 0.0
    for part in parts:
        total = 60 * total + int(part)
    return total
