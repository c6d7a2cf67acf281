"""How calls that differ are related: swapped, or shifted by one that only one side made."""

from dataclasses import dataclass

from labkit.evidence.hang.progress import Progress
from labkit.evidence.hang.signature import aspects, ranks_said, said

LONGEST = 8  # calls within which a swap is looked for


@dataclass(frozen=True, slots=True)
class Shift:
    """``swapped``: both sides make the same calls in another order. ``words``: empty where neither holds."""

    swapped: bool
    words: str


def shift_of(table: Progress, sequence: int, classes: list[list[int]]) -> Shift:
    """The relation between the two largest classes of ranks, by the calls that follow ``sequence``."""
    one, other = (_from(table, ranks[0], sequence) for ranks in classes[:2])
    # The shift first: in a program that repeats itself a call left out looks like a rotation of a few.
    for longer, shorter, ranks in ((one, other, classes[0]), (other, one, classes[1])):
        common = min(len(longer) - 1, len(shorter))
        if common >= 2 and longer[1 : common + 1] == shorter[:common]:  # two in a row are no accident
            extra = said(table.calls(sequence)[ranks[0]])
            return Shift(False, f"without the {extra} of {ranks_said(ranks)} the calls after it agree")
    common = min(len(one), len(other))
    for length in range(2, min(common, LONGEST) + 1):
        same = sorted(map(repr, one[:length])) == sorted(map(repr, other[:length]))
        if same and one[length:common] == other[length:common]:
            return Shift(True, f"over {length} calls both make the same ones in another order")
    return Shift(False, "")


def _from(table: Progress, rank: int, sequence: int) -> list[tuple]:
    """What a rank called from there on, without gaps."""
    calls, at = [], table.at[rank]
    while sequence in at:
        calls.append(aspects(at[sequence]))
        sequence += 1
    return calls
