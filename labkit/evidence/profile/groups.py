"""Collectives summed by rank, process group and operation."""

from dataclasses import dataclass

from labkit.evidence.hang.records import Group
from labkit.evidence.profile.calls import busbw_of
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
        for (call, _), exposed in zip(profile.calls, profile.exposures, strict=True):
            found.setdefault((call.group, call.cause, call.operation), []).append((call, exposed))
        for (group, cause, operation), calls in found.items():
            sized = [call for call, _ in calls if call.size and call.seconds > 0]
            size, seconds = sum(call.size for call in sized), sum(call.seconds for call in sized)
            rows.append(
                GroupRow(
                    rank=rank,
                    group=group,
                    cause=cause,
                    operation=operation,
                    calls=len(calls),
                    seconds=sum(call.seconds for call, _ in calls),
                    exposed=sum(exposed for _, exposed in calls),
                    size=size or None,
                    busbw=busbw_of(operation, size, seconds, group.members),
                )
            )
    return sorted(rows, key=lambda row: (row.rank, -row.seconds))
