"""The walkthrough's bars are the step and the memory of its plans; what cannot be is replaced by what can."""

import pytest

from labkit.course.chapter5_rounds import FIRST, SECOND, cards, third
from labkit.planner.memory import memory
from labkit.presets import model
from labkit.show import labs, still
from labkit.show.memory_parts import SUMS
from labkit.spec import Plan
from labkit.spec.rules import allowed
from labkit.spec.step_time import TERMS as ALL_TERMS

BATCH_64 = "64 / (m dp)"
MODEL = model("guide-13b")


def rectangle(patch, row):
    """Left and right end of one rectangle of a patch."""
    corners = patch.get_path().vertices.reshape(-1, 4, 2)[row]
    return corners[:, 0].min(), corners[:, 0].max()


def test_at_its_defaults_it_is_round_1(drawn):
    artists, result = drawn("walkthrough")
    assert result.yours.plan == FIRST.plan and result.broken is None
    assert artists["verdict"].get_text() == "as round 1"
    assert [one.plan for one in result.rounds] == [FIRST.plan, SECOND.plan, third().plan]


@pytest.mark.parametrize(
    "setting", [{}, {"tp": 2, "m": 24, "micro_batch": 1}, {"cluster": "h100", "zero": 1}]
)
def test_bars_are_the_terms_of_the_step_on_one_scale(drawn, setting):
    artists, result = drawn("walkthrough", **setting)
    assert result.yours.step.total == pytest.approx(sum(getattr(result.yours.step, t) for t in ALL_TERMS))
    for row, one in enumerate(result.rows):
        end = 0.0
        for term, (own, rounds) in artists["bars"].items():
            low, high = rectangle(rounds, row - 1) if row else rectangle(own, 0)
            share = getattr(one.step, term) / one.step.total
            assert low == pytest.approx(end) and high - low == pytest.approx(
                share * one.per_token / first_time(result)
            )
            end = high
        # What a card does in a second, the other way round.
        speeds = one.step.tokens_per_s_per_gpu, result.rounds[0].step.tokens_per_s_per_gpu
        assert end == pytest.approx(speeds[1] / speeds[0])


def first_time(result):
    return result.rounds[0].per_token


def test_the_memory_is_that_of_the_fullest_card(drawn):
    artists, _ = drawn("walkthrough", tp=2, zero=1, recompute="full")
    end = 0.0
    for name in SUMS:
        low, high = rectangle(artists["held"][name][0], 0)
        assert low == pytest.approx(end)
        end = high
    plan = Plan(tp=2, pp=4, dp=4, zero=1, micro_batch=2, accumulation=16, recompute="full")
    assert end * cards().gpu.usable == pytest.approx(memory(MODEL, cards(), plan).peak)


def test_twenty_four_micro_batches_of_a_batch_of_64_become_the_nearest_batch():
    shown = still(labs.walkthrough, m=24, micro_batch=BATCH_64)
    assert "m 24 × 1, batch 48" in shown.facts[0]
    assert "64 mod 48 = 16" in shown.facts[1] and "48 (micro-batch 1) or 96 (micro-batch 2)" in shown.facts[2]


def test_more_cards_than_there_are_become_fewer_stages(drawn):
    artists, result = drawn("walkthrough", tp=8, pp=8)
    plan = result.yours.plan
    assert (plan.tp, plan.pp, plan.dp) == (8, 4, 1) and result.broken.rule == "ranks"
    assert artists["verdict"].get_text() == "impossible: shown is the nearest"


@pytest.mark.parametrize("pp", [1, 2, 4, 8, 16])
@pytest.mark.parametrize("v", [1, 2, 4])
def test_whatever_is_asked_for_the_plan_that_is_drawn_is_possible_on_32_cards(pp, v):
    for tp, m, micro in ((1, 2, 16), (8, 18, 1), (2, 64, BATCH_64)):
        result = labs.walkthrough.compute(tp=tp, pp=pp, v=v, m=m, micro_batch=micro)
        plan = result.yours.plan
        assert plan.ranks == 32 and allowed(MODEL, cards(), plan)
        as_asked = (plan.pp, plan.v, plan.accumulation) == (pp, v, m) and (
            plan.global_batch == 64 if micro == BATCH_64 else plan.micro_batch == micro
        )
        assert as_asked == (result.broken is None)


def test_what_does_not_fit_says_so_and_its_bar_ends_with_an_arrow(drawn):
    artists, result = drawn("walkthrough", tp=1, pp=1, micro_batch=16)
    assert not result.fits and artists["verdict"].get_text().endswith("does not fit")
    assert artists["sizes"].texts[0].startswith("→") and "too much" in labs.walkthrough.readout(result)[-1]


@pytest.mark.parametrize(
    "setting",
    [
        {"cluster": "h100"},
        {"tp": 2},
        {"pp": 2},
        {"v": 2},
        {"m": 32},
        {"micro_batch": 1},
        {"zero": 1},
        {"recompute": "full"},
        {"bucket": 500e6},
    ],
)
def test_every_control_changes_the_picture(setting):
    plain, changed = (still(labs.walkthrough, **given).picture.stored() for given in ({}, setting))
    assert plain != changed
