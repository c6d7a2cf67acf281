"""Where sweeps come from: JSON reports, shipped samples, and what is refused."""

import json
import os
import threading

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
    rccl_records,
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
        entry["in_place"]["nwrong"] = None
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


@pytest.mark.parametrize("op", ["all_reduce", "broadcast", "send_recv", "all_to_all", "reduce_scatter"])
@pytest.mark.parametrize("processes, gpus", [(8, 1), (1, 8), (2, 4), (None, 8)])
def test_rccl_tests_json_counts_every_gpu_of_a_process(op, processes, gpus):
    records = rccl_records(op, processes, gpus)
    check(one(json.dumps(records) + "\n"), op)
    check(one("\n".join(map(json.dumps, records)) + "\n"), op)  # as most versions write it


def test_rccl_tests_json_keeps_what_was_measured_again():
    records = rccl_records("all_reduce", 8, 1)
    again = one(json.dumps(records) + "\n" + json.dumps(records))
    assert again.size.size == 2 * len(SIZES) and "more than once" in again.warnings[0]


def test_json_reports_behind_one_another():
    texts = json.dumps(report()), json.dumps(report("all_gather", 4), indent=1)
    for between in ("", "\n", "\n\n  "):
        first, second = read_sweep(between.join(texts))
        check(first, n=2, rows=straight(2))
        check(second, "all_gather", 4)
    first, second = read_sweep("\n".join(texts)[:-2000])
    check(first, n=2, rows=straight(2))
    assert 5 < second.size.size < len(SIZES) and any("JSON is cut" in said for said in second.warnings)


@pytest.mark.parametrize("changes", [{"nthreads": 2, "ngpus": 4}, {"nthreads": 1, "ngpus": 8}])
def test_json_of_several_gpus_a_process_is_no_cut_list(changes):
    data = report(processes=2, ngpus=8)
    data["config"].update(changes)
    sweep = one(json.dumps(data))
    assert sweep.n_ranks == 16 and sweep.warnings == []


def test_host_launch_times_are_refused():
    text = log().replace("     time ", "  cputime ")
    data = report()
    for entry in data["results"]:
        for half in (entry["out_of_place"], entry["in_place"]):
            half["cpu_time"] = half.pop("time")
    for source in (text, json.dumps(data)):
        with pytest.raises(InputRefused, match=r"host's launches .*run without -C"):
            read_sweep(source)
    sweep = one(text + log("all_gather", 4))
    check(sweep, "all_gather", 4)
    assert "tables left out: 1" in sweep.warnings[-1] and "-C" in sweep.warnings[-1]


def test_pipes_are_read(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_text, args=(log(),))
    writer.start()
    check(one(pipe))
    writer.join()


def test_an_endless_device_is_refused():
    with pytest.raises(InputRefused, match="more than 50 MB"):
        read_sweep("/dev/zero")


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
    for n in (0, -1, 2.5, True, "8", 2**20 + 1, 10**400, 10**5000):
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
