"""Routing, capacity and placement: what must hold for any router, and cases worked out by hand."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labkit.errors import InputRefused
from labkit.strategies.experts import (
    PLACEMENTS,
    Routing,
    drop_late,
    expert_capacity,
    imbalance,
    place_experts,
    popularity,
    route,
    tokens_per_rank,
)


def chosen(*choices, experts):
    """A routing of one rank with these experts per token, gates even."""
    choices = np.array([choices])
    return Routing(choices, np.full(choices.shape, 1 / choices.shape[2]), choices >= 0, experts)


@st.composite
def routings(draw):
    """Any router on any number of ranks, capacity or none."""
    experts = draw(st.integers(1, 12))
    popular = popularity(experts, draw(st.floats(0, 30)), draw(st.floats(0, 1)), draw(st.integers(0, 99)))
    sizes = draw(st.integers(1, 5)), draw(st.integers(1, 40)), draw(st.integers(1, experts))
    routing = route(popular, *sizes, seed=draw(st.integers(0, 99)))
    return drop_late(routing, draw(st.one_of(st.none(), st.floats(0.1, 3))))


# ---- the router


@given(routings())
def test_every_token_visits_top_k_different_experts_and_its_gates_sum_to_one(routing):
    ordered = np.sort(routing.chosen, axis=-1)
    assert np.all(np.diff(ordered, axis=-1) > 0)
    assert ordered.min() >= 0 and ordered.max() < routing.experts
    assert np.allclose(routing.gates.sum(axis=-1), 1, rtol=1e-12)
    assert np.all(np.diff(routing.gates, axis=-1) <= 0) and np.all(routing.gates >= 0)


def test_a_seed_gives_the_same_routing_and_another_seed_another():
    first, again, other = (route(popularity(16, 1), 4, 100, 2, seed) for seed in (3, 3, 4))
    assert np.array_equal(first.chosen, again.chosen) and np.array_equal(first.gates, again.gates)
    assert not np.array_equal(first.chosen, other.chosen)


def test_popularity_is_zipfs_law_in_an_order_of_its_own():
    shares = popularity(4, skew=1, seed=5)
    # 1, 1/2, 1/3, 1/4 over their sum 25/12
    assert sorted(shares, reverse=True) == pytest.approx([12 / 25, 6 / 25, 4 / 25, 3 / 25], rel=1e-12)
    orders = {tuple(np.argsort(popularity(4, 1, seed=seed))) for seed in range(20)}
    assert len(orders) > 5
    assert popularity(4) == pytest.approx([0.25] * 4)


def test_balance_moves_every_share_that_part_of_the_way_to_even():
    none, half, full = (popularity(8, 1.5, balance, seed=2) for balance in (0, 0.5, 1))
    assert half == pytest.approx((none + 1 / 8) / 2, rel=1e-12) and full == pytest.approx([1 / 8] * 8)


def test_drawn_shares_are_those_of_drawing_one_expert_after_the_other():
    popular = np.array([0.5, 0.3, 0.2])
    routing = route(popular, ranks=10, tokens=20_000, top_k=2, seed=1)
    first, second = np.moveaxis(routing.chosen.reshape(-1, 2), 1, 0)
    assert np.bincount(first) / first.size == pytest.approx(popular, abs=0.004)
    # Second after the first is gone: expert 0 after 1 with 5/7, after 2 with 5/8.
    wanted = [0.3 * 5 / 7 + 0.2 * 5 / 8, 0.5 * 3 / 5 + 0.2 * 3 / 8, 0.5 * 2 / 5 + 0.3 * 2 / 7]
    assert np.bincount(second) / second.size == pytest.approx(wanted, abs=0.004)


# ---- capacity and dropping


def test_capacity_is_the_even_share_times_the_factor_rounded_up():
    # 4096 tokens x 2 / 64 experts = 128 each
    assert expert_capacity(1, 4096, 2, 64) == 128 and expert_capacity(1.25, 4096, 2, 64) == 160
    assert expert_capacity(1.1, 50, 2, 10) == 11  # and not 12 by a rounding
    assert expert_capacity(np.array([1, 2]), 10, 1, 3).tolist() == [4, 7]


def test_who_comes_last_is_dropped():
    # capacity 1 x 2 x 3 / 3 = 2: expert 0 takes tokens 0 and 1, expert 1 tokens 0 and 1, so 2 loses both
    routing = drop_late(chosen((0, 1), (1, 0), (0, 1), experts=3), 1)
    assert routing.capacity == 2
    assert routing.kept.tolist() == [[[True, True], [True, True], [False, False]]]
    assert routing.dropped == pytest.approx(2 / 6) and routing.passed_by == pytest.approx(1 / 3)
    assert routing.padding == pytest.approx(2 / 6)  # the two rows of expert 2
    assert routing.demand.tolist() == [3, 3, 0] and routing.tokens_per_expert.tolist() == [2, 2, 0]


def test_each_rank_counts_only_its_own_tokens():
    choices = np.array([[[0], [0]], [[1], [1]]])  # together even, on each rank all for one expert
    routing = Routing(choices, np.ones(choices.shape), choices >= 0, experts=2)
    assert drop_late(routing, 1).kept.ravel().tolist() == [True, False, True, False]


def by_hand(routing, capacity):
    """Token after token, a counter for each expert of each rank."""
    kept = np.zeros(routing.chosen.shape, dtype=bool)
    for rank, tokens in enumerate(routing.chosen):
        filled = [0] * routing.experts
        for t, experts in enumerate(tokens):
            for c, expert in enumerate(experts):
                kept[rank, t, c] = filled[expert] < capacity
                filled[expert] += 1
    return kept


@given(routings())
@settings(max_examples=60)
def test_dropping_is_that_of_a_counter_and_conserves_choices(routing):
    if routing.capacity is None:
        assert routing.kept.all() and routing.dropped == 0 and routing.padding == 0
        return
    assert np.array_equal(routing.kept, by_hand(routing, routing.capacity))
    rows = routing.ranks * routing.experts * routing.capacity
    assert routing.demand.sum() == routing.chosen.size
    assert routing.tokens_per_expert.sum() == pytest.approx(routing.chosen.size * (1 - routing.dropped))
    assert routing.tokens_per_expert.sum() == pytest.approx(rows * (1 - routing.padding))
    assert routing.tokens_per_expert.max() <= routing.ranks * routing.capacity


def test_more_capacity_drops_less_and_pads_more():
    routing = route(popularity(16, 0.8), 4, 500, 2)
    found = [drop_late(routing, factor) for factor in (0.5, 1, 1.25, 2, 4)]
    assert np.all(np.diff([f.dropped for f in found]) < 0)
    assert np.all(np.diff([f.padding for f in found]) > 0)
    again = drop_late(found[0], None)
    assert again.kept.all() and again.capacity is None


# ---- placement and imbalance


@pytest.mark.parametrize("how", PLACEMENTS)
@pytest.mark.parametrize(("experts", "ranks"), [(8, 8), (64, 8), (12, 3), (5, 1)])
def test_every_rank_holds_as_many_experts(how, experts, ranks):
    load = np.random.default_rng(0).integers(0, 100, experts)
    seats = place_experts(experts, ranks, how, load)
    assert np.bincount(seats, minlength=ranks).tolist() == [experts // ranks] * ranks
    assert tokens_per_rank(load, seats, ranks).sum() == load.sum()


def test_placements_by_hand():
    assert place_experts(6, 3).tolist() == [0, 0, 1, 1, 2, 2]
    assert place_experts(6, 3, "round_robin").tolist() == [0, 1, 2, 0, 1, 2]
    # largest first: 9 -> 0, 8 -> 1, 7 -> 2, then 3 to the lightest with a place, and so on
    assert place_experts(6, 3, "balanced", [1, 9, 2, 8, 3, 7]).tolist() == [0, 0, 1, 1, 2, 2]


def test_a_measured_load_placed_in_balance_beats_neighbours_together():
    load = [8, 2, 7, 7, 3, 1]
    even = [imbalance(tokens_per_rank(load, place_experts(6, 3, how, load), 3)) for how in PLACEMENTS]
    assert even[2] < min(even[:2])


def test_half_of_the_ranks_idle_is_an_imbalance_of_two():
    """Case H1: a router that starts every cycle at the same expert leaves half of 64 ranks without tokens."""
    assert imbalance([2 * 1000] * 32 + [0] * 32) == 2.0
    assert imbalance([[1, 1], [2, 0], [1, 3]]).tolist() == [1, 2, 1.5]


@given(st.lists(st.integers(0, 1000), min_size=1, max_size=20).filter(any))
def test_imbalance_lies_between_one_and_the_number_of_ranks(load):
    assert 1 - 1e-12 <= imbalance(load) <= len(load) + 1e-12


def test_experts_that_do_not_divide_name_what_works():
    """Case A15: 256 mod 3 = 1; two redundant experts make 258 = 3 x 86."""
    with pytest.raises(InputRefused, match=r"256 mod 3 = 1\); use 2 or 4 ranks, or add 2 .* 258 = 3 x 86"):
        place_experts(256, 3)
    with pytest.raises(InputRefused, match=r"8 mod 16 = 8\); use 8 ranks, or add 8 .* 16 = 16 x 1"):
        place_experts(8, 16)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: popularity(0), "number of experts"),
        (lambda: popularity(8, -1), "skew is -1"),
        (lambda: popularity(8, 1, 1.5), "balance is 1.5"),
        (lambda: route(popularity(4), 0, 1), "number of ranks"),
        (lambda: route(popularity(4), 1, 0), "tokens of a rank"),
        (lambda: route(popularity(4), 1, 1, top_k=0), "top_k is 0"),
        (lambda: route(popularity(4), 1, 1, top_k=5), "5 of 4 experts"),
        (lambda: expert_capacity(0, 1, 1, 1), "capacity factor is 0"),
        (lambda: place_experts(8, 0), "expert-parallel degree"),
        (lambda: place_experts(8, 2, "random"), "contiguous, round_robin or balanced"),
        (lambda: place_experts(8, 2, "balanced"), "measured load"),
        (lambda: imbalance([0, 0]), "some above 0"),
        (lambda: imbalance([-1, 2]), "from 0 up"),
        (lambda: imbalance([]), "load of a rank is an empty list"),
    ],
)
def test_refused(call, words):
    with pytest.raises(InputRefused, match=words):
        call()
