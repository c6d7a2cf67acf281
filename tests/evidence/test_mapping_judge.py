"""What a mapping does to a plan: groups across, seconds, and the order that puts it right."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pytest import approx

from labkit.errors import InputRefused
from labkit.evidence.mapping import Mapping
from labkit.evidence.mapping_judge import Crossing, crossings, groups, hostfile, mapped_bill, mapping_cost
from labkit.planner.bill import step_bill
from labkit.presets import cluster, model
from labkit.spec import Plan, RankGrid

BLOCK = Mapping(tuple(f"n{rank // 8}" for rank in range(16)))
CYCLIC = Mapping(tuple(f"n{rank % 2}" for rank in range(16)))
NODES = cluster("a100", 2)


def test_groups_of_a_cyclic_launch():
    """16 ranks dealt out to two hosts in turn: even ranks on one, odd ranks on the other."""
    plan = Plan(tp=2, pp=2, dp=4)
    (first, *_) = groups(CYCLIC, plan, "tp")
    assert (first.ranks, first.hosts, first.crosses) == ((0, 1), ("n0", "n1"), True)
    assert all(group.hosts == ("n0",) or group.hosts == ("n1",) for group in groups(CYCLIC, plan, "dp"))
    assert crossings(CYCLIC, plan) == {
        "tp": Crossing(8, 8, 0),
        "dp": Crossing(4, 0, 0),
        "pp": Crossing(8, 0, 8),
    }


def test_expert_groups_too():
    assert crossings(CYCLIC, Plan(dp=16, ep=4))["ep"] == Crossing(4, 4, 0)


@given(
    st.sampled_from([(2, 1, 2, 4), (4, 2, 2, 1), (1, 4, 1, 4), (8, 1, 2, 1), (16, 1, 1, 1)]),
    st.sampled_from(["tp-cp-dp-pp", "tp-cp-pp-dp", "pp-dp-cp-tp"]),
    st.sampled_from([4, 8]),
)
def test_in_block_order_the_groups_are_those_of_the_rank_grid(degrees, order, per_node):
    plan = Plan(**dict(zip(("tp", "cp", "pp", "dp"), degrees, strict=True)), order=order)
    found = crossings(Mapping(tuple(f"n{rank // per_node}" for rank in range(16))), plan)
    grid = RankGrid(plan, per_node)
    assert {name: one.across for name, one in found.items()} == {name: grid.crossing(name) for name in found}
    assert all(one.across == one.in_order for one in found.values())


def plans():
    for tp, cp, pp in itertools.product((1, 2, 8), (1, 4), (1, 2)):
        if 16 % (tp * cp * pp):
            continue
        dp = 16 // (tp * cp * pp)
        for zero, shards in ((0, None), (1, None), (3, 2)):
            if shards and dp * cp % shards:
                continue
            plan = Plan(tp=tp, cp=cp, pp=pp, dp=dp, zero=zero, shard_ranks=shards, global_batch=64)
            yield "gpt3-13b", plan
            if dp * cp >= 4:
                yield "mixtral-8x7b", plan.changed(ep=4, etp=1, sequence_parallel=tp > 1)


@pytest.mark.parametrize(("name", "plan"), list(plans()), ids=str)
def test_a_mapping_in_block_order_costs_what_the_bill_says(name, plan):
    """The groups here are listed one by one, those of the bill are in closed form."""
    bill = step_bill(model(name), NODES, plan)
    mapped = mapped_bill(model(name), NODES, plan, BLOCK)
    assert [row.link for row in mapped] == [row.link for row in bill]
    assert [row.seconds(NODES) for row in mapped] == [row.seconds(NODES) for row in bill]


def test_a_cyclic_launch_by_hand():
    """TP 8 on two hosts in turn: 4 + 4 ranks a group, which has half of a host's 8 ports; DP stays inside."""
    plan, one = Plan(tp=8, dp=2, micro_batch=2, global_batch=64), model("guide-13b")
    rows = {row.strategy: row for row in mapping_cost(one, NODES, plan, CYCLIC)}
    tensor, data = rows["tensor parallel"], rows["data parallel"]
    size, count = 2 * 2 * one.sequence * one.hidden, 4 * one.layers * plan.accumulation
    inside = count * 14 * (NODES.intra.alpha + size / 8 / NODES.intra.bandwidth)
    assert tensor.in_order == approx(inside, rel=1e-9)
    ports = 4 * NODES.inter.bandwidth  # four rings, a port each
    assert tensor.mapped == approx(count * 14 * (NODES.inter.alpha + size / 8 / ports), rel=0.02)
    assert tensor.mapped / tensor.in_order > 2 and data.mapped < data.in_order


def test_the_worst_group_counts():
    """Two ranks have changed places: two of the tensor-parallel groups leave a host, and the step waits."""
    hosts = list(BLOCK.hosts)
    hosts[3], hosts[8] = hosts[8], hosts[3]
    swapped, plan = Mapping(tuple(hosts)), Plan(tp=4, dp=4, global_batch=16)
    assert crossings(swapped, plan)["tp"] == Crossing(4, 2, 0)
    rows = mapped_bill(model("gpt3-13b"), NODES, plan, swapped)
    (row,) = [row for row in rows if row.strategy == "tensor parallel"]
    assert (row.link, row.members) == ("across", 1)


@settings(max_examples=25)
@given(st.permutations(range(16)))
def test_no_order_beats_block_order_for_tensor_parallel_inside_a_host(order):
    mapping = Mapping(tuple(BLOCK.hosts[rank] for rank in order))
    for row in mapping_cost(model("gpt3-13b"), NODES, Plan(tp=8, dp=2, global_batch=16), mapping):
        if row.strategy.startswith("tensor"):
            assert row.mapped >= row.in_order


def test_a_rack_of_hosts_is_one_domain():
    rack = cluster("gb200-nvl72")
    assert rack.domain > rack.gpus_per_node
    mapping = Mapping(tuple(f"n{rank % 4}" for rank in range(4 * rack.gpus_per_node)))
    plan = Plan(tp=mapping.ranks, global_batch=1)
    assert {row.link for row in mapped_bill(model("gpt3-175b"), rack, plan, mapping)} == {"inside"}


def test_the_hostfile_is_in_block_order():
    assert hostfile(CYCLIC) == "n0\n" * 8 + "n1\n" * 8 == hostfile(BLOCK)


@pytest.mark.parametrize(
    ("mapping", "plan", "says"),
    [
        (BLOCK, Plan(tp=8), "the plan has tp 8 x cp 1 x pp 1 x dp 1 = 8 ranks, the mapping 16"),
        (Mapping(("a",) * 16), Plan(dp=16), "a has 16 ranks and a node of"),
        ("0: a", Plan(), "the mapping is '0: a'; give a Mapping"),
        (BLOCK, None, "the plan is None; give a Plan"),
    ],
)
def test_refusals(mapping, plan, says):
    with pytest.raises(InputRefused, match=says):
        mapping_cost(model("gpt3-13b"), NODES, plan, mapping)
