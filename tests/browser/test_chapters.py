"""Every live lab of every chapter in the real browser: each control moves it, and nothing fails."""

import os
from pathlib import Path

import pytest

NOTEBOOKS = sorted((Path(__file__).resolve().parents[2] / "notebooks").glob("*.ipynb"))
SHOTS = os.environ.get("LABKIT_SHOTS")  # a folder to leave screenshots in, for a person to look at


@pytest.mark.parametrize("path", NOTEBOOKS, ids=[path.stem for path in NOTEBOOKS])
def test_every_control_of_every_lab_answers(open_notebook, path):
    notebook = open_notebook(path)
    notebook.run_all()
    assert notebook.errors() == []
    labs = notebook.labs()
    assert labs
    for number, lab in enumerate(labs):
        first = lab.setting(), lab.image_src()
        _shoot(lab, f"{path.stem}-{number}-a")
        for label in lab.labels():
            before = lab.setting()
            lab.nudge(label)
            assert lab.setting() != before, f"lab {number}: {label} did not change the setting"
        assert lab.image_src() != first[1]
        _shoot(lab, f"{path.stem}-{number}-b")
        lab.click("Reset")
        assert lab.setting() == first[0], f"lab {number} did not come back"
    assert notebook.errors() == []


def _shoot(lab, name):
    if SHOTS:
        lab.box.screenshot(path=f"{SHOTS}/{name}.png")
