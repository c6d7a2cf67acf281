"""What the readers of logs share: spellings of operations, whose a line is, lines that a terminal wrapped."""

import json
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
_RANK = re.compile(r"\[rank(\d{1,7})\]:?|^\s*\[(?:[\w.-]{1,253}@)?\d+,(\d{1,7})\]<std\w+>")
_TASK = re.compile(r"^\s*(\d{1,7}):\s|\[default(\d{1,7})\]:")
_OF_FILE = re.compile(r"rank[_.-]?(\d{1,7})(?!.*rank[_.-]?\d)[^/\\]*$", re.IGNORECASE)
# What launchers and log collectors put before each line: srun -l, pdsh, kubectl and torchrun, mpirun, time
# stamps (kubectl, CRI), Ray, docker compose, syslog, and a harness that names the stream.
_LABEL = (
    r"\s*\d{1,7}:\s|\s*[\w.-]{1,253}:\s+|\[[\w./-]{1,253}\]:?\s?|\[[\w.@-]{0,253},\d{1,7}\]<\w{1,9}>:\s?"
    r"|\[?\d{4}-\d\d-\d\d[T ][\d:.,]{5,20}(?:Z|[+-]\d\d:?\d\d)?\]?\s(?:std(?:out|err)\s[FP]\s)?"
    r"|\([\w ,=.-]{1,200}\)\s|[\w.-]{1,253}\s+\|\s"
    r"|[A-Z][a-z]{2}\s+\d{1,2}\s[\d:]{8}\s[\w.-]{1,253}\s[\w./-]{1,100}(?:\[\d{1,9}\])?:\s"
    r"|\S{1,253} \[std\w{3}\]\s"
)
_LABELS = re.compile(rf"(?:{_LABEL}){{1,4}}")
# Where a message of a program begins: it can be no continuation of the line before. What stands in the middle
# of messages too ("with exception: [Rank 3]") counts at the beginning of a line alone, behind its labels.
_BEGINS = re.compile(
    r"\[rank\d{1,7}\]|\[[EFWI]\d{0,4}[ \d][^\]]{0,60}:\d{1,6}\]|NCCL (?:INFO|WARN)|Traceback \("
    r"|^\s*(?:\[\d+\]\s*)?(?:\[Rank \d|\[[EFWI]\d{0,4}[ \d]|[\w.-]+:\d+:\d+ \[|Traceback)"
)
_BEHIND_LABELS = re.compile(r"\[Rank \d|\[PG |RuntimeError: ")
_MIDDLE = "terminated with exception: "
_MESSAGES = ("log", "message", "msg", "text", "line")  # keys under which collectors of logs keep a line
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


def task_of(label: str) -> int | None:
    """The number that a label of a launcher gives a process: its rank only if each process has its own.

    >>> task_of("12: "), task_of("[default3]:"), task_of("[1,4]<stdout>:"), task_of("node3: ")
    (12, 3, 4, None)
    """
    found = _TASK.search(label)
    return rank_of(label) if found is None else int(found[1] or found[2])


def rank_of_file(path: str) -> int | None:
    """The rank that the name of a file tells, as in ``rank_3.log`` or ``nccl_trace_rank_12``.

    >>> rank_of_file("logs/train-rank3.err"), rank_of_file("node3.log")
    (3, None)
    """
    found = _OF_FILE.search(path)
    return int(found[1]) if found else None


def unpacked_lines(lines: list[str]) -> list[str]:
    """The messages of a log of which a collector keeps each line as a JSON object, or the lines themselves.

    >>> unpacked_lines(['{"log":"step 1\\\\n","stream":"stdout"}', "not JSON"])
    ['step 1', 'not JSON']
    """
    first = next((line for line in lines if line.strip()), "")
    if not first.startswith("{") or _message(first) is None:
        return lines
    messages = ((line, _message(line) if line.startswith("{") else None) for line in lines)
    return [line if message is None else message for line, message in messages]


def _message(line: str) -> str | None:
    """What one JSON object holds as its message, in one line."""
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return None
    found = (record[key] for key in _MESSAGES if isinstance(record.get(key), str))
    message = next(found, None) if isinstance(record, dict) else None
    return None if message is None else message.rstrip("\n").replace("\n", " ")


def following(lines: list[str], at: int) -> str:
    """The line at index ``at`` with those after it that a terminal may have cut off from it."""
    joined = lines[at][:LONGEST].rstrip("\r")
    for line in lines[at + 1 : at + _WRAPS]:
        if not line.strip() or _begins(line[:400]) or len(joined) > LONGEST:
            break
        joined = _without_padding(joined) + line.rstrip("\r")
    return joined


def _begins(line: str) -> bool:
    """Whether a message begins in a line, with whatever label before it."""
    if _BEGINS.search(line):
        return True
    labels = _LABELS.match(line)
    return (
        labels is not None
        and _BEHIND_LABELS.match(line, labels.end()) is not None
        and not _MIDDLE.endswith(labels[0])
    )


def without_labels(line: str) -> str:
    """A line without what launchers put before it, as far as that is known.

    >>> without_labels("[pod/job-2/main] 2025-06-01T12:00:00.0Z #0 save from train.py:9")
    '#0 save from train.py:9'
    """
    labels = _LABELS.match(line)
    return line[labels.end() :] if labels else line


def _without_padding(line: str) -> str:
    """A copied line of a terminal may be filled up with blanks; one of them may belong to the text."""
    bare = line.rstrip(" ")
    return bare + " " if len(bare) < len(line) else line


def whole_line(line: str) -> list[str]:
    """What a progress bar leaves of a line that it writes over again and again: every state, in order."""
    return [part[:LONGEST] for part in line.split("\r") if part.strip()] if "\r" in line else [line[:LONGEST]]
