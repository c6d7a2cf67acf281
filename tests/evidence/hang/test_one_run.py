"""Dumps of several runs in one folder, and copies: what is of one run is judged, the rest is named."""

import pytest

from labkit.evidence.hang.files import read_files
from labkit.evidence.hang.read import read_hang
from tests.evidence.hang.dump_cases import as_pickle, dump, entry

SECOND = 1_000_000_000
NOW = 1_700_000_000 * SECOND


def job(folder, calls, start=NOW, done=None):
    """Dumps of up to four ranks: ``calls[rank]`` calls, one a second, of which the first ``done`` ended."""
    folder.mkdir(exist_ok=True)
    done = min(calls.values()) if done is None else done
    for rank, made in calls.items():
        entries = [
            entry(
                n,
                time_created_ns=start + n * SECOND + 17 * (rank + 1),
                state="completed" if n <= done else "started",
                retired=n <= done,
            )
            for n in range(1, made + 1)
        ]
        names = ("last_enqueued_collective", "last_started_collective", "last_completed_collective")
        status = dict(zip(names, (made, made, min(done, made)), strict=True))
        whole = dump(entries, ranks="[0, 1, 2, 3]", pg_status={"0": status})
        (folder / f"trace_rank_{rank}").write_bytes(as_pickle(whole))


def kinds(hang):
    """The kind of each source by folder and file."""
    return {"/".join(source.path.split("/")[-2:]): source.kind for source in hang.sources}


@pytest.mark.parametrize("days", [-11, 11])
def test_a_dump_of_another_run_is_left_out_and_its_rank_unknown(tmp_path, days):
    job(tmp_path / "a", {0: 7, 1: 7, 2: 7, 3: 6})
    job(tmp_path / "b", {3: 9}, NOW + days * 86_400 * SECOND)
    (tmp_path / "b" / "trace_rank_3").replace(tmp_path / "a" / "trace_rank_3")
    hang = read_hang(tmp_path / "a")
    assert hang.verdict == "undecided" and hang.suspects == () and hang.findings[0].unknown == (3,)
    (warning,) = hang.warnings
    assert "trace_rank_3 is of another run" in warning and ("after" if days > 0 else "before") in warning
    assert kinds(hang)["a/trace_rank_3"] == "nothing"


@pytest.mark.parametrize("hours", [0.05, 300])
def test_of_two_whole_runs_the_newer_is_judged(tmp_path, hours):
    """Even minutes apart, as after a restart: no call of one falls among those of the other."""
    job(tmp_path / "new", {0: 7, 1: 7, 2: 6, 3: 7})
    job(tmp_path / "old", {0: 9, 1: 5, 2: 9, 3: 9}, NOW - int(hours * 3600) * SECOND)
    hang = read_hang(tmp_path)
    assert (hang.verdict, hang.first.sequence, hang.absent) == ("missing_rank", 7, (2,))
    assert len(hang.warnings) == 1
    assert hang.warnings[0].index("old/trace_rank_0") < hang.warnings[0].index("new/trace_rank_0")


def test_the_run_of_more_ranks_is_judged_though_it_is_older(tmp_path):
    job(tmp_path / "old", {0: 7, 1: 7, 2: 6, 3: 7})
    job(tmp_path / "new", {0: 3, 1: 3}, NOW + 10**6 * SECOND)
    assert read_hang(tmp_path).absent == (2,)


def test_a_rank_that_stopped_within_ten_limits_of_the_others_stays(tmp_path):
    """A ring may begin long after another rank's last call: that is a hang, not another run."""
    job(tmp_path / "a", {0: 7, 1: 7, 2: 7}, done=6)
    job(tmp_path / "b", {3: 6}, NOW - 3000 * SECOND)
    hang = read_hang(tmp_path)
    assert (hang.verdict, hang.absent, hang.warnings) == ("missing_rank", (3,), ())


@pytest.mark.parametrize(("original", "copy"), [(0, 3), (3, 1)])
def test_a_copy_under_another_rank_counts_once(tmp_path, original, copy):
    job(tmp_path / "a", {0: 7, 1: 7, 2: 7, 3: 7})
    data = (tmp_path / "a" / f"trace_rank_{original}").read_bytes()
    (tmp_path / "a" / f"trace_rank_{copy}").write_bytes(data)
    evidence = read_files(tmp_path)
    lost = max(original, copy)
    assert {call.rank for call in evidence.calls} == {0, 1, 2, 3} - {lost}
    assert len(evidence.warnings) == 1 and "copies of one process's dump" in evidence.warnings[0]
    assert read_hang(tmp_path).verdict == "undecided"


def test_times_that_no_clock_made_tell_no_copies(tmp_path):
    """Made-up dumps often have the same times on all ranks; some differ in what they called."""
    for rank in range(4):
        made = [entry(n) for n in range(1, 5 - (rank == 2))]
        (tmp_path / f"trace_rank_{rank}").write_bytes(as_pickle(dump(made, ranks="[0, 1, 2, 3]")))
    evidence = read_files(tmp_path)
    assert {call.rank for call in evidence.calls} == {0, 1, 2, 3}
    assert "no clock made" in evidence.warnings[0]


def test_mixed_runs_that_overlap_are_not_believed(tmp_path):
    job(tmp_path / "a", {0: 7, 1: 7})
    job(tmp_path / "b", {0: 7, 1: 7}, NOW + SECOND // 2)
    evidence = read_files(tmp_path)
    assert {call.rank for call in evidence.calls} == {None}
    assert all("different processes" in warning for warning in evidence.warnings)


@pytest.mark.parametrize("created", [0, 1000, 1_700_000_000 * SECOND])
def test_equal_times_that_no_clock_made_are_no_copies(tmp_path, created):
    """Two dumps written by hand, alike in everything: both ranks wait, and none of it ended."""
    for rank in (0, 1):
        open_ = entry(1, time_created_ns=created, state="started", retired=False)
        whole = dump([open_], ranks="[0, 1]", pg_status={})
        (tmp_path / f"trace_rank_{rank}").write_bytes(as_pickle(whole))
    hang = read_hang(tmp_path)
    assert (hang.verdict, hang.warnings) == ("stall", ())
