"""Collectives summed by rank, process group and operation."""

from dataclasses import dataclass

from labkit.collectives.busbw import busbw_factor
from labkit.collectives.names import ALGORITHMS
from labkit.evidence.hang.records import Group
from labkit.evidence.profile.steps import RankProfile


@dataclass(frozen=True, slots=True)
class GroupRow:
    """All calls of one operation in one group on one rank.

    ``seconds``: of their kernels, waiting included; ``exposed``: of these, while nothing computes. ``size``:
    bytes of those calls whose size is known, and ``busbw``, bytes/s of these alone; None where none is.
    """

    rank: int
    group: Group
    cause: str
    operation: str
    calls: int
    seconds: float
    exposed: float
    size: float | None
    busbw: float | None


def group_rows(ranks: dict[int, RankProfile]) -> list[GroupRow]:
    """The sums of every rank, those that take longest first."""
    rows = []
    for rank, profile in ranks.items():
        found: dict[tuple, list] = {}
        for call, _ in profile.calls:
            found.setdefault((call.group, call.cause, call.operation), []).append(call)
        for (group, cause, operation), calls in found.items():
            sized = [call for call in calls if call.size and call.seconds > 0]
            size, seconds = sum(call.size for call in sized), sum(call.seconds for call in sized)
            n = group.members
            rated = sized and n and n > 1 and operation in ALGORITHMS and operation != "barrier"
            rows.append(
                GroupRow(
                    rank=rank,
                    group=group,
                    cause=cause,
                    operation=operation,
                    calls=len(calls),
                    seconds=sum(call.seconds for call in calls),
                    exposed=sum(profile.exposed_within(call.start, call.stop) for call in calls),
                    size=size or None,
                    busbw=size / seconds * busbw_factor(operation, n) if rated else None,
                )
            )
    return sorted(rows, key=lambda row: (row.rank, -row.seconds))
