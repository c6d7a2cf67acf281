"""A toy notebook with every kind of control, driven by keyboard in JupyterLab."""

import nbformat
import pytest

SETUP = """from types import SimpleNamespace

import numpy as np

from labkit.errors import InputRefused
from labkit.show import Lab, byte_size, choice, linear, live, log2, play, preset, theme, toggle


def compute(n, gpus, rate, size, way, cluster, wide, step):
    if n == 1:
        raise InputRefused("One rank has nobody to talk to; choose n of at least 2")
    if n == 7:
        raise ZeroDivisionError("seven")
    return SimpleNamespace(**locals())


def build(figure):
    ax = theme.axes(figure)
    ax.set(xlim=(0, 1), ylim=(0, 600), title="a line that every control moves")
    return ax, ax.plot([], [], color=theme.COLOURS["ring"])[0]


def update(artists, r):
    shift = 5 * r.step + 50 * r.wide + 20 * len(r.way) + 30 * (r.cluster == "h100")
    artists[1].set_data([0, 1], [shift + np.log2(r.size) + r.gpus, shift + r.n + r.rate])
    return [artists[1]]


def readout(r):
    return [
        f"n = {r.n}, GPUs = {r.gpus}, rate = {r.rate}, size = {r.size}",
        f"{r.way}, {r.cluster}, {r.wide}, step {r.step}",
    ]
"""
SHOW = """live(
    Lab("toy", compute, build, update, readout, "a line"),
    step=play("step", 0, 9, 0),
    wide=toggle("wide", False),
    way=choice("algorithm", ["ring", "recursive_halving", "recursive_doubling", "tree"], "ring"),
    size=byte_size("message size S", 1024, 2**20, 65536),
    n=linear("ranks N", 1, 64, 8),
    gpus=log2("GPUs in a node", 1, 16, 8),
    rate=linear("bandwidth, GB/s", 12.5, 100, 25, step=12.5),
    cluster=preset("cluster", ["a100", "h100"], "a100"),
)"""
FIRST = "n = 8, GPUs = 8, rate = 25.0, size = 65536\nring, a100, False, step 0"


@pytest.fixture
def notebook(open_notebook, tmp_path):
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    cells = [nbformat.v4.new_code_cell(source) for source in (SETUP, SHOW)]
    path = tmp_path / "toy.ipynb"
    nbformat.write(nbformat.v4.new_notebook(cells=cells, metadata={"kernelspec": kernel}), path)
    opened = open_notebook(path)
    opened.run_all()
    return opened


def test_every_control_answers_and_nothing_jumps(notebook):
    (lab,) = notebook.labs()
    labels = [
        "ranks N",
        "GPUs in a node",
        "bandwidth, GB/s",
        "cluster",
        "message size S",
        "algorithm",
        "step",
        "wide",
    ]
    assert sorted(lab.labels()) == sorted(labels) and lab.labels()[:4] == labels[:4]
    assert lab.readout_text() == FIRST and lab.image.get_attribute("title") == "a line"
    for text in labels:  # nothing cut off
        found = lab.control(text).locator(".widget-label, .widget-label-basic").first
        assert found.evaluate("e => e.scrollWidth <= e.clientWidth + 1"), text
    lab.watch()
    pictures = {lab.image_src()}
    for label in labels:
        lab.nudge(label)
        pictures.add(lab.image_src())
    assert len(pictures) == len(labels) + 1
    assert (
        lab.readout_text()
        == "n = 9, GPUs = 16, rate = 37.5, size = 131072\nrecursive_halving, h100, True, step 1"
    )
    lab.choose("algorithm", "recursive doubling")
    lab.click("Keep this curve")
    lab.press("ranks N", "ArrowLeft", times=2)
    assert lab.readout_text() == "This setting failed: ZeroDivisionError: seven"
    assert notebook.errors() == ["This setting failed: ZeroDivisionError: seven"]
    lab.press("ranks N", "Home")
    assert lab.readout_text() == "One rank has nobody to talk to; choose n of at least 2"
    lab.press("ranks N", "ArrowRight")
    assert lab.readout_text().startswith("n = 2,")
    lab.click("Reset")
    assert lab.readout_text() == FIRST
    heights = lab.heights()
    assert len(heights) > 50 and len({tuple(pair) for pair in heights}) == 1
    assert notebook.errors() == []


def test_play_runs_through_the_steps(notebook):
    (lab,) = notebook.labs()
    lab.box.locator(".jupyter-widget-play button, .widget-play button").first.click()
    notebook.page.wait_for_function(
        "e => e.innerText.includes('step 3')", arg=lab.box.element_handle(), timeout=15_000
    )


def test_a_lab_fits_the_screen_and_shrinks_with_the_window(notebook):
    (lab,) = notebook.labs()
    assert lab.box.bounding_box()["height"] <= 680
    notebook.page.set_viewport_size({"width": 900, "height": 800})
    try:
        notebook.page.wait_for_timeout(500)
        picture = lab.image.bounding_box()
        assert picture["width"] < 620 and abs(picture["width"] / picture["height"] - 900 / 380) < 0.02
        assert lab.box.evaluate("e => e.scrollWidth <= e.clientWidth + 1")
    finally:
        notebook.page.set_viewport_size({"width": 1280, "height": 800})
