"""The rank grid: groups partition the ranks, strides and crossings are those counted rank by rank."""

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from labkit.errors import InputRefused
from labkit.spec import Plan, RankGrid
from labkit.spec.plan import DIMENSIONS

degrees = st.sampled_from([1, 1, 2, 3, 4, 6])
orders = st.permutations(DIMENSIONS).map("-".join)
plans = st.builds(Plan, tp=degrees, cp=degrees, dp=degrees, pp=degrees, order=orders)
domains = st.integers(1, 40)


def split(plan, **more):
    """The plan with experts over its stages."""
    return plan.changed(**more)


expert_plans = st.builds(split, plans, ep=degrees, etp=degrees).filter(
    lambda plan: plan.stage_ranks % (plan.ep * plan.etp) == 0
)


@pytest.mark.parametrize(
    ("order", "crossing_dp", "crossing_pp"), [("tp-dp-pp-cp", 0, 16), ("tp-pp-dp-cp", 16, 8 * 2)]
)
def test_claim_3_4_f_32_cards(order, crossing_dp, crossing_pp):
    """4 x 4 x 2 on nodes of 8: the order decides whether data pairs stay in a node; pipelines never do."""
    plan = Plan(tp=4, pp=4, dp=2, order=order)
    grid = RankGrid(plan, per_node=8)
    assert (grid.ranks, grid.nodes, len(grid.groups("dp"))) == (32, 4, 16)
    assert grid.crossing("dp") == crossing_dp
    assert grid.crossing("pp") == len(grid.groups("pp")) == 8
    assert grid.crossing("tp") == 0
    assert plan.crosses("dp", 8) == (crossing_dp > 0) and plan.crosses("pp", 8)


@pytest.mark.parametrize("order", ["tp-dp-pp-cp", "tp-pp-dp-cp"])
def test_claim_3_4_f_64_cards(order):
    grid = RankGrid(Plan(tp=8, pp=4, dp=2, order=order), per_node=8)
    assert grid.crossing("dp") == len(grid.groups("dp")) == 32


def test_groups_of_64_cards_by_hand():
    grid = RankGrid(Plan(tp=8, pp=4, dp=2), per_node=8)
    assert grid.groups("tp")[1].tolist() == [8, 9, 10, 11, 12, 13, 14, 15]
    assert grid.groups("dp")[9].tolist() == [17, 25]
    assert grid.groups("pp")[3].tolist() == [3, 19, 35, 51]
    assert grid.groups("cp").tolist() == [[rank] for rank in range(64)]
    assert grid.position(43) == {"tp": 3, "cp": 0, "dp": 1, "pp": 2}
    assert grid.node(grid.groups("pp")[0]).tolist() == [0, 2, 4, 6]


def test_expert_groups_by_hand():
    """16 ranks a stage: 4 experts ranks of 2 tensor-parallel ranks each, twice."""
    grid = RankGrid(Plan(tp=4, pp=2, dp=4, ep=4, etp=2), per_node=8)
    assert grid.groups("ep").tolist()[:4] == [[0, 2, 4, 6], [1, 3, 5, 7], [8, 10, 12, 14], [9, 11, 13, 15]]
    assert grid.groups("ep").tolist()[4] == [16, 18, 20, 22]
    assert grid.crossing("ep") == 0
    assert RankGrid(Plan(tp=8, dp=4, ep=32, etp=1), per_node=8).crossing("ep") == 1


def test_expert_groups_where_a_stage_is_not_one_block():
    """With the pipeline inside, a stage's ranks come in runs of tp: 0, 1, 4, 5 on the first of two stages."""
    grid = RankGrid(Plan(tp=2, pp=2, dp=2, ep=2, etp=2, order="tp-pp-dp-cp"))
    assert grid.groups("ep").tolist() == [[0, 4], [1, 5], [2, 6], [3, 7]]
    assert grid.plan.stride("ep") == 4
    tight = Plan(tp=2, pp=2, dp=2, ep=2, etp=1, order="tp-pp-dp-cp")
    assert RankGrid(tight).groups("ep").tolist() == [[0, 1], [2, 3], [4, 5], [6, 7]]
    assert tight.stride("ep") == 1


@given(plans, st.sampled_from(DIMENSIONS))
def test_groups_partition_the_ranks_and_differ_in_one_dimension(plan, dimension):
    grid = RankGrid(plan)
    groups = grid.groups(dimension)
    assert groups.shape == (plan.ranks // plan.degree(dimension), plan.degree(dimension))
    assert sorted(groups.ravel().tolist()) == list(range(plan.ranks))
    assert groups[:, 0].tolist() == sorted(groups[:, 0].tolist())
    for group in groups[:3]:
        places = [grid.position(int(rank)) for rank in group]
        assert [place.pop(dimension) for place in places] == list(range(len(group)))
        assert all(place == places[0] for place in places)


@given(expert_plans)
def test_expert_groups_partition_each_stage(plan):
    grid = RankGrid(plan)
    groups = grid.groups("ep")
    assert sorted(groups.ravel().tolist()) == list(range(plan.ranks))
    stage = np.vectorize(lambda rank: grid.position(int(rank))["pp"])(groups)
    assert (stage == stage[:, :1]).all()


@given(plans, st.sampled_from(DIMENSIONS))
def test_strides_are_the_distances_in_the_grid(plan, dimension):
    assume(plan.degree(dimension) > 1)
    assert (np.diff(RankGrid(plan).groups(dimension), axis=1) == plan.stride(dimension)).all()


@given(expert_plans)
def test_the_stride_of_experts_is_that_of_the_first_two(plan):
    assume(plan.ep > 1)
    first = RankGrid(plan).groups("ep")[0]
    assert first[1] - first[0] == plan.stride("ep")


@given(plans, st.sampled_from(DIMENSIONS), domains)
def test_crossing_is_what_the_grid_counts(plan, dimension, domain):
    assert plan.crosses(dimension, domain) == (RankGrid(plan, domain).crossing(dimension) > 0)


@given(expert_plans, domains)
def test_crossing_of_experts_is_what_the_grid_counts(plan, domain):
    assert plan.crosses("ep", domain) == (RankGrid(plan, domain).crossing("ep") > 0)


@given(st.lists(st.tuples(degrees, degrees, degrees, degrees), min_size=1, max_size=6), orders, domains)
def test_crossing_of_arrays_is_that_of_each_plan(rows, order, domain):
    tp, cp, dp, pp = np.array(rows).T
    many = Plan(tp=tp, cp=cp, dp=dp, pp=pp, ep=dp, etp=1, order=order)
    for dimension in (*DIMENSIONS, "ep"):
        each = [
            Plan(tp=a, cp=b, dp=c, pp=d, ep=c, etp=1, order=order).crosses(dimension, domain)
            for a, b, c, d in rows
        ]
        assert np.broadcast_to(many.crosses(dimension, domain), len(rows)).tolist() == each


def test_what_is_no_grid_is_refused():
    for plan in (Plan(tp=np.array([1, 2])), None, "tp8", 8):
        with pytest.raises(InputRefused, match="a rank grid shows one Plan"):
            RankGrid(plan)
    for per_node in (0, -1, 1.5, "8", None, [8], True, float("nan")):
        with pytest.raises(InputRefused, match="GPUs per node of a rank grid"):
            RankGrid(Plan(), per_node)
    for rank in (8, -1, "0", None, 0.5, [0], True):
        with pytest.raises(InputRefused, match=r"a rank of this plan is .* from 0 to 7"):
            RankGrid(Plan(tp=8)).position(rank)
    for dimension in ("", "xp", None, 3):
        with pytest.raises(InputRefused, match="no dimension"):
            RankGrid(Plan()).groups(dimension)
    with pytest.raises(InputRefused, match="4 x 3 expert ranks do not fill the 8 ranks of a stage"):
        RankGrid(Plan(tp=8, ep=4, etp=3)).groups("ep")


@pytest.mark.parametrize("ranks", [8, -1, 1.5, "0", None, [0], True, float("nan"), np.array([0, 8])])
def test_the_node_of_no_rank_is_refused(ranks):
    with pytest.raises(InputRefused, match=r"a rank of this plan is .* from 0 to 7"):
        RankGrid(Plan(tp=8)).node(ranks)


def test_a_grid_too_large_to_list_is_refused():
    with pytest.raises(InputRefused, match=r"this plan has 100,000,000; give one of at most 1,000,000"):
        RankGrid(Plan(dp=10**8))
