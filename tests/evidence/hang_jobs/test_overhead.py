"""What debug logging costs: the shipped measurement, and that the job behind it runs."""

import csv
from statistics import median

import pytest

from labkit.errors import InputRefused
from labkit.evidence.hang_jobs import log_overhead, measure_log_overhead
from labkit.evidence.hang_jobs.overhead import SETTINGS, as_csv
from labkit.presets import data_path
from tests.evidence.torch_jobs import needs_torch


def test_the_recording_is_read_as_it_stands():
    """The middle round and the ratios worked out from the file's own rows."""
    lines = data_path("recorded/log_overhead.csv").read_text("utf-8").splitlines()
    rows = list(csv.DictReader(line for line in lines if not line.startswith("#")))
    found = log_overhead()
    assert [one.setting for one in found] == list(SETTINGS)
    off = [float(row["step_ms"]) for row in rows if row["setting"] == "off"]
    for one in found:
        times = [float(row["step_ms"]) for row in rows if row["setting"] == one.setting]
        assert one.step == pytest.approx(median(times) / 1e3)
        assert one.ratio == pytest.approx(median(times) / median(off))
        assert one.told == (min(times) > max(off))
        assert len(one.rounds) == len(times) >= 5


def test_checking_every_collective_costs_the_most_and_the_recorder_is_not_told_from_noise():
    """DETAIL gathers a fingerprint of each call before it; the recorder writes into memory of its own."""
    found = {one.setting: one for one in log_overhead()}
    assert found["off"].ratio == 1
    assert [name for name, one in found.items() if one.told] == ["DETAIL"]
    assert found["DETAIL"].ratio > 1.5 > found["flight recorder"].ratio


def test_the_file_is_what_the_measurement_writes():
    text = data_path("recorded/log_overhead.csv").read_text("utf-8")
    assert as_csv(log_overhead()) == text


@needs_torch
def test_the_job_runs():
    found = measure_log_overhead(rounds=1, steps=5)
    assert [one.setting for one in found] == list(SETTINGS)
    assert all(one.step > 0 and len(one.rounds) == 1 for one in found)


@pytest.mark.parametrize("wrong", [dict(rounds=0), dict(steps="many"), dict(ranks=1), dict(ranks=99)])
def test_numbers_out_of_bounds_are_refused(wrong):
    with pytest.raises(InputRefused):
        measure_log_overhead(**wrong)
