"""``labkit bench`` as a terminal user meets it: it refuses before anything starts, and measures."""

import importlib.util
import os
import re
import signal
import sys

import pytest

from labkit import read_sweep
from labkit.cli import bench, main
from tests.evidence.torch_jobs import end, finish, needs_torch, start

AGENT = ("--standalone", "--local-addr", "127.0.0.1", "--nproc-per-node", "1", "-m", "labkit.evidence.bench")


@pytest.fixture
def nothing_starts(monkeypatch):
    monkeypatch.setattr(bench.subprocess, "Popen", lambda *_, **__: pytest.fail("a job was started"))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["allreduce"], "'allreduce' is no operation of the bench; use one of all_reduce"),
        (["all_reduce", "--sizes", "a lot"], "'a lot' cannot be read"),
        (["all_reduce", "--ranks", "0"], "--ranks is 0; give a whole number from 1 to 256"),
        (["all_gather", "--sizes", "8"], "8 B is too small for all_gather of 4 ranks; start at 16 B"),
        (["all_reduce", "--interface", "eth99"], "'eth99'"),
        (
            ["all_reduce", "--output", "/no/such/folder/a.log"],
            "cannot be written (No such file or directory)",
        ),
        (["all_reduce", "--output", "/"], "--output / cannot be written (Is a directory); name another file"),
    ],
)
def test_refused_in_one_sentence_before_anything_starts(arguments, says, nothing_starts, capsys):
    assert main(["bench", *arguments]) == 2
    said = capsys.readouterr()
    assert said.err.startswith("labkit: ") and says in said.err and said.err.count("\n") == 1 and not said.out


def test_a_torch_that_cannot_be_loaded(monkeypatch, capsys):
    def broken(name):
        raise OSError(f"{name}: libfoo.so: cannot open shared object file\nand more")

    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())
    monkeypatch.setattr(importlib, "import_module", broken)
    assert main(["bench", "all_reduce"]) == 2
    said = capsys.readouterr().err
    assert said.startswith("labkit: PyTorch is installed but cannot be loaded (torch: libfoo.so")
    assert said.count("\n") == 1


def test_without_torch_it_says_how_to_get_it(monkeypatch, capsys):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert main(["bench", "all_reduce"]) == 2
    assert "pip install -e '.[bench]'" in capsys.readouterr().err


@needs_torch
def test_nccl_without_gpus_is_refused_before_anything_starts(monkeypatch, capsys):
    import torch

    monkeypatch.setattr(bench.subprocess, "Popen", lambda *_, **__: pytest.fail("a job was started"))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert main(["bench", "all_reduce", "--ranks", "4"]) == 2
    assert "has 2 GPUs for 4 ranks" in capsys.readouterr().err


@needs_torch
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_ended_in_the_middle_it_leaves_no_process(number):
    words = ("all_reduce", "--ranks", "2", "--sizes", "1KiB:256MiB", "--repeats", "100000")
    job = start([sys.executable, "-m", "labkit", "bench", *words])
    try:
        ranks = []
        while len(ranks) < 2:  # each says its process at the start
            line = job.stdout.readline()
            assert line, job.stderr.read()
            ranks += re.findall(r"^# rank \d+: .* process (\d+)$", line)
        job.send_signal(number)
        status, _, err = finish(job)
    finally:
        end(job)
    assert status == 128 + number and "Traceback" not in err
    for process in ranks:
        with pytest.raises(ProcessLookupError):
            os.kill(int(process), 0)


@needs_torch
def test_a_rank_that_fails_speaks_for_itself():
    status, _, err = finish(
        start([sys.executable, "-m", "labkit.evidence.bench_agent", *AGENT, "no_such_thing"])
    )
    assert status == 1 and "'no_such_thing' is no operation" in err and "Traceback" not in err


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
