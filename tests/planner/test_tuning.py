"""Tuning steps: from a plan that runs to the best, each with its gain."""

import pytest

from labkit import Plan, cluster, memory, model
from labkit.errors import InputRefused
from labkit.planner.procedure import procedure
from labkit.planner.search import plan_of, search
from labkit.planner.step import step_time
from labkit.planner.tuning import SAME, STEPS, sentence, tuning
from labkit.planner.tuning import _words as words_of
from labkit.spec.rules import allowed

CASES = [("gpt3-13b", "a100", 4, 64), ("llama2-7b", "l40s-pcie", 1, 64), ("llama2-70b", "h100", 8, 256)]


@pytest.mark.parametrize(("id", "machine", "nodes", "batch"), CASES)
def test_steps_lead_from_the_plan_that_runs_to_the_best_of_all(id, machine, nodes, batch):
    shape, there = model(id), cluster(machine, nodes=nodes)
    start = procedure(shape, there, batch).plan
    steps = tuning(shape, there, start)
    assert [step.name for step in steps] == ["overlap of gradients", *(name for name, *_ in STEPS)]
    assert steps[0].plan == start
    assert steps[0].before == step_time(shape, there, start, overlap=False).total
    for step in steps:
        assert allowed(shape, there, step.plan) and memory(shape, there, step.plan).fits
        assert step.plan.global_batch == batch and step.plan.ranks == there.n_gpus
        assert step.after == pytest.approx(step_time(shape, there, step.plan).total)
        assert (step.gain > 0) == (step.change != SAME) and step.gain >= 0
        assert ("measure" in sentence(step)) == (step.change != SAME)
    best = search(shape, there, batch).iloc[0]
    assert steps[-1].after == pytest.approx(float(best["seconds"]), rel=0.02)


def test_each_step_frees_one_more_setting_and_no_other():
    shape, there = model("gpt3-13b"), cluster("a100", nodes=4)
    start = Plan(
        tp=4, pp=4, dp=2, zero=1, sequence_parallel=True, recompute="full", micro_batch=1, global_batch=64
    )
    steps = tuning(shape, there, start)
    free = {"accumulation"}
    for (_, freed, *_), step, last in zip(STEPS, steps[1:], steps, strict=False):
        free |= {*freed, *({"dp"} if "tp" in freed else ())}
        changed = {n for n in Plan.__slots__ if getattr(step.plan, n) != getattr(last.plan, n)}
        assert changed <= free | ({"replicate_kv", "balanced"} if "tp" in freed else set())


def test_less_memory_is_kept_to():
    shape, there = model("llama2-7b"), cluster("a100", nodes=1)
    start = Plan(
        tp=2, pp=2, dp=2, zero=1, sequence_parallel=True, recompute="full", micro_batch=1, global_batch=16
    )
    for step in tuning(shape, there, start, max_memory=50e9):
        assert memory(shape, there, step.plan).peak <= 50e9


def test_refusals():
    shape, there = model("llama2-7b"), cluster("a100", nodes=1)
    for wrong in (Plan(dp=8, micro_batch=64), Plan(dp=4), Plan(tp=3, dp=2)):
        with pytest.raises(InputRefused, match="starts from a plan that runs"):
            tuning(shape, there, wrong)
    for wrong in (("x", there, Plan(dp=8)), (shape, None, Plan(dp=8)), (shape, there, 8)):
        with pytest.raises(InputRefused):
            tuning(*wrong)
    with pytest.raises(InputRefused, match="max_memory"):
        tuning(shape, there, Plan(dp=8), max_memory=0)


@pytest.mark.parametrize(
    "kept",
    [
        {"prefetch": 3},
        {"shard_ranks": 2},
        {"recompute_every": 4, "recompute": "full"},
        {"balanced": False},
        {"fused_attention": False},
        {"order": "tp-cp-pp-dp"},
        {"vocabulary_multiple": 1},
    ],
    ids=lambda kept: next(iter(kept)),
)
def test_what_no_search_tries_stays_as_it_was(kept):
    shape, there = model("llama2-7b"), cluster("a100", nodes=1)
    start = Plan(tp=2, dp=4, zero=3, micro_batch=1, global_batch=16, **kept)
    (name, value), *_ = kept.items()
    assert {getattr(step.plan, name) for step in tuning(shape, there, start)} == {value}


def test_stages_of_ones_own_stay_until_the_schedule_is_free():
    shape, there = model("llama2-7b"), cluster("a100", nodes=1)
    start = Plan(pp=4, dp=2, zero=1, stage_layers=(7, 9, 9, 7), micro_batch=1, global_batch=16)
    steps = tuning(shape, there, start)
    assert all(step.plan.stage_layers == (7, 9, 9, 7) for step in steps[:4])
    assert steps[4].change.endswith("stage layers uneven -> equal")


def test_sequence_parallel_alone_is_a_change_too():
    shape, there = model("llama2-7b"), cluster("a100", nodes=1)
    best = plan_of(search(shape, there, 8, {"tp": 8, "sequence_parallel": False}).iloc[0])
    assert words_of(best, best.changed(sequence_parallel=True)) == "sequence parallel off -> on"
    assert words_of(best, best.changed(context="all_to_all")) == SAME
