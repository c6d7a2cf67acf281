"""One rank's trace in columns: what ran on the GPU, what launched it, and what the host did meanwhile.

Only what is asked of later is kept. Times are seconds since the earliest row: clocks of other ranks have
another origin and another pace, so times of different ranks are never compared.
"""

import re
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from labkit.evidence.profile.kinds import COMMUNICATION, COMPUTE, COPY

ON_GPU = (COMPUTE, COMMUNICATION, COPY)
NOT_KNOWN = -1
_RANK = re.compile(r"rank[-_ #]?(\d{1,6})(?!\d)", re.IGNORECASE)

Said = tuple[dict, int | None]  # what a row says of its collective, and its number in the group


@dataclass(frozen=True, slots=True)
class Annotation:
    """A named stretch of time. ``thread``: which row of the trace it stands on."""

    name: str
    start: float
    stop: float
    thread: int


@dataclass(slots=True)
class Trace:
    """The rows of one rank. All columns of ``work``, ``launches`` and ``operators`` are equally long.

    ``work``: start, seconds, kind (a place in ``ON_GPU``), thread and correlation of what ran on the GPU;
    ``described``: what the trace says of a row of ``work``, by its number; ``launches``: start, thread and
    correlation; ``operators``: start and seconds of what the host did; ``host_collectives``: those that a
    ``gloo:`` annotation or the like shows on the host, with what is said of them.

    ``rows``: how many have a duration, of these ``left_out`` cannot be used; ``unpaired``: how many mark but
    the begin or the end of a stretch; ``strangers``: rows of each process of the file that is of no rank.
    """

    path: Path
    rank: int | None = None
    world: int | None = None
    backend: str = ""
    groups: list[dict] = field(default_factory=list)
    work: dict[str, np.ndarray] = field(default_factory=dict)
    names: dict[int, str] = field(default_factory=dict)
    described: dict[int, Said] = field(default_factory=dict)
    launches: dict[str, np.ndarray] = field(default_factory=dict)
    operators: dict[str, np.ndarray] = field(default_factory=dict)
    annotations: list[Annotation] = field(default_factory=list)
    gpu_annotations: list[Annotation] = field(default_factory=list)
    host_collectives: list[tuple[Annotation, Said]] = field(default_factory=list)
    rows: int = 0
    left_out: int = 0
    unpaired: int = 0
    strangers: dict[str, int] = field(default_factory=dict)

    def read_head(self, head: dict) -> None:
        """Takes what the file says of its rank and of the groups it is in."""
        info = head.get("distributedInfo")
        info = info if isinstance(info, dict) else {}
        for name, key in (("rank", "rank"), ("world", "world_size")):
            value = info.get(key)
            if type(value) is int and 0 <= value < 10**7:
                setattr(self, name, value)
        self.backend = info["backend"] if isinstance(info.get("backend"), str) else ""
        groups = info.get("pg_config")
        self.groups = [one for one in groups if isinstance(one, dict)] if isinstance(groups, list) else []

    @property
    def nothing_kept(self) -> bool:
        """Whether none of its rows is of a kind that PyTorch's profiler writes."""
        marks = self.annotations or self.gpu_annotations
        return not (self.work["start"].size or self.operators["start"].size or marks)


def rank_in_name(path: Path) -> int | None:
    """The rank that a file's name has, as in ``rank-3.json.gz`` or ``trace_rank_3.json``.

    >>> rank_in_name(Path("rank-34.Jul_15.pt.trace.json.gz")), rank_in_name(Path("h100.json"))
    (34, None)
    """
    told = _RANK.search(path.name)
    return int(told[1]) if told else None


def rank_of_process(name: str) -> int | None:
    """The rank that a process is named for, as ``rank 3``.

    >>> rank_of_process("rank 3"), rank_of_process("python")
    (3, None)
    """
    told = _RANK.fullmatch(name.strip())
    return int(told[1]) if told else None
