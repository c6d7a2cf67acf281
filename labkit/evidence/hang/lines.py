"""What the readers of logs share: spellings of operations, whose a line is, lines that a terminal wrapped."""

import re

LONGEST = 4000  # characters of a line that are looked at; the longest message of PyTorch has about 1500
CUT = "\x00"  # stands at the end of a text that ends without a line feed: its last number may be cut

# Names of the back ends in lower case without marks, as logs and dumps both have them; "base", "oop",
# "single" and "v" are kinds of the same call.
SPELLINGS = {
    **dict.fromkeys(("allreduce", "allreducecoalesced"), "all_reduce"),
    **dict.fromkeys(
        ("allgather", "allgatherbase", "allgatherv", "allgatherintotensorcoalesced"), "all_gather"
    ),
    **dict.fromkeys(("reducescatter", "reducescatterbase", "reducescattertensor"), "reduce_scatter"),
    "reducescattertensorcoalesced": "reduce_scatter",
    **dict.fromkeys(("alltoall", "alltoallbase", "alltoallsingle", "alltoallv"), "all_to_all"),
    **dict.fromkeys(("broadcast", "broadcastoop"), "broadcast"),
    **dict.fromkeys(("reduce", "reduceoop"), "reduce"),
}
_OPERATIONS = {
    **SPELLINGS,
    "allreducesparse": "all_reduce",
    **dict.fromkeys(("allgathercoalesced", "allgatherintotensor"), "all_gather"),
    "bcast": "broadcast",
    "recvanysource": "recv",
    **dict.fromkeys(("monitoredbarrier", "allbarrier"), "barrier"),
}
# The rank in the whole job: PyTorch since 2.3, mpirun --tag-output. The label of srun -l is that of a task,
# which may hold eight ranks, and torchrun's [default3] counts within a node: neither is taken.
_RANK = re.compile(r"\[rank(\d{1,7})\]:?|^\s*\[\d+,(\d{1,7})\](?:<std\w+>)")
_OF_FILE = re.compile(r"rank[_.-]?(\d{1,7})(?!.*rank[_.-]?\d)[^/\\]*$", re.IGNORECASE)
# Where a message of a program begins: it can be no continuation of the line before.
_BEGINS = re.compile(
    r"^\s*(?:\[\d+\]\s*)?(?:\[rank\d|\[Rank \d|\[[EFWI]\d{0,4}[ \d]|[\w.-]+:\d+:\d+ \[|Traceback"
    r"|\S+ \[stderr\])"
    r"|NCCL (?:INFO|WARN)"
)
_WRAPS = 6  # physical lines of one message; a watchdog's on a terminal of 80 columns takes four


def operation(name: str) -> str:
    """labkit's name of an operation, or the source's own in lower case where labkit has none.

    >>> operation("_ALLGATHER_BASE"), operation("AllReduce"), operation("BARRIER"), operation("Send")
    ('all_gather', 'all_reduce', 'barrier', 'send')
    """
    bare = name.lower().replace("_", "")
    return _OPERATIONS.get(bare, name.lower().strip("_"))


def rank_of(line: str) -> int | None:
    """The rank in the whole job that a line's label names, the last one where two messages share a line.

    >>> rank_of("[rank3]:[E321 ..."), rank_of("[1,12]<stdout>:loss 2.5"), rank_of("3: loss 2.5")
    (3, 12, None)
    """
    labels = _RANK.findall(line)
    return int(labels[-1][0] or labels[-1][1]) if labels else None


def rank_of_file(path: str) -> int | None:
    """The rank that the name of a file tells, as in ``rank_3.log`` or ``nccl_trace_rank_12``.

    >>> rank_of_file("logs/train-rank3.err"), rank_of_file("node3.log")
    (3, None)
    """
    found = _OF_FILE.search(path)
    return int(found[1]) if found else None


def following(lines: list[str], at: int) -> str:
    """The line at index ``at`` with those after it that a terminal may have cut off from it."""
    joined = lines[at][:LONGEST].rstrip("\r")
    for line in lines[at + 1 : at + _WRAPS]:
        if not line.strip() or _BEGINS.search(line[:200]) or len(joined) > LONGEST:
            break
        joined = _without_padding(joined) + line.rstrip("\r")
    return joined


def _without_padding(line: str) -> str:
    """A copied line of a terminal may be filled up with blanks; one of them may belong to the text."""
    bare = line.rstrip(" ")
    return bare + " " if len(bare) < len(line) else line


def whole_line(line: str) -> list[str]:
    """What a progress bar leaves of a line that it writes over again and again: every state, in order."""
    return [part[:LONGEST] for part in line.split("\r") if part.strip()] if "\r" in line else [line[:LONGEST]]
