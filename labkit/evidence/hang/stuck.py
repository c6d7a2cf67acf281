"""All ranks on record made the same call, and it does not end: network, late rank, or one not on record."""

from labkit.evidence.hang import findings as f
from labkit.evidence.hang.findings import Finding, First, files_of, name_of
from labkit.evidence.hang.progress import Progress
from labkit.evidence.hang.signature import POINT_TO_POINT, ROOTED, differing, ranks_said
from labkit.evidence.hang.suspects import by_site, call_site, said_at, site_said
from labkit.units import format_time

LATE = 0.98  # of the limit: watchdogs look once in a while, and a little before or after


def stuck(table: Progress, sequence: int) -> Finding:
    """The finding for a call that all on record have made alike, and that none of them has completed."""
    others = sorted({at for at in table.gave_up.values() if at != sequence})
    if others and sequence in table.gave_up.values():
        return _apart(table, *sorted((sequence, others[0])))
    return _stuck(table, sequence, table.calls(sequence))


def held(table: Progress, sequence: int, open_: set[int]) -> Finding:
    """The finding for a call of one root, as a broadcast, that some ranks have ended and others have not."""
    calls = table.calls(sequence)
    first = First(name_of(table.group), sequence, {rank: said_at(call) for rank, call in calls.items()})
    reason = (
        f"{ranks_said(open_)} {'have' if len(open_) > 1 else 'has'} not ended {first}, "
        f"{next(iter(first.calls.values()))}, which {ranks_said(set(calls) - open_)} left behind: either the "
        "network does not deliver there, or the dumps were taken at different moments"
    )
    decide = "dumps taken once more: what is open then as well is stuck"
    return Finding(table.group, f.UNDECIDED, reason, first, ahead=tuple(sorted(open_)), decide=decide)


def unnumbered(table: Progress) -> Finding:
    """The finding for messages that name an operation and no number, as of PyTorch until 1.11."""
    calls = {rank: (wait.call,) for rank, wait in sorted(table.waits.items()) if wait.call is not None}
    if len(calls) < 2 or not differing(calls):
        return _stuck(table, None, calls)
    first = First(name_of(table.group), None, {rank: said_at(call) for rank, call in calls.items()})
    each = "; ".join(f"rank {rank} {words}" for rank, words in first.calls.items())
    reason = (
        f"the ranks wait in different operations ({each}), without numbers that could be compared: either "
        "they differ at one call, or they are at different ones"
    )
    ahead = tuple(sorted(table.covered))
    return Finding(table.group, f.UNDECIDED, reason, first, ahead=ahead, decide="the dumps of all ranks")


def _apart(table: Progress, sequence: int, later: int) -> Finding:
    """Ranks gave up in different calls, and no counter says who completed what."""
    waits = {at: [rank for rank, one in table.gave_up.items() if one == at] for at in (sequence, later)}
    calls = {
        rank: call for at, ranks in waits.items() for rank, call in table.calls(at).items() if rank in ranks
    }
    first = First(
        name_of(table.group), sequence, {rank: said_at(call) for rank, call in sorted(calls.items())}
    )
    each = "; ".join(
        f"{ranks_said(ranks)} gave up in call {at:,}, {said_at(table.calls(at)[min(ranks)])}"
        for at, ranks in waits.items()
    )
    reason = (
        f"{each}: either these are calls of different groups, or {ranks_said(waits[sequence])} did not get "
        "past a call that the others completed"
    )
    decide = "the dumps of all ranks"
    return Finding(table.group, f.UNDECIDED, reason, first, ahead=tuple(sorted(calls)), decide=decide)


def _stuck(table: Progress, sequence: int | None, calls: dict) -> Finding:
    ranks = sorted(rank for rank in table.covered if rank in calls or not _transfers(table, rank))
    first = First(name_of(table.group), sequence, {rank: said_at(call) for rank, call in calls.items()})
    what = next(iter(first.calls.values()), "which nothing names")
    unknown, decide = table.unknown, ""
    alike = f"{ranks_said(ranks)} wait{'' if len(ranks) > 1 else 's'} in {first}, {what}"
    too_late = late(table, calls)
    if too_late:
        verdict, reason = f.TOO_SHORT, f"{alike}; {too_late}"
    elif table.complete and sequence is not None and (gone := table.overwritten(sequence)):
        verdict = f.UNDECIDED
        reason = (
            f"{alike}, and none completed it; the rings of {ranks_said(gone)} have lost calls before it that "
            "had not ended either: either the ranks differ in one of those, or the network does not deliver"
        )
        decide = "dumps of a longer ring (TORCH_FR_BUFFER_SIZE=20000) the next time"
    elif table.complete and _roots_open(calls):
        verdict = f.UNDECIDED
        reason = (
            f"{alike}: all {len(ranks)} ranks of the group called it, and none completed it: either they "
            "named different roots, which is not on record, or the network does not deliver"
        )
        decide = "a debug log with NCCL_DEBUG_SUBSYS=COLL, which has the roots, or the lines that call"
    elif table.complete:
        verdict = f.STALL
        reason = (
            f"{alike}: all {len(ranks)} ranks of the group called the same, and none completed it: no "
            "mismatch of the program, but the network or the hardware"
        )
        reason += _from_elsewhere(calls)
    else:
        verdict = f.UNDECIDED
        others = ranks_said(unknown) if unknown else "a rank that is not on record"
        reason = f"{alike}, and none completed it: either {others} did not call it"
        if _roots_open(calls):
            reason += ", or the ranks named different roots, which is not on record"
        reason += ", or all called it alike and the network does not deliver"
        decide = files_of(unknown) if unknown else "the dumps or logs of all ranks of this group"
    reason += limit_said(table)
    return Finding(
        table.group,
        verdict,
        reason,
        first,
        ahead=tuple(ranks),
        unknown=tuple(unknown),
        suspects=tuple(_last(calls)) if too_late else (),
        decide=decide,
    )


def _transfers(table: Progress, rank: int) -> bool:
    """Whether a rank is known to wait in a send or receive."""
    call = table.waiting.get(rank)
    return call is not None and call.operation in POINT_TO_POINT


def _roots_open(calls) -> bool:
    """Whether ranks may have named different roots: dumps do not hold them."""
    return any(one.operation in ROOTED and one.root is None for call in calls.values() for one in call)


def _from_elsewhere(calls) -> str:
    """In words, that ranks make this call from different lines; empty where none are told or they agree."""
    sites = {rank: call_site(call[0].frames) for rank, call in calls.items()}
    if None in sites.values() or len(set(sites.values())) < 2:
        return ""
    places = [f"{ranks_said(ranks)} from {site_said(sites[ranks[0]])}" for ranks in by_site(sites)]
    return f"; yet they call it from different lines: {', '.join(places)}; see whether these belong together"


def limit_of(table: Progress) -> float | None:
    """The limit of the group that gave up, in seconds; groups of one job may have different ones."""
    limits = {wait.limit for wait in table.waits.values() if wait.limit}
    return max(limits) if limits else None


def limit_said(table: Progress) -> str:
    """In words, which limit passed; empty where nobody gave up."""
    limit = limit_of(table)
    return f"; the limit that passed is {format_time(limit)}, that of this group" if limit else ""


def late(table: Progress, calls) -> str:
    """In words, that the last rank came when the limit of the first had passed; empty where it did not."""
    created = {rank: call[0].created for rank, call in calls.items() if call[0].created}
    limits = [call[0].limit for call in calls.values() if call[0].limit]
    limit = min(limits) if limits else limit_of(table)
    if len(created) < 2 or not limit:
        return ""
    apart = (max(created.values()) - min(created.values())) / 1e9
    if apart < LATE * limit:
        return ""
    return (
        f"{ranks_said(_last(calls))} came {format_time(apart)} after the first, longer than the limit of "
        f"{format_time(limit)}: nothing was missing but time"
    )


def _last(calls) -> list[int]:
    """The ranks that called after the first rank's limit: those in the later half of the gap."""
    created = {rank: call[0].created for rank, call in calls.items() if call[0].created}
    middle = (max(created.values()) + min(created.values())) / 2
    return sorted(rank for rank, at in created.items() if at > middle)
