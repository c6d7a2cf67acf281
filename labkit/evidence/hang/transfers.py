"""Sends and receives of a group: each needs its counterpart, between the same ranks and of the same size."""

from dataclasses import dataclass

from labkit.evidence.hang import findings as f
from labkit.evidence.hang.between import cycle, root
from labkit.evidence.hang.findings import Finding, First, files_of, name_of
from labkit.evidence.hang.progress import Progress
from labkit.evidence.hang.records import COMPLETED, Call
from labkit.evidence.hang.signature import POINT_TO_POINT, elements, ranks_said, said


@dataclass(frozen=True, slots=True)
class _Pair:
    """The transfers from one rank to another: what the one sends and what the other takes.

    ``passed``: a counterpart has ended on the other side, and it may be that of a call that is open here.
    ``lost``: a ring has gone round and may have lost calls that are open too.
    """

    source: int
    target: int
    sends: list[Call]
    takes: list[Call]
    passed: bool = False
    lost: bool = False


def compare_transfers(table: Progress, ended: bool, states: bool) -> Finding | None:
    """What is found among the transfers of one group; None where all have a counterpart and have ended.

    Where states are recorded only what has not completed counts. Otherwise all calls between two ranks are
    held against each other, if both have them from the first. ``ended``: the ranks stopped where the record
    ends; a log may end between a send and its receive, so that only their sizes are held against each other.
    """
    ends = sorted(
        {
            _ends(rank, call)
            for rank, mine in table.transfers.items()
            for call in mine
            if call.peer not in (None, rank)
        }
    )
    found, open_ = [], []
    for source, target in ends:
        sends = _of(table.transfers.get(source, []), "send", target)
        takes = _of(table.transfers.get(target, []), "recv", source)
        pair = _Pair(source, target, sends, takes)
        if states:
            pair = _open(table, pair)
            open_ += [*pair.sends, *pair.takes]
            alone = {source, target} - table.covered
            found.append(_one_sided(table, pair, *alone) if alone else _pair_finding(table, pair, states))
        elif {source, target} <= table.whole:
            found.append(_pair_finding(table, pair, states))
    crossing = _crossing(table, open_)
    found = [one for one in found if one is not None and (ended or one.verdict == f.MISMATCH)]
    for verdict in (f.MISMATCH, f.MISSING):
        if verdict == f.MISSING and crossing is not None:
            return crossing
        if some := [one for one in found if one.verdict == verdict]:
            return root(some) if verdict == f.MISSING else some[0]
    return next(iter(found), None)


def _ends(rank: int, call: Call) -> tuple[int, int]:
    """Who sends and who receives."""
    return (rank, call.peer) if call.operation == "send" else (call.peer, rank)


def _of(calls: list[Call], operation: str, peer: int) -> list[Call]:
    return [call for call in calls if call.operation == operation and call.peer == peer]


def _open(table: Progress, pair: _Pair) -> _Pair:
    """The transfers of a pair that neither side has completed.

    Dumps are taken at different moments: what is open in one may have ended in the other's, later. Records
    that go back to the first call tell it by the place; rings that have gone round cannot.
    """
    sends, takes = pair.sends, pair.takes
    if {pair.source, pair.target} <= table.whole:
        ended = [
            k
            for calls in (sends, takes)
            for k, call in enumerate(calls)
            if call.state == COMPLETED and k < min(len(sends), len(takes))
        ]
        past = 1 + max(ended, default=-1)
        sends, takes = sends[past:], takes[past:]
    waits = [[call for call in calls if call.state != COMPLETED] for calls in (sends, takes)]
    other = takes if len(waits[0]) > len(waits[1]) else sends
    passed = any(call.state == COMPLETED for call in other) and not table.waits
    # What comes before the first open call has ended: then none was lost that had not.
    whole = {pair.source, pair.target} <= table.whole
    lost = not whole and any(calls and calls[0].state != COMPLETED for calls in (sends, takes))
    return _Pair(pair.source, pair.target, *waits, passed, lost)


def _crossing(table: Progress, open_: list[Call]) -> Finding | None:
    """Ranks that each wait in a transfer for one that stands behind the next rank's own, in a circle.

    As where both sides of a pair send first, or both receive. What one launch bundles has one number and
    does not stand behind each other.
    """
    firsts = {
        rank: call
        for rank, call in table.waiting.items()
        if call.operation in POINT_TO_POINT
        and call.group.name == table.group.name
        and call.peer is not None
        and call in open_  # on the other side as well
        and rank not in table.blind  # what it waits in may have been overwritten
    }
    after = {
        rank: {call.peer} if _stands_behind(table, call, firsts) else set() for rank, call in firsts.items()
    }
    ring = sorted(cycle(after))
    if not ring:
        return None
    calls = {rank: said((firsts[rank],)) for rank in ring}
    each = "; ".join(f"rank {rank} in {words}" for rank, words in calls.items())
    reason = (
        f"{ranks_said(ring)} wait for each other: {each}; the counterpart of each stands behind the "
        "call in which the other waits, or was not made"
    )
    return Finding(
        table.group, f.CIRCULAR, reason, First(name_of(table.group), None, calls), ahead=tuple(ring)
    )


def _stands_behind(table: Progress, call: Call, firsts: dict[int, Call]) -> bool:
    """Whether the counterpart of a call is not among what its peer has launched and waits in."""
    blocked = firsts.get(call.peer)
    if blocked is None:
        return False
    launched = [
        one
        for one in table.transfers.get(call.peer, [])
        if one.sequence == blocked.sequence and one.state != COMPLETED
    ]
    return not any(one.peer == call.rank and one.operation != call.operation for one in launched)


def _one_sided(table: Progress, pair: _Pair, unknown: int) -> Finding | None:
    """A transfer that does not end, with a rank of which no source says anything."""
    calls = pair.sends or pair.takes
    if not calls:
        return None
    rank = pair.source if pair.sends else pair.target
    first = First(name_of(table.group), None, {rank: said(calls[:1])})
    reason = (
        f"{_waits(rank, unknown, bool(pair.sends))}, {said(calls[:1])}, and it does not end; rank {unknown} "
        "is not on record: either it has no such call, or the network does not deliver"
    )
    decide = files_of([unknown])
    return Finding(table.group, f.UNDECIDED, reason, first, ahead=(rank,), unknown=(unknown,), decide=decide)


def _waits(rank: int, other: int, sends: bool) -> str:
    return f"rank {rank} {'sends to' if sends else 'waits for a transfer from'} rank {other}"


def _pair_finding(table: Progress, pair: _Pair, states: bool) -> Finding | None:
    source, target, sends, takes = pair.source, pair.target, pair.sends, pair.takes
    if pair.lost and sends and takes:
        first = First(name_of(table.group), None, {source: said((sends[0],)), target: said((takes[0],))})
        reason = (
            f"transfers from rank {source} to rank {target} do not end, and a ring has lost those before: "
            "either one of them does not fit its counterpart, or the network does not deliver"
        )
        decide = "dumps of a longer ring (TORCH_FR_BUFFER_SIZE=20000) the next time"
        ahead = (min(source, target), max(source, target))
        return Finding(table.group, f.UNDECIDED, reason, first, ahead=ahead, decide=decide)
    for k, (send, take) in enumerate(zip(sends, takes, strict=False)):
        given, taken = elements(send)[0], elements(take)[1] or elements(take)[0]
        known = None not in (given, taken) and (send.dtype == take.dtype or not (send.dtype and take.dtype))
        if known and given != taken:
            first = First(name_of(table.group), send.sequence, {source: said((send,)), target: said((take,))})
            reason = (
                f"{_kth(k)} from rank {source} to rank {target} has {given:,} elements, and rank {target} "
                f"takes {taken:,}"
            )
            return Finding(table.group, f.MISMATCH, reason, first, differs=("number of elements",))
    if len(sends) != len(takes):
        more = len(sends) > len(takes)
        longer, ahead, absent = (sends, source, target) if more else (takes, target, source)
        call = longer[min(len(sends), len(takes))]
        first = First(name_of(table.group), None, {ahead: said((call,))})
        begun = _waits(ahead, absent, more)
        if pair.passed:
            reason = (
                f"{begun}, {said((call,))}; rank {absent} has no such call open: either it has not made it, "
                "or it had ended when its dump was taken, later"
            )
            decide = "dumps taken once more: what is open then as well is stuck"
            return Finding(table.group, f.UNDECIDED, reason, first, ahead=(ahead,), decide=decide)
        reason = f"{begun}, which has no such call: {said((call,))}"
        return Finding(table.group, f.MISSING, reason, first, absent=(absent,), ahead=(ahead,))
    if states and sends:
        first = First(name_of(table.group), None, {source: said((sends[0],)), target: said((takes[0],))})
        reason = f"rank {source} sends to rank {target}, which receives it, and the transfer does not end"
        return Finding(table.group, f.STALL, reason, first, ahead=tuple(sorted((source, target))))
    return None


def _kth(k: int) -> str:
    return "the transfer" if k == 0 else f"transfer {k + 1}"
