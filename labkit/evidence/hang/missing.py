"""Ranks that did not come to a call that others made: who is absent, and whose fault that likely is."""

from collections.abc import Iterable

from labkit.evidence.hang import findings as f
from labkit.evidence.hang.findings import Finding, First, files_of, name_of
from labkit.evidence.hang.progress import Progress
from labkit.evidence.hang.records import Call
from labkit.evidence.hang.signature import POINT_TO_POINT, ranks_said, said
from labkit.evidence.hang.stuck import limit_said
from labkit.evidence.hang.suspects import by_site, minority, parted, said_at, site_said
from labkit.spec.rule import counted, listed


def missing(table: Progress, sequence: int, behind: list[int], ahead: list[int], ended: bool) -> Finding:
    """The finding for a call that some ranks have made and others, which are known not to, have not."""
    calls = table.calls(sequence)
    first = First(name_of(table.group), sequence, {rank: said_at(call) for rank, call in calls.items()})
    what = next(iter(first.calls.values()), "")
    reason = f"{ranks_said(ahead)} {'have' if len(ahead) > 1 else 'has'} come to {first}"
    reason += f", {what}" if what else ", which is no longer on record" if table.lowest else ""
    reason += f"; {ranks_said(behind)} {'have' if len(behind) > 1 else 'has'} not"
    there = {rank: call for rank in behind if ended and (call := _other(table, rank, sequence)) is not None}
    suspects, words, decide = _whose(table, sequence, behind, ahead, there)
    verdict, reason = f.MISSING, reason + words + _elsewhere(there, calls)
    if ended and not suspects and _held(there, behind):
        verdict = f.UNDECIDED
        reason += (
            ", or the network does not deliver there; who else is in that group is not on record, so either "
            "may be"
        )
        decide = "a stack (py-spy dump --pid PID) of each rank that is not in that call"
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


def _whose(table: Progress, sequence: int, behind, ahead, there) -> tuple[list[int], str, str]:
    """Who is likely at fault, why in words, and the file that would decide where nobody can be named."""
    suspects, words = minority([ahead, behind], table.size), ""
    earlier = parted(table, sequence)
    if earlier:
        at, sites = earlier
        apart = by_site(sites)
        suspects = minority(apart, table.size) or suspects
        places = "; ".join(f"{ranks_said(ranks)} from {site_said(sites[ranks[0]])}" for ranks in apart)
        words = (
            f"; the calls agree up to there, but since call {at} they come from different lines ({places}): "
            "one call too many paired with the others' next one"
        )
        if suspects:
            return suspects, f"{words}; likely {ranks_said(suspects)}, the minority there", ""
    suspects = [rank for rank in suspects if rank not in there]
    if len(there) == len(behind) and not _same(there.values(), table.calls(sequence)):
        suspects = []  # all who are behind have a reason: then the others made no call too many
    if suspects and set(suspects) <= set(ahead):
        words += (
            f"; likely {ranks_said(suspects)}: {len(ahead)} of {table.size} ranks call it, as in a branch on "
            "the rank or with a batch more than the others have"
        )
    elif suspects:
        words += f"; likely {ranks_said(suspects)}: {len(ahead)} of {table.size} ranks are there"
    if suspects or there:
        return suspects, words, ""
    if table.unknown:
        words += f"; nothing is known of {ranks_said(table.unknown)}, which may be absent as well"
        return [], words, files_of(table.unknown)
    if table.size > len(table.covered):
        words += f"; the group has at least {table.size} ranks, of which {len(table.covered)} are on record"
        return [], words, "the dumps or logs of all ranks of this group"
    one, other = ranks_said(behind), ranks_said(ahead)
    words += f"; either {one} left it out or {other} made one too many: neither is in the majority"
    return [], words, ""


def _other(table: Progress, rank: int, sequence: int) -> Call | None:
    """The other call in which a rank waits instead: of another group, a transfer, or an earlier one here."""
    call = table.waiting.get(rank)
    if call is None or call.group.name != table.group.name or call.operation in POINT_TO_POINT:
        return call
    earlier = call.sequence is not None and call.sequence < sequence
    return call if earlier and call.state and not table.done(call.sequence) else None


def _held(there: dict[int, Call], behind: list[int]) -> bool:
    """Whether all that are behind wait in one call of another group, of which gloo tells no more."""
    calls = {_which(call) for call in there.values()}
    return len(there) == len(behind) and len(calls) == 1 and not any(call.state for call in there.values())


def _which(call: Call) -> tuple:
    return call.group.name, call.sequence, call.operation, call.peer


def _same(there: Iterable[Call], calls: dict[int, tuple[Call, ...]]) -> bool:
    """Whether what absent ranks wait in is the call that they are missed in, but for its group."""
    return {said((call,)) for call in there} == {said(one) for one in calls.values()}


def _elsewhere(there: dict[int, Call], calls: dict[int, tuple[Call, ...]]) -> str:
    """In words, where the absent ranks wait; a call that is the same but for its group is one mistake."""
    words = ""
    for call in dict.fromkeys(there.values()):
        ranks = [rank for rank, one in there.items() if _which(one) == _which(call)]
        if call.rank == min(ranks):
            where = First(name_of(call.group), call.sequence, {})
            words += f"; {ranks_said(ranks)} wait{'' if len(ranks) > 1 else 's'} in {where}, {said((call,))}"
            same = _same([call], calls)
            words += ": the same call, so one of the two names the wrong group" if same else ""
            words += "" if same else ": who does not come there is late"
    return words


def _last_call(table: Progress, behind: list[int]) -> str:
    """What the first of the ranks that are behind called last, and from where."""
    rank = behind[0]
    at = table.at.get(rank)
    if not at:
        return ""
    return f"the last call of rank {rank} is call {max(at)}, {said_at(at[max(at)])}"


def queues(table: Progress) -> Finding | None:
    """What the lengths of the queues tell, where nothing else does: a shorter queue has fewer calls in it."""
    if len(set(table.pending.values())) < 2:
        return None
    classes: dict[int, list[int]] = {}
    for rank, length in sorted(table.pending.items()):
        classes.setdefault(length, []).append(rank)
    most = max(classes)
    ahead, behind = classes[most], sorted(rank for rank, length in table.pending.items() if length < most)
    suspects = minority(list(classes.values()), table.size)
    lengths = ", ".join(f"rank {rank} {length}" for rank, length in sorted(table.pending.items()))
    fewer = [
        f"{ranks_said(ranks)} issued {counted(most - length, 'call')} fewer"
        for length, ranks in sorted(classes.items())
        if length < most
    ]
    reason = (
        f"works waiting in the queue: {lengths}; before everything stopped {listed(fewer, 'and')} than "
        f"{ranks_said(ahead)}"
    )
    reason += f"; likely {ranks_said(suspects)}, the minority" if suspects else ""
    first = First(name_of(table.group), None, {})
    return Finding(
        table.group, f.MISSING, reason, first, tuple(behind), tuple(ahead), suspects=tuple(suspects)
    )
