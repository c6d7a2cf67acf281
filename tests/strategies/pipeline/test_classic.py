"""GPipe, 1F1B and interleaved 1F1B: bubbles and transfers of equal stages, exactly."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from labkit.errors import InputRefused
from labkit.strategies.pipeline import (
    bubble_over_ideal,
    bubble_share,
    gpipe,
    interleaved,
    one_f_one_b,
    sends,
    simulate,
)
from labkit.strategies.timeline import BACKWARD, FORWARD, TRANSFER

SCHEDULES = {
    "gpipe": gpipe,
    "1f1b": one_f_one_b,
    "1f1b, doubled warm-up": lambda p, m: one_f_one_b(p, m, warmup=2),
}
RATIOS = [(1, 1), (1, 2), (1, 3), (2, 1), (1, 1.5)]


def lengthening(order, forward, backward, transfer):
    """By how many transfer times the transfers make the step longer."""
    spans = [simulate(order, forward, backward, c).span for c in (transfer, 0)]
    return (spans[0] - spans[1]) / transfer


# ---- equal stages, no transfer time (claim 3.3-j): one bubble for all schedules and any forward : backward


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize(("forward", "backward"), RATIOS)
@pytest.mark.parametrize(
    ("p", "m", "bubble"), [(4, 4, "3/7"), (4, 16, "3/19"), (4, 24, "3/27"), (4, 32, "3/35"), (8, 32, "7/39")]
)
def test_bubble_of_equal_stages(schedule, forward, backward, p, m, bubble):
    run = simulate(SCHEDULES[schedule](p, m), forward, backward)
    assert run.span == (m + p - 1) * (forward + backward)
    assert run.bubble == pytest.approx(float(Fraction(bubble)), rel=1e-12)


def test_both_conventions():
    run = simulate(one_f_one_b(4, 16), 1, 2)
    assert (bubble_share(4, 16), bubble_over_ideal(4, 16)) == (3 / 19, 3 / 16)
    assert (run.bubble, run.bubble_over_ideal, run.bubble_rate) == pytest.approx((3 / 19, 3 / 16, 3 / 19))
    assert bubble_share([4, 8], [4, 32], [1, 2]).tolist() == [3 / 7, 7 / 71]
    assert bubble_over_ideal([4, 8], [4, 32], [1, 2]).tolist() == [3 / 4, 7 / 64]


def test_all_schedules_share_the_bubble_at_every_size():
    for p in range(1, 9):
        for m in range(1, 33):
            for schedule in SCHEDULES.values():
                run = simulate(schedule(p, m), 1.0, 2.0)
                assert run.bubble == pytest.approx(bubble_share(p, m), rel=1e-12, abs=1e-15)


# ---- interleaving (claims 3.3-d and 3.3-i)


@given(st.integers(1, 8), st.integers(1, 5), st.integers(1, 5), st.sampled_from(RATIOS))
def test_interleaving_has_its_bubble_when_m_is_a_multiple_of_p(p, rounds, v, ratio):
    m = rounds * p
    forward, backward = (seconds / v for seconds in ratio)
    run = simulate(interleaved(p, m, v), forward, backward)
    assert run.bubble == pytest.approx((p - 1) / (m * v + p - 1), rel=1e-9, abs=1e-12)
    assert run.bubble_over_ideal == pytest.approx((p - 1) / (m * v), rel=1e-9, abs=1e-12)


@pytest.mark.parametrize(("p", "m"), [(1, 1), (4, 7), (4, 16), (8, 3)])
def test_one_chunk_is_plain_1f1b_for_any_number_of_micro_batches(p, m):
    assert interleaved(p, m, 1) == one_f_one_b(p, m)


def test_the_order_of_figure_4():
    """Narayanan et al. 2021, figure 4, bottom: device 2 of 4, two chunks, eight micro-batches."""
    second = interleaved(4, 8, 2)[1]
    ahead = "".join(f"{k + 1}{'ab'[stage // 4]} " for kind, k, stage in second[:9])
    assert ahead == "1a 2a 3a 4a 1b 2b 3b 4b 5a "
    assert second[9:11] == [(BACKWARD, 0, 5), (FORWARD, 5, 1)]
    assert [stage // 4 for kind, _, stage in second if kind == BACKWARD] == [1] * 4 + [0] * 4 + [1] * 4 + [
        0
    ] * 4


@pytest.mark.parametrize(("p", "v", "times"), [(4, 2, 7 / 3), (4, 4, 5.0)])
def test_interleaving_sends_v_times_from_every_rank_but_the_last(p, v, times):
    counts = sends(interleaved(p, 2 * p, v))
    assert counts[:, 0].tolist() == [v] * (p - 1) + [v - 1]
    assert counts[:, 1].tolist() == [v - 1] + [v] * (p - 1)
    assert counts[:, 0].sum() == p * v - 1
    assert counts[:, 0].sum() / sends(one_f_one_b(p, 2 * p))[:, 0].sum() == pytest.approx(times)
    run = simulate(interleaved(p, 2 * p, v), 1, 2, 0.1)
    assert (run.kind == TRANSFER).sum() == 2 * p * counts.sum()


@pytest.mark.parametrize(("m", "words"), [(6, "use 4 or 8"), (3, "use 4"), (9, "use 8 or 12")])
def test_interleaving_refuses_other_numbers_of_micro_batches_and_names_the_nearest(m, words):
    with pytest.raises(InputRefused, match=f"{m} micro-batches are no multiple of the 4 .* {words}$"):
        interleaved(4, m, 2)


# ---- transfer time (claim 2.4-h)


@pytest.mark.parametrize(("forward", "backward"), RATIOS)
@pytest.mark.parametrize("transfer", [2**-7, 0.25, 1.0, 4.0])
@pytest.mark.parametrize(("m", "claimed"), [(16, 28), (32, 52)])
def test_plain_1f1b_shows_its_transfers_whatever_their_length(forward, backward, transfer, m, claimed):
    assert lengthening(one_f_one_b(4, m), forward, backward, transfer) == pytest.approx(claimed)


@pytest.mark.parametrize("p", range(2, 9))
@pytest.mark.parametrize("rounds", [1, 2, 3, 8])
def test_plain_1f1b_pays_a_round_trip_for_every_p_micro_batches(p, rounds):
    claimed = 2 * (p - 1) * rounds + 2 * (p - 2)
    assert lengthening(one_f_one_b(p, rounds * p), 1, 2, 0.25) == pytest.approx(claimed)


@pytest.mark.parametrize(("forward", "backward"), RATIOS)
@pytest.mark.parametrize("share", [2**-7, 0.5, 1.0])
@pytest.mark.parametrize("m", [1, 3, 16, 32])
@pytest.mark.parametrize("p", [2, 4, 7])
def test_doubled_warm_up_hides_transfers_up_to_half_a_forward_and_backward(forward, backward, share, m, p):
    transfer = share * (forward + backward) / 2
    assert lengthening(one_f_one_b(p, m, warmup=2), forward, backward, transfer) == pytest.approx(2 * (p - 1))


def test_beyond_that_doubled_warm_up_shows_them_again():
    assert lengthening(one_f_one_b(4, 16, warmup=2), 1, 2, 1.1 * 1.5) == pytest.approx(78 / 11)


@pytest.mark.parametrize(("forward", "backward"), RATIOS)
@pytest.mark.parametrize("transfer", [2**-7, 0.25, 4.0])
@pytest.mark.parametrize("m", [1, 16, 32])
def test_gpipe_pays_the_way_up_and_down_once(forward, backward, transfer, m):
    assert lengthening(gpipe(4, m), forward, backward, transfer) == pytest.approx(6)
