"""Why one plan is faster than another: parts that add up, and causes that are the right ones."""

from dataclasses import replace
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labkit.errors import InputRefused
from labkit.planner.search import plan_of, search
from labkit.planner.step import step_time
from labkit.planner.why import difference, setting, why
from labkit.presets import cluster, model
from labkit.spec import Plan
from labkit.spec.rules import allowed
from labkit.spec.step_time import TERMS

GPT, NODES = model("gpt3-13b"), cluster("a100", 4)
ROUND = Plan(tp=4, pp=4, dp=2, micro_batch=2, global_batch=64)
TABLE = search(GPT, NODES, 64, {"context": "ring", "recompute": "none"})


def check(found, a, b):
    """The parts add up by term and in all, and the steps are those of the two plans."""
    before, after = step_time(GPT, NODES, a), step_time(GPT, NODES, b)
    for name in TERMS:
        change = getattr(after, name) - getattr(before, name)
        assert found.by_term[name] == pytest.approx(change, abs=1e-9)
        assert sum(seconds for _, seconds in found.causes(name)) == pytest.approx(change, abs=1e-9)
    assert sum(found.by_term.values()) == pytest.approx(found.total, abs=1e-9)
    assert sum(found.by_setting.values()) == pytest.approx(found.total, abs=1e-9)
    assert (found.before, found.after) == (before, after)


@settings(max_examples=15)
@given(first=st.integers(0, len(TABLE) - 1), second=st.integers(0, len(TABLE) - 1))
def test_terms_and_settings_add_up(first, second):
    a, b = (plan_of(TABLE.iloc[i]) for i in (first, second))
    check(why(TABLE.iloc[first], TABLE.iloc[second]), a, b)


def test_one_setting_is_the_cause_of_everything():
    other = ROUND.changed(recompute="full")
    found = difference(GPT, NODES, ROUND, other)
    assert found.settings == ("recompute none -> full",)
    check(found, ROUND, other)
    assert found.by_term["compute"] > 0.2 * found.before.compute  # a third of the layers, not of the head
    assert all(name == found.settings[0] for term in TERMS for name, _ in found.causes(term))
    text = repr(found)
    assert "longer" not in text and " s becomes " in text and "compute: " in text


def test_settings_that_cannot_change_alone_are_one():
    found = difference(GPT, NODES, ROUND, Plan(tp=8, pp=4, dp=1, micro_batch=2, global_batch=64))
    assert found.settings == ("tp 4 -> 8 and dp 2 -> 1",)
    flat = Plan(tp=4, dp=8, micro_batch=2, global_batch=64, recompute="full")
    found = difference(GPT, NODES, ROUND.changed(v=2), flat)
    assert found.settings == ("pp 4 -> 1, dp 2 -> 8 and v 2 -> 1", "recompute none -> full")
    check(found, ROUND.changed(v=2), flat)


def test_parts_are_means_over_all_orders():
    other = ROUND.changed(v=2, recompute="full", micro_batch=1)
    found = difference(GPT, NODES, ROUND, other)
    changes = {"v 1 -> 2": "v", "micro-batch 2 -> 1": "micro_batch", "recompute none -> full": "recompute"}
    assert set(found.settings) == set(changes)
    sums = dict.fromkeys(changes, 0.0)
    orders = list(permutations(changes))
    for order in orders:
        plan = ROUND
        for name in order:
            field = changes[name]
            more = {} if field == "micro_batch" else {"micro_batch": plan.micro_batch}
            after = plan.changed(**{field: getattr(other, field)}, **more, global_batch=64)
            assert allowed(GPT, NODES, after)
            sums[name] += step_time(GPT, NODES, after).bubble - step_time(GPT, NODES, plan).bubble
            plan = after
    bubble = dict(found.causes("bubble"))
    assert bubble == pytest.approx({name: total / len(orders) for name, total in sums.items()}, abs=1e-12)


def test_backwards_is_the_opposite():
    a, b = plan_of(TABLE.iloc[3]), plan_of(TABLE.iloc[900])
    there, back = difference(GPT, NODES, a, b), difference(GPT, NODES, b, a)
    assert there.total == -back.total
    assert there.parts == pytest.approx(-back.parts, abs=1e-12)


def test_uneven_stages_orders_and_batches():
    uneven = Plan(pp=16, dp=2, stage_layers=(2,) * 4 + (3,) * 8 + (2,) * 4, micro_batch=1, global_batch=96)
    found = difference(GPT, NODES, ROUND, uneven)
    check(found, ROUND, uneven)
    assert "stage layers equal -> uneven" in found.settings[0]
    turned = ROUND.changed(order="tp-pp-cp-dp", micro_batch=1)
    found = difference(GPT, NODES, ROUND, turned)
    check(found, ROUND, turned)
    assert set(found.settings) == {"order tp-cp-dp-pp -> tp-pp-cp-dp", "micro-batch 2 -> 1"}


def test_the_same_plan_has_no_difference():
    found = difference(GPT, NODES, ROUND, ROUND)
    assert found.total == 0 and found.settings == () and repr(found) == "the two plans are the same"
    assert np.shape(found.parts) == (0, len(TERMS))


def test_refusals():
    with pytest.raises(InputRefused, match="a plan to compare is impossible: tp 8 x pp 4 x dp 2 = 64 ranks"):
        difference(GPT, NODES, ROUND, ROUND.changed(tp=8))
    with pytest.raises(InputRefused, match="give single numbers"):
        difference(GPT, NODES, ROUND, ROUND.changed(dp=np.array([2, 4])))
    other = search(GPT, cluster("h100", 4), 64, {"pp": 1})
    with pytest.raises(InputRefused, match="different models or clusters"):
        why(TABLE.iloc[0], other.iloc[0])
    with pytest.raises(InputRefused, match="no table of search"):
        why(ROUND, ROUND)


def test_a_setting_in_words():
    assert (
        setting(Plan(), Plan(sequence_parallel=True), ["sequence_parallel"]) == "sequence parallel off -> on"
    )


def test_nodes_of_one_gpu_with_and_without_a_pipeline():
    # Ends of a pipeline sit on two nodes; a plan without one has no ends, whatever the size of its domain.
    small = replace(GPT, layers=2, hidden=256, heads=4, kv_heads=4, head_dim=64, ffn=1024)
    apart = replace(cluster("h100", 2), gpus_per_node=1, domain=1)
    flat = Plan(dp=2, micro_batch=8, accumulation=4)
    deep = Plan(pp=2, micro_batch=16, accumulation=4, schedule="gpipe")
    found = difference(small, apart, flat, deep)
    assert sum(found.by_term.values()) == pytest.approx(found.total, abs=1e-9)
    both = flat.changed(
        pp=np.array([1, 2]), dp=np.array([2, 1]), micro_batch=np.array([8, 16]), accumulation=4
    )
    assert step_time(small, apart, both).total.tolist() == [
        step_time(small, apart, one).total for one in (flat, deep.changed(schedule="1f1b"))
    ]


def test_a_comparison_is_on_one_cluster():
    rates = replace(NODES, inter=replace(NODES.inter, bandwidth=np.array([1e10, 2e10])))
    with pytest.raises(InputRefused, match=r"a comparison takes single numbers, and cluster.inter.bandwidth"):
        difference(GPT, rates, ROUND, ROUND.changed(zero=1))
