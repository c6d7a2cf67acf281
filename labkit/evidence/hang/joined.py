"""Puts together what single processes and files cannot say: which communicators are one, and their calls.

NCCL before 2.12 prints no id of a communicator, and a call names it by an address in its own process.
``processes`` tells who is which rank.
"""

from collections import deque
from dataclasses import MISSING, fields, replace
from itertools import repeat

from labkit.evidence.hang.processes import Part, Ranks, parts_of, ranks_of
from labkit.evidence.hang.records import Call, Evidence, Group, Note
from labkit.evidence.hang.signs import is_consequence
from labkit.spec.rule import counted


def join(evidence: Evidence) -> None:
    """Gives communicators that are one the same group, and every call the rank of its process in the job.

    To be called once all files are read; once more changes nothing.
    """
    if evidence.waits:
        evidence.notes = [_after_timeout(note) for note in evidence.notes]
    raw = [one for one in evidence.communicators if one.calls is not None]
    if not raw:
        return
    parts = parts_of(raw)
    names = _names(parts, evidence.warnings)
    ranks = ranks_of(parts, evidence.warnings)
    groups = _groups(parts, names, ranks)
    evidence.communicators = [one for one in evidence.communicators if one.calls is None]
    hosts: dict[str, set[int | None]] = {}
    for part, group in zip(parts, groups, strict=True):
        rank = ranks.of.get(part.process)
        evidence.calls += _calls(part, group, rank, ranks.counted)
        part.one.calls.clear()
        evidence.communicators.append(replace(part.one, group=group, rank=rank, calls=None))
        hosts.setdefault(part.one.host, set()).add(rank)
    evidence.notes = [_owned(note, hosts) for note in evidence.notes]


def _after_timeout(note: Note) -> Note:
    """An abort after a timeout is its end, not its cause, so it says nothing against that rank."""
    if note.rank is None or not is_consequence(note):
        return note
    return replace(note, rank=None, ranks=(note.rank,))


def _names(parts: list[Part], warnings: list[str]) -> list[str]:
    """The shared name of each communicator; those that cannot be told apart keep their own."""
    names = [part.ident or part.one.group.name for part in parts]
    for size in sorted({part.size for part in parts}):
        same = [at for at, part in enumerate(parts) if part.size == size and not part.ident]
        if not same:
            continue
        processes = {parts[at].process for at in same}
        told = [parts[at].rank for at in same if parts[at].rank is not None]
        cards = {(parts[at].one.host, parts[at].one.device) for at in same}
        files = {part.file for part in parts}
        identified = any(part.size == size and part.ident for part in parts)
        alone = len(processes) == len(same) and len(set(told)) == len(told)
        apart = told or len(cards) == len(same) or len(files) == len(same)
        if alone and len(same) <= size and not identified and apart:
            for at in same:
                names[at] = f"communicator of {size} ranks"
            if len(same) > 1:
                warnings.append(
                    f"each of {len(same)} processes has one communicator of {size} ranks and no id is "
                    "printed: these are taken as one"
                )
        elif (ident := _only_gap(parts, size)) and len(processes) == len(same):
            for at in same:
                names[at] = ident
            warnings.append(
                f"of {counted(len(same), 'rank')} the start of a communicator of {size} ranks is lost: it is "
                f"taken as {ident}, the only one of that size, of which as many are missing"
            )
        elif len(processes) > 1:
            warnings.append(
                f"several communicators of {size} ranks have no id that other processes print, so their "
                "calls are not compared; keep INIT in NCCL_DEBUG_SUBSYS, from NCCL 2.12 on it prints one"
            )
    return names


def _only_gap(parts: list[Part], size: int) -> str:
    """The id of the only communicator of a size, if its missing members are as many as parts without id."""
    named = [part for part in parts if part.size == size and part.ident]
    idents, inside = {part.ident for part in named}, {part.process for part in named}
    bare = {part.process for part in parts if part.size == size and not part.ident} - inside
    return idents.pop() if len(idents) == 1 and bare and len(inside) + len(bare) == size else ""


def _groups(parts: list[Part], names: list[str], ranks: Ranks) -> list[Group]:
    """The group of each communicator, with its ranks in the job where all are known."""
    largest = max(part.size for part in parts)
    members: dict[str, dict[int, int]] = {}
    for part, name in zip(parts, names, strict=True):
        if part.rank is not None and part.process in ranks.of:
            members.setdefault(name, {})[part.rank] = ranks.of[part.process]
    groups = []
    for part, name in zip(parts, names, strict=True):
        known = members.get(name, {})
        listed = tuple(known[at] for at in range(part.size)) if len(known) == part.size else ()
        if part.size == largest and ranks.world:
            groups.append(Group(name, size=part.size))
        elif listed and len(set(listed)) == part.size:
            groups.append(Group(name, ranks=listed, size=part.size))
        else:
            groups.append(Group(name))
    return groups


def _calls(part: Part, group: Group, rank: int | None, counted: bool) -> list[Call]:
    """The calls of one communicator, made here once and for all.

    Root and peer count within the communicator: nothing is said where that cannot be turned into the job's.
    """
    listed, world = group.ranks or (), group.size is not None and not group.ranks and not part.nameless(group)

    def in_job(value: int | None) -> int | None:
        if value is None or world:
            return value
        return listed[value] if 0 <= value < len(listed) else None

    rows = part.one.calls
    if not rows:
        return []
    lines, numbers, operations, counts, dtypes, roots, peers, orders = zip(*rows, strict=True)
    known = {value: in_job(value) for value in {*roots, *peers}}
    told = {
        "rank": repeat(rank),
        "group": repeat(group),
        "sequence": numbers,
        "operation": operations,
        "where": [f"{part.file}:{line}" for line in lines],
        "count": counts,
        "dtype": dtypes,
        "root": map(known.get, roots),
        "peer": repeat(None) if counted else map(known.get, peers),
        "order": orders,
    }
    # The constructor of a frozen class takes ten times as long, and a log has a million calls.
    made = list(map(object.__new__, repeat(Call, len(rows))))
    for one in fields(Call):
        values = told.get(one.name) or repeat(None if one.default is MISSING else one.default)
        deque(map(getattr(Call, one.name).__set__, made, values), maxlen=0)
    return made


def _owned(note: Note, hosts: dict[str, set[int | None]]) -> Note:
    """A note of a host that holds one rank is that rank's."""
    ranks = hosts.get(note.host, set())
    return replace(note, rank=next(iter(ranks))) if note.rank is None and len(ranks) == 1 else note
