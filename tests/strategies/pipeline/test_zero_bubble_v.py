"""ZB-V: no wait with equal passes, the published order, memory alike on all ranks."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labkit.strategies.pipeline import peak_in_flight, simulate, stage_times, zb_v
from labkit.strategies.timeline import FORWARD, INPUT_GRADIENT, WEIGHT_GRADIENT

SECONDS = st.floats(0.05, 10)


def at_fixed_places(p, m):
    """The published order, phase after phase, with weight gradients at the places that it gives them."""
    full = max(m, 2 * p - 1)
    ranks = [_rank_at_fixed_places(p, full, rank) for rank in range(p)]
    return [[one for one in rank if one[1] < m] for rank in ranks]


def _rank_at_fixed_places(p, m, rank):
    down, up = rank, 2 * p - 1 - rank
    operations, count = [], {}

    def put(stage, *kinds):
        for kind in kinds:
            k = count.get((kind, stage), 0)
            count[kind, stage] = k + 1
            if k < m:
                operations.append((kind, k, stage))

    for _ in range(2 * (p - rank) - 1):
        put(down, FORWARD)
    for _ in range(rank):
        put(up, FORWARD)
        put(down, FORWARD)
    for _ in range(p - rank):
        put(up, FORWARD, INPUT_GRADIENT, WEIGHT_GRADIENT)
    for _ in range(m - p):
        put(down, FORWARD, INPUT_GRADIENT, WEIGHT_GRADIENT)
        put(up, FORWARD, INPUT_GRADIENT, WEIGHT_GRADIENT)
    for _ in range(rank):
        put(down, INPUT_GRADIENT)
        put(up, INPUT_GRADIENT)
    for _ in range(p - rank):
        put(down, INPUT_GRADIENT, WEIGHT_GRADIENT)
    put(up, *[WEIGHT_GRADIENT] * rank)
    put(down, *[WEIGHT_GRADIENT] * rank)
    return operations


@pytest.mark.parametrize("p", [1, 2, 3, 4, 7, 8, 16])
def test_no_rank_waits_when_all_passes_are_equal_and_micro_batches_fill_the_pipeline(p):
    """With F = B = W, by the measure of Qi et al. 2024: zero from 2 p - 1 micro-batches on."""
    for m in (2 * p - 1, 2 * p, 3 * p + 1, 6 * p):
        assert simulate(zb_v(p, m), 0.5, 1).bubble_rate == 0
    if p > 2:
        assert simulate(zb_v(p, 2 * p - 2), 0.5, 1).bubble_rate > 0


@pytest.mark.parametrize("p", [1, 2, 3, 5, 8])
@pytest.mark.parametrize("m", [1, 2, 4, 7, 12, 24])
def test_weight_gradients_that_fill_the_waiting_are_no_worse_than_at_their_fixed_places(p, m):
    for forward, backward, transfer, weight in [
        (0.5, 1, 0, 0.5),
        (2, 3.5, 0, 1.5),
        (0.5, 1, 0.3, 0.5),
        (1, 1.5, 0, 0.5),
    ]:
        times = stage_times(2 * p, forward, backward, transfer, weight)
        fixed, filled = (
            simulate(order, *times).longest_own_span for order in (at_fixed_places(p, m), zb_v(p, m, *times))
        )
        assert filled <= fixed * (1 + 1e-9)


@pytest.mark.parametrize("p", [1, 2, 4, 8])
@pytest.mark.parametrize("m", [1, 3, 8, 20])
def test_forwards_and_input_gradients_come_in_the_published_order(p, m):
    for mine, published in zip(zb_v(p, m, 1.0, 2.5, 0.25, 1.0), at_fixed_places(p, m), strict=True):
        assert [o for o in mine if o[0] != WEIGHT_GRADIENT] == [
            o for o in published if o[0] != WEIGHT_GRADIENT
        ]


@pytest.mark.parametrize("p", [1, 2, 4, 8])
@pytest.mark.parametrize("m", [1, 2, 5, 16, 24])
def test_every_rank_holds_as_much(p, m):
    assert peak_in_flight(zb_v(p, m)).tolist() == [min(p, m)] * p


@given(st.data())
@settings(max_examples=100)
def test_never_exceeds_p_and_always_comes_to_an_end(data):
    p, m = (data.draw(st.integers(1, most)) for most in (6, 12))
    forward, gradient, weight = (
        data.draw(st.lists(SECONDS, min_size=2 * p, max_size=2 * p)) for _ in range(3)
    )
    times = stage_times(2 * p, forward, np.add(gradient, weight), data.draw(st.floats(0, 3)), weight)
    order = zb_v(p, m, *times)
    assert peak_in_flight(order).max() <= min(p, m)
    assert simulate(order, *times).stages == 2 * p


def test_goes_down_the_ranks_and_up_again():
    assert [sorted({stage for _, _, stage in rank}) for rank in zb_v(3, 4)] == [[0, 5], [1, 4], [2, 3]]
