"""What launchers and collectors of logs put before a line: a message is the same with and without it."""

import json

import pytest

from labkit.evidence.hang.read import hang_of, read_hang
from labkit.evidence.hang.text import read_text

LABELS = {
    "none": "",
    "srun": "{rank}: ",
    "srun, padded": "  {rank}: ",
    "pdsh": "node{rank}: ",
    "pods": "[pod/job-{rank}/main] ",
    "pods with time": "[pod/job-{rank}/main] 2025-06-01T00:00:00.000000000Z ",
    "cri": "2025-06-01T00:00:00.123456789Z stderr F ",
    "time": "2025-06-01T00:00:00.0+00:00 ",
    "torchrun": "[default{rank}]:",
    "mpirun": "[1,{rank}]<stderr>:",
    "mpirun 5": "[prterun-node1-99@1,{rank}]<stderr>:",
    "ray": "(RayTrainWorker pid=40{rank}, ip=10.0.0.{rank}) ",
    "compose": "worker-{rank}-1  | ",
    "syslog": "Jun  1 12:00:00 node{rank} train[4{rank}]: ",
    "harness": "job.node{rank}.log [stderr] ",
}


def newer(rank):
    """As PyTorch 2.8 has it: a label of its own, the group, a stack."""
    last = 49 if rank == 2 else 50
    head = f"[rank{rank}]:[E607 23:46:59.2577 ProcessGroupNCCL.cpp:"
    return [
        f"{head}689] [Rank {rank}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum={last}, "
        "OpType=ALLREDUCE, NumelIn=4, NumelOut=4, Timeout(ms)=600000) ran for 600010 milliseconds before "
        "timing out.",
        f"{head}2303] [PG ID 0 PG GUID 0(default_pg) Rank {rank}] failure detected by watchdog at work "
        f"sequence id: {last} PG status: last enqueued work: {last}, last completed work: {last - 1}",
        f"{head}733] Stack trace of the failed collective: ",
        f"#0 save from /work/train.py:{rank}",
    ]


def older(rank):
    """As PyTorch 2.2 has it: no label, no group."""
    last = 49 if rank == 2 else 50
    work = f"WorkNCCL(SeqNum={last}, OpType=ALLREDUCE, NumelIn=4, NumelOut=4, Timeout(ms)=600000)"
    return [
        f"[E ProcessGroupNCCL.cpp:475] [Rank {rank}] Watchdog caught collective operation timeout: {work} "
        "ran for 600010 milliseconds before timing out.",
        f"RuntimeError: [Rank {rank}] Caught collective operation timeout: {work}",
    ]


def facts(text):
    """What is read, as far as labels must not change it."""
    evidence = read_text(text, "a.log")
    waits = {
        (one.rank, one.group.name, one.call.sequence, one.enqueued, one.completed, one.call.frames)
        for one in evidence.waits
    }
    hang = hang_of(evidence)
    return waits, hang.verdict, hang.absent, hang.suspects, hang.warnings


@pytest.mark.parametrize("label", LABELS)
@pytest.mark.parametrize("lines", [newer, older])
def test_a_label_changes_nothing(label, lines):
    plain = "".join(f"{line}\n" for rank in range(4) for line in lines(rank))
    labelled = "".join(
        f"{LABELS[label].format(rank=rank)}{line}\n" for rank in range(4) for line in lines(rank)
    )
    assert facts(labelled) == facts(plain)
    if lines is newer:
        assert facts(plain)[1:] == ("missing_rank", (2,), (2,), ())


def test_lines_kept_as_json(tmp_path):
    plain = "".join(f"{line}\n" for rank in range(4) for line in newer(rank))
    for key in ("log", "message", "msg"):
        packed = "".join(
            json.dumps({key: f"{line}\n", "entries": 1, "stream": "stderr"}) + "\n"
            for line in plain.splitlines()
        )
        assert facts(packed) == facts(plain)
        (tmp_path / "job.json").write_text(packed)
        assert read_hang(tmp_path).verdict == "missing_rank"


@pytest.mark.parametrize("label", ["{rank}: ", "[1,{rank}]<stdout>:", "job.n1.log [stderr] "])
@pytest.mark.parametrize("width", [60, 90])
def test_a_labelled_line_that_a_terminal_wrapped(label, width):
    lines = []
    for rank in range(4):
        for line in newer(rank)[:2]:
            whole = label.format(rank=rank) + line
            lines += [whole[at : at + width] for at in range(0, len(whole), width)]
    waits, verdict, absent, suspects, warnings = facts("".join(f"{line}\n" for line in lines))
    assert (verdict, absent, suspects, warnings) == ("missing_rank", (2,), (2,), ()) and len(waits) == 4
