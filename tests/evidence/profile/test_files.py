"""Trace files as they are: packed, cut, shuffled, oversized, foreign; a sentence for each unreadable one."""

import gzip
import json
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from labkit.cli import main
from labkit.errors import InputRefused
from labkit.evidence.profile import read_profile
from labkit.evidence.profile.files import read_events
from tests.evidence.profile.made import compute, write

EVENTS = [compute(10 * n, 5.5, grid=[1, 1], nested=[{"a": 1}, {"b": "}, {"}]) for n in range(3)]


def events_of(path, **more):
    found = []
    head = read_events(path, found.extend, **more)
    return found, head


def put(path, data):
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    return path


def test_what_stands_before_and_behind_the_events(tmp_path):
    text = json.dumps({"a": [{"b": 1}, {"c": 2}], "traceEvents": EVENTS, "d": [{"e": 1}, {"f": 2}]}, indent=1)
    for name, data in (("t.json", text.encode()), ("t.json.gz", gzip.compress(text.encode()))):
        found, head = events_of(put(tmp_path / name, data))
        assert found == EVENTS and head == {"a": [{"b": 1}, {"c": 2}], "d": [{"e": 1}, {"f": 2}]}


def test_gzip_is_known_by_its_bytes_and_not_by_its_name(tmp_path):
    text = json.dumps({"traceEvents": EVENTS}).encode()
    assert events_of(put(tmp_path / "packed.json", gzip.compress(text)))[0] == EVENTS
    assert events_of(put(tmp_path / "plain.json.gz", text))[0] == EVENTS
    assert events_of(put(tmp_path / "bom.json", b"\xef\xbb\xbf  " + text))[0] == EVENTS


def test_the_list_alone_and_no_event_at_all(tmp_path):
    assert events_of(put(tmp_path / "a.json", json.dumps(EVENTS)))[0] == EVENTS
    assert events_of(put(tmp_path / "b.json", '{"traceEvents": []}')) == ([], {})


def test_every_list_of_events_is_read(tmp_path):
    rows = [json.dumps([one]) for one in EVENTS]
    text = f'{{"traceEvents": {rows[0]}, "a": 1, "traceEvents" :\n{rows[1]} , "traceEvents":{rows[2]},'
    text += ' "b": [2]}'
    for name, data in (("t.json", text), ("u.json", text.replace('"trace', " " * 300_000 + '"trace'))):
        assert events_of(put(tmp_path / name, data)) == (EVENTS, {"a": 1, "b": [2]})
    inner = f'{{"x": {{"traceEvents": [1]}}, "traceEvents": {rows[0]}}}'
    assert events_of(put(tmp_path / "v.json", inner)) == (EVENTS[:1], {"x": {"traceEvents": [1]}})


@pytest.mark.parametrize("size", range(262_130, 262_150))
def test_what_stands_at_the_end_of_a_piece_is_not_cut(tmp_path, size):
    number = {"rank": 123456789012, "é": "é" * 9}
    text = json.dumps({"x": "", "n": 123456789012, **number, "traceEvents": EVENTS}, ensure_ascii=False)
    found = events_of(put(tmp_path / "t.json", text.replace('""', '"' + "y" * (size - 30) + '"', 1)))
    assert found[0] == EVENTS and found[1]["n"] == 123456789012 and found[1]["é"] == "é" * 9


def test_names_of_files_cannot_write_to_the_terminal(tmp_path, capsys):
    good = write(tmp_path / "a\x1b[31m\nb.json", EVENTS, rank=None)
    write(tmp_path / "c\x1b[31m\nd.json", EVENTS, rank=1)
    bad = put(tmp_path / "e\x1b[31m\n\x9bf.json", "{}")
    odd = put(tmp_path / "g\x1b[31m\nh.json.gz", b"\x1f\x8b\x08 and no more")
    (tmp_path / "i\x1b[31m\n").mkdir()
    for paths in (
        [tmp_path],
        [good, good],
        [bad],
        [odd],
        [tmp_path / "i\x1b[31m\n"],
        [tmp_path / "\x1b[0m\n"],
    ):
        try:
            text = repr(read_profile(paths)).replace("\n", "")
        except InputRefused as refusal:
            text = str(refusal)
        assert text.isprintable() and len(text) > 20
        main(["profile", *map(str, paths)])
        printed = capsys.readouterr()
        assert (printed.out + printed.err).replace("\n", "").isprintable()
        assert all(line.startswith("labkit: ") for line in printed.err.splitlines())


def test_many_texts_that_look_like_a_list_of_events(tmp_path):
    """Each nested one costs no reading of all before it."""
    text = '{"x": [' + '{"traceEvents":[0]},' * 200_000 + '0], "traceEvents": []}'
    assert events_of(put(tmp_path / "t.json", text))[0] == []


def test_many_events_come_in_pieces_and_whole(tmp_path):
    many = [compute(n, 0.25, note="x" * (n % 700)) for n in range(5000)]
    pieces = []
    read_events(write(tmp_path / "t.json.gz", many), pieces.append)
    assert len(pieces) > 3 and [event for piece in pieces for event in piece] == many


def test_what_is_not_quite_json_is_read_where_python_reads_it(tmp_path):
    text = '{"traceEvents": [{"ph": "X", "bandwidth": Infinity, "x": NaN, "note": "a\tb"}, {"ph": "M"}]}'
    found, _ = events_of(put(tmp_path / "t.json", text))
    assert found[0]["bandwidth"] == float("inf") and found[0]["note"] == "a\tb" and len(found) == 2
    found, _ = events_of(put(tmp_path / "u.json", b'{"traceEvents": [{"name": "\xff"}, {"name": "b"}]}'))
    assert len(found) == 2


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "is empty"),
        (b"   \n ", "is empty"),
        (bytes(range(256)) * 4, "binary data"),
        (b"step 1 took 3 s\n", "is no JSON"),
        (b'{"nodes": [1, 2]}', "no trace: it has no traceEvents"),
        (b'{"traceEvents": 3}', "no trace: it has no traceEvents"),
        (b'{"schemaVersion": 1, "traceEv', "cut off before its events"),
        (b'{"traceEvents": [{"ph": "X", "ts": 1', "cut off inside of its events"),
        (b'{"traceEvents": [{"ph": "X", "name": "abc', "cut off inside of its events"),
        (b'{"traceEvents": [{"ph": "X"},', "cut off inside of its events"),
        (b'{"traceEvents": [{"ph": "X"}]', "cut off behind its events"),
        (b'{"traceEvents": [{"ph": "X"}]} and more', "goes on after its end"),
        (b'{"traceEvents": [{"ph": oops}' + b"x" * 200 + b"]}", "is no JSON .* in"),
        (b'{"traceEvents": [' + b"[" * 100_000, "nested too deep"),
        (b'{"a": ' + b"[" * 100_000, "nested too deep"),
        (b'{"traceEvents": [], "a": oops, "b": 2}', "goes on there with what is no JSON"),
        (b'{"traceEvents": [], [1]: 2}', "goes on there with what is no JSON"),
        (b'{"traceEvents": []} {"traceEvents": []}', "goes on after its end"),
        (b"[] x", "goes on after its end"),
        (b'{"traceEvents": [{"ph": "X"}], "traceEvents": [{"ph"', "cut off inside of its events"),
        (b'{"traceEvents": {"a": 1}}', "no trace: it has no traceEvents"),
        (gzip.compress(b'{"traceEvents": []}', mtime=0)[:-9], "cut off"),
        (gzip.compress(b"x" * 1000, mtime=0)[:12] + b"\x00" * 40, "cannot be read|cut off|no JSON"),
    ],
)
def test_refused_in_one_sentence(tmp_path, data, words):
    path = put(tmp_path / "t.json", data)
    with pytest.raises(InputRefused, match=words) as refusal:
        read_profile(path)
    assert "\n" not in str(refusal.value) and str(path) in str(refusal.value)


def test_a_bomb_and_a_trace_above_the_stated_size_are_refused(tmp_path):
    bomb = put(tmp_path / "bomb.json.gz", gzip.compress(b'{"traceEvents": [' + b" " * 3_000_000))
    with pytest.raises(InputRefused, match="more than 1 MB unpacked"):
        read_profile(bomb, largest=1e6)
    path = write(tmp_path / "t.json", [compute(n, 1) for n in range(10_000)])
    with pytest.raises(InputRefused, match="more than 100 kB unpacked; trace fewer steps, or allow more"):
        read_profile(path, largest=1e5)
    assert len(read_profile(path, largest=1e7).ranks) == 1
    for data in (b'{"traceEvents": ["' + b"x" * 70_000_000, b"{" + b'"a": "' + b"x" * 70_000_000):
        with pytest.raises(InputRefused, match="no event of a trace"):
            read_profile(put(tmp_path / "long.json", data))
    fields = b"{" + (b'"a":"' + b"x" * 100_000 + b'",') * 400
    with pytest.raises(InputRefused, match="no event of a trace"):
        read_profile(put(tmp_path / "fields.json", fields))


@pytest.mark.parametrize("largest", [0, -1, "4GB", None, float("nan"), True])
def test_sizes_that_are_none(tmp_path, largest):
    with pytest.raises(InputRefused, match="largest size of a trace"):
        read_profile(write(tmp_path / "t.json", EVENTS), largest=largest)


@pytest.mark.parametrize(
    ("paths", "words"),
    [
        ("no/such/file.json", "there is no file or folder"),
        ([], "no trace in an empty list"),
        (None, "give a path, or a list of paths"),
        (3, "give a path, or a list of paths"),
        ([3], "give a path, or a list of paths"),
        ("a\0b", "no file or folder|cannot be read"),
        ("x" * 5000, "no file or folder|cannot be read"),
    ],
)
def test_paths_that_are_none(paths, words):
    with pytest.raises(InputRefused, match=words):
        read_profile(paths)


def test_folders(tmp_path):
    with pytest.raises(InputRefused, match=r"has no \.json or \.json\.gz file"):
        read_profile(tmp_path)
    (tmp_path / "inner").mkdir()
    write(tmp_path / "inner" / "rank0.json.gz", EVENTS, rank=0)
    write(tmp_path / "rank1.pt.trace.json", EVENTS, rank=1)
    put(tmp_path / "log.txt", b"no trace")
    put(tmp_path / "other.json", b"{}")
    profile = read_profile(tmp_path)
    assert list(profile.ranks) == [0, 1] and len(profile.refused) == 1 and "other.json" in profile.refused[0]
    assert "other.json" in repr(profile)


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads every file")
def test_a_file_that_may_not_be_read(tmp_path):
    path = write(tmp_path / "t.json", EVENTS)
    path.chmod(0)
    with pytest.raises(InputRefused, match="cannot be read"):
        read_profile(path)


WHOLE = json.dumps({"distributedInfo": {"rank": 0}, "traceEvents": EVENTS, "displayTimeUnit": "ms"}).encode()


@given(st.integers(0, len(WHOLE) - 1))
def test_a_trace_cut_anywhere_is_refused(tmp_path_factory, cut):
    path = put(tmp_path_factory.mktemp("cut") / "t.json", WHOLE[:cut])
    with pytest.raises(InputRefused):
        read_profile(path)


@given(st.binary(max_size=200), st.integers(0, len(WHOLE)))
def test_junk_anywhere_is_refused_or_read_but_never_a_traceback(tmp_path_factory, junk, place):
    path = put(tmp_path_factory.mktemp("junk") / "t.json", WHOLE[:place] + junk + WHOLE[place:])
    try:
        repr(read_profile(path))
    except InputRefused as refusal:
        assert "\n" not in str(refusal)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=8,
)
KEYS = st.sampled_from(["ph", "cat", "name", "pid", "tid", "ts", "dur", "args"])
VALUES = JSON | st.sampled_from(
    ["X", "M", "kernel", "user_annotation", "cpu_op", "ncclKernel", "process_name"]
)


@given(st.lists(st.dictionaries(KEYS, VALUES) | JSON, max_size=6), JSON)
def test_events_of_any_shape_end_in_a_profile_or_a_sentence(tmp_path_factory, events, info):
    path = tmp_path_factory.mktemp("odd") / "t.json"
    put(path, json.dumps({"distributedInfo": info, "traceEvents": events}))
    try:
        text = repr(read_profile(path))
    except InputRefused as refusal:
        text = str(refusal)
    assert "nan" not in text.lower().split()
