"""Puts together what single processes and files cannot say: which communicators are one, who has which rank.

NCCL before 2.12 prints no id of a communicator, and a call names it by an address in its own process. A rank
of a communicator counts within it; the rank in the job is that in the process's largest communicator.
"""

import re
from dataclasses import replace

from labkit.evidence.hang.records import Call, Communicator, Evidence, Group, Note
from labkit.evidence.hang.signs import is_consequence

_RAW = re.compile(r"0x[0-9a-f]{1,16} of \S+:\d+")


def join(evidence: Evidence) -> None:
    """Gives communicators that are one the same group, and every call the rank of its process in the job.

    To be called once all files are read; once more changes nothing.
    """
    if evidence.waits:
        evidence.notes = [_after_timeout(note) for note in evidence.notes]
    raw = [one for one in evidence.communicators if _RAW.fullmatch(one.group.name)]
    if not raw:
        return
    names = _names(raw, evidence.warnings)
    ranks = _ranks(raw, evidence.warnings)
    groups = _groups(raw, names, ranks)
    evidence.communicators = [
        replace(one, group=groups[one.group.name], rank=ranks.get(_process(one)))
        if one.group.name in groups
        else one
        for one in evidence.communicators
    ]
    by_name = {one.group.name: one for one in raw}
    evidence.calls = [_rewritten(call, groups, by_name, ranks) for call in evidence.calls]
    hosts: dict[str, set[int | None]] = {}
    for one in raw:
        hosts.setdefault(one.host, set()).add(ranks.get(_process(one)))
    evidence.notes = [_owned(note, hosts) for note in evidence.notes]


def _after_timeout(note: Note) -> Note:
    """An abort after a timeout is its end, not its cause, so it says nothing against that rank."""
    if note.rank is None or not is_consequence(note):
        return note
    return replace(note, rank=None, ranks=(note.rank,))


def _process(one: Communicator) -> tuple[str, int]:
    return one.host, one.pid


def _names(raw: list[Communicator], warnings: list[str]) -> dict[str, str]:
    """The shared name of each communicator; those that cannot be told apart keep their own."""
    names = {one.group.name: one.group.description or one.group.name for one in raw}
    for size in sorted({one.group.size for one in raw}):
        same = [one for one in raw if one.group.size == size and not one.group.description]
        if not same:
            continue
        processes = [_process(one) for one in same]
        told = [one.rank for one in same if one.rank is not None]
        cards = [(one.host, one.device) for one in same]
        identified = any(one.group.size == size and one.group.description for one in raw)
        alone = len(set(processes)) == len(processes) and len(set(told)) == len(told)
        if alone and len(same) <= size and not identified and (told or len(set(cards)) == len(cards)):
            names.update({one.group.name: f"communicator of {size} ranks" for one in same})
            if len(same) > 1:
                warnings.append(
                    f"each of {len(same)} processes has one communicator of {size} ranks and no id is "
                    "printed: these are taken as one"
                )
        elif len(set(processes)) > 1:
            warnings.append(
                f"several communicators of {size} ranks have no id that other processes print, so their "
                "calls are not compared; keep INIT in NCCL_DEBUG_SUBSYS, from NCCL 2.12 on it prints one"
            )
    return names


def _ranks(raw: list[Communicator], warnings: list[str]) -> dict[tuple[str, int], int]:
    """The rank in the job of each process, as far as it can be told."""
    of_process: dict[tuple[str, int], list[Communicator]] = {}
    for one in raw:
        of_process.setdefault(_process(one), []).append(one)
    ranks: dict[tuple[str, int], int] = {}
    unsure = False
    for process, own in of_process.items():
        largest = max(one.group.size for one in own)
        told = {one.rank for one in own if one.group.size == largest} - {None}
        if len(told) == 1:
            ranks[process] = told.pop()
        unsure |= len(told) > 1
    if not ranks and not unsure and len({one.host for one in raw}) == 1:
        cards = {process: own[0].device for process, own in of_process.items()}
        size = max(one.group.size for one in raw)
        if len(set(cards.values())) == len(cards) and all(0 <= card < size for card in cards.values()):
            ranks = cards
            warnings.append(
                "no line tells the ranks of these processes: the number of the device in brackets is taken, "
                "as all lines are of one host"
            )
    missing = len(of_process) - len(ranks)
    if missing:
        warnings.append(
            f"{missing} of {len(of_process)} processes have no line that tells their rank, so their calls "
            "are not compared; keep INIT in NCCL_DEBUG_SUBSYS"
        )
    if len(set(ranks.values())) < len(ranks):
        warnings.append(
            "no communicator holds all processes of this log: ranks are those within the largest "
            "communicator of each process, and the same number may stand for several processes"
        )
    return ranks


def _groups(
    raw: list[Communicator], names: dict[str, str], ranks: dict[tuple[str, int], int]
) -> dict[str, Group]:
    """The group of each communicator, with its ranks in the job where all are known."""
    largest = max(one.group.size for one in raw)
    members: dict[str, dict[int, int]] = {}
    for one in raw:
        if one.rank is not None and _process(one) in ranks:
            members.setdefault(names[one.group.name], {})[one.rank] = ranks[_process(one)]
    groups = {}
    for one in raw:
        name, size = names[one.group.name], one.group.size
        known = members.get(name, {})
        listed = tuple(known[rank] for rank in range(size)) if set(known) == set(range(size)) else None
        if size == largest:
            groups[one.group.name] = Group(name, size=size)
        elif listed and len(set(listed)) == size:
            groups[one.group.name] = Group(name, ranks=listed, size=size)
        else:
            groups[one.group.name] = Group(name)
    return groups


def _rewritten(
    call: Call,
    groups: dict[str, Group],
    raw: dict[str, Communicator],
    ranks: dict[tuple[str, int], int],
) -> Call:
    if call.group.name not in groups:
        return call
    group = groups[call.group.name]
    changes = {"group": group, "rank": ranks.get(_process(raw[call.group.name]))}
    # Root and peer count within the communicator: nothing is said where that cannot be turned into the job's.
    alone = group.size is None or (_RAW.fullmatch(group.name) and not group.ranks)
    for name in ("root", "peer"):
        value = getattr(call, name)
        if value is not None and (group.ranks or alone):
            known = group.ranks is not None and 0 <= value < len(group.ranks)
            changes[name] = group.ranks[value] if known else None
    return replace(call, **changes)


def _owned(note: Note, hosts: dict[str, set[int | None]]) -> Note:
    """A note of a host that holds one rank is that rank's."""
    ranks = hosts.get(note.host, set())
    return replace(note, rank=next(iter(ranks))) if note.rank is None and len(ranks) == 1 else note
