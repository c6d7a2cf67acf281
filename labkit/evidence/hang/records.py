"""What files say about a hang, in one form, whoever wrote them: calls, waits, notes, communicators.

The readers of this folder turn dumps and logs into ``Evidence``; ``compare`` and ``verdict`` read that alone.
Nothing here judges.
"""

import re
from dataclasses import dataclass, field

VIRTUAL = r"lo\d*$|docker|virbr|br-|veth|cni|flannel|cali|podman|lxc|vmnet|tunl"  # names of interfaces
SCHEDULED, STARTED, COMPLETED = "scheduled", "started", "completed"
MOST_RANKS = 1_000_000  # of a group; a damaged line may name any number


@dataclass(frozen=True, slots=True)
class Group:
    """A process group. Groups are one when name and ranks are; ``ranks`` is None where a source has no list.

    ``name``: as PyTorch or NCCL has it ("0", "default_pg", a communicator's id); ``size``: number of
    members, None where it is not said. Sequence numbers of different groups are never compared.
    """

    name: str
    ranks: tuple[int, ...] | None = None
    size: int | None = None
    description: str = ""

    @property
    def members(self) -> int | None:
        """How many ranks it has, as far as it is said, and could be true."""
        size = self.size if self.ranks is None else len(self.ranks)
        return size if size is None or 0 < size <= MOST_RANKS else None


@dataclass(frozen=True, slots=True)
class Frame:
    """One line of a Python stack, innermost first in a list of them."""

    function: str
    file: str
    line: int


@dataclass(frozen=True, slots=True)
class Call:
    """One rank's call of one operation of one group; None (or empty) is what the source does not say.

    ``operation``: labkit's name (``all_reduce``) or the source's in lower case where labkit has none
    (``barrier``, ``coalesced``); ``sequence``: its number in the group, as the source counts; ``order``: its
    place among all calls of this rank, over all groups; ``sizes_in``, ``sizes_out``: a shape for each tensor;
    ``count``: elements, where that is all that is said; ``dtype``: lower case; ``created``: nanoseconds of
    the host's clock; ``limit``: seconds after which it is given up; ``where``: file and line.
    """

    rank: int | None
    group: Group
    sequence: int | None
    operation: str
    where: str
    sizes_in: tuple[tuple[int, ...], ...] | None = None
    sizes_out: tuple[tuple[int, ...], ...] | None = None
    count: int | None = None
    dtype: str = ""
    root: int | None = None
    peer: int | None = None
    state: str = ""
    order: int | None = None
    created: int | None = None
    limit: float | None = None
    frames: tuple[Frame, ...] = ()


@dataclass(frozen=True, slots=True)
class Wait:
    """What one rank says of its progress in one group: a watchdog's message, or the status in a dump.

    ``call``: what it gave up on; ``waited``, ``limit``: seconds; ``enqueued``, ``started``, ``completed``:
    last sequence numbers; ``pending``: length of its queue of works.
    """

    rank: int | None
    group: Group
    where: str
    call: Call | None = None
    waited: float | None = None
    limit: float | None = None
    enqueued: int | None = None
    started: int | None = None
    completed: int | None = None
    pending: int | None = None


# What a note can be of. The first four stand for a process that is gone or outside of any collective.
NOTES = (
    "exited",  # a process ended, by a signal or by itself
    "out of memory",
    "exception",  # a Python traceback's last line on one rank
    "loading",  # a progress bar or a line of loading, saving, evaluating; ``seconds`` left where said
    "mismatch",  # NCCL warns of mismatched collectives: a hint only
    "sizes",  # gloo received another number of bytes than its own call takes: two calls that do not fit
    "completion error",  # a network card's work failed, or a link went down
    "connection",  # refused, reset, closed, no route
    "no rendezvous",  # ranks or a store's clients did not all join
    "no network",  # a plugin or network was asked for and is not there
    "harmless",  # a warning that is none, such as libibverbs on a machine without InfiniBand
    "warning",  # another line of NCCL at level WARN: what it means is not known here
    "desync",  # the report of TORCH_NCCL_DESYNC_DEBUG
)


@dataclass(frozen=True, slots=True)
class Note:
    """Another fact: its kind, one of ``NOTES``, whose, and the words of the source.

    ``ranks``: those it names; ``elapsed``, ``seconds``: passed and left of what is loaded, in seconds.
    """

    kind: str
    words: str
    where: str
    rank: int | None = None
    host: str = ""
    ranks: tuple[int, ...] = ()
    elapsed: float | None = None
    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Communicator:
    """One rank's part in a communicator of NCCL or RCCL, as its start-up lines have it.

    ``label``: the number that a launcher put before its lines; ``calls``: what was printed of its calls, a
    tuple for each as ``nccl_log`` makes them, until ``join`` has told whose they are; None from then on.
    """

    group: Group
    host: str
    pid: int
    device: int
    rank: int | None
    began: bool
    completed: bool
    destroyed: bool
    where: str
    label: int | None = None
    calls: list[tuple] | None = field(default=None, repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class Interface:
    """An interface that a process chose. ``purpose``: ``bootstrap``, ``socket``, ``ib`` or ``gloo``."""

    purpose: str
    name: str
    address: str
    host: str
    pid: int
    where: str

    @property
    def virtual(self) -> bool:
        """Whether it is the loopback or a bridge for containers: no other host is behind it."""
        return bool(re.match(VIRTUAL, self.name, re.IGNORECASE))


@dataclass(frozen=True, slots=True)
class Source:
    """A file that was read. ``kind``: ``dump``, ``log``, or ``nothing`` where it has no evidence."""

    path: str
    kind: str
    rank: int | None = None


@dataclass(slots=True)
class Evidence:
    """All that was read, in the order of the files.

    ``pairs``: two calls of different ranks that a program found unequal (collective fingerprints);
    ``calls_recorded``: whether any source would have shown calls, had there been any; ``states_recorded``:
    whether the dumps tell started and completed works (gloo's do not); ``warnings``: what could not be read.
    """

    calls: list[Call] = field(default_factory=list)
    waits: list[Wait] = field(default_factory=list)
    pairs: list[tuple[Call, Call]] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)
    communicators: list[Communicator] = field(default_factory=list)
    interfaces: list[Interface] = field(default_factory=list)
    sources: list[Source] = field(default_factory=list)
    groups: list[Group] = field(default_factory=list)
    ranks: set[int] = field(default_factory=set)
    warnings: list[str] = field(default_factory=list)
    calls_recorded: bool = False
    states_recorded: bool = False

    def assume(self, words: str) -> None:
        """Says what had to be assumed, once."""
        if words not in self.warnings:
            self.warnings.append(words)

    def add(self, other: "Evidence") -> None:
        """Takes over what another source says."""
        for name in ("calls", "waits", "pairs", "notes", "communicators", "interfaces"):
            getattr(self, name).extend(getattr(other, name))
        for name in ("sources", "groups", "warnings"):
            getattr(self, name).extend(getattr(other, name))
        self.ranks |= other.ranks
        self.calls_recorded |= other.calls_recorded
        self.states_recorded |= other.states_recorded
