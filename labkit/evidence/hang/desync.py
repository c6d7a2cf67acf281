"""The report of TORCH_NCCL_DESYNC_DEBUG: how far each rank of a group has come, as one of them saw it.

Spellings were read in torch/csrc/distributed/c10d/TraceUtils.h. Either some ranks never joined a collective,
and it names these alone; or it names those behind and lists the last call of every rank, so the size of the
group is known. It counts from 1; whether the watchdog does so too depends on the release.
"""

import re
from dataclasses import dataclass, replace

from labkit.evidence.hang.lines import LONGEST, operation
from labkit.evidence.hang.records import MOST_RANKS, Call, Evidence, Group, Note, Wait

_LIST = r"\[(\d{1,7}(?:,\s*\d{1,7}){0,20000})\]\s"
_OWN = re.compile(r"\[(\d{1,7})\] Timeout at collective: (\w{1,60}), #(\d{1,15})(?!\d)")
_NEVER = re.compile(_LIST + r"are the lagging ranks.{0,60}[Tt]hey never joined")
_LAGS = re.compile(
    _LIST + r"(?:(joined) but didn't finish|finished) collective #(\d{1,15})(?:, but didn't join|(?!\d))"
)
_NUMBER = re.compile(r"#(\d{1,15}) (started|finished) ranks:")
_STATE = re.compile(_LIST + r"(started|finished) ([A-Z_]{1,60})")
_OF_GROUP = re.compile(
    r"\[PG\s*(?:ID\s*\d{1,7}\s*PG\s*GUID\s*)?([^\s(\]]{1,200})\s*(?:\([^)\]]{0,200}\))?\s*Rank\s*\d"
)
_WORLD = ("", "0", "default_pg")


@dataclass(slots=True)
class _State:
    """The last call of one rank in the numbers of the report, 0 where it made none."""

    number: int
    operation: str
    finished: bool
    where: str


class DesyncReader:
    """Takes the lines of one log, in order; ``finish`` gives what they say."""

    def __init__(self, path: str):
        self.path = path
        self.states: dict[int, _State] = {}
        self.notes: dict[tuple, Note] = {}
        self.own: dict[int, int] = {}  # ranks that reported, each with the call that it last started
        self.number: int | None = None  # of the part of the list that is read
        self.listed: set[int] = set()
        self.group = ""

    def marked(self, line: str) -> bool:
        """Whether a line may be of interest here."""
        return (
            "Timeout at collective" in line
            or "collective #" in line
            or "lagging ranks" in line
            or " ranks:" in line
            or (self.number is not None and ("started " in line or "finished " in line))
            or ("[PG " in line and "Rank" in line)
        )

    def take(self, lines: list[str], at: int) -> None:
        """Sort one marked line."""
        line = lines[at] if len(lines[at]) < 200_000 else lines[at][:LONGEST]
        where = f"{self.path}:{at + 1}"
        if found := _OWN.search(line):
            rank, number = int(found[1]), int(found[3])
            self.own[rank] = number
            self._put([rank], number, operation(found[2]), False, where)
        elif found := _NEVER.search(line):
            self._note(found, where)
            self._put(_ranks(found[1]), 0, "", True, where)
        elif found := _LAGS.search(line):
            self._note(found, where)
            self._put(_ranks(found[1]), int(found[3]), "", found[2] is None, where)
        elif found := _NUMBER.search(line):
            self.number = int(found[1])
        elif self.number is not None and (found := _STATE.search(line)):
            finished, ranks = found[2] == "finished", _ranks(found[1])
            self.listed.update(ranks)
            self._put(ranks, self.number, operation(found[3]), finished, where)
        elif not self.own and (found := _OF_GROUP.search(line)):
            self.group = found[1]

    def _note(self, found: re.Match, where: str) -> None:
        words = found[0][:300]
        self.notes.setdefault((words,), Note("desync", words, where, ranks=_ranks(found[1])))

    def _put(self, ranks, number: int, name: str, finished: bool, where: str) -> None:
        """Reports of several ranks differ by moments: the latest state counts."""
        for rank in ranks:
            kept = self.states.get(rank)
            if kept is None or (number, finished) >= (kept.number, kept.finished):
                name = name or (kept.operation if kept and kept.number == number else "")
                self.states[rank] = _State(number, name, finished, where)

    def finish(self, evidence: Evidence) -> None:
        """Add how far each rank is, in the watchdog's numbers; those of this log must be there already."""
        evidence.notes += self.notes.values()
        highest = max(self.states, default=-1)
        if not self.own or highest >= MOST_RANKS:
            return
        if self.group not in _WORLD:
            evidence.warnings.append(
                f"{self.path}: the desync report of group {self.group} counts ranks within the group, so "
                "it is not held against other messages"
            )
            return
        # A list that is cut ends before its writer; ranks that never joined mean a group at least that large.
        whole = self.listed >= self.own.keys() or any(not one.number for one in self.states.values())
        size = highest + 1 if whole else None
        named = (wait.group for wait in evidence.waits if wait.group.name == self.group)
        group = replace(next(named, Group(self.group)), size=size)
        shift = _shift(self.own, evidence.waits)
        for rank, state in sorted(self.states.items()):
            last = state.number - shift
            call = Call(rank, group, last, state.operation, state.where) if state.operation else None
            done = last if state.finished else None
            evidence.waits.append(Wait(rank, group, state.where, call, enqueued=last, completed=done))


def _shift(own: dict[int, int], waits: list[Wait]) -> int:
    """1 where the watchdog counts from 0: its rank waits in the call before the one that it last started.

    A rank that has a second call in its queue looks alike; then its status says so.
    """
    for wait in waits:
        number = own.get(wait.rank)
        if number is not None and wait.call is not None and wait.call.sequence == number - 1:
            return 0 if wait.enqueued is not None and wait.enqueued >= number else 1
    return 0


def _ranks(listed: str) -> tuple[int, ...]:
    return tuple(int(rank) for rank in listed.split(","))
