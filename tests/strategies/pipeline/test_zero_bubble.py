"""ZB-H1, ZB-H2 and the memory-bounded schedules: bubbles against the paper's formulas, limits kept."""

from hashlib import sha256
from itertools import pairwise, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labkit.errors import InputRefused
from labkit.strategies.pipeline import (
    greedy,
    one_f_one_b,
    peak_in_flight,
    simulate,
    stage_times,
    zb_h1,
    zb_h2,
    zb_v,
)
from labkit.strategies.timeline import FORWARD, INPUT_GRADIENT, WEIGHT_GRADIENT

SIZES = [(2, 4), (4, 8), (4, 16), (8, 24), (8, 64), (16, 48)]


def kinds(operations):
    letters = {FORWARD: "f", INPUT_GRADIENT: "b", WEIGHT_GRADIENT: "w"}
    return "".join(letters[kind] for kind, _, _ in operations)


@pytest.mark.parametrize(("p", "m"), SIZES)
@pytest.mark.parametrize(("forward", "gradient", "weight"), [(1, 1, 1), (4, 4, 3), (5, 6, 5)])
def test_zb_h1_has_the_papers_bubble(p, m, forward, gradient, weight):
    """Qi et al. 2024, table 2: (p - 1)(T_F + T_B - T_W), a third of 1F1B's where all three are equal."""
    run = simulate(zb_h1(p, m), forward, gradient + weight, weight_gradient=weight)
    work = m * (forward + gradient + weight)
    assert run.longest_own_span - work == pytest.approx((p - 1) * (forward + gradient - weight))


@pytest.mark.parametrize(("p", "m"), SIZES)
@pytest.mark.parametrize(("forward", "gradient", "weight"), [(1, 1, 1), (4, 4, 3), (5, 6, 5)])
def test_zb_h2_has_the_papers_bubble_when_there_are_enough_micro_batches(p, m, forward, gradient, weight):
    """Qi et al. 2024, table 2: (p - 1)(T_F + T_B - 2 T_W)."""
    m = max(m, 2 * p)
    run = simulate(zb_h2(p, m), forward, gradient + weight, weight_gradient=weight)
    work = m * (forward + gradient + weight)
    expected = (p - 1) * (forward + gradient - 2 * weight)
    assert run.longest_own_span - work == pytest.approx(max(0, expected))


@pytest.mark.parametrize(("p", "m"), SIZES)
def test_each_schedule_waits_less_than_the_one_before(p, m):
    rates = [simulate(schedule(p, m), 1, 2).bubble_rate for schedule in (one_f_one_b, zb_h1, zb_h2)]
    assert rates[0] > rates[1] > rates[2]
    v = simulate(zb_v(p, m), 0.5, 1).bubble_rate
    assert v < rates[1]


@pytest.mark.parametrize(("p", "m"), SIZES)
def test_the_step_is_no_shorter_where_the_optimizer_waits_for_all(p, m):
    """ZB-H2 only moves the waiting before the first forward and after the last weight gradient."""
    h1, h2 = (simulate(schedule(p, m), 1, 2) for schedule in (zb_h1, zb_h2))
    assert h1.span == h2.span == 3 * m + p - 1


def test_the_orders_of_figures_2_and_3():
    assert kinds(zb_h1(4, 8)[0]) == "ffff" + "bwf" * 4 + "bw" * 4
    assert kinds(zb_h1(4, 8)[3]) == "fb" * 4 + "wfb" * 4 + "wwww"
    assert kinds(zb_h2(4, 8)[0]) == "fffffff" + "bwf" + "bw" * 7
    assert kinds(zb_h2(4, 8)[3]) == "fb" * 7 + "wfb" + "w" * 7


@pytest.mark.parametrize(("p", "m"), SIZES)
@pytest.mark.parametrize(
    ("forward", "gradient", "weight", "transfer"),
    [(1, 1, 1, 0), (4, 4, 3, 0), (5, 6, 5, 0.5), (3, 3, 1, 0.1)],
)
def test_the_limits_1x_and_2x(p, m, forward, gradient, weight, transfer):
    """At 1x no worse than ZB-H1, at 2x no worse than ZB-H2, which hold as much or less."""
    times = stage_times(p, forward, gradient + weight, transfer, weight)
    for limit, by_hand in ((p, zb_h1), (2 * p, zb_h2)):
        found = simulate(greedy(p, m, limit, *times), *times).longest_own_span
        assert found <= simulate(by_hand(p, m), *times).longest_own_span * (1 + 1e-9)


SECONDS = st.floats(0.05, 10)


@given(st.data())
@settings(max_examples=100)
def test_greedy_never_exceeds_its_limit_and_always_comes_to_an_end(data):
    p, m = (data.draw(st.integers(1, most)) for most in (6, 12))
    limit = data.draw(st.integers(1, 14) | st.floats(1, 14))
    forward, gradient, weight = (data.draw(st.lists(SECONDS, min_size=p, max_size=p)) for _ in range(3))
    transfer = data.draw(st.floats(0, 3))
    times = stage_times(p, forward, np.add(gradient, weight), transfer, weight)
    order = greedy(p, m, limit, *times)
    assert peak_in_flight(order).max() <= min(limit, m)
    assert simulate(order, *times).span > 0


def test_greedy_orders_are_those_of_before_it_was_made_faster():
    """All orders of a grid of sizes, limits and unequal times, by their digest."""
    digest = sha256()
    seconds = ((1, 1, 1), (4, 4, 3), (3, 3, 1), (1, 2, 3))
    for p, m, twice, times, hop in product((1, 2, 3, 4, 8), (1, 3, 8, 21), (False, True), seconds, (0, 0.5)):
        forward = [times[0] + 0.25 * (stage % 3) for stage in range(p)]
        order = greedy(p, m, p * (1 + twice), forward, times[1] + times[2], hop, times[2])
        digest.update(repr(order).encode())
    assert digest.hexdigest() == "c31cd83044e1f334b3b785bb3a34f1cece8e196b7c518aed813c2144b0e7729f"


def test_more_memory_never_waits_longer_with_equal_passes():
    rates = [simulate(greedy(8, 32, limit), 1, 2).bubble_rate for limit in range(1, 17)]
    assert all(a >= b - 1e-12 for a, b in pairwise(rates))
    assert rates[-1] == 0


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: zb_h1(0, 4), "pipeline ranks is 0"),
        (lambda: zb_h2(2, 0), "micro-batches is 0"),
        (lambda: zb_v(2, 1.5), r"micro-batches is 1\.5"),
        (lambda: greedy(4, 4, 0), "limit of micro-batches held is 0"),
        (lambda: greedy(4, 4, float("nan")), "limit of micro-batches held is nan"),
        (lambda: greedy(4, 4, 4, [1, 2]), r"one per stage, shape \(4,\)"),
    ],
)
def test_refused(call, words):
    with pytest.raises(InputRefused, match=words):
        call()
