"""Four public estimators: what each printed, and the sums behind it worked out apart."""

import pytest

from labkit.course import chapter4_estimators as course
from labkit.units import GiB

TOKENS, HIDDEN = 2048, 5120
LAYER = 12 * HIDDEN**2  # weights of a layer with an MLP of 4 h, without norms


def gib(size):
    return size / GiB


def test_cookbook_prints_its_figure_when_gradients_are_not_divided():
    """48.87 + 3.05 + 4.58 + 0.93 + 13.28: its own five lines, and their sum."""
    shape, one = course.SHAPES[course.COOKBOOK], course.cookbook()
    whole = 2 * 51200 * HIDDEN + 2048 * HIDDEN + 40 * (LAYER + 4 * HIDDEN) + 2 * HIDDEN
    assert shape.parameters == whole
    undivided = 4 * whole
    assert gib(undivided) == pytest.approx(48.87, abs=0.005)
    assert gib(one.parts["gradients"]) == pytest.approx(48.87 / 8, abs=0.005)
    assert gib(one.parts["parameters"]) == pytest.approx(2 * whole / 8 / GiB)
    assert gib(one.parts["optimizer_states"]) == pytest.approx(12 * whole / 32 / GiB)
    assert gib(one.parts["activations"]) == pytest.approx(34 * TOKENS * HIDDEN * 40 / GiB)
    assert gib(one.parts["other"]) == pytest.approx(1e9 / GiB)
    printed = one.total - one.parts["gradients"] + undivided
    assert round(gib(printed), 2) == 70.72
    assert round(gib(one.total), 1) == 28.0


def test_megatron_prints_states_activations_and_sum():
    """Half of the layers and the embedding over 4 ranks, norms whole, x 9; 34 s b h over 4, two masks."""
    one = course.megatron()
    held = (20 * LAYER + 51200 * HIDDEN) / 4 + 20 * 4 * HIDDEN
    states = sum(one.parts[part] for part in ("parameters", "gradients", "optimizer_states"))
    assert states == pytest.approx(9 * held)
    assert round(gib(states), 2) == 13.74
    activations = (34 * 40 + 2) * TOKENS * HIDDEN / 4
    assert one.parts["activations"] == pytest.approx(activations)
    # It prints 3.33; 16 bytes a token of its own for the token ids are 8 kB.
    assert round(gib(activations), 2) == 3.33
    assert round(gib(one.total), 2) == 17.06


def test_llm_analysis_takes_the_larger_of_gradients_and_activations_and_two_layers_ahead():
    one = course.llm_analysis()
    held = (20 * LAYER + 32000 * HIDDEN) / 4 + 20 * 2 * HIDDEN
    assert one.parts["activations"] == 0  # 3.7 GiB by its own count, below the 6.0 of the gradients
    assert one.parts["other"] == pytest.approx(2 * 2 * (LAYER / 4 + 2 * HIDDEN))
    assert one.total == pytest.approx(9 * held + one.parts["other"], rel=1e-4)
    assert round(gib(one.total), 1) == 13.8


def test_calculon_counts_layers_alone_shards_gradients_and_keeps_one_layer_at_work():
    """Its shape: hidden 5140, 40 heads of 128, 79,176,560 weights of a layer on a rank, by its layer list."""
    one = course.calculon()
    held = 79_176_560
    assert held == (4 * 5140 * 5120 + 2 * 5140 * 20560) // 4 + 4 * 5140
    assert one.parts["parameters"] == 2 * 20 * held
    assert one.parts["gradients"] == pytest.approx(4 * held + 19 * held / 2)
    assert one.parts["optimizer_states"] == pytest.approx(3 * 20 * held)
    # Per token, of a rank: 10 h / 4 around, q, k, v and output of 1,280, MLP 4 f / 4; scores 5 a s / 4.
    kept = 10 * 5140 / 4 + 8 * 1280 + 20560
    at_work = kept + 5 * 40 * 2048 / 4
    assert one.parts["activations"] == pytest.approx(2048 * (39 * kept + at_work))
    assert round(gib(one.total), 1) == 12.2
    # Operation by operation its gradients of activations are 2 s b h more: 12.19.
    assert gib(one.total + 2 * 2048 * 5140) == pytest.approx(12.19, abs=0.005)


def test_counted_alike_the_four_shapes_need_the_same():
    totals = [gib(one.total) for one in course.on_one_set()]
    assert max(totals) / min(totals) < 1.02
    assert totals[1] == pytest.approx(17.06, abs=0.005)


def test_the_card_holds_more_than_any_tool_that_divides_says():
    """Libraries and slack come on top of the same states."""
    ours, megatron = course.on_the_card(), course.megatron()
    for part in ("parameters", "gradients", "optimizer_states", "activations"):
        assert ours.parts[part] == pytest.approx(megatron.parts[part], rel=0.02)
    assert ours.total > megatron.total + 1e9


def test_tables_say_both_figures():
    text = repr(course.conventions_table())
    for figure in ("27.96", "70.72", "17.06", "13.82", "13.8", "12.17", "12.2"):
        assert figure in text
    assert [row[0] for row in course.parts_table().rows] == [*course.TOOLS, "labkit"]
    assert [row[-1] for row in course.one_set_table().rows][1] == "17.06"
