"""All rules together: ways out that work, masks equal to single answers, clean sentences, refusals."""

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from labkit.errors import InputRefused
from labkit.spec import Plan, problems
from labkit.spec.plan import DIMENSIONS, SCHEDULES
from labkit.spec.rules import RULES, allowed
from labkit.spec.transformer import RECOMPUTE
from tests.spec.plan_cases import changed, check_options, gpus, shape

degrees = st.sampled_from([1, 1, 2, 3, 4, 6, 8, 16])
batches = st.none() | st.integers(1, 300)
models = st.builds(
    lambda heads, group, **more: shape(
        heads=heads * group, hidden=128 * heads * group, kv_heads=heads, **more
    ),
    st.integers(1, 12),
    st.sampled_from([1, 2, 4, 5]),
    layers=st.integers(1, 100),
    ffn=st.integers(1, 3000),
    vocabulary=st.integers(1, 60_000),
    sequence=st.integers(1, 9000),
) | st.builds(
    lambda experts, **more: shape(experts=experts, top_k=1, **more),
    st.integers(1, 160),
    layers=st.integers(1, 100),
    ffn=st.sampled_from([1407, 1536, 2048]),
)
clusters = st.builds(
    lambda nodes, node: gpus(nodes * node, node), st.integers(1, 9), st.sampled_from([1, 4, 6, 8])
)
fields = {
    **{name: degrees for name in ("tp", "cp", "pp", "dp", "ep")},
    "etp": st.none() | degrees,
    "v": st.sampled_from([1, 1, 2, 3]),
    **{name: batches for name in ("micro_batch", "accumulation", "global_batch")},
    "sequence_parallel": st.booleans(),
    "balanced": st.booleans(),
    "replicate_kv": st.booleans(),
    "schedule": st.sampled_from(SCHEDULES),
    "context": st.sampled_from(["ring", "all_to_all"]),
    "vocabulary_multiple": st.sampled_from([0, 1, 64, 128]),
    "order": st.permutations(DIMENSIONS).map("-".join),
    "zero": st.integers(0, 3),
    "shard_ranks": st.none() | degrees,
    "recompute": st.sampled_from(RECOMPUTE),
    "recompute_every": st.sampled_from([1, 1, 2, 3, 40]),
}
plans = st.builds(
    Plan, **fields, stage_layers=st.none() | st.lists(st.integers(0, 20), max_size=8).map(tuple)
)


@given(models, clusters, plans)
def test_every_way_out_lifts_its_rule(model, place, plan):
    for problem in problems(model, place, plan):
        check_options(problem, model, place, plan)
        assert problem.options or re.search(r"cut these rows|choose degrees", problem.remedy), problem


@given(models, clusters, plans)
def test_sentences_are_clean(model, place, plan):
    for problem in problems(model, place, plan):
        text = str(problem)
        assert "\n" not in text and "  " not in text and not text.endswith((",", " ", ";"))
        assert not re.search(
            r"\d\d\.\d{3}|[1-9]\.\d{4}|\b1 (sequences|ranks|GPUs|layers|stages|nodes|heads)\b|None|np\.|= ,",
            text,
        )
        assert not re.search(r"batch of (at least )?\d+\.\d", text)
        assert len(text) < 420, text


@given(models, clusters, plans)
def test_a_new_tp_breaks_no_other_cut(model, place, plan):
    """What is offered for heads, kv heads, MLP or vocabulary holds for all four of them."""
    cuts = [rule for rule in RULES if rule.name in ("heads", "kv heads", "ffn", "vocabulary")]
    for problem in problems(model, place, plan):
        if problem.rule in ("heads", "kv heads"):
            for option in problem.options:
                parts = changed(option, model, place, plan)
                later = {rule.name for rule in cuts if rule.mask(*parts)}
                assert not later - ({"ffn"} if model.experts and plan.etp else set()), option


@given(models, clusters, st.lists(plans, min_size=1, max_size=5), plans)
def test_masks_of_arrays_are_the_single_answers(model, place, several, base):
    names = [name for name in fields if name not in ("order", "etp", "shard_ranks")]
    singles = [
        base.changed(**{name: getattr(one, name) for name in names if getattr(one, name) is not None})
        if all(getattr(one, name) % 1 == 0 for name in ("micro_batch", "accumulation", "global_batch"))
        else base
        for one in several
    ]
    whole = [one for one in singles if one.micro_batch % 1 == 0 and one.accumulation % 1 == 0]
    if not whole:
        return
    many = Plan(
        **{name: np.array([getattr(one, name) for one in whole]) for name in names},
        etp=base.etp,
        shard_ranks=base.shard_ranks,
        order=base.order,
        stage_layers=base.stage_layers,
    )
    for rule in RULES:
        mask = np.broadcast_to(rule.mask(model, place, many), len(whole))
        assert mask.tolist() == [rule.mask(model, place, one) for one in whole], rule.name
    assert np.broadcast_to(allowed(model, place, many), len(whole)).tolist() == [
        allowed(model, place, one) for one in whole
    ]


@given(models, clusters, plans)
def test_allowed_is_no_problem_that_is_impossible(model, place, plan):
    found = problems(model, place, plan)
    assert allowed(model, place, plan) == all(problem.severity == "advice" for problem in found)
    assert [problem.severity for problem in found] == sorted((p.severity for p in found), reverse=True)


def test_derived_batches_of_arrays_that_are_not_whole():
    many = Plan(dp=np.array([7, 8]), global_batch=256, micro_batch=2)
    batch = next(rule for rule in RULES if rule.name == "batch")
    assert batch.mask(shape(), gpus(8), many).tolist() == [True, False]


def test_names_of_rules_are_different():
    assert len({rule.name for rule in RULES}) == len(RULES)


def test_a_problem_reads_as_one_line():
    (found,) = problems(shape(), gpus(8), Plan(dp=4, global_batch=16))
    assert str(found) == "impossible: dp 4 = 4 ranks, which leaves 4 idle of 8 GPUs; use dp = 8"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((None, gpus(8), Plan()), "the model is None; give a Transformer"),
        (("llama2-7b", gpus(8), Plan()), "the model is 'llama2-7b'; give a Transformer"),
        ((shape(), "h100", Plan()), "the cluster is 'h100'; give a Cluster"),
        ((shape(), gpus(8), {"tp": 8}), "the plan is of type dict; give a Plan"),
        ((Plan(), shape(), gpus(8)), "the model is of type Plan"),
        ((shape(), gpus(8), Plan(tp=np.array([1, 2]))), "give single numbers, not arrays"),
        ((shape(), gpus(8), Plan(balanced=np.array([True, False]))), "give single numbers, not arrays"),
    ],
)
def test_what_is_no_plan_is_refused(arguments, says):
    with pytest.raises(InputRefused, match=says):
        problems(*arguments)
    if "arrays" not in says:
        with pytest.raises(InputRefused, match=says):
            allowed(*arguments)


def test_ways_out_are_looked_for_among_any_number_of_ranks():
    """A cp of all 131,072 positions would make more ranks than a plan may have; it is not tried as a plan."""
    model = shape(sequence=131_072, heads=4096, hidden=4096, head_dim=1)
    for context in ("ring", "all_to_all"):
        plan = Plan(tp=64, pp=6, dp=72, cp=3, context=context, micro_batch=1)
        for problem in problems(model, gpus(64), plan):
            check_options(problem, model, gpus(64), plan)
