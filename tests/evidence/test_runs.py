"""The run log: exact round trips, several processes, and kill -9."""

import math
import os
import sqlite3
import subprocess
import sys
import tempfile
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labkit.errors import InputRefused
from labkit.evidence.home import home
from labkit.evidence.runs import RunLog
from labkit.presets import cluster, cluster_ids, model, model_ids
from labkit.spec import Link, Plan, StepTime
from tests.evidence.run_cases import CASE, PREDICTED, quick_folder

ROOT = Path(__file__).resolve().parents[2]
SECONDS = st.floats(1e-300, 1e60)


def in_process(code, *arguments):
    """Runs Python in a process of its own; one thread, so that it may fork."""
    return subprocess.run(
        [sys.executable, *code, *map(str, arguments)],
        cwd=ROOT,
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    ).stdout


def test_a_run_comes_back_as_it_was(run_log):
    written = run_log.record(
        *CASE, [1.25, 0.1 + 0.2, 1e-17], PREDICTED, "after the driver update\nnode 7 new"
    )
    (read,) = run_log.runs()
    assert read == written and run_log.skipped == [] and read.number == 1
    assert read.step_times == (1.25, 0.30000000000000004, 1e-17) and read.predicted.total == PREDICTED.total
    assert (read.model, read.cluster, read.plan) == CASE
    assert run_log.run(1) == written and "guide-13b" in repr(read) and "median of 3 steps" in repr(read)


@pytest.mark.parametrize("name", model_ids())
def test_every_model_comes_back(run_log, name):
    assert run_log.record(model(name), *CASE[1:], [1.0]) == run_log.run(1)


@pytest.mark.parametrize("name", cluster_ids())
def test_every_cluster_comes_back(run_log, name):
    assert run_log.record(CASE[0], cluster(name), CASE[2], [1.0]) == run_log.run(1)
    endless = replace(cluster(name), inter=Link(0.0, math.inf))
    assert run_log.record(CASE[0], endless, CASE[2], [1.0]).cluster == run_log.run(2).cluster == endless


@pytest.mark.parametrize(
    "plan",
    [
        Plan(dp=7, global_batch=256, micro_batch=2),  # 18.29 micro-batches, as they are
        Plan(dp=3, global_batch=64, accumulation=2),
        Plan(pp=4, stage_layers=(7, 8, 8, 9), zero=1, recompute="selective", order="tp-pp-cp-dp"),
        Plan(dp=64, shard_ranks=8, zero=3, prefetch=2, etp=1, ep=4, vocabulary_multiple=0),
    ],
)
def test_every_kind_of_plan_comes_back(run_log, plan):
    assert run_log.record(*CASE[:2], plan, [1.0]).plan == run_log.run(1).plan == plan


@settings(max_examples=25)
@given(
    st.lists(SECONDS, min_size=1, max_size=20),
    st.none() | st.builds(StepTime, compute=SECONDS, dp=SECONDS, tokens=st.none() | SECONDS),
    st.text(
        st.characters(codec="utf-8", exclude_categories=["C", "Z"], include_characters=' \n\t",'), max_size=60
    ),
)
def test_floats_and_notes_are_exact_in_the_file_and_in_csv(times, predicted, notes):
    with tempfile.TemporaryDirectory(dir=quick_folder()) as folder:
        check_round_trip(Path(folder), times, predicted, notes)


def check_round_trip(folder, times, predicted, notes):
    run_log, copy = RunLog(folder / "a.sqlite"), RunLog(folder / "b.sqlite")
    written = run_log.record(*CASE, times, predicted, notes)
    assert run_log.runs() == [written]
    assert run_log.to_csv(folder / "runs.csv") == 1 == copy.from_csv(folder / "runs.csv")
    assert copy.runs() == [written] and copy.to_csv(folder / "again.csv") == 1
    assert (folder / "again.csv").read_bytes() == (folder / "runs.csv").read_bytes()


def test_times_of_day(run_log):
    run_log.record(*CASE, [1.0], when="2026-03-01T12:00:00+08:00")
    run_log.record(*CASE, [1.0], when=datetime(2026, 3, 1, 12))
    before = datetime.now(UTC)
    run_log.record(*CASE, [1.0])
    given, naive, now = (datetime.fromisoformat(run.recorded) for run in run_log.runs())
    assert (given.hour, naive.hour, given.tzinfo, now.tzinfo) == (4, 12, UTC, UTC)
    assert before <= now <= datetime.now(UTC)


def test_home(monkeypatch, quick_path):
    monkeypatch.setenv("LABKIT_HOME", str(quick_path / "own"))
    assert home() == quick_path / "own" and RunLog().path == quick_path / "own" / "runs.sqlite"
    RunLog().record(*CASE, [1.0])  # makes the folder
    assert len(RunLog().runs()) == 1
    monkeypatch.delenv("LABKIT_HOME")
    monkeypatch.setenv("XDG_DATA_HOME", str(quick_path / "data"))
    assert home() == quick_path / "data" / "labkit"
    monkeypatch.delenv("XDG_DATA_HOME")
    assert home() == Path.home() / ".local" / "share" / "labkit"

    def nobody():
        raise RuntimeError

    monkeypatch.setattr(Path, "home", nobody)
    with pytest.raises(InputRefused, match="set LABKIT_HOME"):
        home()


def test_an_empty_log(run_log, quick_path):
    assert run_log.runs() == [] and run_log.nearest(*CASE) is None and not run_log.path.exists()
    run_log.path.touch()  # what a process killed at once may leave
    assert run_log.runs() == [] and run_log.record(*CASE, [1.0]).number == 1
    assert RunLog(quick_path / "other.sqlite").to_csv(quick_path / "empty.csv") == 0
    assert run_log.from_csv(quick_path / "empty.csv") == 0


def test_a_run_is_added_once(run_log, quick_path):
    run_log.record(*CASE, [1.0])
    run_log.to_csv(quick_path / "runs.csv")
    run_log.record(*CASE, [1.0])
    assert run_log.from_csv(quick_path / "runs.csv") == 0 and len(run_log.runs()) == 2


# ---- many processes, and processes that die


def test_nothing_that_was_acknowledged_is_lost_over_200_kills(run_log):
    out = in_process(["-m", "tests.evidence.run_cases"], "write", run_log.path, 200).split("\n")
    assert out[-2:] == ["done", ""]
    told = [line.split() for line in out[:-2]]
    runs = run_log.runs()
    assert len(told) >= 200 and run_log.skipped == []
    kept = {run.number: run.key for run in runs}
    assert {int(number): key for number, key in told}.items() <= kept.items()
    assert len(runs) - len(told) <= 200  # at most one a kill was on disk and not yet told
    assert all((run.model, run.cluster, run.plan) == CASE for run in runs[:: len(runs) // 20])
    with sqlite3.connect(run_log.path) as file:
        assert file.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    file.close()


def test_a_log_whose_first_writer_was_killed_can_be_used(quick_path):
    in_process(["-m", "tests.evidence.run_cases"], "begin", quick_path, 60)
    for number in range(60):
        run_log = RunLog(quick_path / f"{number}.sqlite")
        kept = len(run_log.runs())
        assert kept in (0, 1) and run_log.record(*CASE, [2.0]).number == kept + 1 == len(run_log.runs())


def test_several_processes_write_at_once(run_log):
    code = (
        "import sys\nfrom pathlib import Path\nfrom labkit.evidence.runs import RunLog\n"
        "from tests.evidence.run_cases import CASE\n"
        "for step in range(20): RunLog(Path(sys.argv[1])).record(*CASE, [1.0 + step])"
    )
    writers = [subprocess.Popen([sys.executable, "-c", code, str(run_log.path)], cwd=ROOT) for _ in range(3)]
    assert [writer.wait(120) for writer in writers] == [0, 0, 0]
    runs = run_log.runs()
    assert len(runs) == 60 and sorted(run.step_times[0] for run in runs) == sorted(
        [1.0 + s for s in range(20)] * 3
    )


def test_the_journal_is_one_that_a_network_home_can_have(run_log):
    run_log.record(*CASE, [1.0])
    file = sqlite3.connect(run_log.path)
    assert file.execute("PRAGMA journal_mode").fetchone() == ("delete",)
    file.close()
    assert [path.name for path in run_log.path.parent.iterdir()] == ["runs.sqlite"]
