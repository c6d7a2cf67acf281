"""The table of runs: its figures by hand, its bases, and logs of the form without profiles."""

import sqlite3

import pytest
from pytest import approx

from labkit.errors import InputRefused
from labkit.evidence.runs import RunLog
from labkit.evidence.runs_table import run_rows
from labkit.spec import StepTime
from tests.evidence.run_cases import CASE, PREDICTED

MODEL, NODES, PLAN = CASE  # tp 8, pp 2, dp 2: 32 cards, batch 64
PROFILED = StepTime(compute=0.7, tp=0.2, dp=0.1, communication=0.5, tokens=131072, gpus=32)


def test_figures_by_hand(run_log):
    run_log.record(*CASE, [1.0, 1.0, 3.0], PREDICTED, profiled=PROFILED)
    run_log.record(MODEL, NODES, PLAN.changed(zero=1), [2.0], PREDICTED)
    run_log.record(MODEL, NODES, PLAN.changed(zero=2), [2.0])
    first, second, third = run_log.table()
    assert (first.cards, first.batch, first.step, first.p99) == (32, 64, 1.0, 3.0)
    assert first.per_card == approx(64 * MODEL.sequence / 32)
    assert first.exposed == approx(0.3) and first.share_from == "profile"
    assert second.exposed == approx(0.1 / PREDICTED.total) and second.share_from == "prediction"
    assert third.exposed is None and third.share_from == ""
    assert "tp 8" in first.settings and "ZeRO-1" in second.settings
    assert [row.scaling for row in (first, second, third)] == ["base"] * 3
    assert [row.efficiency for row in (first, second, third)] == [1.0] * 3


def test_efficiency_against_the_smallest_run_of_the_same_kind(run_log):
    run_log.record(*CASE, [1.0])
    run_log.record(MODEL, NODES, PLAN.changed(dp=4, micro_batch=1, global_batch=128), [1.25])
    run_log.record(MODEL, NODES, PLAN.changed(dp=8, micro_batch=1, global_batch=64), [0.5])
    run_log.record(MODEL, NODES, PLAN.changed(dp=8, micro_batch=1, global_batch=32), [0.5])
    rows = run_log.table()
    assert [(row.scaling, row.base) for row in rows] == [
        ("base", 1),
        ("weak", 1),  # twice the batch on twice the cards
        ("strong", 1),  # the batch of the base on four times the cards
        ("base", 4),  # neither its batch nor its micro-batches a replica
    ]
    assert [row.efficiency for row in rows] == approx([1, 0.8, 0.5, 1])


def test_an_empty_table_and_no_runs(run_log):
    assert run_log.table() == []
    with pytest.raises(InputRefused, match="a run of the table"):
        run_rows([5])


def test_a_profile_survives_the_file_and_the_csv(run_log, quick_path):
    run_log.record(*CASE, [1.0], profiled=PROFILED)
    run_log.to_csv(quick_path / "runs.csv")
    other = RunLog(quick_path / "other.sqlite")
    assert other.from_csv(quick_path / "runs.csv") == 1
    assert other.run(1).profiled == run_log.run(1).profiled == PROFILED
    for wrong in (5, "0.3", {"compute": 1}):
        with pytest.raises(InputRefused, match="the profiled step"):
            run_log.record(*CASE, [1.0], profiled=wrong)


def test_a_damaged_profile_is_named(run_log):
    run_log.record(*CASE, [1.0])
    with sqlite3.connect(run_log.path) as file:
        file.execute("UPDATE runs SET profiled = '{\"compute\": -1}'")
    file.close()
    assert run_log.runs() == [] and "compute of a step is -1" in run_log.skipped[0][1]


def old_form(path):
    """Takes from a log what labkit's first form of it did not have."""
    file = sqlite3.connect(path, isolation_level=None)
    file.execute("ALTER TABLE runs DROP COLUMN profiled")
    file.execute("PRAGMA user_version = 1")
    file.close()


def test_a_log_of_the_form_without_profiles_is_read_and_then_written(run_log):
    before = run_log.record(*CASE, [1.0], PREDICTED, notes="old")
    old_form(run_log.path)
    assert run_log.runs() == [before]
    run_log.record(*CASE, [2.0], profiled=PROFILED)
    assert run_log.runs()[0] == before and run_log.runs()[1].profiled == PROFILED and not run_log.skipped


def test_a_csv_without_profiles_is_read(run_log, quick_path):
    run_log.record(*CASE, [1.0], PREDICTED)
    path = quick_path / "runs.csv"
    run_log.to_csv(path)
    lines = path.read_text(encoding="utf-8").splitlines()
    path.write_text(
        "\n".join([lines[0].removesuffix(",profiled"), *(line[:-1] for line in lines[1:])]) + "\n"
    )
    other = RunLog(quick_path / "other.sqlite")
    assert other.from_csv(path) == 1 and other.run(1) == run_log.run(1)
