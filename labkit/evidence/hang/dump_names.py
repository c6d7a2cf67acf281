"""Whose dump a file is: by the digits at the end of its name, or by what it says itself.

PyTorch writes a prefix and the rank, ``nccl_trace_rank_5``; users put host names into the prefix and hang
extensions on, ``trace_node02_5.json.gz``.
"""

import re
from pathlib import PurePath

from labkit.evidence.hang.dump_fields import group_name, operation_of, whole
from labkit.evidence.hang.records import Group

_EXTENSION = re.compile(r"\.(json|pkl|pickle|pt|bin|gz|dump|trace|txt|log|out|err)$", re.IGNORECASE)
_MOST = 7  # digits of a rank


def rank_in_name(path: str) -> list[int]:
    """Ranks that a file's name, or that of its folder, may mean, the likeliest first.

    >>> rank_in_name("nccl_trace_rank_node02_5"), rank_in_name("rank3_dump.json"), rank_in_name("node025")
    ([5], [3], [25, 5])
    """
    at = PurePath(path)
    name = at.name
    while _EXTENSION.search(name):
        name = _EXTENSION.sub("", name)
    digits = re.search(r"[0-9]+$", name)
    if digits:
        # Behind a host name without a mark the number of the host and the rank stand together.
        ends = [digits[0][first:] for first in range(len(digits[0]))][-_MOST:]
        joined = name[: digits.start()][-1:].isalpha()
        ranks = [int(end) for end in ends if end == "0" or end[0] != "0"]
        return ranks if joined or not ranks else ranks[:1]
    named = re.findall(rf"rank[_-]?([0-9]{{1,{_MOST}}})(?![0-9])", f"{at.parent.name}/{name}", re.IGNORECASE)
    return [int(named[-1])] if named else []


def rank_in(path: str, dump: dict, entries: list[dict], groups: dict[str, Group]) -> tuple[int | None, str]:
    """The rank of a dump, None where nothing tells it, and what is to be said about it."""
    told = _in_content(dump, entries, groups)
    named = rank_in_name(path)
    known = {rank for group in groups.values() for rank in group.ranks or ()}
    own = [set(groups[name].ranks) for name in _used(entries) if name in groups and groups[name].ranks]
    fitting = [rank for rank in named if not known or (rank in known and all(rank in one for one in own))]
    if told is not None:
        other = f", and its name says {named[0]}" if named and told not in named else ""
        return told, f"it is of rank {told} by its sends, receives or communicators{other}" if other else ""
    if fitting:
        passed_over = f"its name is read as rank {fitting[0]}: no group has a rank {named[0]}"
        return fitting[0], passed_over if fitting[0] != named[0] else ""
    if named:
        return None, f"its name says rank {named[0]}, which is not in its groups; whose it is stays open"
    return None, "neither its name nor its content tells its rank: end the name with the rank"


def _used(entries: list[dict]) -> set[str]:
    return {name for entry in entries if (name := group_name(entry)) is not None}


def _in_content(dump: dict, entries: list[dict], groups: dict[str, Group]) -> int | None:
    """The rank by the arrows of sends and receives, else by the state of a communicator of all ranks."""
    told = set()
    for entry in entries:
        name = entry.get("profiling_name")
        if not isinstance(name, str) or ("->" not in name and "<-" not in name):
            continue
        _, _, arrow = operation_of(name)
        group = groups.get(group_name(entry))
        if arrow and group and group.ranks and arrow[0] < len(group.ranks):
            told.add(group.ranks[arrow[0]])
    everyone = next((group.ranks for group in groups.values() if group.description == "default_pg"), None)
    for key, states in dump.items():
        if not (
            everyone and isinstance(key, str) and key.endswith("_comm_state") and isinstance(states, dict)
        ):
            continue
        for state in states.values():
            about = state if isinstance(state, dict) else {}
            position = whole(about.get("rank"))
            if whole(about.get("nRanks")) == len(everyone) and position in range(len(everyone)):
                told.add(everyone[position])
    return told.pop() if len(told) == 1 else None
