"""The first operation of a group on which its ranks differ, and what follows from it for this group alone.

Sequence numbers are those of one group and are never held against another's. States (scheduled, started,
completed) differ between dumps because these are taken at different moments: alone they are no difference.
"""

from labkit.evidence.hang import findings as f
from labkit.evidence.hang.agreed import agreed
from labkit.evidence.hang.findings import Finding, First, files_of, name_of
from labkit.evidence.hang.missing import missing, queues
from labkit.evidence.hang.progress import Progress
from labkit.evidence.hang.records import Call
from labkit.evidence.hang.shifts import shift_of
from labkit.evidence.hang.signature import alike, differing, ranks_said, unlike
from labkit.evidence.hang.stuck import held, late, stuck, unnumbered
from labkit.evidence.hang.suspects import minority, said_at
from labkit.spec.rule import listed


def compare(table: Progress, ended: bool, states: bool) -> Finding | None:
    """What is found in one group; None where nothing is known of it.

    ``ended``: whether the ranks stopped where the record ends, as with dumps and watchdogs; the end of a log
    is where the log ends. ``states``: whether the record tells completed works from others.
    """
    if not table.covered:
        return None
    if not table.at and (table.waits or table.pending):
        return queues(table) or unnumbered(table)
    start = max(table.lowest.values(), default=None)
    every = sorted({sequence for at in table.at.values() for sequence in at})
    recorded = _recorded(table)
    sequences = [one for one in every if start is None or one >= start or one not in recorded]
    for sequence in sequences:
        calls = table.calls(sequence) if ended else _begun(table, sequence)
        differs = differing(calls) if len(calls) > 1 else ()
        if differs:
            return _mismatch(table, sequence, calls, differs)
    made_by_all = _made_by_all(table) if states or table.completed else -1
    for sequence in _followed(table, sequences, made_by_all):
        behind = [rank for rank in sorted(table.covered) if table.enqueued.get(rank, sequence) < sequence]
        ahead = [rank for rank in sorted(table.covered) if table.enqueued.get(rank, -1) >= sequence]
        if behind and ahead and sequence > made_by_all:
            sequence = _first_absent(table, 1 + made_by_all, behind, ahead)
            behind = [rank for rank in behind if table.enqueued[rank] < sequence]
            return missing(table, sequence, behind, sorted(table.covered - set(behind)), ended)
        waited = table.gave_up and sequence >= min(table.gave_up.values())
        if waited and not any(table.finished(rank, sequence) for rank in table.covered):
            return stuck(table, sequence)
        if states and sequence > made_by_all and (open_ := _open(table, sequence)):
            return (
                stuck(table, sequence)
                if open_ == set(table.calls(sequence))
                else held(table, sequence, open_)
            )
    if not states and sequences and late(table, table.calls(sequences[-1])):
        return stuck(table, sequences[-1])
    return agreed(table, ended, states)


def _followed(table: Progress, sequences: list[int], made_by_all: int) -> list[int]:
    """The calls to look at, with the first that only counters know: of a rank that has made none since."""
    known = [table.enqueued[rank] for rank in table.covered if rank in table.enqueued]
    if not known:
        return sequences
    after = 1 + max(min(known), made_by_all)
    return sorted({*sequences, after}) if after <= max(known) else sequences


def _made_by_all(table: Progress) -> int:
    """The last call that all have made, because some rank has completed it; -1 where there is none."""
    on_record = {at for of_rank in table.at.values() for at in of_rank}
    candidates = sorted(on_record.union(table.completed.values()), reverse=True)
    return next((at for at in candidates if table.done(at)), -1)


def _begun(table: Progress, sequence: int) -> dict[int, tuple[Call, ...]]:
    """The calls of a log that may end inside a launch of several: as many of them as all ranks have there."""
    calls = table.calls(sequence)
    cut = [len(one) for rank, one in calls.items() if table.enqueued[rank] == sequence]
    most = max(map(len, calls.values()), default=0)
    length = min(cut, default=most)
    return {rank: one[:length] for rank, one in calls.items()}


def _first_absent(table: Progress, least: int, behind: list[int], ahead: list[int]) -> int:
    """The call that the ranks behind did not make, where rings may have gone round since; ``least`` or later.

    It is the one after their last. A call that stands on the record of a rank ahead is taken from there,
    because numbers may leave gaps for sends and receives.
    """
    least = max(least, 1 + min(table.enqueued[rank] for rank in behind))
    if least > 0 and all(table.lowest.get(rank, least + 1) > least for rank in ahead):
        return least
    return min((at for rank in ahead for at in table.at.get(rank, ()) if at >= least), default=least)


def _recorded(table: Progress) -> set[int]:
    """Sequences that stand in a record of all calls, not in a watchdog's message alone."""
    return {sequence for rank, at in table.at.items() if rank in table.lowest for sequence in at}


def _open(table: Progress, sequence: int) -> set[int]:
    """The ranks that have the call on record and have not completed it."""
    return {rank for rank in table.calls(sequence) if not table.finished(rank, sequence)}


def _mismatch(table: Progress, sequence: int, calls: dict, differs: tuple[str, ...]) -> Finding:
    classes = alike(calls)
    # Old messages name no group: what differs may be calls of two groups, each right.
    suspects = minority(classes, table.size) if table.group.name else []
    verdict, shift = f.MISMATCH, shift_of(table, sequence, classes)
    if shift.swapped:
        verdict = f.ORDER
    parted = unlike(calls)
    first = First(name_of(table.group), sequence, {rank: said_at(call) for rank, call in parted.items()})
    each = "; ".join(
        f"{ranks_said(ranks)} {_calls(ranks)} {max((first.calls[rank] for rank in ranks), key=len)}"
        for ranks in classes
    )
    passed = all(table.finished(rank, sequence) for rank in calls)
    reason = f"at {first} the ranks differ in {listed(list(differs), 'and')}: {each}"
    reason += f"; {shift.words}" if shift.words else ""
    gone = [] if passed else table.overwritten(sequence)
    reason += (
        f"; that is the first on record: the rings of {ranks_said(gone)} have lost calls before it, in which "
        "they may have differed already"
        if gone
        else ""
    )
    reason += "; it passed without a hang, so what came out of it is wrong" if passed else ""
    reason += f"; {_blame(suspects, classes, table)}"
    return Finding(
        table.group,
        verdict,
        reason,
        first,
        unknown=tuple(table.unknown),
        differs=differs,
        suspects=tuple(suspects),
        decide="" if suspects or not table.unknown else files_of(table.unknown),
    )


def _calls(ranks) -> str:
    return "call" if len(ranks) > 1 else "calls"


def _blame(suspects: list[int], classes: list[list[int]], table: Progress) -> str:
    if suspects:
        return f"likely {ranks_said(suspects)}: {len(classes[0])} of {table.size} ranks agree"
    if table.unknown:
        return (
            f"whose fault it is cannot be told without {ranks_said(table.unknown)}: no majority of the "
            "group is on record"
        )
    if not table.group.name:
        return "whose fault it is cannot be told: the messages name no group, so these may be calls of two"
    if table.group.members is None:
        return "whose fault it is cannot be told: how many ranks the group has is not on record"
    return "whose fault it is cannot be told: no class of ranks is in the majority"
