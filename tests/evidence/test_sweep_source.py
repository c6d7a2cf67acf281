"""Where sweeps come from: JSON reports, shipped samples, and what is refused."""

import json

import numpy as np
import pytest

from labkit import InputRefused, read_sweep
from labkit.presets import sample_sweeps
from tests.evidence.nccl_log import (
    LINES,
    SIZES,
    check,
    head,
    log,
    one,
    report,
    straight,
)


def test_json_report():
    sweep = one(json.dumps(report()))
    check(sweep, n=2, rows=straight(2))
    assert (sweep.wrong == 0).all() and sweep.warnings == [] and "SECRET" not in repr(vars(sweep))


def test_json_counts_every_gpu_of_a_process():
    assert one(json.dumps(report(processes=1, ngpus=8))).n_ranks == 8
    assert one(json.dumps(report(processes=2, ngpus=4))).n_ranks == 8


def test_json_oddities():
    data = report("all_gather", 4)
    for entry in data["results"]:
        entry["out_of_place"] = None
        entry["in_place"] = {**entry["in_place"], "nwrong": None, "cpu_time": entry["in_place"].pop("time")}
        del entry["in_place"]["time"]
    data["results"][3]["in_place"]["bus_bw"] = "nan"
    data["results"][4] = "nonsense"
    data["errors"] = ["remote process exited"]
    sweep = one(json.dumps(data))
    assert (
        sweep.collective == "all_gather" and np.isnan(sweep.wrong).all() and sweep.size.size == len(SIZES) - 2
    )
    assert [line for line, _ in sweep.skipped] == [4, 5]
    assert any("in-place" in said for said in sweep.warnings) and any(
        "remote process" in said for said in sweep.warnings
    )


@pytest.mark.parametrize("keep", [0.5, 0.9, 0.99])
def test_cut_json_keeps_its_complete_results(keep):
    text = json.dumps(report())
    sweep = one(text[: int(keep * len(text))])
    assert 5 < sweep.size.size <= len(SIZES) and (sweep.n_ranks, sweep.collective) == (2, "all_reduce")
    assert any("JSON is cut" in said for said in sweep.warnings)


def test_other_json_is_refused():
    for text in ('{"a": 1}', json.dumps(report(results=[])), json.dumps(report())[:300]):
        with pytest.raises(InputRefused, match="JSON"):
            read_sweep(text)


def test_rccl_tests_json():
    records = [
        {"numCycle": 0, "name": "AllReduce", "nodes": 1, "ranks": 8, "ranksPerNode": 8, "gpusPerRank": 1,
         "size": size, "type": "float", "redop": "sum", "inPlace": place, "time": time,
         "algBw": size / time / 1e3, "busBw": 1.75 * size / time / 1e3, "wrong": "0"}
        for size, *times in straight(8) for place, time in enumerate(times)
    ]  # fmt: skip
    check(one(json.dumps(records) + "\n"))


@pytest.mark.parametrize(
    "text, words",
    [
        ("\n", "is empty"),
        ("hello\nworld\n", "is not an nccl-tests or rccl-tests log"),
        ("# OSU MPI Allreduce Latency Test\n# Size  Avg Latency(us)\n4  5.1\n", "OSU"),
        (
            " #bytes  #iterations  BW peak[MB/sec]  BW average[MB/sec]\n 65536   5000   11512.31   11511.8\n",
            "ib_write",
        ),
        ("size(B)    count(elems)    type    time:avg(us)    algbw(GB/s)    busbw(GB/s)\n", "nccom-test"),
        ("node01:1:1 [0] NCCL INFO Bootstrap : Using eth0\n", "NCCL's own messages"),
        ("\n".join(head("all_reduce")) + "\n", "no row of numbers"),
        ("\n".join(LINES[:8]) + "\n", "ends before the table"),
        ("\0\1\2\3\n" * 50, "binary"),
        ("1 2 3 4\n5 6 7 8\n", "is not an nccl-tests"),
    ],
)
def test_refusals_say_what_it_is(text, words):
    with pytest.raises(InputRefused, match=words):
        read_sweep(text)


def test_refused_paths_and_arguments(tmp_path):
    (tmp_path / "empty.txt").write_text("")
    for source, words in (
        (tmp_path, "directory"), (tmp_path / "no.txt", "there is no file"), (tmp_path / "empty.txt", "empty"),
        ("", "empty"), ("x" * 5000, "there is no file|cannot be read"), ("a\0b", "no file|cannot be read"), 
        (3, "from a path"),
    ):  # fmt: skip
        with pytest.raises(InputRefused, match=words):
            read_sweep(source)
    for n in (0, -1, 2.5, True, "8"):
        with pytest.raises(InputRefused, match="n_ranks"):
            read_sweep(log(), n)


def test_a_file_too_large_is_refused_unread(tmp_path):
    path = tmp_path / "large.txt"
    with path.open("wb") as file:
        file.truncate(60_000_000)
    with pytest.raises(InputRefused, match="60 MB"):
        read_sweep(path)


SAMPLES = {"a100-8gpu-nvswitch": (8, 20), "gh200-2x4-slingshot": (8, 25), "gh200-2x4-sockets": (8, 25),
           "h100-8gpu-nvswitch": (8, 32), "h100-2x8-infiniband": (16, 32)}  # fmt: skip


def test_shipped_samples_say_where_their_figures_are_from_and_read_without_a_warning():
    assert sample_sweeps().keys() >= SAMPLES.keys()
    for name, (n, rows) in SAMPLES.items():
        path = sample_sweeps()[name]
        assert path.read_text().startswith("# Layout written by this project, figures from ")
        sweep = one(path)
        assert (sweep.collective, sweep.n_ranks, sweep.size.size) == ("all_reduce", n, rows)
        assert sweep.warnings == [] and sweep.skipped == []
