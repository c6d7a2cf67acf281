"""The first cell of the course says what is in place and what is not, and never fails itself."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from labkit.errors import InputRefused
from labkit.show.check import _outcome, check_installation

PACKAGE = Path(__file__).resolve().parents[2] / "labkit"
SAY = """import json, sys
if sys.argv[1:]:
    sys.modules[sys.argv[1]] = None  # importing it fails, as where it is not installed
from labkit.show.check import check_installation
print(json.dumps([result for _, result in check_installation().rows]))"""


def test_every_part_is_in_place_here():
    shown = check_installation()
    assert [result for _, result in shown.rows] == ["ok"] * 4
    words = ("proved", "presets", "logs", "figure")
    assert [word in part for (part, _), word in zip(shown.rows, words, strict=True)] == [True] * 4


@pytest.mark.parametrize(
    ("failure", "says"),
    [
        (ImportError("No module named 'ipywidgets'"), "ImportError: No module named 'ipywidgets'"),
        (InputRefused("no shipped data file 'x'"), "InputRefused: no shipped data file 'x'"),
        (AssertionError(), "AssertionError: "),
    ],
)
def test_a_failure_becomes_a_sentence(failure, says):
    def part():
        raise failure

    assert _outcome(part) == f"not ok: {says}"
    assert _outcome(lambda: None) == "ok"


def results(folder, *without):
    """What a labkit in ``folder`` says of itself, in a Python of its own."""
    command = [sys.executable, "-c", SAY, *without]
    return json.loads(subprocess.check_output(command, cwd=folder, text=True, timeout=120))


@pytest.fixture
def copied(tmp_path):
    """A copy of the package alone, without the shipped data."""
    shutil.copytree(PACKAGE, tmp_path / "labkit", ignore=shutil.ignore_patterns("__pycache__", "data"))
    return tmp_path


def test_an_installation_without_its_data_says_so_in_the_two_parts_that_need_it(copied):
    proved, presets, logs, figure = results(copied)
    assert (proved, figure) == ("ok", "ok")
    assert presets.startswith("not ok: InputRefused: ") and "hardware.toml" in presets
    assert logs.startswith("not ok: InputRefused: ") and "sweeps" in logs


def test_without_a_package_for_figures_the_rest_still_answers(copied):
    shutil.copytree(PACKAGE.parent / "data", copied / "data")
    *rest, figure = results(copied, "ipywidgets")
    assert rest == ["ok"] * 3
    assert figure.startswith("not ok: ") and "ipywidgets" in figure
