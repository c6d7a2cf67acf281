"""``labkit hang`` as a terminal user meets it."""

import io
import json
import sys
from types import SimpleNamespace

import pytest

from labkit.cli import main

WAITING = (
    "[rank{rank}]:[E626 06:24:44.9 ProcessGroupNCCL.cpp:616] [Rank {rank}] Watchdog caught collective "
    "operation timeout: WorkNCCL(SeqNum=808, OpType=ALLREDUCE, NumelIn=9, NumelOut=9, Timeout(ms)=600000) "
    "ran for 600020 milliseconds before timing out.\n"
)


@pytest.fixture
def folder(tmp_path):
    """What two ranks left, among other things."""
    for rank in (0, 1):
        calls = 3 - rank
        entries = [
            {
                "record_id": number,
                "pg_id": 0,
                "process_group": ["0", "default_pg"],
                "collective_seq_id": number + 1,
                "p2p_seq_id": 0,
                "op_id": number + 1,
                "profiling_name": "nccl:all_reduce",
                "time_created_ns": 1000 + number,
                "input_sizes": [[4]],
                "output_sizes": [[4]],
                "input_dtypes": ["Float"],
                "output_dtypes": ["Float"],
                "state": "completed" if number < 2 else "started",
            }
            for number in range(calls)
        ]
        status = {"last_enqueued_collective": str(calls), "last_completed_collective": "2"}
        dump = {
            "version": "2.10",
            "pg_config": {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1]"}},
            "pg_status": {"0": status},
            "entries": entries,
        }
        (tmp_path / f"trace_rank_{rank}").write_text(json.dumps(dump))
    (tmp_path / "picture.png").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(64))
    return tmp_path


def test_report_of_a_folder(folder, capsys):
    assert main(["hang", str(folder)]) == 0
    out = capsys.readouterr().out
    for words in (
        "verdict   missing_rank",
        "first     call 3 of group 0 (default_pg)",
        "rank 0: all_reduce of [4] float",
        "absent    rank 1",
        "ahead     rank 0",
        "neither is in the majority",
        "py-spy dump",
    ):
        assert words in out
    assert "suspects" not in out and max(map(len, out.split("\n"))) <= 110


def test_json_has_every_field_by_its_name(folder, capsys):
    assert main(["hang", str(folder), "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert set(answer) == {
        *("verdict", "first", "absent", "ahead", "suspects", "reason", "next_step"),
        *("findings", "sources", "warnings"),
    }
    assert (answer["verdict"], answer["absent"], answer["ahead"]) == ("missing_rank", [1], [0])
    assert answer["first"]["sequence"] == 3 and answer["findings"][0]["ranks"] == [0, 1]
    kinds = {one["path"].rpartition("/")[2]: one["kind"] for one in answer["sources"]}
    assert kinds == {"trace_rank_0": "dump", "trace_rank_1": "dump", "picture.png": "nothing"}


def test_a_path_that_is_not_there_is_one_sentence_and_the_others_are_answered(folder, capsys):
    assert main(["hang", str(folder), str(folder / "gone")]) == 2
    out, err = capsys.readouterr()
    assert "missing_rank" in out and err.count("\n") == 1 and "there is no file or folder" in err
    assert main(["hang", str(folder / "gone")]) == 2
    assert capsys.readouterr().out == ""


def test_standard_input(monkeypatch, capsys):
    text = "".join(WAITING.format(rank=rank) for rank in (0, 2))
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(text.encode())))
    assert main(["hang", "-"]) == 0
    out = capsys.readouterr().out
    assert "verdict   undecided" in out and "ranks 0 and 2" in out
