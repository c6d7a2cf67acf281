"""What groups have to do with each other: a rank absent here may wait there, and two may wait crosswise."""

from dataclasses import replace

from labkit.evidence.hang import findings as f
from labkit.evidence.hang.findings import Finding, name_of
from labkit.evidence.hang.progress import Progress
from labkit.evidence.hang.records import COMPLETED, Call
from labkit.evidence.hang.signature import ranks_said

WAITING = (f.MISSING, f.STALL, f.UNDECIDED, f.TOO_SHORT)


def circle(found: list[tuple[Progress, Finding]]) -> list[Finding]:
    """The findings of groups that wait for each other in a circle; empty where there is none.

    Two things make one. Ranks that are absent in one group wait in the next. Or every group's calls match,
    but the ranks made them in different orders, so that each waits for one that stands behind another.
    """
    waiting = [(table, one) for table, one in found if one.verdict in WAITING and one.ahead]
    after: dict[int, set[int]] = {k: set() for k in range(len(waiting))}
    for k, (table, one) in enumerate(waiting):
        for other, (its_table, its) in enumerate(waiting):
            apart = one.group != its.group
            if apart and (_waits_there(one, its) or _before(its_table, its, table, one)):
                after[k].add(other)
    return [waiting[k][1] for k in cycle(after)]


def root(found: list[Finding]) -> Finding:
    """The finding that explains the others: its absent ranks do not wait in another group.

    The first of them in the order given, where there are several.
    """
    for one in found:
        if not any(_waits_there(one, other) for other in found if other is not one):
            return one
    return found[0]


def behind(found: list[tuple[Progress, Finding]]) -> list[tuple[Progress, Finding]]:
    """The findings, those that stand behind another group's open call last, and no stall among them.

    A rank's calls run in its order: what it called after a call that has not ended need not be stuck itself.
    """
    free, held = [], []
    for table, one in found:
        before = next(
            (
                its
                for its_table, its in found
                if its.group != one.group
                and its.verdict in WAITING
                and _before(its_table, its, table, one)
                and not _before(table, one, its_table, its)
            ),
            None,
        )
        if one.verdict != f.STALL or before is None:
            free.append((table, one))
            continue
        reason = (
            f"{ranks_said(one.ahead)} called the same at {one.first}, after {before.first}, which has not "
            "ended: either it stands behind that, or the network does not deliver"
        )
        held.append((table, replace(one, verdict=f.UNDECIDED, reason=reason)))
    return free + held


def _waits_there(one: Finding, other: Finding) -> bool:
    """Whether a rank that is absent in one group is known to wait in the other."""
    return bool(set(one.absent) & set(other.ahead))


def _before(table: Progress, one: Finding, other_table: Progress, other: Finding) -> bool:
    """Whether a rank has called the first group's stuck operation before the other's."""
    mine, others = _orders(table, one), _orders(other_table, other)
    return any(mine[rank] < others[rank] for rank in mine.keys() & others.keys())


def _orders(table: Progress, finding: Finding) -> dict[int, int]:
    """When each rank called the stuck operation, as its place among all calls of the rank."""
    if finding.first is None or finding.first.sequence is None:
        calls = {rank: _stuck_transfer(calls) for rank, calls in table.transfers.items()}
    else:
        calls = table.calls(finding.first.sequence)
    return {rank: one[0].order for rank, one in calls.items() if one and one[0].order is not None}


def _stuck_transfer(calls: list[Call]) -> tuple[Call, ...]:
    """The first that has not ended, if any; the last where that is not told."""
    if not any(call.state for call in calls):
        return tuple(calls[-1:])
    return tuple(call for call in calls if call.state != COMPLETED)[:1]


def cycle(after: dict[int, set[int]]) -> list[int]:
    """The nodes of a circle, or none: what is left when nodes without a successor are taken off."""
    left = {node: set(then) for node, then in after.items()}
    while True:
        ends = [node for node, then in left.items() if not then]
        if not ends:
            break
        for node in ends:
            del left[node]
        for then in left.values():
            then.difference_update(ends)
    if not left:
        return []
    path = [min(left)]
    while True:
        following = min(left[path[-1]])
        if following in path:
            return path[path.index(following) :]
        path.append(following)


def circle_said(findings: list[Finding]) -> str:
    """The circle in words."""
    parts = []
    for one in findings:
        what = next(iter(one.first.calls.values()), "a transfer") if one.first else "a transfer"
        waits = (
            f"in group {name_of(one.group)}, {ranks_said(one.ahead)} wait{'' if len(one.ahead) > 1 else 's'}"
        )
        waits += f" in {what}"
        waits += f" for {ranks_said(one.absent)}" if one.absent else ""
        parts.append(waits)
    return "; ".join(parts)
