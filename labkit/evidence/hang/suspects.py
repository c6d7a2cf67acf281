"""Whose fault a difference likely is: the minority's, where there is a majority, and where stacks first part.

Behind is not guilty: a rank that made a call too many leaves all others behind it. So nothing is claimed of
two classes of equal size, nor of a majority that ranks without a file could turn.
"""

from collections import Counter

from labkit.evidence.hang.progress import Progress
from labkit.evidence.hang.records import Call, Frame
from labkit.evidence.hang.signature import said


def minority(classes: list[list[int]], members: int | None) -> list[int]:
    """All ranks outside of the largest class, if that has more than half of the members, else none.

    ``members``: size of the group; None where it is not known, then those that are on record count.

    >>> minority([[0, 1, 3], [2]], 4), minority([[0], [1]], 2), minority([[0, 1], [2]], 8)
    ([2], [], [])
    """
    known = sum(map(len, classes))
    largest = max(classes, key=len)
    if 2 * len(largest) <= max(known, members or 0):
        return []
    return sorted(rank for one in classes if one is not largest for rank in one)


def call_site(frames: tuple[Frame, ...]) -> Frame | None:
    """The innermost line of a stack that is the program's own, not the framework's."""
    for frame in frames:
        path = frame.file.replace("\\", "/")
        if "/torch/" not in path and not path.startswith("torch/") and not path.startswith("<"):
            return frame
    return None


def parted(table: Progress, sequence: int) -> tuple[int, dict[int, Frame]] | None:
    """Where stacks parted before ``sequence``, the last time: its number, and each rank's call site.

    A library pairs calls by order alone. A stray call pairs with the others' next one, and the job stops one
    or more calls later: operations and sizes agree up to there, only the lines that called them do not.
    Lines that differ in the same way again and again are a habit of the program (a root calls from its own
    branch) and no sign.
    """
    starts, apart, before = [], Counter(), False
    first = max(table.lowest.values(), default=sequence)
    for earlier in sorted({one for at in table.at.values() for one in at if first <= one < sequence}):
        calls = table.calls(earlier)
        sites = {rank: call_site(call[0].frames) for rank, call in calls.items()}
        differ = len(sites) > 1 and None not in sites.values() and len(set(sites.values())) > 1
        if differ:
            apart[tuple(sites.items())] += 1
            starts += [] if before else [(earlier, sites)]
        before = differ
    return next((one for one in reversed(starts) if apart[tuple(one[1].items())] == 1), None)


def by_site(sites: dict[int, Frame]) -> list[list[int]]:
    """The ranks in classes that called from the same line."""
    classes: dict[Frame, list[int]] = {}
    for rank, site in sites.items():
        classes.setdefault(site, []).append(rank)
    return list(classes.values())


def site_said(frame: Frame) -> str:
    """``main (train.py:8)``."""
    return f"{frame.function} ({frame.file}:{frame.line})"


def said_at(calls: tuple[Call, ...]) -> str:
    """Calls in words, and the line of the program that made them, where it is on record."""
    site = call_site(calls[0].frames)
    return said(calls) + (f" from {site_said(site)}" if site else "")
