"""The process group of a collective: what its row says, completed from the list of the rank's groups."""

import re

from labkit.evidence.hang.records import MOST_RANKS, Group
from labkit.evidence.printed import printable

UNNAMED = Group("")
_LIST = re.compile(r"\s*\[[\d,\s]*\]\s*")


class ProcessGroups:
    """The groups of one rank. ``listed``: those of ``pg_config`` in the head of its trace."""

    def __init__(self, listed: list[dict]):
        self.listed: dict[str, dict] = {}
        for one in listed:
            if isinstance(one.get("pg_name"), str | int):
                self.listed.setdefault(str(one["pg_name"]), one)
        self.known: dict[int, tuple[dict, Group, bool]] = {}

    def of(self, said: dict) -> tuple[Group, bool]:
        """The group of a call, and whether a list of its ranks cannot be true and is left out."""
        found = self.known.get(id(said))
        if found is None:  # what rows say alike is one dict, kept here so that its id stays its own
            found = self.known[id(said)] = (said, *self._read(said))
        return found[1:]

    def _read(self, said: dict) -> tuple[Group, bool]:
        name = said.get("Process Group Name")
        if name is None and "Collective name" not in said and len(self.listed) == 1:
            (name,) = self.listed  # the only group that this rank is in
        if not isinstance(name, str | int):
            return UNNAMED, False
        listed = self.listed.get(str(name), {})
        ranks, untrue = _ranks(said.get("Process Group Ranks"))
        if ranks is None:
            ranks, also = _ranks(listed.get("ranks"))
            untrue = untrue or also
        sizes = (said.get("Group size"), listed.get("pg_size"))
        size = next((n for n in sizes if type(n) is int and 0 < n <= MOST_RANKS), None)
        if ranks is None or (size is not None and len(ranks) != size):
            ranks = _strided(said, size)
        described = said.get("Process Group Description") or listed.get("pg_desc") or listed.get("uid")
        described = described if isinstance(described, str) and described != "undefined" else ""
        members = size if ranks is None else len(ranks)
        return Group(printable(str(name)), ranks, members, printable(described)), untrue


def _ranks(value) -> tuple[tuple[int, ...] | None, bool]:
    """Ranks of a list, or of its text, None where it has none or is cut; and whether it cannot be true.

    >>> _ranks("[0, 8]"), _ranks("[0, 8, ...]"), _ranks([0, 0]), _ranks("[-1, 3]")
    (((0, 8), False), (None, False), (None, True), (None, True))
    """
    if value is None or (isinstance(value, str) and (not value or "..." in value)):
        return None, False
    if isinstance(value, str):
        if not _LIST.fullmatch(value):
            return None, True
        value = [int(one) if len(one) < 10 else MOST_RANKS for one in re.findall(r"\d+", value)]
    if not isinstance(value, list) or not all(type(one) is int and 0 <= one < MOST_RANKS for one in value):
        return None, True
    return (None, True) if len(set(value)) < len(value) else (tuple(value) or None, False)


def _strided(said: dict, size: int | None) -> tuple[int, ...] | None:
    first, stride = said.get("Global rank start"), said.get("Global rank stride")
    if size and type(first) is int and type(stride) is int and first >= 0 < stride:
        last = first + stride * (size - 1)
        return tuple(range(first, last + 1, stride)) if last < MOST_RANKS else None
    return None
