"""How far each rank has come in each group: calls, watchdogs' messages and dumps' counters in one table."""

from dataclasses import dataclass, field, replace

from labkit.evidence.hang.records import COMPLETED, SCHEDULED, STARTED, Call, Evidence, Group, Wait
from labkit.evidence.hang.signature import POINT_TO_POINT
from labkit.evidence.hang.waiting import open_calls

# Operations after which every rank knows that all others have called too.
MEETING = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "barrier")


@dataclass(slots=True)
class Progress:
    """One group. ``at[rank][sequence]``: its calls there, several where one launch bundles them.

    ``enqueued``, ``completed``: last sequence numbers by rank, as far as they are known; ``lowest``: the
    first that a rank still has on record; ``pending``: lengths of queues; ``covered``: ranks of which a
    source says how far they are; ``waits``: what gave up, and ``gave_up``: in which call, by its number;
    ``transfers``: sends and receives, apart; ``whole``: ranks whose record goes back to their first call;
    ``blind``: ranks whose record begins, in whatever group, with a call that has not ended; ``waiting``: the
    call in which a rank waits, of this group or another.
    """

    group: Group
    at: dict[int, dict[int, tuple[Call, ...]]] = field(default_factory=dict)
    enqueued: dict[int, int] = field(default_factory=dict)
    completed: dict[int, int] = field(default_factory=dict)
    lowest: dict[int, int] = field(default_factory=dict)
    pending: dict[int, int] = field(default_factory=dict)
    waits: dict[int, Wait] = field(default_factory=dict)
    gave_up: dict[int, int] = field(default_factory=dict)
    transfers: dict[int, list[Call]] = field(default_factory=dict)
    covered: set[int] = field(default_factory=set)
    whole: set[int] = field(default_factory=set)
    blind: set[int] = field(default_factory=set)
    waiting: dict[int, Call] = field(default_factory=dict)

    @property
    def unknown(self) -> list[int]:
        """Members of which no source says how far they are; of a group of unknown size there may be more."""
        return sorted(self.members - self.covered)

    @property
    def members(self) -> set[int]:
        """The ranks of the group, as far as they are known."""
        return set(self.group.ranks or range(self.group.members or 0)) | self.covered

    @property
    def size(self) -> int:
        """How many ranks it has; where that is not said, as many as are on record.

        Of the group of all ranks at least as many as the highest needs.
        """
        least = 1 + max(self.covered, default=-1) if self.group.name in ("", "0") else len(self.covered)
        return self.group.members or least

    @property
    def complete(self) -> bool:
        """Whether it is known who belongs to the group, and how far each of them is."""
        return self.group.members is not None and not self.unknown

    def calls(self, sequence: int) -> dict[int, tuple[Call, ...]]:
        """What each rank called there, as far as it is on record."""
        return {rank: at[sequence] for rank, at in sorted(self.at.items()) if sequence in at}

    def done(self, sequence: int) -> bool:
        """Whether a rank has completed what nobody can complete before all have called it."""
        there = self.calls(sequence)  # without any the counters are all there is
        if any(call.operation not in MEETING for calls in there.values() for call in calls):
            return False
        counted = max(self.completed.values(), default=-1) >= sequence
        return counted or any(self.finished(rank, sequence) for rank in there)

    def overwritten(self, sequence: int) -> list[int]:
        """Ranks whose ring may have lost calls before this one that have not ended either."""
        ended = max(self.completed.values(), default=None)
        return sorted(
            rank
            for rank, lowest in self.lowest.items()
            if rank in self.blind
            or (ended is not None and ended + 1 < lowest <= sequence)
            or (rank not in self.whole and ended is None and not self._told(rank))
        )

    def _told(self, rank: int) -> bool:
        """Whether the record of a rank tells open calls from others; gloo's does not."""
        return any(call.state for calls in self.at[rank].values() for call in calls)

    def finished(self, rank: int, sequence: int) -> bool:
        """Whether this rank is known to have completed its call."""
        calls = self.at.get(rank, {}).get(sequence, ())
        by_state = bool(calls) and all(call.state == COMPLETED for call in calls)
        return by_state or self.completed.get(rank, -1) >= sequence


def progress_of(evidence: Evidence) -> list[Progress]:
    """One table for each group, those with names first in the order in which the sources name them."""
    tables: dict[tuple, Progress] = {}
    of_object: dict[int, Progress] = {}  # by the group as it stands in the evidence, which outlives this
    known = _known(evidence)

    def table(group: Group) -> Progress:
        if id(group) not in of_object:
            meant = known.get((group.name, group.ranks), group)
            of_object[id(group)] = tables.setdefault((meant.name, meant.ranks), Progress(meant))
        return of_object[id(group)]

    for group in evidence.groups:
        table(group)
    for call in evidence.calls:
        if call.rank is not None:
            _take_call(table(call.group), call)
    last = _last_calls(evidence) if evidence.waits else {}
    for wait in evidence.waits:
        if wait.rank is not None:
            call = last.get(wait.rank)
            unnamed = not wait.group.name and (wait.call is None or wait.call.sequence is None)
            if unnamed and call is not None:
                # Without a name or number a rank says where it is by what it called last.
                wait = replace(wait, group=call.group, call=call)
            _take_wait(table(wait.group), wait)
    dumps = any(source.kind == "dump" for source in evidence.sources)
    given_up = {wait.rank: wait.call for wait in evidence.waits if wait.call and wait.waited is not None}
    waits = given_up | (open_calls(evidence) if dumps else {})  # a log ends anywhere
    for one in tables.values():
        _cover(one, evidence)
        one.waiting = waits
    return list(tables.values())


def _known(evidence: Evidence) -> dict[tuple, Group]:
    """Which group is meant by a name alone: that of the same name, where only one rank set has the name."""
    named: dict[str, dict[tuple | None, Group]] = {}
    # Each object once: a call's group is that of its dump, and looking one up takes as long as its ranks.
    mentioned = {id(thing.group): thing.group for thing in (*evidence.calls, *evidence.waits)}
    for group in (*evidence.groups, *mentioned.values()):
        of_name = named.setdefault(group.name, {})
        if group.ranks not in of_name or of_name[group.ranks].size is None:
            of_name[group.ranks] = group
    meant = {}
    for name, groups in named.items():
        full = [group for ranks, group in groups.items() if ranks is not None]
        for ranks, group in groups.items():
            meant[name, ranks] = full[0] if ranks is None and len(full) == 1 else group
    # An older message without a group's name belongs to the only group there is.
    others = {(group.name, group.ranks): group for (name, _), group in meant.items() if name}
    if len(others) == 1 and ("", None) in meant:
        meant["", None] = next(iter(others.values()))
    dumped = {source.rank for source in evidence.sources if source.kind == "dump"}
    if evidence.ranks == dumped == {0, 1}:
        # No group waits that has one rank, and there are but two: it is both of them.
        recorded = {call.group.name for call in evidence.calls}
        for key, one in meant.items():
            if one.members is None and one.name in recorded:
                meant[key] = replace(one, ranks=(0, 1))
                evidence.assume(
                    "the dumps do not list who is in a group: ranks 0 and 1 are taken as all there are"
                )
    return meant


def _last_calls(evidence: Evidence) -> dict[int, Call]:
    """The call that each rank made last, over all groups, where its record has an order."""
    last: dict[int, Call] = {}
    for call in evidence.calls:
        if call.rank is not None and call.order is not None:
            before = last.get(call.rank)
            last[call.rank] = call if before is None or call.order >= before.order else before
    return last


def _take_call(table: Progress, call: Call) -> None:
    rank = call.rank
    table.covered.add(rank)
    if call.operation in POINT_TO_POINT:
        table.transfers.setdefault(rank, []).append(call)
    elif call.sequence is not None:
        at = table.at.setdefault(rank, {})
        at[call.sequence] = (*at.get(call.sequence, ()), call)
        table.lowest[rank] = min(call.sequence, table.lowest.get(rank, call.sequence))
        table.enqueued[rank] = max(call.sequence, table.enqueued.get(rank, call.sequence))


def _take_wait(table: Progress, wait: Wait) -> None:
    rank = wait.rank
    table.covered.add(rank)
    call = wait.call
    if call is not None and call.sequence is not None and call.operation not in POINT_TO_POINT:
        at = table.at.setdefault(rank, {})
        at.setdefault(call.sequence, (call,))  # a dump says the same in more detail
        table.enqueued[rank] = max(call.sequence, table.enqueued.get(rank, call.sequence))
    for name in ("enqueued", "completed"):
        value, kept = getattr(wait, name), getattr(table, name)
        if value is not None:
            kept[rank] = max(value, kept.get(rank, value))
    if wait.pending is not None:
        table.pending[rank] = wait.pending
    if wait.waited is not None or wait.limit is not None:
        table.waits.setdefault(rank, wait)
        if call is not None and call.sequence is not None and call.operation not in POINT_TO_POINT:
            table.gave_up[rank] = min(call.sequence, table.gave_up.get(rank, call.sequence))


def _cover(table: Progress, evidence: Evidence) -> None:
    """A rank's dump covers its groups: without a call on record there, it has made none.

    Unless its ring has gone round: then the calls may have been overwritten.
    """
    first, open_ = {}, {}
    for call in evidence.calls:
        if call.order is not None and call.order <= first.get(call.rank, call.order):
            first[call.rank] = call.order
            open_[call.rank] = call.state in (SCHEDULED, STARTED)
    table.blind = {rank for rank, order in first.items() if order > 0 and open_[rank]}
    table.whole = {rank for rank, order in first.items() if order == 0}
    for source in evidence.sources:
        member = source.kind == "dump" and source.rank in (table.group.ranks or ())
        if member and (not first.get(source.rank, 0) or source.rank in table.enqueued):
            table.covered.add(source.rank)
            table.enqueued.setdefault(source.rank, 0)  # dumps count from 1
