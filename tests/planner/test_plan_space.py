"""The space of a search: every plan once, and nothing else, against plain loops over single plans."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from labkit.errors import InputRefused
from labkit.planner.plan_space import plan_spaces
from labkit.presets import cluster, model
from labkit.spec import Cluster, Link, Plan, Transformer
from labkit.spec.plan import SCHEDULES

A100 = cluster("a100")
FOUR = Cluster("4 GPUs", A100.gpu, 2, 2, Link(2e-6, 235e9), Link(5e-6, 25e9), 1)
SMALL = Transformer("small", layers=6, hidden=64, heads=4, vocabulary=1000, sequence=32, kv_heads=2)
EXPERTS = replace(SMALL, name="experts", layers=4, kv_heads=4, experts=4, top_k=1)
FIELDS = ("tp", "cp", "pp", "dp", "ep", "v", "schedule", "micro_batch", "zero", "recompute")
FIELDS += ("sequence_parallel", "context", "replicate_kv", "stage_layers")


def all_plans(model, cluster, batch, fixed=None):
    """Every canonical plan of the spaces, one by one."""
    for space in plan_spaces(model, cluster, batch, fixed):
        alive = np.broadcast_to(space.canonical, space.shape)
        for place in np.argwhere(alive).tolist():
            yield space.at(tuple(place))


def keys(plans):
    return [tuple(getattr(plan, name) for name in FIELDS) for plan in plans]


def by_loops(model, gpus, batch, recomputes):
    """The same, spelled out: no array in it, and no line of the code under test."""
    upto = range(1, gpus + 1)
    degrees = [d for d in product(upto, repeat=4) if np.prod(d) == gpus]
    for tp, cp, pp, dp in degrees:
        shares = [b for b in range(1, batch + 1) if batch % dp == 0 and batch // dp % b == 0] or [1]
        experts = [e for e in range(1, model.experts + 1) if model.experts % e == 0] or [1]
        pairs = product(range(1, 9), SCHEDULES) if pp > 1 else [(1, "1f1b")]
        parallel, contexts = [False, True][: 1 + (tp > 1)], ["ring", "all_to_all"][: 1 + (cp > 1)]
        for micro, ep, (v, schedule), recompute in product(shares, experts, list(pairs), recomputes):
            same = dp * cp
            alike = same > 1 or (model.experts > 0 and tp * same // (ep * tp) > 1)
            layers = None
            if v == 1 and pp <= model.layers and model.layers % pp:
                each, more = divmod(model.layers, pp)
                start = (pp - more) // 2
                layers = tuple(each + (start <= i < start + more) for i in range(pp))
            for zero, sp, context in product([0, 1, 2, 3] if alike else [0], parallel, contexts):
                copied = tp * (cp if context == "all_to_all" else 1) > model.kv_heads
                yield (
                    *(tp, cp, pp, dp, ep, v, schedule, micro, zero, recompute),
                    *(sp, context, copied, layers),
                )


@pytest.mark.parametrize(
    ("model", "batch", "fixed"),
    [(SMALL, 2, {}), (EXPERTS, 4, {"recompute": "full"})],
    ids=["dense", "experts"],
)
def test_every_plan_is_there_once(model, batch, fixed):
    found = keys(all_plans(model, FOUR, batch, fixed))
    wanted = list(by_loops(model, 4, batch, [fixed["recompute"]] if fixed else ["none", "selective", "full"]))
    assert len(found) == len(set(found)) > 1000
    assert set(found) == set(wanted) and len(wanted) == len(found)


def test_what_is_pinned_stays_as_it_is():
    pinned = {"tp": 2, "zero": 1, "schedule": "gpipe", "sequence_parallel": True, "fused_attention": False}
    for plan in all_plans(SMALL, FOUR, 4, {**pinned, "prefetch": 2, "order": "tp-pp-cp-dp"}):
        assert all(getattr(plan, name) == value for name, value in pinned.items())
        assert (plan.prefetch, plan.order, plan.global_batch) == (2, "tp-pp-cp-dp", 4)
    assert {
        plan.accumulation for plan in all_plans(SMALL, FOUR, 8, {"accumulation": 2, "zero": 1, "v": 1})
    } == {2}
    assert {
        plan.micro_batch for plan in all_plans(SMALL, FOUR, 8, {"micro_batch": 2, "zero": 1, "v": 1})
    } == {2}
    # Without a pipeline GPipe is 1F1B: the pinned name is kept, and there is one of them all the same.
    found = keys(all_plans(SMALL, FOUR, 4, {"pp": 1, "schedule": "gpipe"}))
    assert len(found) == len(keys(all_plans(SMALL, FOUR, 4, {"pp": 1})))
    assert {key[FIELDS.index("schedule")] for key in found} == {"gpipe"}


def test_pinned_stages():
    layers = (1, 2, 2, 1)
    found = list(all_plans(SMALL, FOUR, 4, {"stage_layers": layers}))
    assert {(plan.pp, plan.v) for plan in found} == {(4, 1), (2, 2)}
    assert {plan.stage_layers for plan in found} == {layers}
    equal = list(all_plans(SMALL, FOUR, 4, {"stage_layers": None, "pp": 4, "v": 1}))
    assert {plan.stage_layers for plan in equal} == {None}


def test_a_part_is_a_part():
    _, space, *_ = plan_spaces(SMALL, FOUR, 4)
    cuts, pipelines = np.arange(0, space.shape[0], 3), np.array([1, 5])
    part = space.part(cuts, pipelines)
    assert part.shape == (cuts.size, *space.shape[1:4], 2)
    assert part.at((1, 2, 1, 0, 1)) == space.at((3, 2, 1, 0, 5))
    assert np.array_equal(
        np.broadcast_to(part.canonical, part.shape),
        np.broadcast_to(space.canonical, space.shape)[cuts][..., pipelines],
    )


@pytest.mark.parametrize(
    ("fixed", "says"),
    [
        ({"tp": 3}, "no plan of 4 GPUs at a global batch of 8 has tp = 3; degrees divide the GPUs"),
        ({"dp": 2, "micro_batch": 3}, "has dp = 2 and micro_batch = 3; degrees divide"),
        ({"accumulation": 3}, "has accumulation = 3;"),
        ({"depth": 3}, "a plan has no 'depth' to fix; it has tp, pp"),
        ({3: 3}, "a plan has no 3 to fix"),
        ({"global_batch": 8}, "the global batch is an argument of its own"),
        ({"tp": np.array([1, 2])}, "what is fixed holds for all plans"),
        ({"tp": "8"}, "tp of a plan is '8'; give a whole number"),
        ({"zero": 4}, "zero of a plan is 4; use 0, 1, 2 or 3"),
        ([("tp", 2)], "what is fixed is of type list; give a dict"),
        ({"stage_layers": (2, 2, 2)}, "stage_layers has 3 numbers, but no pipeline"),
    ],
)
def test_one_sentence_for_what_cannot_be_fixed(fixed, says):
    with pytest.raises(InputRefused, match=says):
        list(plan_spaces(SMALL, FOUR, 8, fixed))


def test_a_search_is_of_one_cluster():
    many = Cluster("many", A100.gpu, np.array([1, 2]), 8, A100.intra, A100.inter, 8)
    rates = replace(cluster("a100"), inter=replace(A100.inter, bandwidth=np.array([1e10, 2e10])))
    for wrong, name in ((many, "cluster.nodes"), (rates, "cluster.inter.bandwidth")):
        with pytest.raises(InputRefused, match=f"a search takes single numbers, and {name} is an array"):
            next(plan_spaces(model("llama2-7b"), wrong, 8))


def test_a_batch_that_does_not_divide_is_tried_once_for_the_rules_to_refuse():
    odd = list(all_plans(SMALL, FOUR, 3, {"dp": 2, "v": 1, "recompute": "none"}))
    assert {plan.micro_batch for plan in odd} == {1} and {plan.accumulation for plan in odd} == {1.5}
    assert Plan(dp=2, micro_batch=1, global_batch=3).accumulation == 1.5
