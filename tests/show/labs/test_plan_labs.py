"""The clouds of plans and the waterfall between two of them show what the search and why() say."""

import numpy as np
import pytest

from labkit.course.chapter5_rounds import FIRST, MODEL, cards
from labkit.planner.search import plan_of, search
from labkit.planner.step import step_time
from labkit.planner.why import difference
from labkit.presets import model
from labkit.show import labs
from labkit.show.labs.plan_difference import LONGEST, TERMS
from labkit.show.labs.plan_search import FEWER
from labkit.spec.rules import allowed


def corners(patch):
    """Left and right ends of the rectangles of a patch, and their rows."""
    shapes = patch.get_path().vertices.reshape(-1, 4, 2)
    return shapes[:, 0, 0], shapes[:, 2, 0], shapes[:, :, 1].mean(axis=1)


def test_the_cloud_is_the_table(drawn):
    artists, _ = drawn("plan_search", most_GB=40.0)
    table = search(model(MODEL), cards(), 64, FEWER)
    dots = [np.stack(dots.get_data(), -1) for dots in [*artists["dots"].values(), artists["beyond"]]]
    shown = {tuple(dot) for dot in np.concatenate(dots).tolist()}
    wanted = zip(table["memory"] / 1e9, table["tokens_per_s_per_gpu"], strict=True)
    assert shown == set(wanted) and sum(map(len, dots)) == len(table)
    assert (artists["beyond"].get_xdata() > 40).all()
    assert all((line.get_xdata() <= 40).all() for line in artists["dots"].values())
    bubbles = (table["limit"] == "bubble") & (table["memory"] <= 40e9)
    assert len(artists["dots"]["bubble"].get_xdata()) == bubbles.sum()


def test_the_star_is_the_fastest_within_the_limit(drawn):
    for most in (80.0, 12.0):
        artists, result = drawn("plan_search", most_GB=most)
        inside = result.table[result.table["memory"] <= most * 1e9]
        (x,), (y,) = artists["best"].get_data()
        assert y == inside["tokens_per_s_per_gpu"].max() and x <= most
        assert artists["limit"].get_xdata()[0] == most
    artists, result = drawn("plan_search", most_GB=1.0)
    assert len(artists["best"].get_xdata()) == 0 and result.best is None
    assert artists["chosen"].get_text() == "none within the limit"


def test_no_plan_is_above_the_front_and_the_rounds_are_the_guides(drawn):
    artists, result = drawn("plan_search", network=0.5)
    x, y = artists["edge"].get_data()
    assert (np.diff(x) > 0).all() and (np.diff(y) > 0).all()
    for memory, speed in zip(result.table["memory"] / 1e9, result.table["tokens_per_s_per_gpu"], strict=True):
        assert speed <= y[x <= memory][-1]
    first = FIRST.step(result.machine)
    held, speed = result.rounds[0]
    assert (held, speed) == (first.peak_memory / 1e9, first.tokens_per_s_per_gpu)


def test_every_control_of_the_search_moves_the_cloud():
    def cloud(**given):
        result = labs.plan_search.compute(**given)
        return result.table["seconds"].tolist(), result.within.sum()

    settings = ({"network": 0.25}, {"sequence": 4096}, {"global_batch": 128}, {"most_GB": 20.0})
    assert all(cloud(**given) != cloud() for given in settings)


@pytest.mark.parametrize(
    "setting", [{}, {"tp": 2, "recompute": "full", "zero": 1}, {"tp": 1, "pp": 32, "v": 1, "micro_batch": 16}]
)
def test_the_waterfall_goes_from_round_1_to_the_plan(drawn, setting):
    artists, result = drawn("plan_difference", **setting)
    shape, machine = model(MODEL), cards()
    found = difference(shape, machine, FIRST.plan, result.plan)
    before, after = (step_time(shape, machine, plan).total for plan in (FIRST.plan, result.plan))
    assert corners(artists["ends"])[1] == pytest.approx(np.minimum([before, after], LONGEST))
    ends = np.minimum(before + np.cumsum([found.by_term[term] for term in TERMS]), LONGEST)
    for name, sign in (("less", -1), ("more", 1)):
        start, stop, rows = corners(artists[name])
        wanted = [i for i, term in enumerate(TERMS) if sign * found.by_term[term] > 0]
        assert rows == pytest.approx(np.array(wanted) + 1.0)
        assert stop == pytest.approx(ends[wanted]) and (sign * (stop - start) >= 0).all()
    assert before + sum(found.by_term.values()) == pytest.approx(after, abs=1e-9)


def test_causes_are_named(drawn):
    artists, _ = drawn("plan_difference")
    assert any(text.endswith(": v") for text in artists["says"].texts)
    artists, _ = drawn("plan_difference", tp=2, micro_batch=1)
    assert any("the cut" in text and "micro-batch" in text for text in artists["says"].texts)
    artists, result = drawn("plan_difference", v=1)
    assert artists["verdict"].get_text() == "as round 1"
    assert artists["says"].texts[1:-1] == ["as it was"] * len(TERMS) and result.plan == FIRST.plan


def test_what_cannot_be_is_replaced():
    result = labs.plan_difference.compute(tp=8, pp=8)
    assert result.broken is not None and allowed(model(MODEL), cards(), result.plan)
    lines = labs.plan_difference.readout(result)
    assert lines[0].endswith(": nearest possible plan")
    assert lines[-1].startswith("asked for: tp 8 x pp 8 = 64 ranks")


def test_the_readout_says_every_setting_that_differs():
    lines = labs.plan_difference.readout(labs.plan_difference.compute(tp=2, micro_batch=1, zero=1))
    assert lines[-3].startswith("by v 1 -> 2: ")
    assert all(f"{name} −" in lines[-2] for name in ("the cut", "micro-batch", "zero"))
    lines = labs.plan_difference.readout(labs.plan_difference.compute(v=1))
    assert lines[-3:] == ["by no setting: +0 s", "by others: none differs", "the plan breaks no rule"]


def test_the_best_of_the_picture_is_a_plan_of_the_search():
    result = labs.plan_search.compute()
    plan = plan_of(result.best)
    assert allowed(result.model, result.machine, plan)
    assert step_time(result.model, result.machine, plan).total == result.best["seconds"]
