"""What is found in one group, and what is found of the whole job."""

from dataclasses import dataclass

from labkit.evidence.hang.records import Group
from labkit.evidence.hang.signature import ranks_said

MISMATCH, MISSING, ORDER, STALL = "mismatch", "missing_rank", "order", "stall"
TOO_SHORT, INTERFACE, NEVER = "timeout_too_short", "wrong_interface", "never_formed"
CIRCULAR, HEALTHY, UNDECIDED = "circular_wait", "healthy", "undecided"
VERDICTS = (
    MISMATCH,
    MISSING,
    ORDER,
    STALL,
    TOO_SHORT,
    INTERFACE,
    NEVER,
    CIRCULAR,
    HEALTHY,
    UNDECIDED,
)


@dataclass(frozen=True, slots=True)
class First:
    """The first operation on which ranks differ, or on which they are stuck.

    ``sequence``: its number in the group, as the source counts; ``calls``: what each rank called there, in
    words, as far as it is on record.
    """

    group: str
    sequence: int | None
    calls: dict[int, str]

    def __str__(self):
        where = f"call {self.sequence}" if self.sequence is not None else "a call"
        return f"{where} of group {self.group}" if self.group else where


@dataclass(frozen=True, slots=True)
class Finding:
    """One group: ``verdict``, ``first``, and who is where there.

    ``absent``: ranks that have not called what others have; ``ahead``: those that have; ``unknown``: members
    of which no file speaks; ``differs``: in what calls differ; ``suspects``: whose fault it likely is, empty
    where nothing tells; ``gone``: whether their processes have ended; ``reason``: why, in a sentence, with
    both readings where ``undecided``; ``decide``: what would tell.
    """

    group: Group
    verdict: str
    reason: str
    first: First | None = None
    absent: tuple[int, ...] = ()
    ahead: tuple[int, ...] = ()
    unknown: tuple[int, ...] = ()
    differs: tuple[str, ...] = ()
    suspects: tuple[int, ...] = ()
    decide: str = ""
    gone: bool = False


def name_of(group: Group) -> str:
    """A group in words: its name, and its description where that says more.

    >>> name_of(Group("0", description="default_pg")), name_of(Group("tp_1"))
    ('0 (default_pg)', 'tp_1')
    """
    said = "" if group.description in ("", "undefined", group.name) else f" ({group.description})"
    return f"{group.name}{said}"


def files_of(ranks) -> str:
    """What to fetch of ranks that nothing is known of.

    >>> files_of([3])
    'the dump or log of rank 3'
    """
    many = "s" if len(list(ranks)) > 1 else ""
    return f"the dump{many} or log{many} of {ranks_said(ranks)}"
