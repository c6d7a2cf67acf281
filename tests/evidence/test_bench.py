"""The bench on real processes: 2 and 4 ranks, two agents, ranks that vanish or stop, and wrong results."""

import os
import re
import signal
import sys

import numpy as np
import pytest

from labkit import read_sweep
from labkit.evidence.bench_options import OPERATIONS
from tests.evidence import torch_jobs as jobs

pytestmark = jobs.needs_torch
BENCH = ("-m", "labkit.evidence.bench")
SHORT = ("--sizes", "1KiB:4KiB", "--repeats", "5", "--warm-up", "1", "--interface", jobs.LOOPBACK)


def test_every_operation_on_two_processes_and_the_file_reads_as_printed(tmp_path):
    path = tmp_path / "bench.txt"
    status, out, err = jobs.run(2, *BENCH, *OPERATIONS, *SHORT, "--output", path)
    assert status == 0, err
    check(path, 2, ["00", "11"])
    text = path.read_text("utf-8")
    assert out == text
    assert f"# network told: GLOO_SOCKET_IFNAME {jobs.LOOPBACK}\n" in text
    assert re.search(rf"^# network chosen: {jobs.LOOPBACK}\b", text, re.MULTILINE)
    assert re.search(
        r"^# seconds of the start, .*: process group .*, gather .*, barrier ", text, re.MULTILINE
    )


def test_every_operation_on_four_processes_that_two_agents_started(tmp_path):
    path, port = tmp_path / "two.txt", jobs.free_port()
    meet = ("--nnodes", 2, "--nproc-per-node", 2, "--rdzv-backend", "c10d", "--rdzv-id", "labkit")
    where = ("--rdzv-endpoint", f"127.0.0.1:{port}", "--local-addr", "127.0.0.1")
    command = jobs.torchrun(*meet, *where, *BENCH, *OPERATIONS, *SHORT, "--output", path)
    agents = [jobs.start(command) for _ in range(2)]
    ends = [jobs.finish(agent) for agent in agents]
    assert [status for status, _, _ in ends] == [0, 0], ends
    assert sorted(bool(out) for _, out, _ in ends) == [False, True]  # rank 0 speaks alone
    check(path, 4, ["00", "11", "20", "31"])


def check(path, n, seats):
    """The file has every operation, the numbers as printed, no wrong element, and every rank's place."""
    text, sweeps = path.read_text("utf-8"), read_sweep(path)
    assert [sweep.collective for sweep in sweeps] == list(OPERATIONS)
    printed = re.findall(r"^ +(\d+) +\d+ +float +\w+ +-?\d+ +([\d.]+) ", text, re.MULTILINE)
    assert [float(size) for size, _ in printed] == [size for sweep in sweeps for size in sweep.size]
    times = [float(time) * 1e-6 for _, time in printed]
    np.testing.assert_allclose(times, np.concatenate([sweep.time for sweep in sweeps]))
    for sweep in sweeps:
        assert (sweep.n_ranks, sweep.warnings, sweep.skipped) == (n, [], [])
        assert (sweep.wrong == 0).all() and (sweep.time > 0).all() and sweep.size.size == 3
    found = re.findall(r"^# rank (\d): host \S+, local rank (\d), device cpu, ", text, re.MULTILINE)
    assert ["".join(seat) for seat in found] == seats


CORRUPT = """
import os, sys
import torch.distributed as dist
honest = dist.all_reduce

def all_reduce(tensor, *more, **named):
    work = honest(tensor, *more, **named)
    if os.environ["RANK"] == "1" and tensor.numel() == 512:
        tensor[5] += 1
    return work

dist.all_reduce = all_reduce
from labkit.evidence.bench import main
sys.exit(main())
"""


def test_a_wrong_result_on_one_rank_is_counted(tmp_path):
    script, path = tmp_path / "corrupt.py", tmp_path / "bench.txt"
    script.write_text(CORRUPT)
    ranks = jobs.start_ranks(2, script, "all_reduce", *SHORT, "--output", path)
    ends = [jobs.finish(rank) for rank in ranks]
    assert [status for status, _, _ in ends] == [0, 0], ends
    (sweep,) = read_sweep(path)
    assert sweep.wrong.tolist() == [0, 1, 0] and "Out of bounds values : 1 FAILED" in ends[0][1]


@pytest.mark.parametrize(
    ("signal_sent", "says"), [(signal.SIGKILL, "closed|reset"), (signal.SIGSTOP, "imed out")]
)
def test_a_rank_that_dies_or_stops_does_not_leave_the_other_hanging(signal_sent, says):
    words = ("all_reduce", "--sizes", "1MiB", "--repeats", "100000", "--run-timeout", "0.1")
    first, second = jobs.start_ranks(2, *BENCH, *words, "--interface", jobs.LOOPBACK)
    try:
        while "Collective test starting" not in (line := first.stdout.readline()):
            assert line, first.stderr.read()
        os.kill(second.pid, signal_sent)
        status, _, err = jobs.finish(first, limit=60)
    finally:
        second.kill()
        second.communicate()
    assert status == 1 and "Traceback" not in err
    assert re.search(rf"labkit bench: rank 0 on \S+, all_reduce of 1 MiB: .*({says})", err)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("all_reduce", "--sizes", "plenty"), "'plenty' cannot be read"),
        (("all_reduce", "--interface", "no-such"), "--interface 'no-such'"),
    ],
)
def test_bad_input_is_said_once_and_ends_all_ranks(words, says):
    status, _, err = jobs.run(2, *BENCH, *words, limit=60)
    sentences = [line for line in err.splitlines() if line.startswith("labkit bench: ")]
    assert status != 0 and len(sentences) == 1 and says in sentences[0]
    assert re.search(r"\bexitcode *: 2\b", err)


def test_an_output_that_rank_0_cannot_write_ends_all_ranks():
    ranks = jobs.start_ranks(2, *BENCH, "all_reduce", *SHORT, "--output", "/no/such/folder/file")
    ends = [jobs.finish(rank, limit=60) for rank in ranks]
    assert [status for status, _, _ in ends] == [2, 2]
    assert "cannot be written" in ends[0][2] and ends[1][1:] == ("", "")


def test_started_without_torchrun_it_says_how():
    status, out, err = jobs.finish(jobs.start([sys.executable, *BENCH, "all_reduce"]))
    assert (status, out, err.count("\n")) == (2, "", 1) and "torchrun --nproc-per-node 4" in err


def test_the_gather_in_a_branch_times_out_on_every_rank():
    """Claim 5.3-d: the guide's third step with a gather in it."""
    ends = [jobs.finish(rank) for rank in jobs.start_ranks(3, "-m", "labkit.evidence.gather_in_branch")]
    said = "".join(out for _, out, _ in ends)
    waits = re.findall(r"^rank (\d) waited ([\d.]+) s in the (\w+): ", said, re.MULTILINE)
    assert [(rank, where) for rank, _, where in waits] == [
        *(("0", "gather"), ("1", "barrier"), ("2", "barrier"))
    ], ends
    # The first to reach the limit closes its connections: the others may find those closed just before.
    assert "imed out" in said and all(float(seconds) > 4 for _, seconds, _ in waits)
    assert [status for status, _, _ in ends] == [1] * 3
