"""``labkit bench`` as a terminal user meets it: it refuses before anything starts, and measures."""

import importlib.util

import pytest

from labkit import read_sweep
from labkit.cli import bench, main
from tests.evidence.torch_jobs import needs_torch


@pytest.fixture
def nothing_starts(monkeypatch):
    monkeypatch.setattr(bench.subprocess, "call", lambda *_, **__: pytest.fail("a job was started"))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["allreduce"], "'allreduce' is no operation of the bench; use one of all_reduce"),
        (["all_reduce", "--sizes", "a lot"], "'a lot' cannot be read"),
        (["all_reduce", "--ranks", "0"], "--ranks is 0; give a whole number from 1 to 256"),
        (["all_gather", "--sizes", "8"], "8 B is too small for all_gather of 4 ranks; start at 16 B"),
        (["all_reduce", "--interface", "eth99"], "'eth99'"),
    ],
)
def test_refused_in_one_sentence_before_anything_starts(arguments, says, nothing_starts, capsys):
    assert main(["bench", *arguments]) == 2
    said = capsys.readouterr()
    assert said.err.startswith("labkit: ") and says in said.err and said.err.count("\n") == 1 and not said.out


def test_without_torch_it_says_how_to_get_it(monkeypatch, capsys):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert main(["bench", "all_reduce"]) == 2
    assert "pip install -e '.[bench]'" in capsys.readouterr().err


@needs_torch
def test_it_measures_on_two_processes(tmp_path):
    path = tmp_path / "two.txt"
    command = [
        "bench",
        "broadcast",
        "--ranks",
        "2",
        "--sizes",
        "4KiB:16KiB",
        "--repeats",
        "5",
        "--warm-up",
        "1",
    ]
    assert main([*command, "--output", str(path)]) == 0
    (sweep,) = read_sweep(path)
    assert (sweep.collective, sweep.n_ranks, sweep.size.tolist()) == ("broadcast", 2, [4096, 8192, 16384])
