"""``labkit profile`` as a terminal user meets it."""

import json

import pytest

from labkit.cli import main
from labkit.presets import sample_traces

SLOW = str(sample_traces()["gloo-slow-rank"])
HIDDEN = str(sample_traces()["data-parallel-overlap"])


def test_report(capsys):
    assert main(["profile", SLOW]) == 0
    out = capsys.readouterr().out
    for words in (
        "straggler: rank 2; rank 2 comes last",
        "waiting for other ranks included",
        "all is host time",
        "mean step by cause",
        "rank 3, group 0 default_pg: 24 x all_reduce (dp)",
        "busbw",
    ):
        assert words in out
    assert "nan" not in out


def test_json(capsys):
    assert main(["profile", "--json", SLOW]) == 0
    answer = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)
    assert answer["straggler"] == 2 and list(answer["ranks"]) == ["0", "1", "2", "3"]
    one = answer["ranks"]["2"]
    assert one["host_time"] and [step["number"] for step in one["steps"]] == [1, 2, 3]
    for step in one["steps"]:
        terms = sum(
            v for name, v in step.items() if name not in ("number", "total_s", "exposed_s", "communication_s")
        )
        assert terms == pytest.approx(step["total_s"])
    assert len(answer["collectives"]) == 24 and all(c["transfer_s"] > 0 for c in answer["collectives"])
    assert len(answer["groups"]) == 4 and answer["refused"] == []


def test_without_a_second_rank(capsys):
    assert main(["profile", HIDDEN]) == 0
    out = capsys.readouterr().out
    assert "87.5 % of its communication is hidden" in out and "straggler: none; one rank" in out


def test_one_bad_file_does_not_hide_the_good_one(tmp_path, capsys):
    bad = tmp_path / "bad.json"
    bad.write_text('{"traceEvents": [{"ph"')
    assert main(["profile", str(bad), HIDDEN]) == 2
    found = capsys.readouterr()
    assert "cut off inside of its events" in found.err and found.err.count("\n") == 1 and "rank" in found.out


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["no/such.json"], "there is no file or folder"),
        ([HIDDEN, "--largest", "1kB"], "more than 1 kB unpacked"),
    ],
)
def test_refused(arguments, says, capsys):
    assert main(["profile", *arguments]) == 2
    found = capsys.readouterr()
    assert says in found.err and found.err.count("\n") == 1 and not found.out


def test_a_size_that_is_none(capsys):
    with pytest.raises(SystemExit):
        main(["profile", HIDDEN, "--largest", "much"])
    assert "is no size" in capsys.readouterr().err
