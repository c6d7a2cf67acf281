"""What PyTorch's watchdog says when a collective does not end, from 1.8 to 2.11, and what gloo says.

Spellings were read in torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp of those releases: the work with its
operation and, later, sequence number (1.12), element counts (2.1, shapes before that), the group in brackets
(2.3: its number in this process; 2.5: a name that all ranks share), last enqueued and completed numbers
(2.2), last started (2026). One work is reported up to five times; each is told once here.
"""

import re
from dataclasses import replace

from labkit.evidence.hang.lines import LONGEST, following, operation, rank_of, without_labels
from labkit.evidence.hang.records import Call, Evidence, Frame, Group, Wait

_WORK = re.compile(r"Work[A-Z]{0,4}CCL\(((?:[^()]|\(ms\)){1,400})\)")
_FIELD = re.compile(r"(\w+(?:\(ms\))?)=(\[[^\]]*\]|[^,\s]+)")
_RAN = re.compile(r"\s*ran\s*for\s*(\d{1,12})\s*milliseconds")
_RANK = re.compile(r"\[Rank\s*(\d{1,7})\]")
_GROUP = re.compile(
    r"\[PG\s*(?:ID\s*)?(\d{1,7})(?:\s*PG\s*GUID\s*([^\s(\]]{1,200}))?\s*(?:\(([^)\]]{0,200})\))?\s*"
    r"Rank\s*(\d{1,7})\]"
)
_AT = re.compile(r"(?:at\s*work|Timeout\s*at\s*NCCL\s*work)(?:\s*sequence\s*id)?:\s*(\d{1,15})")
_STATUS = re.compile(
    r"[Ll]ast\s*enqueued\s*(?:NCCL\s*)?work:\s*(-?\d{1,15}),\s*"
    r"(?:last\s*started\s*(?:NCCL\s*)?work:\s*(-?\d{1,15})\s*(?:\([^)]*\))?,\s*)?"
    r"last\s*completed\s*(?:NCCL\s*)?work:\s*(-?\d{1,15})(?![\d\x00])"
)
_QUEUE = re.compile(r"workMetaList_?\s*\.size\(\)\s*=\s*(\d{1,12})(?![\d\x00])")
_STUCK = re.compile(r"got\s*stuck\s*for\s*(\d{1,9})\s*seconds")
_GLOO = re.compile(r"Timed\s*out\s*waiting\s*(\d{1,12})\s*ms\s*for\s*(?:recv|send)\s*operation")
_STACK = "Stack trace of the failed collective"
_FRAME = re.compile(r"^#\d{1,4}\s+(.{1,300}?)\s+from\s+(.{1,1000}):(\d{1,7})$")
_TOO_MANY = 100_000  # waits: ten reports from each rank of the largest job


class WatchdogReader:
    """Takes the lines of one log, in order; ``finish`` gives what they say."""

    def __init__(self, path: str, rank: int | None):
        self.path, self.rank = path, rank
        self.waits: dict[tuple, Wait] = {}
        self.last: tuple | None = None  # the wait that a stack would belong to
        self.of_rank: dict[int | None, list[tuple]] = {}
        self.until = -1
        self.local: set[str] = set()
        self.members: dict[str, dict[int, int]] = {}
        self.split: set[str] = set()
        self.framed: tuple | None = None

    def marked(self, line: str) -> bool:
        """Whether a line may be of interest here."""
        return (
            "CCL(" in line
            or "[PG " in line
            or "atchdog" in line
            or "NCCL work" in line
            or "workMetaList" in line
            or "Timed out waiting" in line
            or ("ProcessGroupNCCL.cpp" in line and "[E" in line)  # a message that a terminal may have wrapped
            or _STACK in line
            or (self.framed is not None and "#" in line)
        )

    def take(self, lines: list[str], at: int) -> None:
        """Sort one marked line; what it continues on lines after it belongs to it."""
        line = lines[at]
        if at <= self.until:
            return
        if self.framed and (frame := _FRAME.match(without_labels(line[:LONGEST].rstrip()))):
            kept = self.waits[self.framed]
            frames = (*kept.call.frames, Frame(frame[1], frame[2], int(frame[3])))
            self.waits[self.framed] = replace(kept, call=replace(kept.call, frames=frames))
            return
        text = following(lines, at)
        where = f"{self.path}:{at + 1}"
        end = 0
        for found in _WORK.finditer(text):
            end = max(end, self._work(text, found, where))
        for found in _STATUS.finditer(text):
            end = max(end, self._status(text, found, where))
        for found in _QUEUE.finditer(text):
            end = max(end, self._queue(text, found, where))
        for found in _GLOO.finditer(text):
            end = max(end, self._gloo(text, found, where))
        self._consume(lines, at, end)
        if _STACK in text:
            owner = self._owner(rank_of(text))
            self.framed = owner if owner and not self.waits[owner].call.frames else None

    def _owner(self, rank: int | None) -> tuple | None:
        """The wait that a stack belongs to: the last of this rank, or the last at all."""
        keys = [key for key in self.of_rank.get(rank, ()) if self.waits[key].call]
        last = self.last if self.last and self.waits[self.last].call else None
        return keys[-1] if keys else (last if rank is None else None)

    def _consume(self, lines: list[str], at: int, end: int) -> None:
        """Lines that a message runs on over are not read for themselves."""
        length = len(lines[at].rstrip("\r"))
        while length < end and at + 1 < len(lines):
            at += 1
            length += len(lines[at])
            self.until = at

    def _who(self, text: str, start: int, inside: int | None) -> tuple[int | None, Group]:
        """Rank and group of the message that ``start`` lies in, from the labels before it."""
        before = text[:start]
        group, local = Group(""), inside
        for named in _GROUP.finditer(before):
            group = Group(named[2] or named[1], description=named[3] or "")
            local = int(named[4])
        rank = rank_of(before)
        if rank is None:
            rank = local if self.rank is None else self.rank
            if local is not None and group.name not in ("", "0"):
                self.local.add(group.name)
        elif local is not None and group.name:
            known = self.members.setdefault(group.name, {}).setdefault(local, rank)
            if known != rank:
                self.split.add(group.name)
        return rank, group

    def _work(self, text: str, found: re.Match, where: str) -> int:
        fields = dict(_FIELD.findall(found[1]))
        if "OpType" not in fields:
            return 0
        inside = None
        for named in _RANK.finditer(text[: found.start()]):
            inside = int(named[1])
        rank, group = self._who(text, found.start(), inside)
        ran = _RAN.match(text[found.end() :])
        limit = _number(fields.get("Timeout(ms)"))
        call = Call(
            rank,
            group,
            _number(fields.get("SeqNum")),
            operation(fields["OpType"]),
            where,
            sizes_in=_shape(fields.get("TensorShape")),
            sizes_out=_flat(fields.get("NumelOut")),
            count=_number(fields.get("NumelIn")),
            limit=None if limit is None else limit / 1e3,
        )
        waited = int(ran[1]) / 1e3 if ran else None
        group = replace(group, size=_members(fields))
        call = replace(call, group=group)
        key = self._same_work(call) or (rank, group.name, *_work_of(call))
        kept = self.waits.get(key)
        if kept is None:
            self._put(key, Wait(rank, group, where, call, waited, call.limit))
        else:
            better = _fuller(kept.group, group)
            call = replace(kept.call or call, group=better)
            waited = kept.waited if kept.waited is not None else waited
            self.waits[key] = replace(kept, group=better, call=call, waited=waited, limit=call.limit)
            self.last = key
        return found.end() + (ran.end() if ran else 0)

    def _same_work(self, call: Call) -> tuple | None:
        """The report of the same work that came before, with or without the name of its group."""
        for key in reversed(self.of_rank.get(call.rank, ())):
            other = self.waits[key].call
            if other is None:
                continue
            groups = {other.group.name, call.group.name} - {""}
            if _work_of(other) == _work_of(call) and len(groups) < 2:
                return key
        return None

    def _status(self, text: str, found: re.Match, where: str) -> int:
        rank, group = self._who(text, found.start(), None)
        if rank is None:
            for named in _RANK.finditer(text[: found.start()]):
                rank = int(named[1])
        named = _AT.findall(text[: found.start()])
        sequence = int(named[-1]) if named else None
        enqueued, started, completed = (None if one is None else int(one) for one in found.groups())
        told = {"enqueued": enqueued, "started": started, "completed": completed}
        for key in reversed(self.of_rank.get(rank, ())):
            kept = self.waits[key]
            same_group = kept.group.name in ("", group.name) or not group.name
            same_work = sequence is None or kept.call is None or kept.call.sequence == sequence
            if same_group and same_work and kept.pending is None:
                better = _fuller(kept.group, group)
                call = kept.call and replace(kept.call, group=better)
                self.waits[key] = replace(kept, group=better, call=call, **told)
                return found.end()
        self._put((rank, group.name, "status", sequence), Wait(rank, group, where, **told))
        return found.end()

    def _queue(self, text: str, found: re.Match, where: str) -> int:
        rank, group = self._who(text, found.start(), None)
        stuck = _STUCK.search(text)
        key = (rank, group.name, "heartbeat")
        kept = self.waits.get(key) or Wait(rank, group, where)
        waited = float(stuck[1]) if stuck else kept.waited
        self._put(key, replace(kept, waited=waited, pending=int(found[1])))
        return found.end()

    def _gloo(self, text: str, found: re.Match, where: str) -> int:
        rank = rank_of(text[: found.start()])
        rank = self.rank if rank is None else rank
        limit = int(found[1]) / 1e3
        self.waits.setdefault((rank, "gloo", limit), Wait(rank, Group(""), where, None, limit, limit))
        return found.end()

    def _put(self, key: tuple, wait: Wait) -> None:
        if key not in self.waits:
            if len(self.waits) >= _TOO_MANY:
                return
            self.of_rank.setdefault(wait.rank, []).append(key)
        self.waits[key] = wait
        self.last = key

    def finish(self, evidence: Evidence) -> None:
        """Add all waits, each with its group where one can be told."""
        if len(self.waits) >= _TOO_MANY:
            evidence.warnings.append(
                f"{self.path}: only the first {_TOO_MANY:,} messages of waiting are kept"
            )
        for wait in _with_groups(list(self.waits.values())):
            evidence.waits.append(self._apart(wait))
        for name in sorted(self.split):
            evidence.warnings.append(
                f"{self.path}: ranks of several groups call theirs group {name}: each process counts its own "
                "groups here, so these waits are not compared; dumps of the flight recorder name the groups"
            )
        for name in sorted(self.local - self.split):
            evidence.warnings.append(
                f"{self.path}: the ranks of group {name} are counted within the group; its messages do not "
                "say which ranks of the job these are"
            )

    def _apart(self, wait: Wait) -> Wait:
        """Waits of groups that only share a number are told apart."""
        if wait.group.name not in self.split:
            return wait
        group = replace(wait.group, name=f"{wait.group.name} of rank {wait.rank}")
        return replace(wait, group=group, call=wait.call and replace(wait.call, group=group))


def _with_groups(waits: list[Wait]) -> list[Wait]:
    """A wait whose message names no group belongs to the group in which others wait for the same work."""
    named: dict[tuple, set[Group]] = {}
    for wait in waits:
        if wait.call and wait.group.name and wait.call.sequence is not None:
            named.setdefault(_work_of(wait.call), set()).add(wait.group)
    told = []
    for wait in waits:
        groups = named.get(_work_of(wait.call), ()) if wait.call and not wait.group.name else ()
        if len({group.name for group in groups}) == 1:
            group = max(groups, key=lambda group: group.size or 0)
            wait = replace(wait, group=group, call=replace(wait.call, group=group))
        told.append(wait)
    return told


def _work_of(call: Call) -> tuple:
    """What is equal in every message about one work, and on every rank that takes part in it."""
    return call.sequence, call.operation, call.sizes_in, call.count, call.sizes_out, call.limit


def _fuller(one: Group, other: Group) -> Group:
    """What two messages about one work say of its group."""
    named = one if one.name else other
    return replace(named, size=one.size or other.size)


def _members(fields: dict[str, str]) -> int | None:
    """The number of ranks, where the elements that go in and come out tell it: those of equal parts."""
    parts = {"_ALLGATHER_BASE": ("NumelOut", "NumelIn"), "_REDUCE_SCATTER_BASE": ("NumelIn", "NumelOut")}
    whole, part = (_number(fields.get(name)) for name in parts.get(fields["OpType"], ("", "")))
    return whole // part if whole and part and whole % part == 0 else None


def _number(digits: str | None) -> int | None:
    return int(digits) if digits and re.fullmatch(r"\d{1,18}", digits) else None


def _flat(digits: str | None) -> tuple[tuple[int, ...], ...] | None:
    count = _number(digits)
    return None if count is None else ((count,),)


def _shape(printed: str | None) -> tuple[tuple[int, ...], ...] | None:
    if not printed:
        return None
    numbers = re.findall(r"\d{1,18}", printed)
    return (tuple(map(int, numbers)),)
