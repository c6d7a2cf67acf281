"""Files and folders of evidence: told by content, bounded, each listed, no error while one is readable."""

import gzip
import io
import os
import tarfile
import zipfile

import pytest

from labkit.errors import InputRefused
from labkit.evidence.hang import files, paths
from labkit.evidence.hang.files import read_files
from tests.evidence.hang.dump_cases import as_json, as_pickle, dump, entry

LOG = "[rank1]: RuntimeError: something is wrong\n"


def kinds(evidence):
    """The kind of each source by file name."""
    return {os.path.basename(source.path): source.kind for source in evidence.sources}


@pytest.fixture
def folder(tmp_path):
    """Two dumps, a log, and what else lies about."""
    (tmp_path / "trace_rank_0").write_bytes(as_pickle(dump([entry(1), entry(2)])))
    (tmp_path / "trace_rank_1.json").write_bytes(as_json(dump([entry(1)])))
    (tmp_path / "deep" / "er").mkdir(parents=True)
    (tmp_path / "deep" / "er" / "notes.txt").write_text("nothing to do with it\n")
    (tmp_path / "deep" / "picture.png").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(range(256)))
    (tmp_path / "empty").write_bytes(b"")
    return tmp_path


def test_a_folder_with_anything_in_it(folder):
    evidence = read_files(folder)
    assert kinds(evidence) == {
        "trace_rank_0": "dump",
        "trace_rank_1.json": "dump",
        "notes.txt": "nothing",
        "picture.png": "nothing",
        "empty": "nothing",
    }
    assert [(call.rank, call.sequence) for call in evidence.calls] == [(0, 1), (0, 2), (1, 1)]
    assert sorted(warning.rsplit("/", 1)[1] for warning in evidence.warnings) == [
        "empty is empty",
        "picture.png is binary data, neither a log nor a dump",
    ]


@pytest.mark.parametrize("pack", [bytes, gzip.compress], ids=["plain", "gzip"])
@pytest.mark.parametrize("form", [as_pickle, as_json])
@pytest.mark.parametrize("name", ["trace_rank_0", "trace_rank_0.txt", "trace_rank_0.gz", "trace_rank_0.png"])
def test_content_decides_and_not_the_name(tmp_path, pack, form, name):
    (tmp_path / name).write_bytes(pack(form(dump([entry()]))))
    (source,) = read_files(tmp_path / name).sources
    assert (source.kind, source.rank) == ("dump", 0)


@pytest.mark.parametrize("protocol", range(6))
def test_every_protocol(tmp_path, protocol):
    (tmp_path / "trace_rank_1").write_bytes(as_pickle(dump([entry()]), protocol))
    assert read_files(tmp_path).calls[0].rank == 1


def test_one_file_given_twice_or_linked_is_read_once(folder):
    (folder / "link").symlink_to(folder / "trace_rank_0")
    (folder / "deep" / "loop").symlink_to(folder)
    evidence = read_files([folder, folder / "trace_rank_0", folder / "deep"])
    assert len(evidence.sources) == 5 and len(evidence.calls) == 3


def test_a_link_to_nowhere_and_a_pipe_are_said(folder):
    (folder / "gone").symlink_to(folder / "not-there")
    os.mkfifo(folder / "pipe")
    warnings = " ".join(read_files(folder).warnings)
    assert "gone cannot be read" in warnings and "pipe is a pipe" in warnings


def test_a_file_that_may_not_be_read(folder):
    (folder / "locked").write_text(LOG)
    (folder / "locked").chmod(0)
    evidence = read_files(folder)
    if os.geteuid():
        assert any("locked cannot be read (Permission denied)" in one for one in evidence.warnings)
    assert "locked" in kinds(evidence)


def test_the_same_name_in_two_folders_is_kept_twice(tmp_path):
    """Section 5, point 7: one would overwrite the other."""
    for rank, host in enumerate(("node01", "node02")):
        (tmp_path / host).mkdir()
        send = entry(operation=f"nccl:send {rank}->{1 - rank}", p2p_seq_id=1)
        (tmp_path / host / "trace").write_bytes(as_pickle(dump([send])))
    assert [call.rank for call in read_files(tmp_path).calls] == [0, 1]


def test_two_processes_that_claim_one_rank_are_not_mixed(tmp_path):
    for at, run in enumerate(("run1", "run2")):
        (tmp_path / run).mkdir()
        made = [entry(n, time_created_ns=1000 * n + at) for n in (1, 2)]
        (tmp_path / run / "trace_rank_0").write_bytes(as_pickle(dump(made)))
    evidence = read_files(tmp_path)
    assert [call.rank for call in evidence.calls] == [None] * 4
    assert "different processes" in evidence.warnings[0]


def test_two_dumps_of_one_process_are_one(tmp_path):
    """A pickle and a JSON of it, or two moments: each call once, with its latest state and its frames."""
    frames = [{"name": "step", "filename": "train.py", "line": 8}]
    early = dump([entry(1, frames=frames), entry(2, state="scheduled", frames=frames, retired=False)])
    late = dump([entry(1), entry(2), entry(3, state="started", retired=False)])
    (tmp_path / "trace_rank_0").write_bytes(as_pickle(early))
    (tmp_path / "trace_rank_0.json").write_bytes(as_json(late))
    evidence = read_files(tmp_path)
    assert [(call.sequence, call.state, len(call.frames)) for call in evidence.calls] == [
        (1, "completed", 1),
        (2, "completed", 1),
        (3, "started", 0),
    ]
    assert [(wait.enqueued, wait.call) for wait in evidence.waits] == [(3, None)]
    assert len(evidence.sources) == 2 and evidence.warnings == []


def test_host_names_in_front_of_the_rank(tmp_path):
    """Section 5, point 8: no common prefix, and other files beside them."""
    for rank, host in enumerate(("node02", "gpu-a17")):
        made = entry(time_created_ns=1000 + rank)
        (tmp_path / f"nccl_trace_rank_{host}_{rank}").write_bytes(as_pickle(dump([made])))
    (tmp_path / "slurm-4711.out").write_text("starting\n")
    assert {call.rank for call in read_files(tmp_path).calls} == {0, 1}


def test_a_crafted_dump_runs_nothing_and_stops_nothing(folder):
    ran = folder / "ran"
    crafted = f"cos\nsystem\n(S'touch {ran}'\ntR.".encode()
    (folder / "trace_rank_2").write_bytes(crafted)
    evidence = read_files(folder)
    assert not ran.exists() and kinds(evidence)["trace_rank_2"] == "nothing"
    assert any("asks to import something" in warning for warning in evidence.warnings)
    with pytest.raises(InputRefused, match=r"trace_rank_2 is a pickle that is not read: it asks to import"):
        read_files(folder / "trace_rank_2")


def test_a_gzip_bomb_is_refused(folder, monkeypatch):
    monkeypatch.setattr(files, "LARGEST_LOG", 100_000)
    (folder / "bomb.gz").write_bytes(gzip.compress(bytes(10_000_000)))
    assert any("bomb.gz unpacks to more than" in warning for warning in read_files(folder).warnings)
    with pytest.raises(InputRefused, match=r"unpacks to more than .* cut out"):
        read_files(folder / "bomb.gz")


def test_bounds_of_a_file_of_a_dump_of_all_and_of_their_number(folder, monkeypatch):
    monkeypatch.setattr(files, "LARGEST_DUMP", 100)
    assert sum("which no ring" in warning for warning in read_files(folder).warnings) == 2
    monkeypatch.undo()
    monkeypatch.setattr(files, "LARGEST_IN_ALL", 30)
    assert any("left of" in warning for warning in read_files(folder).warnings)
    monkeypatch.undo()
    monkeypatch.setattr(paths, "MOST_FILES", 2)
    evidence = read_files(folder)
    assert len(evidence.sources) == 2 and any("only the first" in one for one in evidence.warnings)


def test_a_cut_gzip_is_read_as_far_as_it_goes(folder):
    whole = gzip.compress((LOG * 50_000).encode())
    (folder / "cut.gz").write_bytes(whole[: len(whole) // 2])
    assert any("cut.gz is gzip that is damaged or cut off" in one for one in read_files(folder).warnings)


def archive(kind):
    """The bytes of an archive with a log in it."""
    out = io.BytesIO()
    if kind == "zip":
        with zipfile.ZipFile(out, "w") as packed:
            packed.writestr("log", LOG)
    else:
        with tarfile.open(fileobj=out, mode="w") as packed:
            packed.addfile(tarfile.TarInfo("log"))
    return out.getvalue()


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "is empty"),
        (b" \n\n", "is empty"),
        (bytes(range(256)) * 9, "binary"),
        (as_pickle(dump([entry()]))[:-9], "cut off"),
        (as_json(dump([entry()]))[:-9], "damaged or cut off"),
        (as_pickle([1, 2]), "no dump"),
        (b'{"entries": 3}', "no dump"),
        (b'{"traceEvents": []}', "labkit profile"),
        (b'{"entries": ' + b"[" * 200_000, "nested too deeply"),
        (archive("zip"), "zip archive"),
        (archive("tar"), "tar archive"),
        (gzip.compress(archive("tar"), mtime=0), "tar archive"),
        (b"\x1f\x8bnot at all", "damaged gzip"),
        (b"\x7fELF" + bytes(100), "program"),
    ],
)
def test_what_cannot_be_read_is_one_sentence(tmp_path, data, said):
    path = tmp_path / "trace_rank_0"
    path.write_bytes(data)
    with pytest.raises(InputRefused, match=said) as refused:
        read_files(path)
    assert "\n" not in str(refused.value) and str(path) in str(refused.value)


def test_a_text_without_evidence_is_no_error(tmp_path):
    (tmp_path / "notes.txt").write_text("it is raining\n")
    evidence = read_files(tmp_path)
    assert kinds(evidence) == {"notes.txt": "nothing"} and not evidence.calls


@pytest.mark.parametrize("given", [None, 3, b"log", [], [3], {"a": 1}, "", "  ", "not/there", ["\n"], "a\0b"])
def test_wrong_paths_are_refused(given):
    with pytest.raises(InputRefused):
        read_files(given)


def test_an_empty_folder_is_refused(tmp_path):
    with pytest.raises(InputRefused, match="only empty folders"):
        read_files(tmp_path)
