"""The labs of activation memory and recompute: what they draw, worked out apart, and that nothing leaves."""

import numpy as np
import pytest

from labkit.show import labs, still
from labkit.show.labs.recompute_trade import CUT, LEAST, WIDE
from labkit.show.labs.sequence_memory import SEQUENCES

GPT = dict(model="gpt3-13b", tp=4, micro_batch=2, sequence=4096)


def bars(artists, part):
    """Starts and ends of the four bars of a part, from the top row down."""
    corners = artists["shapes"][part].get_path().vertices.reshape(4, -1, 2)
    return corners[:, 0, 0], corners[:, 2, 0]


def test_the_curve_of_checkpoints_by_hand(drawn):
    artists, result = drawn("recompute_trade", **GPT, every=8, fused=True)
    k, held = artists["lines"][2].get_data()
    assert k.tolist() == list(range(1, 41))
    by_hand = (np.ceil(40 / k) * 2 + k * 16 - 2) / (40 * 16)  # tp 4: 10 + 24/4 = 16 s b h
    assert held == pytest.approx(by_hand)
    assert artists["best"].get_data()[0] == [1 + np.argmin(by_hand)]
    assert artists["chosen"].get_data() == ([8], [pytest.approx(by_hand[7])])
    assert result["closed"] == pytest.approx((2 * 40 / 16) ** 0.5)
    assert [line.get_ydata()[0] for line in artists["guide"]] == pytest.approx([40**-0.5, 1 / 40])


def test_in_a_pipeline_the_inputs_of_every_micro_batch_stay(drawn):
    artists, _ = drawn("recompute_trade", **GPT, pp=4, fused=True)
    k, held = artists["lines"][2].get_data()
    assert held == pytest.approx((4 * np.ceil(10 / k) * 2 + k * 16 - 2) / (4 * 10 * 16))


def test_bars_stand_on_each_other_and_say_their_sum(drawn):
    artists, result = drawn("recompute_trade", **GPT, cluster="h200", fused=True)
    (zero, states), (start, activations), (next_start, end) = (
        bars(artists, part) for part in artists["shapes"]
    )
    assert zero.tolist() == [0] * 4 and np.array_equal(states, start)
    assert np.array_equal(activations, next_start)
    assert end * 1e9 == pytest.approx(result["at_peak"].total)
    widths = activations - start
    # With fused attention nothing is left for selective recompute to drop.
    assert widths[0] == pytest.approx(widths[1]) and max(widths[2:]) < 0.5 * widths[0]
    # 40 layers x 16 s b h are the most of it; the logits of a padded vocabulary the rest.
    assert 40 * 16 * 4096 * 2 * 5120 / 1e9 < widths[0] < 1.25 * 40 * 16 * 4096 * 2 * 5120 / 1e9


def test_what_does_not_fit_the_axis_is_cut_and_said(drawn):
    artists, result = drawn("recompute_trade", model="llama2-70b", tp=1, sequence=65536, micro_batch=16)
    assert max(bars(artists, "states")[1]) <= CUT < WIDE
    assert all("TB" in text.get_text() for text in artists["totals"][:2])
    assert all(text.get_text().startswith("→ ") for text in artists["totals"])
    assert result["capacity"] < result["at_peak"].total.min()
    whole, _ = drawn("recompute_trade", fused=True)
    assert not any("→" in text.get_text() for text in whole["totals"])


def test_selective_recompute_drops_stored_scores(drawn):
    _, fused = drawn("recompute_trade", **GPT, fused=True)
    _, stored = drawn("recompute_trade", **GPT, fused=False)
    assert stored["at_peak"].activations[0] > 2 * stored["at_peak"].activations[1]
    # The scores of one layer come back for its backward, 7 a s with their gradients, beside 40 layers.
    assert fused["at_peak"].activations[1] < stored["at_peak"].activations[1]
    assert stored["at_peak"].activations[1] < 1.2 * fused["at_peak"].activations[1]
    assert stored["extra"][1] == pytest.approx(fused["extra"][1]) and stored["extra"][1] > 0


def test_extra_compute_does_not_depend_on_k_and_traffic_is_six_for_four(drawn):
    for every in (1, 16):
        _, result = drawn("recompute_trade", **GPT, every=every)
        assert result["extra"][2] == result["extra"][3] == pytest.approx(1 / 3, abs=0.01)
        assert result["sent"][1] == pytest.approx(1.5 * result["sent"][0])


@pytest.mark.parametrize("setting", [{}, {"pp": 8, "every": 16}, {"tp": 8, "sequence": 65536}])
def test_every_curve_stays_inside_its_axes(drawn, setting):
    artists, _ = drawn("recompute_trade", **setting)
    for line in artists["lines"]:
        low, high = line.axes.get_ylim()
        under = line.get_ydata() < low
        assert low == LEAST and np.all(line.get_ydata() < high)
        assert not under.any() or (line.get_label() == "inputs" and len(artists["below"].get_xdata()) == 1)


def test_inputs_that_leave_the_axis_are_marked_where_they_do(drawn):
    # Scores of 65,536 tokens: a layer keeps 2,594 s b h, so that inputs are 2 / 2594 of it at every layer.
    artists, _ = drawn("recompute_trade", tp=1, sequence=65536)
    assert artists["below"].get_xdata() == [1] and artists["below"].get_ydata() == [LEAST]
    artists, _ = drawn("recompute_trade", tp=1, sequence=16384)
    inputs = 2 * np.ceil(40 / np.arange(1, 41)) / 40 / (34 + 5 * 40 * 16384 / 5120)
    first = np.flatnonzero(inputs < LEAST)[0]
    assert first <= artists["below"].get_xdata()[0] < first + 1
    assert not len(drawn("recompute_trade", fused=True, tp=1)[0]["below"].get_xdata())


def test_k_beyond_a_stage_is_the_whole_stage_and_said():
    said = [still(labs.recompute_trade, pp=8, every=every).facts for every in (4, 5, 16)]
    assert "beyond" not in said[0][3] and "beyond" not in said[1][3]
    assert said[2][3] == said[1][3] + " (16 is beyond a stage)" and said[2][:3] == said[1][:3]


def test_activations_by_sequence_by_hand(drawn):
    artists, result = drawn("sequence_memory", n=32, tp=2, micro_batch=3, sequence=2048)
    s = SEQUENCES.astype(float)
    unit = 40 * 3 * s * 5120
    stored, fused = unit * (22 + 5 * 40 * s / 5120 / 2), unit * 22  # 10 + 24/2
    full = unit * 2 + 20 * unit / 40  # the inputs, and the rest of one layer
    for line, values in zip(artists["lines"], (stored, fused, full), strict=False):
        assert line.get_ydata() == pytest.approx(values)
    states = artists["lines"][3].get_ydata()
    assert states == pytest.approx(np.full(len(s), 16 * result["of"].parameters / 2 / 16))
    for line, values in zip(artists["shares"], (stored, fused, full), strict=True):
        assert line.get_ydata() == pytest.approx(values / (values + states))
    assert result["half"]["fused"] == pytest.approx(states[0] / (fused[0] / s[0]))
    assert result["half"]["full recompute"] == pytest.approx(states[0] / (full[0] / s[0]))
    at = result["half"]["scores stored"]
    assert 40 * 3 * at * 5120 * (22 + 5 * 40 * at / 5120 / 2) == pytest.approx(states[0])


def test_the_chosen_sequence_is_marked_on_every_share(drawn):
    artists, result = drawn("sequence_memory", sequence=8192)
    for dot, line in zip(artists["dots"], artists["shares"], strict=True):
        (x,), (y,) = dot.get_data()
        assert (x, y) == (8192, pytest.approx(line.get_ydata()[SEQUENCES.tolist().index(8192)]))
    assert [line.get_xdata()[0] for line in artists["here"]] == [result["sequence"]] * 2


def test_what_is_drawn_of_the_sequence_fits_its_axes(drawn):
    least = dict(model="llama2-7b", n=512, tp=8, sequence=512, sequence_parallel=True)
    for setting in (least, dict(model="gpt3-175b", n=1, micro_batch=16, sequence=131072)):
        artists, _ = drawn("sequence_memory", **setting)
        for line in artists["lines"]:
            low, high = line.axes.get_ylim()
            assert np.all((line.get_ydata() > low) & (line.get_ydata() < high))


def test_n_is_all_cards_and_sequence_parallel_alone_is_said_to_do_nothing():
    states = [still(labs.sequence_memory, n=64, tp=tp).facts[0].split("states ")[1] for tp in (1, 2, 8)]
    assert len(set(states)) == 1  # P / tp over N / tp
    alone = still(labs.sequence_memory, sequence_parallel=True).facts
    assert "(sequence parallel: no change)" in alone[0] and alone[1:] == still(labs.sequence_memory).facts[1:]
    cut = still(labs.sequence_memory, tp=2, sequence_parallel=True).facts
    assert "no change" not in cut[0] and cut[1] != still(labs.sequence_memory, tp=2).facts[1]
