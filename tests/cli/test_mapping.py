"""``labkit mapping`` as a terminal user meets it."""

import io
import json
import sys
from types import SimpleNamespace

import pytest

from labkit.cli import main
from labkit.presets import sample_sweeps

CYCLIC = "".join(f"{rank}: node{'AB'[rank % 2]}\n" for rank in range(16))
PLAN = ["--plan", "tp=8,dp=2,global_batch=64"]


@pytest.fixture
def listing(tmp_path):
    path = tmp_path / "ranks.txt"
    path.write_text(CYCLIC)
    return str(path)


def test_report_of_a_cyclic_launch(listing, capsys):
    assert main(["mapping", listing, *PLAN, "--model", "guide-13b", "--cluster", "a100"]) == 0
    out = capsys.readouterr().out
    for words in (
        "16 on 2 hosts, from srun -l hostname",
        "cyclic: not consecutive",
        "nodeA: ranks 0, 2 ... 14",
        "tp groups  2 of 2 cross hosts, 0 in block order; the first: ranks 0 to 7 on nodeA, nodeB",
        "dp groups  0 of 8 cross hosts, 8 in block order",
        "tensor parallel: ",
        "all collectives, nothing hidden",
        "Slurm: srun --distribution=block",
    ):
        assert words in out
    assert "nan" not in out and max(map(len, out.split("\n"))) < 130


def test_without_a_plan_it_tells_the_order_only(capsys):
    assert main(["mapping", str(sample_sweeps()["h100-2x8-infiniband"])]) == 0
    out = capsys.readouterr().out
    assert "order      block\n" in out and "node01: ranks 0 to 7" in out and "groups" not in out
    assert "in order" not in out


def test_json(listing, capsys):
    assert main(["mapping", "--json", listing, *PLAN, "--model", "guide-13b", "--cluster", "a100"]) == 0
    (answer,) = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)
    assert answer["order"] == "cyclic" and not answer["consecutive"] and answer["warnings"] == []
    assert answer["block_order"] == [*range(0, 16, 2), *range(1, 16, 2)]
    assert answer["crossings"]["tp"] == {"groups": 2, "across": 2, "in_order": 0}
    (tensor,) = [row for row in answer["costs"] if row["strategy"] == "tensor parallel"]
    assert tensor["mapped_s"] > 2 * tensor["in_order_s"]


def test_standard_input(monkeypatch, capsys):
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(b"0: a")))
    assert main(["mapping", "-"]) == 0
    assert "1 on 1 host, from srun" in capsys.readouterr().out


def test_one_bad_file_does_not_hide_the_good_one(listing, tmp_path, capsys):
    bad = tmp_path / "bad.txt"
    bad.write_text("0: a\n2: b\n")
    assert main(["mapping", str(bad), listing]) == 2
    found = capsys.readouterr()
    assert "rank 1 is missing" in found.err and found.err.count("\n") == 1 and "cyclic" in found.out


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--plan", "tp=8"], "the mapping 16"),
        (["--model", "guide-13b"], "give all three"),
        ([*PLAN, "--model", "guide-13b"], "give all three"),
        ([*PLAN, "--model", "no-such", "--cluster", "a100"], "no-such"),
    ],
)
def test_refusals(listing, options, says, capsys):
    assert main(["mapping", listing, *options]) == 2
    assert says in capsys.readouterr().err


@pytest.mark.parametrize(
    "plan", ["tp", "tp=", "tp=0", "tp=x", "wings=2", "order=tp", "=", "tp=8,,", "x" * 5000]
)
def test_a_plan_that_cannot_be_is_refused_by_the_command(listing, plan, capsys):
    with pytest.raises(SystemExit) as stopped:
        main(["mapping", listing, "--plan", plan])
    assert stopped.value.code == 2 and "--plan" in capsys.readouterr().err
