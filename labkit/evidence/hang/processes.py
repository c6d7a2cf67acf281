"""Which lines of debug logs are of one process, and which rank of the job that process is.

A rank of a communicator counts within it. The rank in the job is that in the communicator of all; where there
is none, what the names of files or the labels of launchers say; where these say nothing either, processes are
counted by host and device, and that is said.
"""

import re
from dataclasses import dataclass, field

from labkit.evidence.hang.lines import rank_of_file
from labkit.evidence.hang.records import Communicator, Group

_SHOWN = 8  # processes that a warning names


@dataclass(slots=True)
class Part:
    """One process's part in a communicator: ``rank`` within it, ``process`` for whose it is."""

    one: Communicator
    file: str = field(init=False)
    rank: int | None = field(init=False)
    ident: str = field(init=False)
    process: tuple = field(init=False)

    def __post_init__(self):
        self.file = self.one.where.rpartition(":")[0]
        self.rank, self.ident = self.one.rank, self.one.group.description
        self.process = (self.one.host, self.one.pid)

    @property
    def size(self) -> int:
        """How many ranks the communicator has."""
        return self.one.group.size

    def nameless(self, group: Group) -> bool:
        """Whether a group is this communicator alone, for no other process's could be told to be it."""
        return group.name == self.one.group.name


@dataclass(frozen=True, slots=True)
class Ranks:
    """``of``: the rank in the job by process; ``world``: whether ranks of the largest communicator are those.

    ``counted``: the processes were only counted, so which one a number within a communicator means is open.
    """

    of: dict[tuple, int]
    world: bool = True
    counted: bool = False


def parts_of(communicators: list[Communicator]) -> list[Part]:
    """The parts, with their processes told apart, and completed from other files of the same process."""
    parts = [Part(one) for one in communicators]
    by_process: dict[tuple, list[Part]] = {}
    for part in parts:
        by_process.setdefault(part.process, []).append(part)
    for own in by_process.values():
        if _several(own):
            for part in own:
                part.process = (*part.process, part.file)
        elif len({part.file for part in own}) > 1:
            _complete(own)
    return parts


def _several(own: list[Part]) -> bool:
    """Whether the same host and number stand for several processes, as containers may have them."""
    names = {rank_of_file(part.file) for part in own} - {None}
    ranks: dict[str, set[tuple]] = {}
    for part in own:
        if part.ident and part.rank is not None:
            ranks.setdefault(part.ident, set()).add((part.rank, part.file))
    in_files = any(
        len({rank for rank, _ in seen}) > 1 and len({file for _, file in seen}) > 1 for seen in ranks.values()
    )
    return len(names) > 1 or in_files


def _complete(own: list[Part]) -> None:
    """A log that goes on in another file has the start of its communicators in the first."""
    started: dict[str, Part] = {}
    for part in own:
        name = part.one.group.name
        if part.rank is None and not part.ident and name in started:
            part.rank, part.ident = started[name].rank, started[name].ident
        else:
            started[name] = part


def ranks_of(parts: list[Part], warnings: list[str]) -> Ranks:
    """The rank in the job of each process, as far as it can be told."""
    of_process: dict[tuple, list[Part]] = {}
    for part in parts:
        of_process.setdefault(part.process, []).append(part)
    size = max(part.size for part in parts)
    told, unsure = {}, False
    for process, own in of_process.items():
        largest = max(part.size for part in own)
        ranks = {part.rank for part in own if part.size == largest} - {None}
        unsure |= len(ranks) > 1
        if len(ranks) == 1:
            told[process] = ranks.pop()
    shared = len(set(told.values())) < len(told)
    if not shared and len(of_process) == size == len(told) + 1:  # of all but one: that one is what is left
        (last,) = of_process.keys() - told.keys()
        told[last] = (set(range(size)) - set(told.values())).pop()
    labels = _labels(of_process)
    agree = all(labels.get(process) == rank for process, rank in told.items())
    beyond = max(labels.values(), default=0) >= size
    if labels and (shared or beyond or (agree and len(told) < len(of_process))):
        return Ranks(labels, world=agree and not beyond)
    if shared or (not told and not unsure and len(of_process) == size > 1 and _hosts(parts) > 1):
        return _counted(of_process, shared, warnings)
    if not told and not unsure and _hosts(parts) == 1:
        cards = {process: own[0].one.device for process, own in of_process.items()}
        if len(set(cards.values())) == len(cards) and all(0 <= card < size for card in cards.values()):
            warnings.append(
                "no line tells the ranks of these processes: the number of the device in brackets is taken, "
                "as all lines are of one host"
            )
            return Ranks(cards)
    missing = len(of_process) - len(told)
    if missing:
        verb, their = ("has", "its") if missing == 1 else ("have", "their")
        every = f"{len(of_process):,} process" + ("es" if len(of_process) > 1 else "")
        warnings.append(
            f"{missing:,} of {every} {verb} no line that tells {their} rank, "
            f"so {their} calls are not compared; keep INIT in NCCL_DEBUG_SUBSYS"
        )
    return Ranks(told)


def _hosts(parts: list[Part]) -> int:
    return len({part.one.host for part in parts})


def _labels(of_process: dict[tuple, list[Part]]) -> dict[tuple, int]:
    """The numbers in names of files, or else in labels of launchers, where each process has its own."""
    for number_of in (lambda part: rank_of_file(part.file), lambda part: part.one.label):
        numbers = {process: {number_of(part) for part in own} for process, own in of_process.items()}
        if all(len(said) == 1 and None not in said for said in numbers.values()):
            labels = {process: said.pop() for process, said in numbers.items()}
            if len(set(labels.values())) == len(labels):
                return labels
    return {}


def _counted(of_process: dict[tuple, list[Part]], shared: bool, warnings: list[str]) -> Ranks:
    """Processes by host and device, numbered from 0."""

    def place(process: tuple) -> tuple:
        parts = re.split(r"(\d{1,18})", process[0])
        return [(int(one), "") if at % 2 else (0, one) for at, one in enumerate(parts)], (
            of_process[process][0].one.device,
            *process[1:],
        )

    of = {process: number for number, process in enumerate(sorted(of_process, key=place))}
    named = ", ".join(
        f"rank {rank} is {process[0]}:{process[1]}" for process, rank in list(of.items())[:_SHOWN]
    )
    named += " ..." if len(of) > _SHOWN else ""
    why = "no communicator holds all processes of this log" if shared else "no line tells a rank"
    warnings.append(f"{why}: they are counted by host and device, which need not be their ranks ({named})")
    return Ranks(of, world=not shared, counted=not shared)
