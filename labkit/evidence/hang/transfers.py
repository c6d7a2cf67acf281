"""Sends and receives of a group: each needs its counterpart, between the same ranks and of the same size."""

from labkit.evidence.hang import findings as f
from labkit.evidence.hang.between import root
from labkit.evidence.hang.findings import Finding, First, name_of
from labkit.evidence.hang.progress import Progress
from labkit.evidence.hang.records import COMPLETED, Call
from labkit.evidence.hang.signature import elements, said


def compare_transfers(table: Progress, ended: bool, states: bool) -> Finding | None:
    """What is found among the transfers of one group; None where all have a counterpart and have ended.

    Where states are recorded only what has not completed counts: rings of dumps begin at different calls.
    Otherwise all calls between two ranks are held against each other, if both have them from the first, and
    ``ended``, the ranks stopped where the record ends: a log may end between a send and its receive.
    """
    if not ended:
        return None
    calls = _open(table, states)
    pairs = sorted(
        {_pair(rank, call) for rank, mine in calls.items() for call in mine if call.peer not in (None, rank)}
    )
    waiting: list[Finding] = []
    for source, target in pairs:
        if {source, target} <= (table.covered if states else table.whole):
            sends = _of(calls.get(source, []), "send", target)
            takes = _of(calls.get(target, []), "recv", source)
            found = _pair_finding(table, source, target, sends, takes, states)
            if found is not None and found.verdict == f.MISMATCH:
                return found
            waiting += [] if found is None else [found]
    missing = [one for one in waiting if one.verdict == f.MISSING]
    return root(missing) if missing else next(iter(waiting), None)


def _open(table: Progress, states: bool) -> dict[int, list[Call]]:
    if not states:
        return table.transfers
    return {
        rank: [call for call in calls if call.state != COMPLETED] for rank, calls in table.transfers.items()
    }


def _pair(rank: int, call: Call) -> tuple[int, int]:
    """Who sends and who receives."""
    return (rank, call.peer) if call.operation == "send" else (call.peer, rank)


def _of(calls: list[Call], operation: str, peer: int) -> list[Call]:
    return [call for call in calls if call.operation == operation and call.peer == peer]


def _pair_finding(table, source, target, sends, takes, states) -> Finding | None:
    for k, (send, take) in enumerate(zip(sends, takes, strict=False)):
        given, taken = elements(send)[0], elements(take)[1] or elements(take)[0]
        if given is not None and taken is not None and given != taken:
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
        verb = "sends to" if more else "waits for a transfer from"
        reason = f"rank {ahead} {verb} rank {absent}, which has no such call: {said((call,))}"
        return Finding(table.group, f.MISSING, reason, first, absent=(absent,), ahead=(ahead,))
    if states and sends:
        first = First(name_of(table.group), None, {source: said((sends[0],)), target: said((takes[0],))})
        reason = f"rank {source} sends to rank {target}, which receives it, and the transfer does not end"
        return Finding(table.group, f.STALL, reason, first, ahead=tuple(sorted((source, target))))
    return None


def _kth(k: int) -> str:
    return "the transfer" if k == 0 else f"transfer {k + 1}"
