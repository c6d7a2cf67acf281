"""What every command of ``labkit`` owes a terminal: no traceback, whatever happens to its output or to it."""

import subprocess
import sys
from pathlib import Path

import pytest

from labkit.cli import main, mapping
from labkit.presets import sample_sweeps

SWEEP = str(sample_sweeps()["gh200-2x4-slingshot"])


def labkit(redirect, *words):
    """Exit status and standard error of a command of a shell."""
    line = f'"$0" -m labkit "$@" {redirect}'
    done = subprocess.run(
        ["sh", "-c", line, sys.executable, *words], capture_output=True, text=True, timeout=120
    )
    return done.returncode, done.stderr


@pytest.mark.skipif(not Path("/dev/full").is_char_device(), reason="no /dev/full")
def test_an_answer_that_cannot_be_written():
    assert labkit(">/dev/full", "sweep", SWEEP) == (
        1,
        "labkit: the answer cannot be written (No space left on device)\n",
    )


def test_an_output_that_is_closed_or_whose_reader_left():
    assert labkit(">&-", "sweep", SWEEP) == (0, "")
    status, said = labkit("| head -c 1 >/dev/null", "sweep", "--json", *[SWEEP] * 40)
    assert status == 0 and said == ""


def test_ctrl_c_is_no_traceback(monkeypatch, capsys):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(mapping, "_answer", interrupted)
    assert main(["mapping", "listing.txt"]) == 130
    assert capsys.readouterr() == ("", "")


def test_input_that_is_closed():
    for command in (["mapping", "-"], ["sweep", "-"], ["plan", "--cluster", "h100", "--launch", "-"]):
        assert labkit("<&-", *command) == (
            2,
            "labkit: standard input is closed; give the name of a file\n",
        )
    assert labkit("0>/dev/null", "mapping", "-") == (
        2,
        "labkit: standard input cannot be read (Bad file descriptor); give a file\n",
    )


def test_files_that_hold_no_text(tmp_path, capsys):
    (tmp_path / "empty").write_bytes(b"")
    (tmp_path / "noise").write_bytes(bytes(range(256)) * 20)
    for command in (["mapping"], ["sweep"], ["plan", "--cluster", "h100", "--launch"]):
        for name, says in (
            ("empty", "is empty"),
            ("noise", "is binary data"),
            ("none", "no file"),
            ("", "directory"),
        ):
            assert main([*command, str(tmp_path / name)]) == 2
            said = capsys.readouterr()
            assert says in said.err and said.err.count("\n") == 1 and not said.out
