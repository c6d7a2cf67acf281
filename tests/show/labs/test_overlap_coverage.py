"""The lab of overlap: what it draws is the timelines of the simulators, and every control moves it."""

import numpy as np
import pytest

from labkit.course.chapter3_buckets import overlapped
from labkit.course.chapter4_overlap import OVERLAPS
from labkit.presets import cluster_ids
from labkit.show import byte_size, choice, linear, live, log2, preset, still
from labkit.show.labs.overlap_coverage import LEAST, MOST, ZERO, overlap_coverage


def widths(patch):
    """Total width of the rectangles of a patch."""
    corners = patch.get_path().vertices.reshape(-1, 4, 2)
    return float((corners[:, 2, 0] - corners[:, 0, 0]).sum())


def test_the_default_is_the_step_of_section_3_1(drawn):
    artists, result = drawn("overlap_coverage", slow_down=1.0)
    t = overlapped(2, 64)
    on, off = result["lines"]["on"], result["lines"]["off"]
    assert (on.span, on.coverage) == (t.span, t.coverage)
    assert off.span == pytest.approx(t.busy[0] + t.communication[0])
    shares = [t.exposed[0] / off.span, off.exposed[0] / off.span]
    assert widths(artists["exposed"]) == pytest.approx(sum(shares), rel=1e-9)
    assert artists["says"]["off"].get_text().startswith("0 % hidden\n73.5 ms exposed")
    for line, value in zip(
        artists["lines"]["on"], (t.coverage, t.exposed[0], t.exposed[0] / t.span), strict=True
    ):
        x, y = line.get_data()
        assert y[list(x).index(2)] == pytest.approx(value)


@pytest.mark.parametrize("overlap", OVERLAPS)
@pytest.mark.parametrize("name", ["a100", "v100", "gb200-nvl72", "cloud-25gbe"])
def test_everything_stays_inside_the_axes(drawn, overlap, name):
    for sequences, slow_down in ((1, 1.0), (64, 1.5)):
        artists, result = drawn(
            "overlap_coverage", overlap=overlap, cluster=name, sequences=sequences, slow_down=slow_down, n=512
        )
        for patch in (*artists["shapes"].values(), artists["exposed"]):
            x = patch.get_path().vertices[:, 0]
            assert np.all((x >= 0) & (x <= 1 + 1e-9))
        for lines in artists["lines"].values():
            coverage, seconds, share = (line.get_ydata() for line in lines)
            assert np.all((coverage >= -1e-9) & (coverage <= 1 + 1e-9) & (share <= 1))
            assert np.all(np.isnan(seconds) | ((seconds >= LEAST) & (seconds <= MOST)))
        off, on = (result["lines"][how] for how in ("off", "on"))
        assert off.coverage < on.coverage or on.coverage == pytest.approx(off.coverage, abs=1e-9)


def test_nothing_exposed_is_marked_and_no_line_is_drawn_there(drawn):
    artists, result = drawn("overlap_coverage", overlap="tensor parallel, beside weight gradients")
    x, y = artists["zeros"].get_data()
    assert list(x) == result["shown"] and set(y) == {ZERO} and artists["zero"].get_visible()
    assert np.isnan(artists["lines"]["on"][1].get_ydata()).all() and artists["dots"][1].get_ydata() == [ZERO]
    artists, _ = drawn("overlap_coverage")
    assert not len(artists["zeros"].get_xdata()) and not artists["zero"].get_visible()


def test_the_curves_of_stage_3_are_its_timelines(drawn):
    _, result = drawn("overlap_coverage", overlap="stage-3 prefetch", slow_down=1.3, sequences=4)
    at = result["shown"].index(4)
    for how, t in result["lines"].items():
        one = (t.coverage, t.exposed[0], t.exposed[0] / t.span)
        assert result["curves"][how][:, at] == pytest.approx(one)


def test_controls_that_have_no_part_are_named():
    tensor = still(overlap_coverage, overlap=OVERLAPS[1], n=8).facts
    assert "any N and bucket" in tensor[0]
    assert tensor == still(overlap_coverage, overlap=OVERLAPS[1], n=512, bucket=2**30).facts
    assert "any bucket" in still(overlap_coverage, overlap=OVERLAPS[4]).facts[0]


def test_a_backward_pass_is_drawn_as_one(drawn):
    artists, _ = drawn("overlap_coverage", overlap="tensor parallel, beside weight gradients")
    assert widths(artists["shapes"]["forward"]) == 0 < widths(artists["shapes"]["backward"])


CONTROLS = {
    "cluster": preset("cluster", cluster_ids(), "a100"),
    "n": log2("ranks N", 2, 512, 64),
    "sequences": log2("sequences per rank", 1, 64, 2, group="sizes"),
    "bucket": byte_size("bucket size", 2**20, 2**32, 2**25),
    "overlap": choice("overlap", list(OVERLAPS), OVERLAPS[0]),
    "slow_down": linear("slow-down", 1, 1.5, 1.2, step=0.1, group="algorithm"),
}


def test_every_control_moves_the_picture():
    view = live(overlap_coverage, **CONTROLS)
    moves = {
        "cluster": "h100",
        "n": 8,
        "sequences": 1,
        "bucket": 2**28,
        "overlap": OVERLAPS[1],
        "slow_down": 1.5,
    }
    assert set(moves) == set(CONTROLS)
    for name, there in moves.items():
        before = view.picture.stored()
        view.set(**{name: there})
        assert view.picture.stored() != before, name
        view.set(**{name: CONTROLS[name].value})
        assert view.picture.stored() == before


def test_dragged_to_a_setting_it_shows_what_it_shows_there_from_the_start():
    view = live(overlap_coverage, **CONTROLS)
    there = dict(overlap=OVERLAPS[4], cluster="cloud-25gbe", n=512, sequences=16, slow_down=1.4)
    view.set(**there)
    straight = still(overlap_coverage, bucket=2**25, **there)
    assert view.facts == straight.facts and view.picture.stored() == straight.picture.stored()
