"""The gantt: its picture shows the run, and what a schedule cannot do is replaced and said."""

from itertools import product

import numpy as np
import pytest
from matplotlib.figure import Figure

from labkit.course.chapter3_pipeline import CHOICES
from labkit.show import choice, linear, live, still, toggle
from labkit.show.labs.pipeline_schedule import build, compute, pipeline_schedule, readout, update
from labkit.strategies.timeline import BACKWARD, FORWARD, INPUT_GRADIENT, WEIGHT_GRADIENT

CONTROLS = {
    "p": linear("ranks p", 2, 16, 4),
    "m": linear("micro-batches m", 1, 64, 8, group="sizes"),
    "v": linear("chunks v", 1, 4, 1, group="algorithm"),
    "schedule": choice("schedule", list(CHOICES), "1F1B"),
    "backward": linear("backward / forward", 1, 3, 2, step=0.25, group="sizes"),
    "transfer": linear("transfer / forward", 0, 0.5, 0, step=0.05, group="sizes"),
    "head": linear("output head / forward", 0, 1, 0, step=0.05, group="sizes"),
    "spread": toggle("head spread over all ranks", False),
}
ENDS = [
    dict(p=p, m=m, v=v, schedule=schedule, transfer=transfer, head=transfer)
    for p, m, v, schedule, transfer in product((2, 16), (1, 13), (1, 3), CHOICES, (0.0, 0.5))
]


def drawn(**setting):
    artists = build(Figure(pipeline_schedule.size))
    case = compute(**setting)
    update(artists, case)
    return artists, case


@pytest.mark.parametrize("setting", ENDS, ids=str)
def test_all_that_is_drawn_lies_inside_the_axes(setting):
    artists, case = drawn(**setting)
    gantt, most, held = artists["axes"]
    for patch in (artists["idle"], artists["done"], artists["transfers"], *artists["blocks"].values()):
        if not patch.get_visible():
            continue
        x, y = patch.get_path().vertices.T
        assert x.min() >= 0 and x.max() <= gantt.get_xlim()[1]
        assert y.min() > -0.5 and y.max() < case.p - 0.5
    assert case.peak.max() < most.get_xlim()[1]
    for line in artists["held"]:
        x, y = map(np.max, line.get_data())
        assert x <= held.get_xlim()[1] and y <= held.get_ylim()[1]
    lines = readout(case)
    assert len(lines) == len(readout(compute())) and max(map(len, lines)) <= 110


@pytest.mark.parametrize("schedule", CHOICES)
def test_the_blocks_drawn_are_those_of_the_run(schedule):
    artists, case = drawn(schedule=schedule, m=6, v=1)
    run = case.run
    for kind in (FORWARD, BACKWARD, INPUT_GRADIENT, WEIGHT_GRADIENT):
        for chunk in range(case.chunks):
            chosen = (run.kind == kind) & (run.stage // case.p == chunk)
            patch = artists["blocks"][kind, chunk]
            assert patch.get_visible() == chosen.any()
            if chosen.any():
                corners = patch.get_path().vertices.reshape(-1, 4, 2)
                assert np.array_equal(corners[:, 0, 0], run.start[chosen])
    assert artists["end"].get_xdata()[0] == run.span
    assert artists["ideal"].get_xdata()[0] == pytest.approx(6 * 3)


def test_the_formula_at_the_guide_s_sizes():
    assert compute(p=4, m=4).bubble[:2] == pytest.approx((3 / 7, 3 / 4))
    assert compute(p=4, m=32, schedule="GPipe").bubble[:2] == pytest.approx((3 / 35, 3 / 32))
    assert compute(p=4, m=16, v=2).bubble.share == pytest.approx(3 / 35)
    assert "(p-1)/(m v+p-1) = 42.9 % of the step" in readout(compute(p=4, m=4))[4]


@pytest.mark.parametrize(
    ("asked", "m", "chunks", "says"),
    [
        ({"p": 4, "m": 8, "v": 2}, 8, 2, ""),
        ({"p": 4, "m": 9, "v": 2}, 8, 2, "m = 8, not 9: interleaving needs a multiple of p = 4"),
        ({"p": 4, "m": 10, "v": 2}, 12, 2, "m = 12, not 10"),
        ({"p": 16, "m": 3, "v": 4}, 16, 4, "m = 16, not 3"),
        ({"schedule": "GPipe", "v": 3}, 8, 1, "v = 1, not 3: GPipe has one stage a rank"),
        ({"schedule": "ZB-V", "v": 1}, 8, 2, "v = 2, not 1: ZB-V has two chunks a rank"),
        ({"schedule": "ZB-V", "v": 2}, 8, 2, ""),
    ],
)
def test_what_a_schedule_cannot_do_is_replaced_and_said(asked, m, chunks, says):
    case = compute(**asked)
    assert (case.m, case.chunks) == (m, chunks)
    assert says in readout(case)[1] if says else readout(case)[1] == "taken: as asked"


def test_the_head_on_the_last_rank_and_spread():
    last, spread = compute(head=1.0), compute(head=1.0, spread=True)
    assert last.run.busy.tolist() == [24, 24, 24, 48]
    assert spread.run.busy.tolist() == [30, 30, 30, 30]
    assert last.ideal == spread.ideal == 30


def test_numbers_stand_on_fewer_than_200_blocks_only():
    few, _ = drawn(p=4, m=24)  # 192 blocks
    many, _ = drawn(p=4, m=25)
    assert len(few["numbers"]._texts) == 192 and many["numbers"]._texts == []


def test_dragged_to_a_setting_it_shows_what_it_shows_there_from_the_start():
    view = live(pipeline_schedule, **CONTROLS)
    view.set(p=16, m=64, schedule="ZB-V", transfer=0.1, head=0.5)
    view.set(p=3, m=7, schedule="1F1B", v=2)
    view.set(transfer=0.0, spread=True, backward=1.5)
    straight = still(pipeline_schedule, p=3, m=7, v=2, schedule="1F1B", backward=1.5, head=0.5, spread=True)
    assert view.facts == straight.facts
    assert view.picture.stored() == straight.picture.stored()


def test_kept_lines_follow_the_axes():
    view = live(pipeline_schedule, **CONTROLS)
    view._page.keep.click()
    view.set(m=64)
    dragged = view.picture.stored()
    view.picture._background = None
    view.refresh()
    assert view.picture.stored() == dragged


@pytest.mark.parametrize("name", ["p", "m", "v", "schedule", "backward", "transfer", "head", "spread"])
def test_every_control_changes_the_picture(name):
    other = dict(p=5, m=9, v=2, schedule="GPipe", backward=3.0, transfer=0.5, head=0.5, spread=True)
    view = live(pipeline_schedule, **CONTROLS)
    before = view.picture.stored()
    view.set(**{name: other[name]})
    assert view.picture.stored() != before
