"""Which operations there are, which algorithms each has, and one sentence for any other pair."""

from labkit.errors import InputRefused

# For reduce_scatter and all_gather the two names with "doubling" mean the same sends: recursive doubling, and
# for the reduce_scatter its mirror image, recursive halving.
_EXCHANGE = ("ring", "halving_doubling", "recursive_doubling", "pairwise", "hierarchical")
_ROOTED = ("linear", "tree", "double_tree", "ring", "hierarchical")

ALGORITHMS: dict[str, tuple[str, ...]] = {
    "all_reduce": (
        "ring",
        "tree",
        "double_tree",
        "recursive_doubling",
        "halving_doubling",
        "linear",
        "hierarchical",
    ),
    "reduce_scatter": _EXCHANGE,
    "all_gather": _EXCHANGE,
    "all_to_all": ("linear", "pairwise", "hierarchical"),
    "broadcast": _ROOTED,
    "reduce": _ROOTED,
    "scatter": ("linear", "tree"),
    "gather": ("linear", "tree"),
    "send_recv": ("linear",),
    "barrier": ("recursive_doubling",),
}


def check_operation(op: str) -> None:
    """Refuse an operation this package does not know, naming those it knows."""
    if op not in ALGORITHMS:
        raise InputRefused(f"{op!r} is no operation; use one of {', '.join(ALGORITHMS)}")


def check_pair(op: str, algorithm: str) -> None:
    """Refuse a pair that does not exist, naming the algorithms of the operation.

    >>> check_pair("scatter", "ring")
    Traceback (most recent call last):
    ...
    labkit.errors.InputRefused: scatter has no algorithm 'ring'; use one of linear, tree
    """
    check_operation(op)
    if algorithm not in ALGORITHMS[op]:
        raise InputRefused(f"{op} has no algorithm {algorithm!r}; use one of {', '.join(ALGORITHMS[op])}")


def takes_segments(op: str, algorithm: str) -> bool:
    """Whether the message may be cut into pipelined segments: trees, double trees and chains.

    >>> takes_segments("broadcast", "ring"), takes_segments("all_reduce", "ring")
    (True, False)
    """
    if op == "all_reduce":
        return algorithm in ("tree", "double_tree")
    return op in ("broadcast", "reduce") and algorithm in ("tree", "double_tree", "ring")
