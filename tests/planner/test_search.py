"""The search: what it tries, refuses and ranks, against single plans one by one."""

import random
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labkit.errors import InputRefused
from labkit.planner import feasible
from labkit.planner.memory import memory
from labkit.planner.search import FIELDS, FIGURES, LOSSES, carried, plan_of, search
from labkit.planner.step import step_time
from labkit.presets import cluster, model
from labkit.spec import Cluster, Link, Transformer, problems
from labkit.spec.rule import IMPOSSIBLE
from labkit.spec.rules import RULES
from tests.planner.test_plan_space import EXPERTS, FOUR, SMALL, all_plans

A100 = cluster("a100")
TIGHT = replace(FOUR, gpu=replace(A100.gpu, memory=3.4e9, reserve=0.0))
WIDE = Transformer("wide", layers=6, hidden=1024, heads=8, vocabulary=32000, sequence=512)
GPT, NODES = model("gpt3-13b"), cluster("a100", 4)


def rows(table, number, seed=7):
    for i in random.Random(seed).sample(range(len(table)), min(number, len(table))):
        yield table.iloc[i]


@pytest.mark.parametrize(
    ("model", "cluster", "batch", "fixed"),
    [
        (SMALL, FOUR, 6, {"zero": 2, "recompute": "full"}),
        (EXPERTS, FOUR, 2, {"recompute": "none", "sequence_parallel": False, "zero": 1}),
        (WIDE, TIGHT, 4, {"v": 1, "context": "ring"}),
    ],
    ids=["dense", "experts", "tight"],
)
def test_refusals_are_counted_as_single_plans_are_refused(model, cluster, batch, fixed):
    tried, refused = 0, {}
    for plan in all_plans(model, cluster, batch, fixed):
        tried += 1
        broken = [one.rule for one in problems(model, cluster, plan) if one.severity == IMPOSSIBLE]
        if not broken and not memory(model, cluster, plan).fits:
            broken = ["memory"]
        if broken:
            refused[broken[0]] = refused.get(broken[0], 0) + 1
    table = search(model, cluster, batch, fixed)
    assert (table.attrs["tried"], table.attrs["refused"]) == (tried, refused)
    assert len(table) == tried - sum(refused.values()) > 0


def test_the_table_is_what_single_plans_give_in_their_order():
    fixed = {"recompute": "none", "v": 1, "sequence_parallel": False, "context": "ring"}
    table = search(WIDE, TIGHT, 2, fixed)
    found = {}
    for plan in all_plans(WIDE, TIGHT, 2, fixed):
        if not [one for one in problems(WIDE, TIGHT, plan) if one.severity == IMPOSSIBLE]:
            peak = memory(WIDE, TIGHT, plan).peak
            if peak <= TIGHT.gpu.usable:
                found[plan] = (step_time(WIDE, TIGHT, plan).total, peak)
    assert 50 < len(found) == len(table) and table.attrs["refused"]["memory"] > 10
    assert sorted(found.values()) == list(zip(table["seconds"], table["memory"], strict=True))
    assert {plan_of(row) for _, row in table.iterrows()} == set(found)


@pytest.mark.parametrize(
    ("model", "cluster", "batch", "fixed"),
    [
        (GPT, NODES, 512, {}),
        (model("mixtral-8x7b"), cluster("h100", 4), 96, {"zero": 1}),
        (replace(model("llama2-70b"), layers=78), cluster("gb200-nvl72", 4), 64, {"tp": 8}),
    ],
    ids=["dense", "experts", "uneven"],
)
def test_a_row_is_a_single_plan_to_the_last_bit(model, cluster, batch, fixed):
    table = search(model, cluster, batch, fixed)
    for row in rows(table, 40):
        plan = plan_of(row)
        assert not [one for one in problems(model, cluster, plan) if one.severity == IMPOSSIBLE]
        step, peak = step_time(model, cluster, plan), memory(model, cluster, plan).peak
        wanted = (
            step.total,
            step.tokens_per_s,
            step.tokens_per_s_per_gpu,
            step.mfu,
            step.exposed,
            step.bubble,
        )
        assert (*wanted, peak) == tuple(row[name] for name in FIGURES if name != "limit")
        assert row["accumulation"] == plan.accumulation and peak <= cluster.gpu.usable
        assert getattr(step, row["limit"]) == max(getattr(step, name) for name in LOSSES)


def test_the_order_of_work_makes_no_difference(monkeypatch):
    table = search(WIDE, TIGHT, 4)
    for size in (1, 1000):
        monkeypatch.setattr(feasible, "_TOGETHER", size)
        pd.testing.assert_frame_equal(search(WIDE, TIGHT, 4), table)
    assert table["seconds"].is_monotonic_increasing


MODELS = st.builds(
    Transformer,
    st.just("drawn"),
    layers=st.sampled_from([4, 6, 7, 12]),
    hidden=st.sampled_from([512, 1536]),
    heads=st.sampled_from([4, 6, 16]),
    vocabulary=st.just(32000),
    sequence=st.sampled_from([256, 2048]),
    head_dim=st.just(64),
    kv_heads=st.just(2),
    experts=st.just(0),
    gated=st.booleans(),
)


@settings(max_examples=12)
@given(
    drawn=MODELS,
    nodes=st.integers(1, 3),
    per_node=st.sampled_from([1, 2, 4]),
    batch=st.sampled_from([6, 7, 32]),
    card=st.sampled_from([3e9, 6e9, 80e9]),
    fixed=st.sampled_from([{}, {"pp": 1}, {"recompute": "full"}, {"zero": 3}, {"micro_batch": 1}]),
)
def test_the_first_plan_is_possible_and_fits_and_no_other_is_faster(
    drawn, nodes, per_node, batch, card, fixed
):
    gpu = replace(A100.gpu, memory=card, reserve=0.0)
    place = Cluster("drawn", gpu, nodes, per_node, Link(2e-6, 235e9), Link(5e-6, 25e9), per_node)
    try:
        table = search(drawn, place, batch, fixed)
    except InputRefused as refusal:
        assert "no plan" in str(refusal) or "no " in str(refusal)
        return
    refused = table.attrs["refused"]
    assert len(table) + sum(refused.values()) == table.attrs["tried"]
    assert set(refused) <= {rule.name for rule in RULES} | {"memory"}
    if len(table):
        best = plan_of(table.iloc[0])
        assert not [one for one in problems(drawn, place, best) if one.severity == IMPOSSIBLE]
        assert memory(drawn, place, best).peak <= card
        assert step_time(drawn, place, best).total == table["seconds"].min()


def test_the_space_of_13b_on_32_gpus():
    table = search(GPT, NODES, 512)
    # 40 heads forbid tp = 16 and 32; every other degree divides.
    assert set(table["tp"]) == {1, 2, 4, 8} and set(table["pp"]) == {1, 2, 4, 8, 16, 32}
    assert (table["tp"] * table["cp"] * table["pp"] * table["dp"] == 32).all()
    assert (table["micro_batch"] * table["accumulation"] * table["dp"] == 512).all()
    assert len(table) + table.attrs["refused"]["memory"] == 69_306
    assert not table.duplicated(list(FIELDS)).any()
    assert plan_of(table[table["pp"] == 16].iloc[0]).stage_layers.count(3) == 8


def test_a_limit_of_memory_below_the_card_and_above_it():
    table, half = search(WIDE, TIGHT, 4), search(WIDE, TIGHT, 4, max_memory=2.5e9)
    assert (half["memory"] <= 2.5e9).all() and 0 < len(half) < len(table)
    assert len(half) == (table["memory"] <= 2.5e9).sum()
    assert len(search(WIDE, TIGHT, 4, max_memory=1e12)) == len(table)
    nothing = search(WIDE, TIGHT, 4, max_memory=1.0)
    assert len(nothing) == 0 and nothing.attrs["refused"]["memory"] > 0
    assert list(nothing.columns) == [*FIELDS, *FIGURES]


def test_refusals():
    with pytest.raises(InputRefused, match=r"has no plan that the rules allow .* heads [(]"):
        search(GPT, NODES, 512, {"tp": 16})
    with pytest.raises(InputRefused, match="max_memory, in bytes of a card, is 0"):
        search(GPT, NODES, 512, max_memory=0)
    with pytest.raises(InputRefused, match="no table of search"):
        plan_of(pd.Series({"tp": 1}))
    table = search(SMALL, FOUR, 4)
    with pytest.raises(InputRefused, match="a plan is that of one row"):
        plan_of(table)
    for less in (
        table[["tp", "pp", "seconds"]],
        table.rename(columns={"cp": "context"}),
        table.set_index("cp"),
    ):
        with pytest.raises(InputRefused, match=r"the table of search[(][)] has no column cp any more"):
            plan_of(less.iloc[0])
    with pytest.raises(InputRefused, match="no table of search"):
        carried(next(search(SMALL, FOUR, 4).itertuples()))


def test_what_is_fixed_is_fixed_in_the_plan_of_a_row():
    fixed = {"fused_attention": False, "order": "tp-cp-pp-dp", "vocabulary_multiple": 1, "accumulation": 2}
    plan = plan_of(search(SMALL, FOUR, 8, fixed).iloc[3])
    assert all(getattr(plan, name) == value for name, value in fixed.items())
    layers = (1, 2, 2, 1)
    assert plan_of(search(SMALL, FOUR, 8, {"stage_layers": layers}).iloc[0]).stage_layers == layers


def test_a_search_of_one_plan():
    best = plan_of(search(SMALL, FOUR, 4).iloc[0])
    every = {name: getattr(best, name) for name in FIELDS} | {"stage_layers": best.stage_layers}
    table = search(SMALL, FOUR, 4, every)
    assert len(table) == 1 and table.attrs["tried"] == 1 and plan_of(table.iloc[0]) == best
    assert (
        len(search(SMALL, FOUR, 4, {**every, "stage_layers": (1, 2, 2, 1), "pp": 4, "tp": 1, "dp": 1})) == 1
    )


def test_all_of_a_small_search_in_numbers():
    # One GPU: only micro-batch and recompute are left, 3 x 3 of a batch of 4.
    one = Cluster("one", A100.gpu, 1, 1, A100.intra, A100.inter, 1)
    table = search(SMALL, one, 4)
    assert len(table) == 9 and table.attrs["tried"] == 9 and table.attrs["refused"] == {}
    assert np.array_equal(np.sort(table["micro_batch"].unique()), [1, 2, 4])
