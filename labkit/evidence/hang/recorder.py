"""Dumps of PyTorch's flight recorder as evidence: versions 2.3 to 2.10, of NCCL, gloo and other back ends.

The recorder (FlightRecorder.hpp, FlightRecorderDetail.hpp of PyTorch) keeps the last calls of a process over
all its groups. ``pg_id`` counts groups within a process and is used inside of one dump alone; gloo lists no
members and leaves every entry ``scheduled``, so nothing is made of either.
"""

import re
from collections import Counter

from labkit.evidence.hang.dump_fields import (
    dtypes,
    frames,
    group_name,
    members,
    operation_of,
    shapes,
    whole,
    word,
)
from labkit.evidence.hang.dump_names import rank_in
from labkit.evidence.hang.records import (
    COMPLETED,
    SCHEDULED,
    STARTED,
    Call,
    Evidence,
    Group,
    Source,
    Wait,
)
from labkit.spec.checks import shown

KEYS = ("entries", "pg_config", "pg_status")
OLDEST, NEWEST = (2, 3), (2, 10)
MOST_ENTRIES = 200_000  # a ring of 2,000 is usual
_STATES = (SCHEDULED, STARTED, COMPLETED)
_SIZES_OF_ALL_TO_ALL = (2, 4)  # the version from which on they can be relied on


def is_dump(value) -> bool:
    """Whether a value read from a file has the form of a dump.

    >>> is_dump({"version": "2.10", "entries": []}), is_dump({"traceEvents": []})
    (True, False)
    """
    return isinstance(value, dict) and any(isinstance(value.get(key), dict | list) for key in KEYS)


def version_of(dump: dict) -> tuple[int, int] | None:
    """The version as two whole numbers (2.10 is later than 2.4); None where it has none.

    >>> version_of({"version": "2.10"}) > version_of({"version": "2.4"})
    True
    """
    found = re.fullmatch(r"(\d{1,4})\.(\d{1,4})", str(dump.get("version"))[:20])
    return (int(found[1]), int(found[2])) if found else None


def read_dump(dump: dict, path: str) -> Evidence:
    """What one dump says; the rank is that of the file's name, else of its content, else None.

    ``path`` names the file. What a field lacks or has in another form than known is said in ``warnings``;
    the rest of its entry is kept. Sequence numbers: of collectives ``collective_seq_id``, of sends and
    receives ``p2p_seq_id``. Gloo's counters also count its sends and receives, which it does not record:
    its ``enqueued`` is that of the last entry, and ``completed``, which it sets after a timeout too, is left
    out. In a group whose members are listed, peers of sends and receives are global ranks. Texts are
    printable and of bounded length. ``calls_recorded`` is false where no entry can be held against another
    rank's, and where there are none although the counters say that there were calls.
    """
    reading = _Reading(dump, path)
    evidence = Evidence()
    evidence.calls = reading.calls()
    evidence.calls_recorded = reading.recorded(evidence.calls)
    evidence.waits = [*reading.given_up(evidence.calls), *reading.status(evidence.calls)]
    called = {id(call.group): call.group for call in evidence.calls}  # one hashes all its ranks
    evidence.groups = [*dict.fromkeys([*reading.groups.values(), *called.values()])]
    evidence.sources = [Source(path, "dump", reading.rank)]
    evidence.states_recorded = any(call.state for call in evidence.calls)
    evidence.warnings = [
        f"{path}: {trouble}" + (f" ({count} times)" if count > 1 else "")
        for trouble, count in reading.troubles.items()
    ]
    return evidence


class _Reading:
    """One dump while it is read: its groups by name, its rank, and what was wrong with it, counted."""

    def __init__(self, dump: dict, path: str):
        self.dump, self.path, self.troubles = dump, path, Counter()
        self.stacks, self.frames = {}, {}  # what was read before, most of it often
        self.version = version_of(dump)
        self._check_version()
        self.groups = self._groups()
        self.entries = self._entries()
        self.names = {}  # of groups, by pg_id: inside of this dump that is safe
        for entry in self.entries:
            number, name = whole(entry.get("pg_id")), group_name(entry)
            if number is not None and name is not None:
                self.names.setdefault(number, name)
        self.rank, trouble = rank_in(path, dump, self.entries, self.groups)
        self.say(trouble)

    def say(self, trouble: str) -> None:
        if trouble:
            self.troubles[trouble] += 1

    def _check_version(self) -> None:
        if self.version is None:
            self.say(f"version {shown(self.dump.get('version'))} is no pair of numbers; read as far as known")
        elif not OLDEST <= self.version <= NEWEST:
            self.say(f"version {self.dump['version']} is outside of 2.3 to 2.10; read as far as known")

    def _groups(self) -> dict[str, Group]:
        config = self.dump.get("pg_config")
        if not isinstance(config, dict):
            self.say("no pg_config: the members of the groups are not known")
            return {}
        groups = {}
        for name, about in config.items():
            if not (isinstance(name, str) and isinstance(about, dict)):
                self.say("a group in pg_config cannot be read and is left out")
                continue
            ranks, trouble = members(about.get("ranks"))
            if name or ranks:  # gloo writes one group without a name and members
                self.say(f"group {shown(name)}: {trouble}" if trouble else "")
                groups[word(name)] = Group(word(name), ranks, description=word(about.get("desc")))
        return groups

    def _entries(self) -> list[dict]:
        entries = self.dump.get("entries", [])
        if not isinstance(entries, list):
            self.say("entries are no list and cannot be read")
            return []
        if len(entries) > MOST_ENTRIES:
            self.say(f"of {len(entries):,} entries the last {MOST_ENTRIES:,} are read")
        kept = [entry for entry in entries[-MOST_ENTRIES:] if isinstance(entry, dict)]
        for _ in range(len(entries[-MOST_ENTRIES:]) - len(kept)):
            self.say("an entry is no record and is left out")
        return kept

    def _group(self, entry: dict) -> Group | None:
        name = group_name(entry)
        if name is None:
            name = self.names.get(whole(entry.get("pg_id")))
        if name is None:
            return None
        if name in self.groups:
            return self.groups[name]
        given = entry.get("process_group")
        text = given[1] if isinstance(given, list | tuple) and len(given) > 1 else ""
        return Group(name, description=word(text))

    def calls(self) -> list[Call]:
        found = (self._call(entry) for entry in self.entries)
        return [call for call in found if call is not None]

    def recorded(self, calls: list[Call]) -> bool:
        """Whether the entries show what the rank called; having none, it has called nothing."""
        if self.entries:
            shows = any(call.sequence is not None for call in calls)
            none = f"none of its {len(self.entries):,} entries can be held against another rank's"
            self.say("" if shows else f"{none}, so what this rank called is not known")
            return shows
        status = self.dump.get("pg_status")
        lines = (
            [line for line in status.values() if isinstance(line, dict)] if isinstance(status, dict) else []
        )
        counted = [whole(line.get("last_enqueued_collective")) or 0 for line in lines]
        if counted and max(counted) <= 0:
            return True
        what = f"though pg_status counts {max(counted):,} calls" if counted else "and nothing counts calls"
        self.say(
            f"it has no entries, {what}, so what this rank called is not known: the recorder was off, or the "
            "dump was taken without collectives"
        )
        return False

    def _call(self, entry: dict) -> Call | None:
        backend, operation, arrow = operation_of(entry.get("profiling_name"))
        group = self._group(entry)
        if not operation or group is None:
            lacks = "group (process_group)" if operation else "operation (profiling_name)"
            self.say(f"an entry does not name its {lacks} and is left out")
            return None
        transfer = operation in ("send", "recv")
        number = "p2p_seq_id" if transfer else "collective_seq_id"
        sequence = whole(entry.get(number))
        order, created = whole(entry.get("record_id")), whole(entry.get("time_created_ns"))
        limit = whole(entry.get("timeout_ms"))
        if sequence is None:
            self.say(f"an entry has no sequence number ({number}): its call is held against no other rank's")
        sizes_in, sizes_out = self._shapes(entry, "input_sizes"), self._shapes(entry, "output_sizes")
        if operation == "all_to_all" and (self.version or OLDEST) < _SIZES_OF_ALL_TO_ALL:
            sizes_in = sizes_out = None
        dtype, trouble = dtypes(entry, "output_dtypes" if operation == "recv" else "input_dtypes")
        self.say(trouble)
        return Call(
            self.rank,
            group,
            sequence,
            operation,
            self.path if order is None else f"{self.path}, record {order}",
            sizes_in,
            sizes_out,
            dtype=dtype,
            peer=self._peer(operation, arrow, group),
            state=self._state(entry, backend),
            order=order,
            created=created,
            limit=None if limit is None else limit / 1e3,
            frames=self._frames(entry),
        )

    def _shapes(self, entry: dict, side: str):
        sizes, trouble = shapes(entry, side)
        self.say(trouble)
        return sizes

    def _frames(self, entry: dict) -> tuple:
        given = entry.get("frames")
        if id(given) not in self.stacks:  # the recorder shares the frames of calls from the same place
            self.stacks[id(given)], trouble = frames(given, self.frames)
            self.say(trouble)
        return self.stacks[id(given)]

    def _peer(self, operation: str, arrow: tuple[int, int] | None, group: Group) -> int | None:
        """The other side of a send or receive: a position in the group's list, in whatever order that is."""
        if operation not in ("send", "recv"):
            return None
        if arrow is None:
            self.say("a send or receive does not name its peer")
        elif group.ranks is None:
            self.say(f"peers in group {shown(group.name)} stay open: its list of ranks is not known")
        elif arrow[1] >= len(group.ranks):
            self.say(f"a peer is not in the list of group {shown(group.name)}")
        else:
            return group.ranks[arrow[1]]
        return None

    def _state(self, entry: dict, backend: str) -> str:
        state = entry.get("state")
        if state not in _STATES:
            self.say(f"an entry has the state {shown(state)}")
            return ""
        return "" if backend == "gloo" and state == SCHEDULED else state

    def given_up(self, calls: list[Call]) -> list[Wait]:
        """Calls that the watchdog has put away unfinished: those ran into their limit."""
        retired = {whole(entry.get("record_id")) for entry in self.entries if entry.get("retired") is True}
        return [
            Wait(self.rank, call.group, call.where, call, limit=call.limit)
            for call in calls
            if call.state in (SCHEDULED, STARTED) and call.order is not None and call.order in retired
        ]

    def status(self, calls: list[Call]) -> list[Wait]:
        """The counters of each group, where it is clear whose they are."""
        status = self.dump.get("pg_status", {})
        if not isinstance(status, dict):
            self.say("pg_status is no table and cannot be read")
            return []
        last = {}
        for call in calls:
            if call.sequence is not None and call.operation not in ("send", "recv"):
                last[call.group.name] = max(call.sequence, last.get(call.group.name, 0))
        waits = []
        for number, counters in status.items():
            names = ("last_enqueued_collective", "last_started_collective", "last_completed_collective")
            given = counters if isinstance(counters, dict) else {}
            enqueued, started, completed = (whole(given.get(name)) for name in names)
            if enqueued is None:
                self.say("a line of pg_status cannot be read")
                continue
            group = self._group_of(number)
            if group is None:
                self.say(f"pg_status of group number {shown(number)} is left out: no entry names that group")
                continue
            if None not in (started, completed) and started < completed:  # gloo does not count what starts
                enqueued, started, completed = last.get(group.name, enqueued), None, None
            values = (None if value is None else max(value, 0) for value in (enqueued, started, completed))
            waits.append(Wait(self.rank, group, f"{self.path}, pg_status", None, None, None, *values))
        return waits

    def _group_of(self, number) -> Group | None:
        number = whole(number)
        name = self.names.get(number)
        if name is not None:
            return self.groups.get(name) or Group(name, description=self._described(name))
        spare = [group for name, group in self.groups.items() if name not in self.names.values()]
        first = [group for group in spare if group.description == "default_pg"]
        if number == 0 and first:  # the default group is made before all others
            return first[0]
        lines = [line for line in map(whole, self.dump["pg_status"]) if line not in self.names]
        return spare[0] if len(spare) == len(lines) == 1 else None

    def _described(self, name: str) -> str:
        found = (self._group(entry) for entry in self.entries if group_name(entry) == name)
        return next((group.description for group in found if group), "")
