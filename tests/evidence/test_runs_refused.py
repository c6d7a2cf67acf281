"""The run log: all that can be wrong with its file, with a CSV file, and with what is to be recorded."""

import os
import sqlite3
from dataclasses import replace

import numpy as np
import pytest

from labkit.errors import InputRefused
from labkit.evidence.runs import RunLog
from labkit.spec import Plan, StepTime
from tests.evidence.run_cases import CASE, PREDICTED


def test_a_lock_that_cannot_be_had(run_log):
    run_log.record(*CASE, [1.0])
    other = sqlite3.connect(run_log.path, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    for call in (lambda: run_log.record(*CASE, [1.0]), run_log.runs):
        with pytest.raises(InputRefused, match=r"the lock of .* could not be had in 0.2 s: another process"):
            call()
    other.close()
    assert len(run_log.runs()) == 1


@pytest.mark.parametrize(
    ("error", "says"),
    [
        ("SQLITE_BUSY", "could not be had in"),
        ("SQLITE_PROTOCOL", "could not be had in"),
        ("SQLITE_IOERR_LOCK", "gives no locks; set LABKIT_HOME"),
        ("SQLITE_READONLY", "cannot be written, nor can its folder"),
        ("SQLITE_READONLY_ROLLBACK", "cannot be written, nor can its folder"),
        ("SQLITE_CANTOPEN", "cannot be written, nor can its folder"),
        ("SQLITE_CORRUPT", "is damaged; move it away"),
        ("SQLITE_FULL", "nothing was written, make room"),
        ("SQLITE_IOERR_READ", "cannot be used as a run log"),
        (None, "cannot be used as a run log"),
    ],
)
def test_every_failure_of_the_database_is_one_sentence(run_log, monkeypatch, error, says):
    def connect(*_, **__):
        failure = sqlite3.OperationalError("a word of SQLite's")
        if error:
            failure.sqlite_errorname = error
        raise failure

    run_log.record(*CASE, [1.0])
    monkeypatch.setattr(sqlite3, "connect", connect)
    for call in (lambda: run_log.record(*CASE, [1.0]), run_log.runs):
        with pytest.raises(InputRefused) as refused:
            call()
        assert says in str(refused.value) and "\n" not in str(refused.value)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_without_the_right_to_write(run_log, quick_path):
    run_log.record(*CASE, [1.0])
    quick_path.chmod(0o500)
    try:
        assert len(run_log.runs()) == 1
        with pytest.raises(InputRefused, match="LABKIT_HOME"):
            run_log.record(*CASE, [1.0])
    finally:
        quick_path.chmod(0o700)


def test_files_that_are_no_run_log(run_log, quick_path):
    run_log.path.write_bytes(b"SQLite format 3\0" + b"\xff" * 3000)
    with pytest.raises(InputRefused, match="is no run log or is damaged"):
        run_log.runs()
    run_log.path.write_text("hello\n" * 100)
    with pytest.raises(InputRefused, match="is no run log or is damaged"):
        run_log.record(*CASE, [1.0])
    run_log.path.unlink()
    other = sqlite3.connect(run_log.path)
    other.execute("CREATE TABLE runs (id)")
    other.close()
    for call in (run_log.runs, lambda: run_log.record(*CASE, [1.0])):
        with pytest.raises(InputRefused, match="another program's database"):
            call()
    with pytest.raises(InputRefused, match="is a folder; name the file"):
        RunLog(quick_path).runs()
    (quick_path / "file").write_text("")
    with pytest.raises(InputRefused, match="cannot be made"):
        RunLog(quick_path / "file" / "runs.sqlite").record(*CASE, [1.0])
    with pytest.raises(InputRefused, match="cannot be read"):
        RunLog(quick_path / ("x" * 300)).runs()


def change(run_log, statement, *values):
    file = sqlite3.connect(run_log.path, isolation_level=None)
    file.execute(statement, values)
    file.close()


def test_a_log_of_a_newer_labkit(run_log):
    run_log.record(*CASE, [1.0])
    change(run_log, "PRAGMA user_version = 3")
    for call in (run_log.runs, lambda: run_log.record(*CASE, [1.0])):
        with pytest.raises(InputRefused, match="written by a newer labkit"):
            call()


@pytest.mark.parametrize(
    ("column", "value", "says"),
    [
        ("plan", '{"tp": 8, "wings": 2}', "the plan has 'wings', which a Plan does not have"),
        ("plan", '{"tp": 0}', "tp of a plan is 0"),
        ("plan", '{"tp": [8]}', "tp of a plan is of type list"),
        ("plan", "[]", "the plan is of type list; give a dict"),
        ("plan", "{" * 20, "the plan is no JSON"),
        ("plan", '{"a":' * 20_000, "the plan is no JSON"),
        ("plan", "x" * 200_000, "the plan has 200,000 characters"),
        ("plan", b"\xff\xfe", "the plan is of type bytes"),
        ("model", '{"name": "m", "layers": 2}', "the model has no hidden, which a Transformer needs"),
        ("cluster", '{"gpu": 5}', "the cluster has no name"),
        ("cluster", '{"name": "c", "gpu": {"name": "g"}, "nodes": 1, "gpus_per_node": 8, "intra": {}, '
         '"inter": {}, "nics_per_node": 8}', "gpu of the cluster has no memory"),
        ("step_times", "[]", "step times are a list of seconds"),
        ("step_times", "[1, NaN]", "step times are a list of seconds"),
        ("step_times", "5", "step times are a list of seconds"),
        ("step_times", "[" + "9" * 5000 + "]", "the list of step times is no JSON"),
        ("predicted", '{"compute": -1}', "compute of a step is -1"),
        ("recorded", "yesterday", "the time of a run is 'yesterday'"),
        ("notes", "bell \a", "some that cannot be printed"),
        ("key", "x", "the key of a run is 'x'"),
    ],
)  # fmt: skip
def test_a_damaged_run_does_not_hide_the_others(run_log, quick_path, column, value, says):
    run_log.record(*CASE, [1.0])
    run_log.record(*CASE, [2.0])
    run_log.to_csv(quick_path / "runs.csv")
    change(run_log, f"UPDATE runs SET {column} = ? WHERE id = 1", value)
    (good,) = run_log.runs()
    assert good.number == 2 and run_log.skipped[0][0] == 1 and says in run_log.skipped[0][1]
    with pytest.raises(InputRefused, match="has no run 1 that can be read"):
        run_log.run(1)


def test_numbers_that_are_not_there(run_log):
    run_log.record(*CASE, [1.0])
    for number in (2, 0, None, "1", 1.5):
        with pytest.raises(InputRefused):
            run_log.run(number)


# ---- CSV from outside


@pytest.fixture
def text(run_log, quick_path):
    run_log.record(*CASE, [1.0], PREDICTED, "two\nlines")
    run_log.record(*CASE, [2.0])
    run_log.to_csv(quick_path / "runs.csv")
    return (quick_path / "runs.csv").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("key,recorded", "id,recorded", "line 1: these are not the columns"),
        ('""tp"": 8', '""tp"": 0', "line 3: tp of a plan is 0"),
        ("[2.0]", "[2.0", "line 4: the list of step times is no JSON"),
        ("[2.0]", "[2.0],8", "line 4: 10 cells under 9 heads"),
        ("[2.0]", '"[2.0]" x', "line 4: "),
        ("two\nlines", "t\x07o\nlines", "line 3: the notes of a run"),
    ],
)
def test_a_changed_csv_is_refused_whole_with_its_line(quick_path, text, old, new, says):
    path = quick_path / "changed.csv"
    path.write_text(text.replace(old, new), encoding="utf-8")
    fresh = RunLog(quick_path / "fresh.sqlite")
    with pytest.raises(InputRefused) as refused:
        fresh.from_csv(path)
    assert (
        says in str(refused.value) and "changed.csv" in str(refused.value) and "\n" not in str(refused.value)
    )
    assert fresh.runs() == []


def test_a_csv_that_a_spreadsheet_saved(quick_path, text, run_log):
    (quick_path / "saved.csv").write_bytes("\ufeff".encode() + text.replace("\n", "\r\n").encode())
    fresh = RunLog(quick_path / "fresh.sqlite")
    assert fresh.from_csv(quick_path / "saved.csv") == 2 and fresh.runs() == run_log.runs()


def test_csv_files_that_are_none(run_log, quick_path):
    (quick_path / "latin.csv").write_bytes(b"\xe4\xf6")
    (quick_path / "empty.csv").write_bytes(b"")
    (quick_path / "wide.csv").write_text("x" * 200_000)
    for path in ("latin.csv", "empty.csv", "wide.csv", "none.csv", ""):
        with pytest.raises(InputRefused, match=str(quick_path / path)):
            run_log.from_csv(quick_path / path)
    for path in (None, "", 8, "a\0b"):
        with pytest.raises(InputRefused):
            run_log.from_csv(path)
        with pytest.raises(InputRefused):
            run_log.to_csv(path)
    with pytest.raises(InputRefused, match="cannot be written"):
        run_log.to_csv(quick_path / "no" / "folder.csv")
    assert not list(quick_path.glob("*.part"))


# ---- wrong arguments

WRONG = ["8", None, [8], {}, True, -1, np.nan, object(), np.array([1, 2]), b"x", "x" * 5000, 10**400]


@pytest.mark.parametrize("wrong", WRONG, ids=lambda value: repr(value)[:20])
@pytest.mark.parametrize("name", ["model", "cluster", "plan", "step_times", "predicted", "notes", "when"])
def test_wrong_arguments_are_refused_in_a_sentence(run_log, name, wrong):
    good = dict(zip(("model", "cluster", "plan"), CASE, strict=True))
    good |= {"step_times": [1.0], "predicted": None, "notes": "", "when": None}
    try:
        run_log.record(**{**good, name: wrong})
    except InputRefused as refused:
        assert "\n" not in str(refused)
    else:
        assert len(run_log.runs()) == 1 and not run_log.skipped


@pytest.mark.parametrize(
    "more",
    [
        {"plan": Plan(tp=np.array([1, 2]))},
        {"predicted": StepTime(compute=np.array([1.0, 2.0]))},
        {"cluster": replace(CASE[1], nodes=np.array([1, 2]))},
        {"step_times": [1.0] * 5001},
        {"notes": "x" * 10_001},
    ],
)
def test_what_a_run_cannot_hold(run_log, more):
    good = dict(zip(("model", "cluster", "plan"), CASE, strict=True)) | {"step_times": [1.0]}
    with pytest.raises(InputRefused):
        run_log.record(**(good | more))
    assert run_log.runs() == []


def test_a_name_that_no_file_can_have(quick_path):
    for call in (lambda log: log.record(*CASE, [1.0]), RunLog.runs):
        with pytest.raises(InputRefused, match="File name too long") as refused:
            call(RunLog(quick_path / ("x" * 300)))
        assert "\n" not in str(refused.value)


def test_a_device_is_not_replaced_by_a_csv_file(run_log, quick_path):
    pipe = quick_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(InputRefused, match="is a device or a pipe, which would be replaced; name a file"):
        run_log.to_csv(pipe)
    assert pipe.is_fifo()


@pytest.mark.parametrize("path", ["", "  ", 8, b"x", ["a"], "a\0b"])
def test_a_log_needs_a_path(path):
    with pytest.raises(InputRefused, match="give the path of its file"):
        RunLog(path)
