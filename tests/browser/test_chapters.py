"""Every live lab of every chapter in the real browser: each control moves its picture, and nothing fails."""

import os
from pathlib import Path

import pytest

NOTEBOOKS = sorted((Path(__file__).resolve().parents[2] / "notebooks").glob("*.ipynb"))
SHOTS = os.environ.get("LABKIT_SHOTS")  # a folder to leave screenshots in, for a person to look at
# (lab, control) that leaves the picture as it was and moves the numbers below it, and why that is right.
READOUT_ONLY = {
    ("sequence_memory", "sequence parallel"): "one tensor-parallel rank has nothing to share",
    ("tensor_degree", "cluster"): "the next preset has the same links and the same chip, less memory",
    ("tensor_micro_batch", "cluster"): "the next preset has the same links and the same chip",
    ("volume_by_ranks", "message size S"): "the picture is in units of S",
}
# A new address may stand for the same picture: only its bytes tell.
BYTES = """async img => { const bytes = await (await fetch(img.src)).arrayBuffer();
  const hash = new Uint8Array(await crypto.subtle.digest('SHA-256', bytes));
  return Array.from(hash, b => b.toString(16).padStart(2, '0')).join(''); }"""


@pytest.mark.parametrize("path", NOTEBOOKS, ids=[path.stem for path in NOTEBOOKS])
def test_every_control_of_every_lab_answers(open_notebook, path):
    notebook = open_notebook(path)
    notebook.run_all()
    assert notebook.errors() == []
    labs = notebook.labs()
    assert labs
    wrong = []
    for number, lab in enumerate(labs):
        first = _shown(lab)
        name = first[0].removeprefix("lk.still(labs.").partition(",")[0]
        _shoot(lab, f"{path.stem}-{number}-a")
        for label in lab.labels():
            lab.nudge(label)
            setting, picture, readout = (new != old for new, old in zip(_shown(lab), first, strict=True))
            seen = readout and not picture if (name, label) in READOUT_ONLY else picture
            if not (setting and seen):
                wrong.append(f"lab {number}, {name}, {label}: {setting=}, {picture=}, {readout=}")
            _shoot(lab, f"{path.stem}-{number}-b")
            lab.click("Reset")
            assert _shown(lab) == first, f"lab {number}, {name}, {label}: did not come back"
    assert wrong == []
    assert notebook.errors() == []


def _shown(lab):
    """The setting line, the picture (its bytes, as a hash) and the numbers under it."""
    return lab.setting(), lab.image.evaluate(BYTES), lab.readout_text()


def _shoot(lab, name):
    if SHOTS:
        lab.box.screenshot(path=f"{SHOTS}/{name}.png")
