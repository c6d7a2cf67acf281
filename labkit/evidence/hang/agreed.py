"""Nothing differs in a group: all is well, or it is not known, and which file would tell."""

from labkit.evidence.hang import findings as f
from labkit.evidence.hang.findings import Finding, First, files_of, name_of
from labkit.evidence.hang.progress import Progress
from labkit.evidence.hang.signature import ranks_said


def agreed(table: Progress, ended: bool, states: bool) -> Finding | None:
    """The finding for calls that are alike, and completed where that is recorded; None without any call."""
    sequences = [sequence for at in table.at.values() for sequence in at]
    ranks = sorted(table.covered)
    if not sequences and not table.transfers:
        return _counted(table, ranks) if max(table.enqueued.values(), default=0) > 0 else None
    several = len(ranks) > 1
    counts = f"{ranks_said(ranks)} called {'the same ' if several else ''}in group {name_of(table.group)}"
    counts += f", up to call {max(sequences)}" if sequences else ""
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


def _counted(table: Progress, ranks: list[int]) -> Finding:
    """What counters alone tell: how many calls were queued and completed, not which."""
    queued = max(table.enqueued.values())
    first = First(name_of(table.group), queued, {})
    counts = f"{ranks_said(ranks)} queued as many calls in group {name_of(table.group)}, {queued:,}"
    if all(table.completed.get(rank, -1) >= queued for rank in ranks) and table.complete:
        return Finding(
            table.group, f.HEALTHY, f"{counts}, and completed them; which they were is not on record"
        )
    ended = max(table.completed.values(), default=None)
    counts += f", of which {ended:,} ended" if ended is not None else ""
    return Finding(
        table.group,
        f.UNDECIDED,
        f"{counts}; which they are is not on record: either they differ, or the network does not deliver",
        first,
        ahead=tuple(ranks),
        unknown=tuple(table.unknown),
        decide="dumps with their entries (TORCH_FR_BUFFER_SIZE=2000) of all ranks",
    )
