"""The fields of one entry of a flight-recorder dump, in the project's words; each with what is wrong with it.

JSON writes some whole numbers as texts, tuples as lists, and 0 for a time that has not come.
"""

import re
from functools import lru_cache

from labkit.evidence.hang.lines import SPELLINGS
from labkit.evidence.hang.records import MOST_RANKS, Frame
from labkit.evidence.printed import printable
from labkit.spec.checks import shown

_LARGEST = 2**63 - 1
_LONGEST_WORD, _LONGEST_PATH = 120, 400  # characters; names of groups made of hashes have 40 to 64
_LONGEST_KEPT = 100_000  # characters of a list of ranks
_ARROW = re.compile(r"(\d{1,7})(->|<-)(\d{1,7})")

_OPERATIONS = {
    **SPELLINGS,
    "allgathersingle": "all_gather",
    **dict.fromkeys(("reducescattersingle", "reducescatterv"), "reduce_scatter"),
    "alltoallvsingle": "all_to_all",
    **dict.fromkeys(("barrier", "allreducebarrier"), "barrier"),  # NCCL's is an all_reduce of one element
    **{name: name for name in ("gather", "scatter", "send", "recv")},
}


def word(text, most: int = _LONGEST_WORD) -> str:
    """A text of a dump for people to read: of bounded length, without what steers a terminal.

    >>> word("mesh_tp"), word("a\\x1b[2J\\nb"), word(None)
    ('mesh_tp', 'a?[2J?b', '')
    """
    if not isinstance(text, str):
        return ""
    if not text.isprintable():
        text = printable(text, most + 1)
    return text if len(text) <= most else text[: most - 3] + "..."


def whole(value) -> int | None:
    """A whole number of 64 bits, also written as text; None for anything else.

    >>> whole(7), whole("-1"), whole(True), whole("7.5"), whole(None)
    (7, -1, None, None, None)
    """
    if type(value) is int and -_LARGEST <= value <= _LARGEST:  # nearly always, and much quicker
        return value
    if isinstance(value, str) and re.fullmatch(r"-?[0-9]{1,18}", value):
        value = int(value)
    good = isinstance(value, int) and not isinstance(value, bool) and abs(value) <= _LARGEST
    return value if good else None


def operation_of(name) -> tuple[str, str, tuple[int, int] | None]:
    """Back end, operation, and for a send or receive (own, peer) positions in the group; "" without a name.

    >>> operation_of("nccl:_all_gather_base"), operation_of("nccl:recv 3<-0")
    (('nccl', 'all_gather', None), ('nccl', 'recv', (3, 0)))
    >>> operation_of("gloo:barrier")[1], operation_of("nccl:ALLGATHER_coalesced")[1]
    ('barrier', 'allgather_coalesced')
    """
    return _operation(word(name))


@lru_cache(1000)
def _operation(name: str) -> tuple[str, str, tuple[int, int] | None]:
    backend, _, rest = name.rpartition(":")
    called, _, peers = rest.strip().partition(" ")
    squeezed = re.sub(r"[^a-z]", "", called.lower())
    found = _ARROW.fullmatch(peers.strip())
    arrow = (int(found[1]), int(found[3])) if found else None
    return backend.lower(), _OPERATIONS.get(squeezed, called.lower()), arrow


def group_name(entry: dict) -> str | None:
    """The name of an entry's group: the first of the pair (name, description)."""
    given = entry.get("process_group")
    if isinstance(given, list | tuple) and given:
        given = given[0]
    return word(given) if isinstance(given, str) else None


def members(given) -> tuple[tuple[int, ...] | None, str]:
    """Ranks of a group in the order of its list, and what is wrong; a dump has the list as a text.

    >>> members("[4, 2]"), members("[]"), members("[0, 1, ...")[0]
    (((4, 2), ''), (None, ''), None)
    """
    if not isinstance(given, str):
        return _members(given)
    return _known_list(given) if len(given) <= _LONGEST_KEPT else _members_in(given)


def _members_in(given: str) -> tuple[tuple[int, ...] | None, str]:
    inside = re.fullmatch(r"\s*\[([\d,\s]*)\]\s*", given)
    parts = inside[1].replace(" ", "").split(",") if inside else ["cut"]
    return _members([] if parts == [""] else parts)


_known_list = lru_cache(100)(_members_in)  # the dumps of all ranks have the same


def _members(given) -> tuple[tuple[int, ...] | None, str]:
    ranks = [whole(one) for one in given[:MOST_RANKS]] if isinstance(given, list | tuple) else [None]
    if any(rank is None or not 0 <= rank < MOST_RANKS for rank in ranks) or len(set(ranks)) < len(ranks):
        return None, "its list of ranks is cut off or damaged, so its members are not known"
    return tuple(ranks) or None, ""


def shapes(entry: dict, side: str) -> tuple[tuple[tuple[int, ...], ...] | None, str]:
    """A shape for each tensor of ``input_sizes`` or ``output_sizes``, and what is wrong."""
    if side not in entry:
        return None, f"an entry has no {side}"
    given = entry[side]
    if type(given) is list and _are_sizes(given):  # nearly always, and quicker
        return tuple(map(tuple, given)), ""
    try:
        found = tuple(tuple(map(whole, given_size)) for given_size in given)
    except TypeError:
        found = None
    if (
        isinstance(given, str)
        or found is None
        or any(one is None or one < 0 for size in found for one in size)
    ):
        return None, f"an entry has {side} that are no lists of sizes: {shown(given)}"
    return found, ""


def _are_sizes(given: list) -> bool:
    for size in given:
        if type(size) is not list:
            return False
        for one in size:
            if type(one) is not int or not 0 <= one <= _LARGEST:
                return False
    return True


def dtypes(entry: dict, side: str) -> tuple[str, str]:
    """The data types of the tensors in lower case, each once, and what is wrong.

    >>> dtypes({"input_dtypes": ["Float", "Float"]}, "input_dtypes")
    ('float', '')
    """
    given = entry.get(side)
    if type(given) is list and len(given) == 1 and type(given[0]) is str:
        return _dtype(given[0][:41]), ""
    if not isinstance(given, list) or not all(isinstance(one, str) for one in given):
        return "", f"an entry has no {side} that can be read"
    return ", ".join(dict.fromkeys(_dtype(one[:41]) for one in given[:1000])), ""


@lru_cache(100)
def _dtype(name: str) -> str:
    return word(name, 40).lower()


def frames(given, known: dict) -> tuple[tuple[Frame, ...], str]:
    """The Python stack, innermost first; () where none was recorded, as in JSON.

    ``known``: the frames met before, by what the dump has for them; thousands of calls share a few.
    """
    if given is None:
        return (), ""
    found = []
    for frame in given if isinstance(given, list) else [None]:
        about = frame if isinstance(frame, dict) else {}
        name, file, line = about.get("name"), about.get("filename"), whole(about.get("line"))
        if not (isinstance(name, str) and isinstance(file, str) and line is not None):
            return tuple(found), "an entry has frames that cannot be read"
        key = name, file, line
        if key not in known:
            known[key] = Frame(word(name), word(file, _LONGEST_PATH), line)
        found.append(known[key])
    return tuple(found), ""
