"""What two calls must share to be the same collective, and in which of these they differ.

A library pairs calls by their order alone. It needs the same operation, element count, data type and root;
the shape beyond its count it never sees (NCCL's ``ncclAllReduce`` takes a count and a type).
"""

from math import prod
from operator import attrgetter

from labkit.evidence.hang.records import Call
from labkit.spec.rule import listed

# Operations whose ranks may rightly hold tensors of different sizes: the uneven exchange, and those in which
# only the root holds the whole.
UNEVEN_IN, UNEVEN_OUT = ("all_to_all", "scatter"), ("all_to_all", "gather")
ROOTED = ("broadcast", "reduce", "gather", "scatter")
POINT_TO_POINT = ("send", "recv")
_ASKED = attrgetter("operation", "sizes_in", "sizes_out", "count", "dtype", "root")
SAID = 3  # calls of one launch that are named one by one
ASPECTS = ("operation", "number of elements", "dtype", "root")


def elements(call: Call) -> tuple[int | None, int | None]:
    """Elements that go in and that come out; None where the source does not say, or they may differ."""
    given = call.count if call.sizes_in is None else _numel(call.sizes_in)
    taken = None if call.sizes_out is None else _numel(call.sizes_out)
    if call.operation in UNEVEN_IN:
        given = None
    if call.operation in UNEVEN_OUT:
        taken = None
    return given, taken


def _numel(sizes) -> int:
    return sum(prod(size) for size in sizes)


def aspects(calls: tuple[Call, ...]) -> tuple:
    """Operation, elements, data type and root of one call, or of the calls that one launch bundles."""
    return (
        tuple(call.operation for call in calls),
        tuple(elements(call) for call in calls),
        tuple(call.dtype for call in calls),
        tuple(call.root for call in calls),
    )


def differing(by_rank: dict[int, tuple[Call, ...]]) -> tuple[str, ...]:
    """Names of the aspects in which the calls of several ranks differ; what a source does not say agrees.

    Where the operations differ, the rest follows from that and is left out.
    """
    if len({tuple(map(_ASKED, calls)) for calls in by_rank.values()}) == 1:
        return ()  # nearly always, and quick to see
    columns = list(zip(*(aspects(calls) for calls in by_rank.values()), strict=True))
    for name, column in zip(ASPECTS, columns, strict=True):
        if _apart(column):
            return tuple(
                other
                for other, values in zip(ASPECTS, columns, strict=True)
                if other == name or (name != "operation" and _apart(values))
            )
    return ()


def _apart(column) -> bool:
    """Whether two ranks say different things; ``None`` and "" say nothing."""
    if len({len(values) for values in column}) > 1:
        return True
    for values in zip(*column, strict=True):
        parts = [value if isinstance(value, tuple) else (value,) for value in values]
        for same in zip(*parts, strict=True):
            if len({one for one in same if one not in (None, "")}) > 1:
                return True
    return False


def alike(by_rank: dict[int, tuple[Call, ...]]) -> list[list[int]]:
    """The ranks in classes that call the same, the largest first, then by their first rank."""
    classes: list[list[int]] = []
    for rank in sorted(by_rank):
        for members in classes:
            # With all of them: one that does not say its size agrees with two that differ.
            if not differing({one: by_rank[one] for one in (*members, rank)}):
                members.append(rank)
                break
        else:
            classes.append([rank])
    return sorted(classes, key=lambda members: (-len(members), members))


def said(calls: tuple[Call, ...]) -> str:
    """Calls in words: ``all_reduce of 4 float``.

    >>> from labkit.evidence.hang.records import Group
    >>> said((Call(0, Group("0"), 3, "all_reduce", "", sizes_in=((2, 2),), dtype="float"),))
    'all_reduce of [2, 2] float'
    """
    more = [f"{len(calls) - SAID} more"] if len(calls) > SAID else []
    return " + ".join([*(_said(call) for call in calls[:SAID]), *more])


def unlike(by_rank: dict[int, tuple[Call, ...]]) -> dict[int, tuple[Call, ...]]:
    """Of calls that one launch bundles those that the ranks make differently; all where their number does."""
    if len({len(calls) for calls in by_rank.values()}) > 1:
        return by_rank
    length = len(next(iter(by_rank.values())))
    apart = [
        at for at in range(length) if differing({rank: one[at : at + 1] for rank, one in by_rank.items()})
    ]
    return {rank: tuple(one[at] for at in apart) for rank, one in by_rank.items()} if apart else by_rank


def _said(call: Call) -> str:
    words = call.operation
    if call.sizes_in is not None and any(call.sizes_in):
        words += " of " + ", ".join(str(list(size)) for size in call.sizes_in[:3])
        words += f" and {len(call.sizes_in) - 3} more" if len(call.sizes_in) > 3 else ""
    elif call.count is not None:
        words += f" of {call.count:,}"
    words += f" {call.dtype}" if call.dtype else ""
    words += f" from root {call.root}" if call.root is not None and call.operation in ROOTED else ""
    if call.peer is not None:
        words += f" {'to' if call.operation == 'send' else 'from'} rank {call.peer}"
    return words


def ranks_said(ranks) -> str:
    """Ranks in words, long runs by their ends: ``rank 2``, ``ranks 0, 1 and 3``, ``ranks 0 to 6``.

    >>> ranks_said([2]), ranks_said([3, 0, 1]), ranks_said(range(7))
    ('rank 2', 'ranks 0, 1 and 3', 'ranks 0 to 6')
    """
    ranks = sorted(ranks)
    runs: list[list[int]] = []
    for rank in ranks:
        if runs and rank == runs[-1][-1] + 1:
            runs[-1].append(rank)
        else:
            runs.append([rank])
    parts = []
    for run in runs:
        parts += [f"{run[0]} to {run[-1]}"] if len(run) > 3 else map(str, run)
    if len(parts) > 12:
        parts = [*parts[:12], f"{len(ranks)} in all"]
    return f"rank{'s' if len(ranks) > 1 else ''} {listed(parts, 'and')}"
