"""Findings of programs that compared their calls before they made them.

Each rank compares its own call with those of all ranks of its group and names the first that differs. The
messages name no group: those that share a rank's call are of one, others are kept apart. A rank that is told
by its number within a group has None for its rank in the job.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from labkit.evidence.hang import findings as f
from labkit.evidence.hang.findings import Finding, First, name_of
from labkit.evidence.hang.records import Call, Evidence, Group
from labkit.evidence.hang.signature import alike, differing, ranks_said, said
from labkit.evidence.hang.suspects import minority
from labkit.spec.rule import listed

_UNNAMED = -1


def fingerprint_findings(evidence: Evidence) -> list[Finding]:
    """One finding for each comparison that found a difference, in the order of the numbers of the calls."""
    compared = _together(evidence.pairs)
    named = [set(calls) for calls in compared]
    found = []
    for calls, ranks in zip(compared, named, strict=True):
        elsewhere = set().union(*named) - ranks
        # The group is as large as all that left a log, where all that are named did; else it may be larger.
        whole = ranks | (evidence.ranks - elsewhere) if ranks <= evidence.ranks else None
        group = next(iter(calls.values())).group
        if len(compared) > 1 and not group.name:
            group = replace(group, name=f"with {_ranks(_named(ranks))}")
        found.append(_found(calls, group, len(whole) if whole else None))
    return sorted(found, key=lambda one: one.first.sequence or 0)


def _together(pairs: list[tuple[Call, Call]]) -> list[dict[int, Call]]:
    """Calls by rank, of each comparison: pairs belong to one where they share a rank's call."""
    compared: list[dict[int, Call]] = []
    for pair in pairs:
        calls = {_UNNAMED if call.rank is None else call.rank: call for call in pair}
        apart = []
        for other in compared:
            shared = any(
                (other[rank].sequence, other[rank].group.name) == (call.sequence, call.group.name)
                for rank, call in calls.items()
                if rank in other and rank != _UNNAMED
            )
            if shared:
                calls = {**other, **calls}
            else:
                apart.append(other)
        compared = [*apart, calls]
    return compared


def _found(by_rank: dict[int, Call], group: Group, members: int | None) -> Finding:
    calls = {rank: (call,) for rank, call in sorted(by_rank.items())}
    members = group.members or members
    numbers = {call.sequence for call in by_rank.values()} - {None}
    differs = differing(calls) or (("number of the call",) if len(numbers) > 1 else ("shape",))
    if len(numbers) > 1:
        classes = [[rank for rank in calls if by_rank[rank].sequence == number] for number in numbers]
    else:
        classes = alike(calls)
    classes.sort(key=lambda ranks: (-len(ranks), ranks))
    suspects = minority(classes, members) if members and len(classes) > 1 else []
    behind = [rank for rank in calls if numbers and by_rank[rank].sequence != max(numbers)]
    missing = bool(behind) and differs == ("number of the call",)
    there = {rank: said(call) for rank, call in calls.items() if rank != _UNNAMED}
    if missing:
        there = {rank: words for rank, words in there.items() if rank not in behind}
    first = First(name_of(group), max(numbers, default=None), there)
    each = "; ".join(f"{_ranks([rank])} {said(call)}" for rank, call in calls.items())
    reason = f"before {first} the ranks compared what they were about to call: {each}"
    if behind:
        reason += (
            f"; the numbers of their calls differ: {_numbers(classes, by_rank)}, so {_ranks(behind)} "
            f"{'are' if len(behind) > 1 else 'is'} behind: a call was left out there, or the others made one "
            "too many"
        )
    if suspects:
        reason += f"; likely {ranks_said(suspects)}: {len(classes[0])} of {members} ranks agree"
    else:
        reason += "; no majority of the group is known, so it cannot be told whose call is the odd one"
    return Finding(
        group,
        f.MISSING if missing else f.MISMATCH,
        reason,
        first,
        absent=_named(behind) if missing else (),
        ahead=_named(rank for rank in calls if rank not in behind) if missing else (),
        differs=differs,
        suspects=tuple(suspects),
        decide="" if suspects else "the messages of the other ranks",
    )


def _named(ranks: Iterable[int]) -> tuple[int, ...]:
    return tuple(rank for rank in ranks if rank != _UNNAMED)


def _ranks(ranks: Sequence[int]) -> str:
    return "another rank of its group" if list(ranks) == [_UNNAMED] else ranks_said(ranks)


def _numbers(classes: list[list[int]], by_rank: dict[int, Call]) -> str:
    """``rank 0 is at call 7 and rank 1 at call 8``."""
    parts = [f"{_ranks(ranks)} at call {by_rank[ranks[0]].sequence}" for ranks in sorted(classes)]
    return listed(parts, "and")
