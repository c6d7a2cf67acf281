"""Which collective a table was measured with, and by which convention its bandwidths were printed."""

import re
import statistics

from labkit.evidence.sweep_rows import TYPE_BYTES, Row, rate_agrees
from labkit.evidence.sweep_text import OPERATIONS, Table

SHARED = {"all_gather", "reduce_scatter", "all_to_all", "gather", "scatter"}  # `count` is one rank's share


def count_ratio(rows: list[Row]) -> int | None:
    """Size over the bytes of the count column: 1, or the ranks where the count is one rank's share.

    None where no count is printed; 0 where every row contradicts itself.
    """
    ratios = [row.size / (row.count * TYPE_BYTES[row.type]) for row in rows if row.count]
    whole = [int(ratio) for ratio in ratios if ratio >= 1 and ratio == int(ratio)]
    return statistics.mode(whole) if whole else 0 if ratios else None


def name_in(file_name: str) -> str | None:
    """The collective that a file name speaks of.

    >>> name_in("02_allgather_8xA100.txt"), name_in("reduce-scatter.log"), name_in("run7.log")
    ('all_gather', 'reduce_scatter', None)
    """
    plain = re.sub(r"[^a-z]", "", file_name.lower())
    for name in (
        "allreduce",
        "allgather",
        "reducescatter",
        "alltoall",
        "broadcast",
        "sendrecv",
        "gather",
        "scatter",
    ):
        if name in plain:
            return OPERATIONS[name]
    return "reduce" if re.search(r"(?<![a-z])reduce(?![a-z])", file_name.lower()) else None


def _possible(table: Table, ratio: int | None) -> set[str]:
    """The collectives that print such redop, root and count columns, in any generation of the tests."""
    redop, root = table.rows[0].redop, table.rows[0].root
    if _reduced(table.rows):
        return {"all_reduce"}
    rooted = root is not None and root >= 0
    if redop not in (None, "none"):
        possible = {"reduce"} if rooted else {"all_reduce", "reduce_scatter"}
        if root == -1:
            possible |= {"all_to_all", "send_recv"}  # they print a reduction in the newer tests
    elif rooted:
        possible = {"broadcast", "gather", "scatter"}
    elif root is None and redop is None and _empty_redop(table):
        possible = {"all_to_all"}  # the old tests printed an empty redop cell for it alone
    elif root is None and redop is None and (table.header or max(row.blank for row in table.rows) > 2):
        possible = {"all_gather", "send_recv"}
    else:
        possible = {"all_gather", "all_to_all", "send_recv"}
    if ratio is not None:
        possible = {op for op in possible if (op in SHARED) == (ratio > 1)} or possible
    return possible


def _empty_redop(table: Table) -> bool:
    """Whether the head has a redop column that the rows leave empty, or the rows have the room for one."""
    return "redop" in table.header or min(row.blank for row in table.rows) >= 9


def _likeliest(rows: list[Row], possible: set[str]) -> set[str]:
    """What the numbers leave of the possible collectives: in-place checks and busbw / algbw."""
    no_in_place_check = any(
        row.out and row.inp and row.out.wrong != "N/A" and row.inp.wrong == "N/A" for row in rows
    )
    if {"all_reduce", "send_recv"} <= possible:
        return {"send_recv"} if no_in_place_check else {"all_reduce"}
    if "reduce_scatter" in possible:
        return {"all_to_all"} if no_in_place_check else {"reduce_scatter"}
    if no_in_place_check:
        return possible & {"all_to_all", "send_recv"} or possible
    return possible - {"all_to_all", "send_recv"} or possible if _checked_in_place(rows) else possible


def _reduced(rows: list[Row]) -> bool:
    """Whether busbw is above algbw, as only all_reduce of more than 2 ranks has it, where digits show it."""
    clear = [half for row in rows for half in row.halves if half.algbw.value > 20 * half.algbw.rounding]
    above = [h.busbw.value - h.busbw.rounding > h.algbw.value + h.algbw.rounding for h in clear]
    return 2 * sum(above) > len(above)


def _contradicts(name: str, row: Row, ratio: int | None) -> bool:
    """Whether cells that are there (redop, root, count) exclude a collective; empty cells exclude none."""
    if row.redop == "none" and name in ("all_reduce", "reduce_scatter", "reduce"):
        return True
    if row.redop not in (None, "none") and name in ("all_gather", "broadcast", "gather", "scatter"):
        return True
    if row.root is not None and (row.root >= 0) != (name in ("broadcast", "reduce", "gather", "scatter")):
        return True
    return ratio is not None and ratio > 1 and name not in SHARED


def _checked_in_place(rows: list[Row]) -> bool:
    """Whether in-place results were checked: all_to_all and send_recv cannot."""
    return any(row.inp and row.inp.wrong != "N/A" for row in rows)


def decide_collective(table: Table, ratio: int | None, hint: str | None) -> tuple[str | None, list[str]]:
    """The collective, and what to say about it.

    The program's own name counts where the columns allow it, then what the columns allow alone, then ``hint``
    (the name of the file).
    """
    rows, possible, says = table.rows, _possible(table, ratio), []
    named = table.name or (next(iter(table.mentions)) if len(table.mentions) == 1 else None)
    if named in possible or (named and not _reduced(rows) and not _contradicts(named, rows[0], ratio)):
        return named, []
    likely = _likeliest(rows, possible)
    names = " or ".join(sorted(likely))
    if named:
        says.append(f"the log names {named}, but its columns are those of {names}")
    if likely == {"all_reduce"} and "send_recv" in possible and not _checked_in_place(rows):
        if hint == "send_recv":
            likely = {"all_reduce", "send_recv"}
        else:
            says.append(
                "busbw equals algbw: an all_reduce of 2 ranks, unless it is a send_recv without its name"
            )
    if len(likely) == 1:
        return next(iter(likely)), says
    if hint in likely:
        return hint, [
            *says,
            f"the log does not name its collective: {hint} is taken from the name of the file",
        ]
    return None, [*says, f"nothing tells whether this is {names}; the collective is left open"]


def printed_share(rows: list[Row]) -> float:
    """Printed algbw over size / time: 1, or what the tool's own convention makes of it.

    all_gather of the early tests and hypercube print (n-1)/n of it; the tests of NCCL 1 print milliseconds.
    """
    halves = [(row, half) for row in rows for half in row.halves]
    clear = [(row, half) for row, half in halves if half.algbw.value > 20 * half.algbw.rounding]
    if 2 * sum(rate_agrees(row.size, half) for row, half in clear) >= len(clear):
        return 1.0
    return statistics.median(half.algbw.value * half.time.value * 1e3 / row.size for row, half in clear)
