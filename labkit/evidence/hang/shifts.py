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
    for length in range(2, min(len(one), len(other), LONGEST) + 1):
        if one[:length] != other[:length] and sorted(map(repr, one[:length])) == sorted(
            map(repr, other[:length])
        ):
            return Shift(True, f"over {length} calls both make the same ones in another order")
    for longer, shorter, ranks in ((one, other, classes[0]), (other, one, classes[1])):
        # Two calls in a row that agree are no accident.
        if len(shorter) >= 2 and longer[1 : len(shorter) + 1] == shorter[: len(longer) - 1]:
            extra = said(table.calls(sequence)[ranks[0]])
            return Shift(False, f"without the {extra} of {ranks_said(ranks)} the calls after it agree")
    return Shift(False, "")


def _from(table: Progress, rank: int, sequence: int) -> list[tuple]:
    """What a rank called from there on, without gaps."""
    calls, at = [], table.at[rank]
    while sequence in at:
        calls.append(aspects(at[sequence]))
        sequence += 1
    return calls
