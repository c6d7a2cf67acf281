"""In which call each rank waits: what it has called over all groups, in its own order."""

from labkit.evidence.hang.records import COMPLETED, Call, Evidence


def open_calls(evidence: Evidence) -> dict[int, Call]:
    """The call that each rank waits in, as far as its record tells; ranks that wait in none are left out.

    With states the first that has not ended. Without (gloo) the last, unless another rank that made it too
    has called something since: then it has ended, and the rank is busy with something else.
    """
    by_rank: dict[int, list[Call]] = {}
    for call in evidence.calls:
        if call.rank is not None and call.order is not None:
            by_rank.setdefault(call.rank, []).append(call)
    waits: dict[int, Call] = {}
    last: dict[int, Call] = {}
    for rank, calls in by_rank.items():
        if evidence.states_recorded and any(call.state for call in calls):
            open_ = [call for call in calls if call.state != COMPLETED]
            if open_:
                waits[rank] = min(open_, key=_order)
        else:
            last[rank] = max(calls, key=_order)
    lasts = {_which(call) for call in last.values()}
    left = {
        _which(call)
        for rank, mine in last.items()
        for call in by_rank[rank]
        if call.order < mine.order and _which(call) in lasts
    }
    return waits | {rank: call for rank, call in last.items() if _which(call) not in left}


def _order(call: Call) -> int:
    return call.order


def _which(call: Call) -> tuple:
    return call.group.name, call.operation, call.sequence
