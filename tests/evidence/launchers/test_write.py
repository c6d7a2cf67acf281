"""What launcher_arguments writes, read_launcher reads back as the same plan."""

import json
import tomllib
from dataclasses import replace

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from labkit import Plan, cluster, model
from labkit.errors import InputRefused
from labkit.evidence.launchers import launcher_arguments, read_launcher
from labkit.presets.launchers import launcher_ids
from labkit.spec.rules import allowed

LLAMA, GPT, MOE = model("llama2-70b"), model("gpt3-13b"), model("mixtral-8x7b")
CODE = ("recompute", "recompute_every", "fused_attention", "sequence_parallel", "vocabulary_multiple")


def nodes_of(plan):
    return cluster("h100", nodes=plan.ranks // 8)


def back(framework, shape, plan):
    text = launcher_arguments(framework, shape, nodes_of(plan), plan)
    given = {
        "megatron-lm": {},
        "deepspeed": {"gpus": plan.ranks, "model": shape, **{name: getattr(plan, name) for name in CODE}},
        "torchtitan": {"model": shape, "vocabulary_multiple": plan.vocabulary_multiple},
    }[framework]
    return read_launcher(text, **given)


def in_effect(plan):
    """A plan without the settings that change nothing in it."""
    same = plan.dp * plan.cp
    return replace(
        plan,
        etp=plan.expert_tp,
        context=plan.context if plan.cp > 1 else "ring",
        shard_ranks=plan.shard_ranks if plan.zero and (plan.shard_ranks or same) < same else None,
        sequence_parallel=plan.sequence_parallel and plan.tp > 1,
        recompute_every=plan.recompute_every if plan.recompute == "full" else 1,
        global_batch=None,  # of the three batch numbers two are enough
    )


def used(plan):
    """The dimensions of more than one rank, the closest first."""
    return [name for name in plan.order.split("-") if plan.degree(name) > 1]


@st.composite
def jobs(draw):
    """A model, and a plan on one to eight nodes."""
    shape = draw(st.sampled_from([LLAMA, GPT, MOE]))
    pick = lambda *values: draw(st.sampled_from(values))  # noqa: E731
    tp, pp, cp, gpus = pick(1, 2, 4, 8), pick(1, 2, 4), pick(1, 1, 2), 8 * pick(1, 2, 4, 8)
    assume(gpus % (tp * pp * cp) == 0)
    v, stages = pick(1, 2, 5) if pp > 1 else 1, None
    if pp > 1 and v == 1 and draw(st.booleans()):
        each = shape.layers // pp
        stages = (each - 1, *[each] * (pp - 2), each + 1)
    plan = Plan(
        tp=tp,
        pp=pp,
        cp=cp,
        dp=gpus // (tp * pp * cp),
        v=v,
        ep=pick(1, 2, 4) if shape.experts else 1,
        etp=pick(None, 1) if shape.experts else None,
        micro_batch=pick(1, 2),
        accumulation=pick(1, 4, 8),
        zero=pick(0, 1, 2, 3),
        shard_ranks=pick(None, 4),
        recompute=pick("none", "selective", "full"),
        recompute_every=pick(1, 2),
        fused_attention=pick(True, True, False),
        sequence_parallel=tp > 1 and draw(st.booleans()),
        schedule=pick("1f1b", "1f1b", "gpipe", "zb-v") if pp > 1 else "1f1b",
        context=pick("ring", "all_to_all"),
        stage_layers=stages,
        vocabulary_multiple=pick(64, 128),
        order=pick("tp-cp-dp-pp", "tp-cp-pp-dp"),
    )
    assume(allowed(shape, nodes_of(plan), plan))
    return shape, plan


@settings(max_examples=300, deadline=None)
@given(jobs(), st.sampled_from(["megatron-lm", "deepspeed", "torchtitan"]))
def test_written_and_read_again_it_is_the_same_plan_or_refused_with_its_setting(job, framework):
    shape, plan = job
    try:
        found = back(framework, shape, plan)
    except InputRefused as refusal:
        assert "cannot express" in str(refusal) and ": " in str(refusal) and "\n" not in str(refusal)
        return
    ours = in_effect(plan)
    assert used(found.plan) == used(plan)
    assert in_effect(found.plan) == replace(ours, order=found.plan.order)
    assert found.framework == framework and found.gpus == plan.ranks
    assert found.unknown == [] and found.missing == []
    assert found.global_batch == plan.global_batch
    if framework == "megatron-lm":
        assert replace(found.model, name=shape.name) == shape


def test_megatron_arguments():
    plan = Plan(tp=8, pp=4, dp=2, v=2, zero=1, sequence_parallel=True, global_batch=64, micro_batch=1)
    text = launcher_arguments("megatron-lm", LLAMA, nodes_of(plan), plan)
    start = "CUDA_DEVICE_MAX_CONNECTIONS=1 torchrun --nnodes 8 --nproc-per-node 8 pretrain_gpt.py \\\n"
    assert text.startswith(start)
    for flag in (
        "--tensor-model-parallel-size 8",
        "--pipeline-model-parallel-size 4",
        "--num-virtual-stages-per-pipeline-rank 2",
        "--sequence-parallel",
        "--use-distributed-optimizer",
        "--overlap-grad-reduce",
        "--bf16",
        "--group-query-attention",
        "--num-query-groups 8",
        "--ffn-hidden-size 28672",
        "--swiglu",
        "--normalization RMSNorm",
        "--untie-embeddings-and-output-weights",
        "--disable-bias-linear",
        "--position-embedding-type rope",
        "--global-batch-size 64",
    ):
        assert f"    {flag} \\\n" in text or text.rstrip().endswith(flag), flag
    deep = launcher_arguments("megatron-lm", LLAMA, nodes_of(plan), plan.changed(zero=3, v=1))
    assert "--use-megatron-fsdp" in deep and "--data-parallel-sharding-strategy optim_grads_params" in deep
    assert "--ckpt-format fsdp_dtensor" in deep and "--use-distributed-optimizer" not in deep
    assert deep.startswith("torchrun ")  # FSDP refuses the variable that tensor parallelism asks for
    plain = plan.changed(tp=1, dp=16, pp=4, sequence_parallel=False)
    assert launcher_arguments("megatron-lm", LLAMA, nodes_of(plain), plain).startswith("torchrun ")
    uneven = plan.changed(v=1, stage_layers=(19, 21, 21, 19))
    assert "'Et*19|t*21|t*21|t*19L'" in launcher_arguments("megatron-lm", LLAMA, nodes_of(plan), uneven)


def test_deepspeed_json():
    plan = Plan(dp=16, zero=3, recompute="full", global_batch=128, micro_batch=2)
    found = json.loads(launcher_arguments("deepspeed", GPT, nodes_of(plan), plan))
    assert found["train_batch_size"] == 128 and found["gradient_accumulation_steps"] == 4
    assert found["zero_optimization"] == {"stage": 3} and found["bf16"] == {"enabled": True}
    assert found["_in_the_code"] == [
        "recompute = full: gradient checkpointing is switched on in the model's code"
    ]
    tensor = json.loads(launcher_arguments("deepspeed", GPT, nodes_of(plan), plan.changed(tp=4, dp=4)))
    assert tensor["tensor_parallel"] == {"autotp_size": 4} and "train_batch_size" not in tensor


def test_torchtitan_toml():
    plan = Plan(
        tp=4,
        pp=2,
        dp=4,
        zero=2,
        v=4,
        sequence_parallel=True,
        recompute="full",
        global_batch=32,
        micro_batch=1,
    )
    llama = model("llama3.1-70b")
    found = tomllib.loads(launcher_arguments("torchtitan", llama, nodes_of(plan), plan))
    assert found["model"] == {"name": "llama3", "flavor": "70B"}
    assert found["training"]["local_batch_size"] == 8 and found["training"]["global_batch_size"] == 32
    cut = found["parallelism"]
    assert (
        cut["pipeline_parallel_schedule"] == "Interleaved1F1B"
        and cut["pipeline_parallel_layers_per_stage"] == 10
    )
    assert cut["fsdp_reshard_after_forward"] == "never" and cut["data_parallel_shard_degree"] == 4
    hybrid = plan.changed(pp=1, v=1, dp=8, zero=3, shard_ranks=2)
    cut = tomllib.loads(launcher_arguments("torchtitan", llama, nodes_of(plan), hybrid))["parallelism"]
    assert (cut["data_parallel_replicate_degree"], cut["data_parallel_shard_degree"]) == (4, 2)


@pytest.mark.parametrize(
    ("framework", "changes", "words"),
    [
        ("megatron-lm", {"schedule": "zb-h1"}, "schedule = 'zb-h1'"),
        ("megatron-lm", {"schedule": "gpipe"}, "schedule = 'gpipe'"),
        ("megatron-lm", {"zero": 3, "prefetch": 2}, "prefetch = 2"),
        ("megatron-lm", {"order": "dp-tp-cp-pp"}, "order = 'dp-tp-cp-pp'"),
        ("deepspeed", {}, "pp = 2"),
        ("deepspeed", {"pp": 1, "dp": 8, "zero": 3, "shard_ranks": 4}, "shard_ranks = 4"),
        ("torchtitan", {"zero": 1}, "zero = 1"),
        ("torchtitan", {"schedule": "zb-h1"}, "schedule = 'zb-h1'"),
        ("torchtitan", {"schedule": "zb-2p"}, "schedule = 'zb-2p'"),
        ("torchtitan", {"sequence_parallel": False}, "sequence_parallel = False with tp > 1"),
        ("torchtitan", {"recompute": "full", "recompute_every": 2}, "recompute_every = 2"),
        ("torchtitan", {"fused_attention": False}, "fused_attention = False"),
        ("torchtitan", {"stage_layers": (30, 50)}, "stage_layers"),
    ],
)
def test_what_a_framework_cannot_express(framework, changes, words):
    plan = Plan(tp=4, pp=2, dp=4, sequence_parallel=True, micro_batch=1, accumulation=8).changed(**changes)
    with pytest.raises(InputRefused, match=f"cannot express {words}: ") as refusal:
        launcher_arguments(framework, LLAMA, nodes_of(plan), plan)
    assert "\n" not in str(refusal.value)


def test_experts_of_torchtitan_are_spread_over_ranks_that_shard():
    plan = Plan(dp=16, ep=8, zero=3, micro_batch=1, accumulation=4)
    for wrong in (plan.changed(zero=0), plan.changed(shard_ranks=4)):
        with pytest.raises(InputRefused, match="torchtitan cannot express ep = 8: experts are spread over"):
            launcher_arguments("torchtitan", MOE, nodes_of(plan), wrong)
    one = plan.changed(tp=2, dp=8, etp=1, sequence_parallel=True)
    for right in (plan, plan.changed(shard_ranks=8), one, one.changed(ep=8, shard_ranks=4)):
        assert "expert_parallel_degree = 8" in launcher_arguments("torchtitan", MOE, nodes_of(plan), right)


def test_refusals():
    plan = Plan(tp=8, dp=4, micro_batch=1)
    with pytest.raises(InputRefused, match=r"no framework 'megatron': known are .*did you mean megatron-lm"):
        launcher_arguments("megatron", LLAMA, nodes_of(plan), plan)
    with pytest.raises(InputRefused, match="cannot run: tp 8 x dp 4 = 32 ranks"):
        launcher_arguments("megatron-lm", LLAMA, cluster("h100", nodes=8), plan)
    bloom = model("bloom-176b")
    with pytest.raises(InputRefused, match="embedding_norm"):
        launcher_arguments("megatron-lm", bloom, nodes_of(plan), plan)
    for framework in launcher_ids():
        for wrong in (("x", nodes_of(plan), plan), (LLAMA, 3, plan), (LLAMA, nodes_of(plan), None)):
            with pytest.raises(InputRefused, match="give a"):
                launcher_arguments(framework, *wrong)
