"""The theme leaves Matplotlib as it was, and its colours stay apart for colour-blind readers."""

import itertools

import matplotlib
import numpy as np
import pytest
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

from labkit.planner.memory import PARTS
from labkit.show import theme

TOGETHER = {
    "step": [
        "compute",
        "tensor",
        "context",
        "expert",
        "pipeline",
        "data",
        "optimizer",
        "launch",
        "input",
        "idle",
    ],
    "transfer": ["compute", "latency", "bandwidth", "contention", "idle"],
    "memory": list(PARTS),
    "memory in sums": ["parameters", "gradients", "optimizer_states", "activations", "other"],
    "algorithms": [
        "ring",
        "tree",
        "double_tree",
        "recursive_doubling",
        "halving_doubling",
        "linear",
        "pairwise",
        "hierarchical",
    ],
    "operations": [
        "all_reduce",
        "reduce_scatter",
        "all_gather",
        "all_to_all",
        "broadcast",
        "reduce",
        "scatter",
        "gather",
        "send_recv",
    ],
    "evidence": ["measured", "model", "ghost"],
    "places": ["device", "intra", "inter"],
}
# Machado, Oliveira and Fernandes (2009), severity 1.0, on linear RGB.
DEFICIENCY = {
    "none": np.eye(3),
    "protan": [
        [0.152286, 1.052583, -0.204868],
        [0.114503, 0.786281, 0.099216],
        [-0.003882, -0.048116, 1.051998],
    ],
    "deutan": [
        [0.367322, 0.860646, -0.227968],
        [0.280085, 0.672501, 0.047413],
        [-0.011820, 0.042940, 0.968881],
    ],
}


def lab_colour(colour, deficiency):
    """CIELAB (D65) of a colour as a reader with the deficiency sees it."""
    rgb = np.array(to_rgb(colour))
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    linear = np.clip(np.array(DEFICIENCY[deficiency]) @ linear, 0, 1)
    to_xyz = [[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]
    xyz = np.array(to_xyz) @ linear / np.array([0.9505, 1, 1.089])
    f = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


@pytest.mark.parametrize("group", TOGETHER)
@pytest.mark.parametrize("deficiency", DEFICIENCY)
def test_colours_that_meet_stay_apart(group, deficiency):
    for a, b in itertools.combinations(TOGETHER[group], 2):
        apart = np.linalg.norm(
            lab_colour(theme.COLOURS[a], deficiency) - lab_colour(theme.COLOURS[b], deficiency)
        )
        assert apart > 12, f"{a} and {b} are {apart:.0f} apart for {deficiency}"


def test_nothing_global_changes():
    before = dict(matplotlib.rcParams)
    with theme.style():
        assert matplotlib.rcParams["axes.spines.top"] is False
        theme.axes(Figure())
    assert dict(matplotlib.rcParams) == before


def test_axes_come_one_or_row_by_row_at_fixed_places():
    with theme.style():
        figure = Figure(figsize=(9, 3.8))
        one = theme.axes(figure, left=0.1, right=0.8, bottom=0.2, top=0.9)
        assert one.get_position().bounds == pytest.approx((0.1, 0.2, 0.7, 0.7))
        several = theme.axes(Figure(), rows=2, columns=2, width_ratios=[2, 1])
    assert len(several) == 4
    widths = [ax.get_position().width for ax in several]
    assert (
        widths[0] == pytest.approx(2 * widths[1])
        and several[0].get_position().y0 > several[2].get_position().y0
    )
    assert {text.get_fontsize() for ax in several for text in ax.get_xticklabels()} == {11.0}
