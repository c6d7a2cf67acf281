"""The restricted unpickler: equal to Python's on plain values; nothing runs or grows beyond bounds."""

import os
import pickle
import pickletools
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from labkit.evidence.hang.pickles import DEEPEST, MOST_CONTAINERS, NotPlain, _Reader, load_plain
from labkit.evidence.hang.quick_pickles import quick_plain
from tests.evidence.hang.dump_cases import dump, entry

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False)
    | st.text(st.characters(exclude_categories=["Cs"]))
)
PLAIN = st.recursive(
    SCALARS,
    lambda one: st.lists(one) | st.tuples(one, one) | st.dictionaries(st.text("abc"), one),
    max_leaves=30,
)
RAN = []


class Calls:
    """A pickle of this calls a function with arguments when Python loads it."""

    def __init__(self, function, *arguments):
        self.call = (function, arguments)

    def __reduce__(self):
        return self.call


def mark(*arguments):
    """What a crafted pickle would run."""
    RAN.append(arguments)


class Built:
    """An object with a state, which BUILD would set."""

    def __init__(self):
        self.state = 1


def with_lists(value):
    """The value as JSON would have it: tuples are lists."""
    if isinstance(value, dict):
        return {key: with_lists(part) for key, part in value.items()}
    return [with_lists(part) for part in value] if isinstance(value, list | tuple) else value


@given(PLAIN, st.integers(2, 5))
def test_plain_values_are_those_of_python(value, protocol):
    data = pickle.dumps(value, protocol=protocol)
    assert load_plain(data) == with_lists(value)


@given(PLAIN, st.integers(0, 5))
def test_the_quick_way_and_the_slow_one_agree(value, protocol):
    """What the quick one takes on, it reads as the slow one does, type by type."""
    data = pickle.dumps(value, protocol=protocol)
    quick = quick_plain(data, MOST_CONTAINERS)
    assert quick is NotImplemented or repr(quick) == repr(_Reader(data).value())


@given(st.integers(2, 5))
def test_a_dump_takes_the_quick_way(protocol):
    made = dump([entry(at, frames=[{"name": "f", "filename": "x" * 9 * at, "line": 9}]) for at in range(200)])
    quick = quick_plain(pickle.dumps(made, protocol=protocol), MOST_CONTAINERS)
    assert quick == with_lists(made)


@pytest.mark.parametrize("name", [one.name for one in pickletools.opcodes])
def test_the_quick_way_takes_no_opcode_that_makes_objects(name):
    """Each opcode with arguments that fit: a grammar of which one byte is wrong would let it through."""
    code = next(one.code for one in pickletools.opcodes if one.name == name).encode("latin-1")
    known = set("hqKjJrMGX(]}Naesu)t.\x80\x85\x86\x87\x88\x89\x8a\x8c\x94\x95")
    for arguments in (b"", b"\x01", b"\x01\x00", b"\x01\x00\x00\x00", b"os\nsystem\n", b"1\n", b"\x01" * 8):
        data = b"\x80\x02X\x02\x00\x00\x00os)" + code + arguments + b"."
        if code.decode("latin-1") not in known:
            assert quick_plain(data, 9) is NotImplemented


@given(st.binary(max_size=80))
def test_the_quick_way_never_raises(data):
    value = quick_plain(b"\x80\x02" + data + b".", 1000)
    assert value is NotImplemented or type(value) in (dict, list, str, int, float, bool, type(None))


def test_tuples_never_become_keys():
    """A tuple of tuples of tuples, each held twice, takes 2 to the 40th steps to hash."""
    tower = b"\x80\x02K\x01K\x02\x86q\x00" + b"".join(
        b"0h%ch%c\x86q%c" % (at, at, at + 1) for at in range(40)
    )
    for data in (
        tower.replace(b"0h", b"h") + b".",
        b"\x80\x02}" + tower[2:].replace(b"0h", b"h") + b"K\x01s.",
    ):
        with pytest.raises(NotPlain):
            load_plain(data)
    with pytest.raises(NotPlain, match="key"):
        load_plain(pickle.dumps({(1, 2): 3}, protocol=2))


@given(PLAIN.filter(lambda value: "\\" not in repr(value)), st.integers(0, 1))
def test_the_old_protocols_as_well(value, protocol):
    assert load_plain(pickle.dumps(value, protocol=protocol)) == with_lists(value)


def test_sets_and_bytes_of_protocol_4():
    value = {"set": {1, "a"}, "frozen": frozenset([2]), "bytes": b"\x00\xff" * 200}
    assert load_plain(pickle.dumps(value, protocol=4)) == value


@pytest.mark.parametrize("protocol", range(6))
@pytest.mark.parametrize(
    "crafted",
    [
        Calls(os.system, "exit 7"),
        Calls(eval, "1"),
        Calls(mark, 1),
        Calls(getattr, "a", "upper"),
        Built(),
        mark,
        {"entries": [{"frames": [Calls(mark, 2)]}]},
        [[[(Calls(mark, 3),)]]],
    ],
    ids=["os.system", "eval", "own", "getattr", "object", "a name", "nested in a dump", "deep"],
)
def test_a_crafted_pickle_runs_nothing(crafted, protocol, monkeypatch):
    monkeypatch.setattr(os, "system", mark)
    data = pickle.dumps(crafted, protocol=protocol)
    with pytest.raises(NotPlain, match=r"import something|call something|build an object"):
        load_plain(data)
    assert RAN == []


@pytest.mark.parametrize(
    "data",
    [
        b"cos\nsystem\n(S'true'\ntR.",
        b"(S'true'\nios\nsystem\n.",
        b"(cos\nsystem\nS'true'\no.",
        b"\x80\x04\x8c\x02os\x8c\x06system\x93\x8c\x04true\x85R.",
        b"\x80\x02\x82\x01.",
        b"\x80\x02\x83\x01\x00.",
        b"\x80\x02\x84\x01\x00\x00\x00.",
        b"P12\n.",
        b"\x80\x02K\x01Q.",
        b"\x80\x05\x97.",
    ],
    ids=["REDUCE", "INST", "OBJ", "STACK_GLOBAL", "EXT1", "EXT2", "EXT4", "PERSID", "BINPERSID", "BUFFER"],
)
def test_every_way_out_is_closed(data):
    with pytest.raises(NotPlain, match="crafted or foreign"):
        load_plain(data)


def test_no_opcode_that_makes_objects_has_a_step():
    from labkit.evidence.hang.pickles import _STEPS

    plain = {"int", "bool", "float", "str", "bytes", "list", "tuple", "dict", "set", "frozenset", "None"}
    named = {ord(one.code): one for one in pickletools.opcodes}
    for code in _STEPS:
        makes = {kind.name for kind in named[code].stack_after} - {
            "mark",
            "any",
            "int_or_bool",
            "bytes_or_str",
        }
        assert makes <= plain, named[code].name
        assert named[code].name not in ("REDUCE", "BUILD", "INST", "OBJ", "NEWOBJ", "GLOBAL", "PERSID")


@pytest.mark.parametrize(
    "claim",
    [
        b"\x8e" + struct.pack("<Q", 2**62),  # BINBYTES8
        b"\x8d" + struct.pack("<Q", 2**62),  # BINUNICODE8
        b"\x8b" + struct.pack("<I", 2**31),  # LONG4
        b"B" + struct.pack("<I", 2**32 - 1),
        b"X" + struct.pack("<I", 2**31),
        b"T" + struct.pack("<i", -1),
        b"\x95" + struct.pack("<Q", 2**63) + b"N",  # a frame that is never made
    ],
)
def test_a_length_that_is_only_claimed_costs_nothing(claim):
    with pytest.raises(NotPlain, match="cut off"):
        load_plain(b"\x80\x04" + claim)


def test_a_place_far_out_costs_nothing():
    """Python's unpickler makes a table as long as the largest number."""
    assert load_plain(b"\x80\x02]r\xff\xff\xff\xff.") == []


def test_loops_and_towers_are_refused():
    with pytest.raises(NotPlain, match="contains itself"):
        load_plain(b"\x80\x02]q\x00h\x00a.")
    for tower in (b"]" * (DEEPEST + 5) + b"a" * (DEEPEST + 4), b"]" * 200_000 + b"a" * 199_999):
        with pytest.raises(NotPlain, match="deep"):
            load_plain(b"\x80\x02" + tower + b".")


def test_ten_to_the_twelfth_values_out_of_a_hundred_bytes():
    value = []
    for _ in range(12):
        value = [value] * 10
    with pytest.raises(NotPlain, match="unfolds"):
        load_plain(pickle.dumps(value))


def test_what_hashes_slowly_is_refused():
    with pytest.raises(NotPlain, match="64 bits"):
        load_plain(pickle.dumps([2**70]))
    with pytest.raises(NotPlain, match="key"):
        load_plain(pickle.dumps({(1, 2): 3}))
    with pytest.raises(NotPlain, match="64 bits"):
        load_plain(b"\x80\x02\x8a\xff" + b"\x01" * 255 + b".")


def test_too_many_containers_are_refused(monkeypatch):
    from labkit.evidence.hang import pickles

    monkeypatch.setattr(pickles, "MOST_CONTAINERS", 10)
    with pytest.raises(NotPlain, match="containers"):
        load_plain(b"\x80\x02" + b"]" * 11 + b".")


def test_what_is_cut_anywhere_is_a_sentence():
    data = pickle.dumps(
        {"entries": [{"a": 1, "b": [1.5, "text", None, (1, 2)]}], "version": "2.4"}, protocol=2
    )
    for end in range(len(data)):
        with pytest.raises(NotPlain, match=r"cut off|damaged"):
            load_plain(data[:end])


@given(st.binary(max_size=80))
def test_any_bytes_are_a_value_or_a_sentence(data):
    try:
        load_plain(b"\x80\x04" + data)
    except NotPlain as refusal:
        assert str(refusal).startswith("it ")
