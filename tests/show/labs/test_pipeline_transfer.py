"""The lab of claim 2.4-h: its numbers, and that the picture shows them."""

from itertools import product

import numpy as np
import pytest
from matplotlib.figure import Figure

from labkit.show import linear, live, still
from labkit.show.labs.pipeline_transfer import build, compute, pipeline_transfer, readout, update
from labkit.strategies.timeline import BACKWARD, FORWARD

CONTROLS = {
    "p": linear("stages p", 2, 8, 4),
    "m": linear("micro-batches m", 4, 32, 16, group="sizes"),
    "c": linear("transfer c, in forwards", 0.0, 1.0, 0.5, step=0.05, group="sizes"),
}
ENDS = list(product((2, 8), (4, 32), (0.0, 1.0)))


@pytest.mark.parametrize(("m", "claimed"), [(16, 28), (32, 52)])
def test_the_claim(m, claimed):
    result = compute(p=4, m=m, c=0.25)
    longer = [result.longer(name) for name in result.runs]
    assert longer == pytest.approx([claimed, 6, 6])
    assert [run.peak for run in result.runs.values()] == [4, 7, m]


@pytest.mark.parametrize(("p", "m", "c"), ENDS)
def test_all_blocks_lie_inside_the_axes_at_the_ends_of_all_sliders(p, m, c):
    panels = build(Figure())
    update(panels, compute(p, m, c))
    for panel in panels:
        (left, right), (bottom, top) = panel["axes"].get_xlim(), panel["axes"].get_ylim()
        for part in ("idle", "transfers", FORWARD, BACKWARD):
            x, y = panel[part].get_path().vertices.T
            assert left <= x.min() < x.max() <= right
            assert top <= y.min() < y.max() <= bottom


def test_the_blocks_drawn_are_those_of_the_timeline():
    result = compute(p=3, m=5, c=0.5)
    panels = build(Figure())
    update(panels, result)
    for panel in panels:
        run = result.runs[panel["name"]]
        for kind in (FORWARD, BACKWARD):
            corners = panel[kind].get_path().vertices.reshape(-1, 4, 2)
            assert np.array_equal(corners[:, 0, 0], run.timeline.start[run.timeline.kind == kind])
        arrivals = panel["transfers"].get_path().vertices.reshape(-1, 2, 2)[:, 1, 0]
        assert sorted(arrivals) == sorted(run.timeline.stop[run.timeline.kind == "transfer"])
        assert panel["end"].get_xdata()[0] == run.timeline.span
        assert panel["without"].get_xdata()[0] == run.without == 7 * 3


def test_only_p_and_m_move_the_axes():
    panels = build(Figure())
    assert update(panels, compute(4, 16, 0.5)) is None
    assert update(panels, compute(4, 16, 1.0)) is not None
    assert update(panels, compute(4, 17, 1.0)) is None
    assert update(panels, compute(5, 17, 1.0)) is None


def test_readout_keeps_its_shape():
    texts = [readout(compute(*setting)) for setting in ENDS]
    assert {len(lines) for lines in texts} == {4}
    assert max(len(line) for lines in texts for line in lines) <= 110
    assert readout(compute())[1] == (
        "plain 1F1B: step 71, 28c more than the 57 without transfers; at most 4 micro-batches in flight"
    )


def test_dragged_to_a_setting_it_shows_what_it_shows_there_from_the_start():
    view = live(pipeline_transfer, **CONTROLS)
    view.set(p=6, m=8, c=0.0)
    view.set(p=5, m=9)
    view.set(c=0.75)
    straight = still(pipeline_transfer, p=5, m=9, c=0.75)
    assert view.facts == straight.facts
    assert view.picture.stored() == straight.picture.stored()
