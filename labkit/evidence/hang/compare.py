"""The first operation of a group on which its ranks differ, and what follows from it for this group alone.

Sequence numbers are those of one group and are never held against another's. States (scheduled, started,
completed) differ between dumps because these are taken at different moments: alone they are no difference.
"""

from labkit.evidence.hang import findings as f
from labkit.evidence.hang.findings import Finding, First, files_of, name_of
from labkit.evidence.hang.progress import Progress
from labkit.evidence.hang.shifts import shift_of
from labkit.evidence.hang.signature import alike, differing, ranks_said
from labkit.evidence.hang.stuck import late, limit_said, stuck, unnumbered
from labkit.evidence.hang.suspects import by_site, minority, parted, said_at, site_said
from labkit.spec.rule import counted, listed


def compare(table: Progress, ended: bool, states: bool) -> Finding | None:
    """What is found in one group; None where nothing is known of it.

    ``ended``: whether the ranks stopped where the record ends, as with dumps and watchdogs; the end of a log
    is where the log ends. ``states``: whether the record tells completed works from others.
    """
    if not table.covered:
        return None
    if not table.at and (table.waits or table.pending):
        return _queues(table) or unnumbered(table)
    start = max(table.lowest.values(), default=None)
    sequences = sorted({sequence for at in table.at.values() for sequence in at})
    sequences = [one for one in sequences if start is None or one >= start or one not in _recorded(table)]
    for sequence in sequences:
        calls = table.calls(sequence)
        differs = differing(calls) if len(calls) > 1 else ()
        if differs:
            return _mismatch(table, sequence, differs)
    for sequence in sequences:
        behind = [rank for rank in sorted(table.covered) if table.enqueued.get(rank, sequence) < sequence]
        ahead = [rank for rank in sorted(table.covered) if table.enqueued.get(rank, -1) >= sequence]
        if behind and ahead and not table.done(sequence):
            sequence = _first_absent(table, sequence, behind, ahead)
            behind = [rank for rank in behind if table.enqueued[rank] < sequence]
            return _missing(table, sequence, behind, sorted(table.covered - set(behind)), ended)
        waited = table.gave_up and sequence >= min(table.gave_up.values())
        if waited and not any(table.finished(rank, sequence) for rank in table.covered):
            return stuck(table, sequence)
        if states and not table.done(sequence) and _pending(table, sequence):
            return stuck(table, sequence)
    if not states and sequences and late(table, table.calls(sequences[-1])):
        return stuck(table, sequences[-1])
    return _agree(table, sequences, ended, states)


def _first_absent(table: Progress, sequence: int, behind: list[int], ahead: list[int]) -> int:
    """The call that the ranks behind did not make, where rings may have gone round since.

    The one after their last, unless some rank has completed that; a call that stands on the record of a rank
    ahead is taken from there, because numbers may leave gaps for sends and receives.
    """
    done = [at for of_rank in table.at.values() for at in of_rank if at < sequence and table.done(at)]
    least = 1 + max(min(table.enqueued[rank] for rank in behind), *done, -2)
    if all(table.lowest.get(rank, sequence) > least for rank in ahead):
        return min(least, sequence)
    return min(at for rank in ahead for at in (*table.at.get(rank, ()), sequence) if at >= least)


def _recorded(table: Progress) -> set[int]:
    """Sequences that stand in a record of all calls, not in a watchdog's message alone."""
    return {sequence for rank, at in table.at.items() if rank in table.lowest for sequence in at}


def _pending(table: Progress, sequence: int) -> bool:
    """Whether no rank has completed a call that some have on record."""
    calls = table.calls(sequence)
    return bool(calls) and not any(table.finished(rank, sequence) for rank in calls)


def _mismatch(table: Progress, sequence: int, differs: tuple[str, ...]) -> Finding:
    calls = table.calls(sequence)
    classes = alike(calls)
    suspects = minority(classes, table.group.members)
    verdict, shift = f.MISMATCH, shift_of(table, sequence, classes)
    if shift.swapped:
        verdict = f.ORDER
    first = First(name_of(table.group), sequence, {rank: said_at(call) for rank, call in calls.items()})
    each = "; ".join(f"{ranks_said(ranks)} {_calls(ranks)} {first.calls[ranks[0]]}" for ranks in classes)
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
        of = table.group.members or sum(map(len, classes))
        return f"likely {ranks_said(suspects)}: {len(classes[0])} of {of} ranks agree"
    if table.unknown:
        return (
            f"whose fault it is cannot be told without {ranks_said(table.unknown)}: no majority of the "
            "group is on record"
        )
    return "whose fault it is cannot be told: no class of ranks is in the majority"


def _missing(table: Progress, sequence: int, behind: list[int], ahead: list[int], ended: bool) -> Finding:
    calls = table.calls(sequence)
    classes = [ahead, behind]
    suspects = minority(classes, table.group.members)
    first = First(name_of(table.group), sequence, {rank: said_at(call) for rank, call in calls.items()})
    what = next(iter(first.calls.values()), "")
    reason = f"{ranks_said(ahead)} {'have' if len(ahead) > 1 else 'has'} come to {first}"
    reason += f", {what}" if what else ", which is no longer on record" if table.at else ""
    reason += f"; {ranks_said(behind)} {'have' if len(behind) > 1 else 'has'} not"
    earlier = parted(table, sequence)
    verdict, decide = f.MISSING, ""
    if earlier:
        at, sites = earlier
        apart = by_site(sites)
        suspects = minority(apart, table.group.members) or suspects
        places = "; ".join(f"{ranks_said(ranks)} from {site_said(sites[ranks[0]])}" for ranks in apart)
        reason += (
            f"; the calls agree up to there, but since call {at} they come from different lines ({places}): "
            "one call too many paired with the others' next one"
        )
    of = table.group.members or len(ahead) + len(behind)
    if suspects and earlier:
        reason += f"; likely {ranks_said(suspects)}, the minority there"
    elif suspects and set(suspects) <= set(ahead):
        reason += (
            f"; likely {ranks_said(suspects)}: {len(ahead)} of {of} ranks call it, as in a branch on the "
            "rank or with a batch more than the others have"
        )
    elif suspects:
        reason += f"; likely {ranks_said(suspects)}: {len(ahead)} of {of} ranks are there"
    elif table.unknown:
        reason += f"; nothing is known of {ranks_said(table.unknown)}, which may be absent as well"
        decide = files_of(table.unknown)
    else:
        one, other = ranks_said(behind), ranks_said(ahead)
        reason += f"; either {one} left it out or {other} made one too many: neither is in the majority"
    reason += limit_said(table)
    last = _last_call(table, behind)
    reason += f"; {last}" if last else ""
    if not ended:
        verdict = f.UNDECIDED
        reason += (
            "; or the log ends there: lines are written when a call is queued, and nothing in it says that "
            "the job stopped"
        )
        decide = f"a dump or a watchdog's message of {ranks_said(behind)}, or a log taken later"
    return Finding(
        table.group,
        verdict,
        reason,
        first,
        absent=tuple(behind),
        ahead=tuple(ahead),
        unknown=tuple(table.unknown),
        suspects=tuple(suspects) if ended else (),
        decide=decide,
    )


def _last_call(table: Progress, behind: list[int]) -> str:
    """What the first of the ranks that are behind called last, and from where."""
    rank = behind[0]
    at = table.at.get(rank)
    if not at:
        return ""
    return f"the last call of rank {rank} is call {max(at)}, {said_at(at[max(at)])}"


def _queues(table: Progress) -> Finding | None:
    """What the lengths of the queues tell, where nothing else does: a shorter queue has fewer calls in it."""
    if len(table.pending) < 2:
        return None
    fewest, most = min(table.pending.values()), max(table.pending.values())
    if fewest == most:
        return None
    behind = sorted(rank for rank, length in table.pending.items() if length < most)
    ahead = sorted(rank for rank, length in table.pending.items() if length == most)
    suspects = minority([ahead, behind], table.group.members)
    queues = ", ".join(f"rank {rank} {length}" for rank, length in sorted(table.pending.items()))
    reason = (
        f"works waiting in the queue: {queues}; {ranks_said(behind)} issued "
        f"{counted(most - fewest, 'call')} fewer than the others before everything stopped"
    )
    reason += f"; likely {ranks_said(suspects)}, the minority" if suspects else ""
    first = First(name_of(table.group), None, {})
    return Finding(
        table.group, f.MISSING, reason, first, tuple(behind), tuple(ahead), suspects=tuple(suspects)
    )


def _agree(table: Progress, sequences: list[int], ended: bool, states: bool) -> Finding:
    """Nothing differs: all that is on record was called alike, and where it is recorded also completed."""
    ranks = sorted(table.covered)
    several = len(ranks) > 1
    counts = f"{ranks_said(ranks)} called {'the same ' if several else ''}in group {name_of(table.group)}"
    if sequences:
        counts += f", up to call {sequences[-1]}"
    if several and table.complete and not ended:
        return Finding(
            table.group,
            f.UNDECIDED,
            f"{counts}; either all is well, or the last call does not end: a line is written when a call is "
            "queued, and none when it is done",
            decide="flight-recorder dumps, which tell queued calls from completed ones",
        )
    if several and table.complete:
        what = "all of it completed" if states else "nothing in it says that a call did not end"
        return Finding(table.group, f.HEALTHY, f"{counts}, and {what}")
    others = files_of(table.unknown) if table.unknown else "the dumps or logs of the other ranks"
    return Finding(
        table.group,
        f.UNDECIDED,
        f"{counts}; either the rest of the group, which is not on record, called the same, or it differs",
        unknown=tuple(table.unknown),
        decide=others,
    )
