"""``labkit sweep`` as a terminal user meets it."""

import json
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest

from labkit import read_sweep
from labkit.cli import main
from labkit.presets import sample_sweeps
from tests.evidence.nccl_log import log

GOOD = str(sample_sweeps()["gh200-2x4-slingshot"])
TEXT = Path(GOOD).read_text(encoding="utf-8")
FIELDS = ["file", "collective", "n_ranks", "rows", "skipped", "alpha_s", "bandwidth_Bps", "knee_B"]
FIELDS += ["plateau_busbw_Bps", "warnings"]


def test_json_carries_the_fit(capsys):
    assert main(["sweep", "--json", GOOD]) == 0
    (answer,) = json.loads(capsys.readouterr().out)
    assert list(answer) == FIELDS
    fit = read_sweep(GOOD)[0].fit()
    assert (answer["file"], answer["collective"], answer["n_ranks"], answer["rows"]) == (
        GOOD,
        "all_reduce",
        8,
        25,
    )
    assert (answer["alpha_s"], answer["bandwidth_Bps"], answer["knee_B"]) == (
        fit.alpha,
        fit.bandwidth,
        fit.knee,
    )
    assert answer["plateau_busbw_Bps"] == fit.plateau and answer["skipped"] == []
    assert [finding.message for finding in fit.findings] == answer["warnings"][len(fit.warnings) :]


def test_numbers_that_the_rows_cannot_tell_are_null(tmp_path, capsys):
    lines = TEXT.split("\n")
    path = tmp_path / "large.txt"
    path.write_text(
        "\n".join(line for line in lines if "float" not in line or "134217728 " in line)
        + "\n       8    2  fl"
    )
    assert main(["sweep", "--json", str(path)]) == 0
    (answer,) = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)
    assert answer["alpha_s"] is None and answer["rows"] == 1
    assert (
        answer["skipped"] == [[len(path.read_text().split("\n")), "it is not whole"]] and answer["warnings"]
    )
    assert math.isnan(read_sweep(path)[0].fit().alpha)


def test_report_reads_well(capsys):
    assert main(["sweep", GOOD]) == 0
    out = capsys.readouterr().out
    for words in (
        "collective  all_reduce",
        "ranks       8",
        "25, 8 B to 128 MiB",
        "latency     18",
        "µs ±",
        "knee",
        "plateau",
    ):
        assert words in out
    assert "nan" not in out and out.startswith(GOOD)


def test_tables_of_one_file_are_numbered(tmp_path, capsys):
    path = tmp_path / "two.txt"
    path.write_text(TEXT * 2)
    assert main(["sweep", str(path)]) == 0
    out = capsys.readouterr().out
    assert f"{path}, table 1\n" in out and f"\n\n{path}, table 2\n" in out
    assert main(["sweep", "--json", str(path)]) == 0
    assert [answer["file"] for answer in json.loads(capsys.readouterr().out)] == [str(path)] * 2


def test_readable_files_are_answered_and_the_others_refused(tmp_path, capsys):
    bad = tmp_path / "notes.txt"
    bad.write_text("nothing\nhere\n")
    assert main(["sweep", "--json", str(bad), GOOD, str(tmp_path / "gone.txt")]) == 2
    captured = capsys.readouterr()
    assert [answer["file"] for answer in json.loads(captured.out)] == [GOOD]
    assert len(captured.err.splitlines()) == 2 and str(bad) in captured.err and "gone.txt" in captured.err
    assert main(["sweep", str(bad)]) == 2
    assert capsys.readouterr().out == ""


def test_ranks_reach_the_reader(capsys):
    assert main(["sweep", "--json", "--ranks", "16", GOOD]) == 0
    (answer,) = json.loads(capsys.readouterr().out)
    assert answer["n_ranks"] == 16 and "conflict" in answer["warnings"][0]
    assert main(["sweep", "--ranks", "0", GOOD]) == 2


@pytest.mark.parametrize("arguments", [[], ["sweep"], ["sweep", "--ranks", "x", GOOD], ["nonsense"]])
def test_wrong_use_exits_with_two(arguments, capsys):
    with pytest.raises(SystemExit) as stop:
        main(arguments)
    assert stop.value.code == 2 and "usage: labkit" in capsys.readouterr().err


def test_tables_of_one_run_are_titled_by_what_tells_them_apart(tmp_path, capsys):
    path = tmp_path / "types.txt"
    rows = [line for line in TEXT.split("\n") if " float " in line and line[:1] == " "]
    other = [line.replace("float", "int32") for line in rows]
    path.write_text(TEXT.rstrip("\n").replace(rows[-1], "\n".join([rows[-1], *other])) + "\n")
    assert main(["sweep", str(path)]) == 0
    out = capsys.readouterr().out
    assert f"{path}, table 1 (float, sum)\n" in out and f"\n\n{path}, table 2 (int32, sum)\n" in out
    assert main(["sweep", "--json", str(path)]) == 0
    warnings = [answer["warnings"][0] for answer in json.loads(capsys.readouterr().out)]
    assert [("float, sum" in said, "int32, sum" in said) for said in warnings] == [
        (True, False),
        (False, True),
    ]


@pytest.mark.parametrize("option", ["--ranks=99999999999", "--ranks=-1", "--ranks=1048577"])
def test_ranks_out_of_bounds_are_refused_in_one_sentence(option, capsys):
    assert main(["sweep", option, GOOD]) == 2
    captured = capsys.readouterr()
    assert captured.out == "" and len(captured.err.splitlines()) == 1 and "1 to 1048576" in captured.err


@pytest.mark.parametrize("option", ["--nominal=0", "--nominal=nan", "--nominal=-5", "--nominal=inf"])
def test_a_nominal_rate_that_is_none_is_wrong_use(option, capsys):
    with pytest.raises(SystemExit) as stop:
        main(["sweep", option, GOOD])
    assert stop.value.code == 2 and "no rate above 0" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["sweep", "--ranks", "9" * 5000, GOOD])
    assert "far too large" in capsys.readouterr().err


def test_the_module_runs_and_reads_standard_input():
    command = [sys.executable, "-m", "labkit", "sweep", "--json", "-"]
    done = subprocess.run(command, input=TEXT.encode(), capture_output=True, check=True)
    (answer,) = json.loads(done.stdout)
    assert (answer["file"], answer["n_ranks"], answer["rows"], done.stderr) == ("-", 8, 25, b"")
    refused = subprocess.run(command, input=b"", capture_output=True)
    assert refused.returncode == 2 and b"is empty" in refused.stderr


def test_a_reader_that_leaves_ends_it_quietly():
    read_end, write_end = os.pipe()
    os.close(read_end)
    command = [sys.executable, "-m", "labkit", "sweep", GOOD]
    run = subprocess.run(command, stdout=write_end, stderr=subprocess.PIPE)
    os.close(write_end)
    assert (run.returncode, run.stderr) == (1, b"")


def test_one_rank_has_no_figures(tmp_path, capsys):
    path = tmp_path / "one.txt"
    path.write_text(log(n=1))
    assert main(["sweep", "--json", str(path)]) == 0
    (answer,) = json.loads(capsys.readouterr().out)
    assert [answer[key] for key in FIELDS[5:9]] == [None] * 4
    assert any("no communication was measured" in said for said in answer["warnings"])
    assert main(["sweep", str(path)]) == 0
    assert "latency     cannot be told" in capsys.readouterr().out
