"""Seats of groups in closed form, against the ranks that the grid lists."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from labkit.planner.plan_seats import (
    expert_data_seats,
    expert_seats,
    expert_tensor_seats,
    plan_seats,
    shard_seats,
)
from labkit.planner.traffic import Seats
from labkit.spec import Plan, RankGrid
from labkit.spec.replicas import replica_counts, shard_counts

DEGREES = st.sampled_from([1, 2, 4, 8])
ANY_DEGREE = st.sampled_from([1, 2, 3, 4, 6, 12])


@settings(max_examples=150)
@given(
    tp=DEGREES,
    pp=DEGREES,
    dp=DEGREES,
    cp=st.sampled_from([1, 2]),
    order=st.permutations(["tp", "cp", "dp", "pp"]),
    per_node=st.sampled_from([4, 8, 16]),
    etp=st.sampled_from([1, 2]),
)
def test_seats_are_those_of_the_rank_grid(tp, pp, dp, cp, order, per_node, etp):
    etp = min(etp, tp)
    plan = Plan(tp=tp, pp=pp, dp=dp, cp=cp, order="-".join(order), ep=min(dp, 4), etp=etp)
    grid = RankGrid(plan, per_node)

    def together(groups):
        return max(np.bincount(row // per_node).max() for row in groups)

    for name in ("tp", "pp", "dp", "cp"):
        found = plan_seats(plan, name, domain=per_node)
        assert found.members == together(grid.groups(name))
        assert (found.link == "across") == (grid.crossing(name) > 0)
    found = expert_seats(plan, per_node)
    assert found.members == together(grid.groups("ep"))
    stages = np.moveaxis(grid.mesh, list(reversed(order)).index("pp"), 0)
    stages = stages.reshape(pp, -1, int(plan.ep) * etp)
    alike = np.moveaxis(stages, 1, -1).reshape(-1, stages.shape[1])
    assert expert_data_seats(plan, per_node).members == together(alike)
    sharing = stages.reshape(-1, etp)
    assert expert_tensor_seats(plan, per_node).members == together(sharing)


def test_groups_that_do_not_fill_domains_count_as_crossing():
    found = plan_seats(Plan(tp=3, dp=8), "tp", domain=8)
    assert (found.link, found.members) == ("across", 1)
    assert plan_seats(Plan(tp=3, dp=2), "tp", domain=8).link == "inside"  # six ranks, one domain


@settings(max_examples=200)
@given(
    tp=ANY_DEGREE,
    pp=ANY_DEGREE,
    dp=ANY_DEGREE,
    cp=st.sampled_from([1, 2, 3]),
    order=st.permutations(["tp", "cp", "dp", "pp"]).map("-".join),
    domain=st.sampled_from([4, 6, 8, 72]),
    shares=st.tuples(st.integers(1, 12), st.integers(1, 12)),
)
def test_whatever_the_degrees_a_group_crosses_where_the_grid_says_so(tp, pp, dp, cp, order, domain, shares):
    stage = tp * cp * dp
    etp = max(d for d in range(1, shares[0] + 1) if stage % d == 0)
    ep = max(d for d in range(1, shares[1] + 1) if stage // etp % d == 0)
    plan = Plan(tp=tp, pp=pp, dp=dp, cp=cp, order=order, ep=ep, etp=etp)
    grid = RankGrid(plan, domain)
    for name in ("tp", "pp", "dp", "cp", "ep"):
        found = expert_seats(plan, domain) if name == "ep" else plan_seats(plan, name, domain=domain)
        assert (found.link == "across") == (grid.crossing(name) > 0) == plan.crosses(name, domain), name
        nodes = grid.node(grid.groups(name))
        assert found.members <= min(np.bincount(row - row.min()).max() for row in nodes)


def test_experts_of_a_job_without_a_pipeline_stay_together():
    """2 x 4 neighbours fill a domain of 8, whatever the 12 of tp x cp: no other stage lies between."""
    plan = Plan(tp=2, cp=6, dp=2, ep=2, etp=4, order="tp-cp-pp-dp")
    assert RankGrid(plan, 8).crossing("ep") == 0
    assert expert_seats(plan, 8).link == "inside" and not plan.crosses("ep", 8)


def test_shards_are_neighbours_and_replicas_far_apart():
    """64 ranks in hosts of 8: a set of 16 fills two hosts; one of 4 has its replica in the same host."""
    everyone = plan_seats(Plan(dp=64), "cp", "dp", domain=8)
    assert shard_seats(everyone, 16) == (Seats(16, "across", 8), Seats(4, "across", 1))
    assert shard_seats(everyone, 4) == (Seats(4, "inside", 4), Seats(16, "across", 2))
    assert shard_seats(everyone, 64) == (everyone, Seats(1, "inside", 1))


def test_counts_of_replicas_and_shards():
    experts = Plan(tp=2, dp=32, ep=8, etp=1)
    assert replica_counts(experts) == (32, 8)  # 2 x 32 ranks of a stage over 8 of ep
    assert shard_counts(experts.changed(shard_ranks=8)) == (8, 2)
    assert shard_counts(Plan(dp=4, shard_ranks=8)) == (4, 4)
    many = shard_counts(Plan(dp=np.array([4, 64]), shard_ranks=8))[0]
    assert many.tolist() == [4, 8]
