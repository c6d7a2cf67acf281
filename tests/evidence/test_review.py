"""A launch reviewed: what is missing, its step, and the nearest better plan that runs and can be written."""

from dataclasses import fields, replace

import pytest

from labkit import Plan, cluster, model
from labkit.errors import InputRefused
from labkit.evidence.launchers import read_launcher
from labkit.evidence.review import review
from labkit.planner.memory import memory
from labkit.planner.step import step_time
from labkit.spec import problems
from labkit.spec.rule import IMPOSSIBLE

NODES, LLAMA = cluster("h100", nodes=2), model("llama2-13b")
SLOW = (
    "torchrun --nnodes 2 --nproc-per-node 8 pretrain_gpt.py --tensor-model-parallel-size 8 "
    "--sequence-parallel --pipeline-model-parallel-size 2 --micro-batch-size 1 --global-batch-size 64 "
    "--seq-length 4096 --bf16 "
    "--recompute-granularity full --recompute-method uniform --recompute-num-layers 1"
)
TOO_LARGE = (
    "torchrun --nnodes 2 --nproc-per-node 8 pretrain_gpt.py --tensor-model-parallel-size 1 "
    "--micro-batch-size 1 --global-batch-size 64 --seq-length 4096 --bf16"
)


def reviewed(text, shape=LLAMA, machine=NODES, **more):
    return review(read_launcher(text), shape, machine, **more)


def runs(plan):
    broken = [one for one in problems(LLAMA, NODES, plan) if one.severity == IMPOSSIBLE]
    return not broken and memory(LLAMA, NODES, plan).peak <= NODES.gpu.usable


def test_a_slow_plan_gets_a_step_and_a_better_one():
    found = reviewed(SLOW)
    assert found.reasons == () and found.launch.missing == [] and found.launch.model == LLAMA
    assert found.step == step_time(LLAMA, NODES, found.launch.plan)
    assert found.after == step_time(LLAMA, NODES, found.better) and runs(found.better)
    assert found.step.total / found.after.total > 1.05 and found.fastest <= found.after.total
    assert found.better.global_batch == 64


def test_the_better_plan_can_be_written_and_is_read_back():
    found = reviewed(SLOW)
    again = read_launcher(found.arguments).plan
    for name in ("tp", "pp", "dp", "zero", "recompute", "micro_batch", "accumulation", "sequence_parallel"):
        assert getattr(again, name) == getattr(found.better, name)


def test_no_plan_with_fewer_changes_is_as_much_better():
    found = reviewed(SLOW)
    plan = found.launch.plan
    followed = {"dp", "accumulation", "replicate_kv"}
    changed = {
        f.name for f in fields(Plan) if getattr(plan, f.name) != getattr(found.better, f.name)
    } - followed
    assert len(changed) == 1  # a single setting is enough here, so none with fewer can be
    assert len(found.changes) >= 1 and all("->" in one for one in found.changes)


def test_a_plan_that_does_not_fit_gets_the_nearest_that_does():
    found = reviewed(TOO_LARGE)
    assert not runs(found.launch.plan) and found.reasons[0].startswith("memory: ") and runs(found.better)
    assert "cannot run: memory" in str(found) and "nearest that runs: " in str(found)


def test_an_impossible_plan_has_no_step():
    found = reviewed(SLOW.replace("-parallel-size 8", "-parallel-size 16").replace("-size 2 ", "-size 1 "))
    assert found.step is None and any(one.startswith("heads") for one in found.reasons) and runs(found.better)


def test_nothing_is_better_than_the_best():
    best = reviewed(SLOW, error=0.0)
    while best.better is not None:
        best = review(replace(best.launch, plan=best.better), LLAMA, NODES, error=0.05)
    assert "no plan that this framework runs is faster" in str(best)


def test_without_a_model_it_says_what_is_missing():
    found = reviewed(SLOW, None)
    assert found.step is None and found.better is None
    assert any("give layers=" in one for one in found.launch.missing)
    assert "missing: " in str(found) and "predicted" not in str(found)


def test_without_a_batch_it_predicts_nothing():
    text = '{"train_micro_batch_size_per_gpu": "auto", "zero_optimization": {"stage": 2}}'
    found = review(read_launcher(text, gpus=16), LLAMA, NODES)
    assert found.step is None and any("micro_batch=" in one for one in found.launch.missing)


def test_the_sequence_is_that_of_the_launch():
    found = reviewed(SLOW.replace("4096", "2048"))
    assert found.launch.model.sequence == 2048
    assert found.step == step_time(replace(LLAMA, sequence=2048), NODES, found.launch.plan)


def test_lines_stay_short():
    for text in (SLOW, TOO_LARGE):
        assert max(map(len, str(reviewed(text)).split("\n"))) <= 110


@pytest.mark.parametrize(
    "arguments",
    [
        (SLOW, LLAMA, NODES),
        (None, LLAMA, NODES),
        (read_launcher(SLOW), "llama2-13b", NODES),
        (read_launcher(SLOW), LLAMA, "h100"),
        (read_launcher(SLOW), LLAMA, NODES, -1),
        (read_launcher(SLOW), LLAMA, NODES, 0.05, 0),
    ],
)
def test_wrong_types_are_refused(arguments):
    with pytest.raises(InputRefused):
        review(*arguments)
