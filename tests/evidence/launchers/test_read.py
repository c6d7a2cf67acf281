"""Launchers' files as plans: against sums by hand on samples with the traits of real files."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from labkit.errors import InputRefused
from labkit.evidence.launchers import read_launcher
from labkit.evidence.launchers.megatron import layers_of_layout
from labkit.presets import model
from tests.evidence.launchers.samples import DEEPSPEED, SLURM, TORCHTITAN, printed

MEGATRON = "torchrun --nnodes {nodes} --nproc-per-node 8 pretrain_gpt.py --micro-batch-size 1 {rest}"


def megatron(rest, nodes=4, **given):
    return read_launcher(MEGATRON.format(nodes=nodes, rest=rest), **given)


def said(launch, *words):
    """The warnings that hold all of these words."""
    return [one for one in launch.warnings if all(word in one for word in words)]


# ---- Megatron-LM


def test_a_scheduler_s_script():
    found = read_launcher(SLURM)
    plan = found.plan
    assert found.framework == "megatron-lm" and found.gpus == 64 and found.precision == "bf16"
    assert (plan.tp, plan.pp, plan.dp, plan.v) == (8, 2, 4, 4)  # 48 layers over 2 x 6
    assert (plan.micro_batch, plan.global_batch, plan.accumulation) == (2, 128, 16)
    assert (plan.zero, plan.recompute, plan.sequence_parallel, plan.fused_attention) == (
        1,
        "selective",
        True,
        True,
    )
    assert found.model.parameters == pytest.approx(22e9, rel=0.02)  # the paper's 22 B
    assert found.sequence == 2048 and found.unknown == ["--hidden-frobnication 3"] and found.missing == []


@pytest.mark.parametrize("prefix", ["", "0: ", "[rank0]: ", "2024-05-01 12:00:00 [info] "])
def test_printed_arguments_of_a_log(prefix):
    found = read_launcher(printed(prefix))
    plan = found.plan
    assert (plan.tp, plan.cp, plan.pp, plan.dp, plan.v) == (4, 2, 4, 4, 1) and found.gpus == 128
    assert (plan.global_batch, plan.accumulation, plan.zero) == (128, 32, 1)
    assert (plan.recompute, plan.recompute_every, plan.context) == ("full", 2, "ring")
    shape = found.model
    assert (shape.kv_heads, shape.ffn, shape.gated, shape.tied, shape.bias) == (8, 28672, True, False, False)
    assert (shape.learned_positions, shape.dropout, shape.norm) == (0, False, "rms")
    assert shape.vocabulary == 32768  # nobody says the size without padding
    assert found.unknown == ["--some_new_argument always"]


def test_the_last_of_two_runs_in_a_log_counts():
    assert read_launcher(printed() + printed(micro_batch_size=4)).plan.micro_batch == 4


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ("", {"tp": 1, "dp": 32, "zero": 0, "recompute": "none", "order": "tp-cp-dp-pp"}),
        ("--tensor_model_parallel_size=8 --sequence-parallel", {"tp": 8, "dp": 4, "sequence_parallel": True}),
        ("--sequence-parallel", {"sequence_parallel": False}),  # switched off at tp = 1
        ("--context-parallel-size 2 --cp-comm-type a2a", {"cp": 2, "dp": 16, "context": "all_to_all"}),
        ("--use-tp-pp-dp-mapping", {"order": "tp-cp-pp-dp"}),
        ("--global-batch-size 128", {"accumulation": 4}),
        ("--recompute-activations", {"recompute": "selective"}),
        (
            "--recompute-granularity full --recompute-method uniform --recompute-num-layers 3",
            {"recompute": "full", "recompute_every": 3},
        ),
        ("--use-distributed-optimizer", {"zero": 1, "shard_ranks": None}),
        (
            "--use-distributed-optimizer --num-distributed-optimizer-instances 4",
            {"zero": 1, "shard_ranks": 8},
        ),
        ("--use-megatron-fsdp --data-parallel-sharding-strategy optim_grads", {"zero": 2}),
        ("--use-megatron-fsdp --data-parallel-sharding-strategy optim_grads_params", {"zero": 3}),
        ("--use-custom-fsdp --data-parallel-sharding-strategy optim", {"zero": 1}),
        ("--use-torch-fsdp2", {"zero": 3}),
        ("--use-torch-fsdp2 --torch-fsdp2-no-reshard-after-forward", {"zero": 2}),
        ("--zero-stage 1 --deepspeed", {"zero": 1}),
        ("--attention-backend unfused", {"fused_attention": False}),
        ("--transformer-impl local", {"fused_attention": False}),
        ("--transformer-impl local --use-flash-attn", {"fused_attention": True}),
        ("--make-vocab-size-divisible-by 64", {"vocabulary_multiple": 64}),
        (
            "--num-experts 8 --expert-model-parallel-size 8 --expert-tensor-parallel-size 1",
            {"ep": 8, "etp": 1},
        ),
        (
            "--num-layers 48 --pipeline-model-parallel-size 4 --num-virtual-stages-per-pipeline-rank 3",
            {"pp": 4, "v": 3, "stage_layers": None},
        ),
        (
            "--num-layers 30 --pipeline-model-parallel-size 4 --decoder-first-pipeline-num-layers 7 "
            "--decoder-last-pipeline-num-layers 7",
            {"stage_layers": (7, 8, 8, 7)},
        ),
        (
            "--num-layers 8 --pipeline-model-parallel-size 4 "
            "--pipeline-model-parallel-layout 'Et|t*2|tt|(t)*3L'",
            {"stage_layers": (1, 2, 2, 3), "v": 1},
        ),
        (
            "--num-layers 8 --pipeline-model-parallel-size 2 --pipeline-model-parallel-layout 'E(tt|)*3ttL'",
            {"stage_layers": None, "v": 2},
        ),
    ],
)
def test_what_flags_mean(flags, expected):
    plan = megatron(f"--bf16 {flags}").plan
    assert {name: getattr(plan, name) for name in expected} == expected


def test_layouts():
    assert layers_of_layout("Et*3|(tt|)*29,m|L") == (3, *[2] * 29, 0, 0)  # 61 layers, one that predicts ahead
    for wrong in ("", "Etx|L", "(((t", "E(t*9999|)*9999(t*9999|)*9999L", "t*t"):
        with pytest.raises(InputRefused, match="no layout"):
            layers_of_layout(wrong)


def test_contradictions_are_said():
    assert said(megatron("--tensor-model-parallel-size 3"), "32 GPUs", "no multiple", "3", "refuses to start")
    assert said(megatron("--global-batch-size 100"), "global batch 100", "32 replicas")
    assert said(
        megatron(
            "--num-layers 30 --pipeline-model-parallel-size 4 --num-layers-per-virtual-pipeline-stage 4"
        ),
        "30 layers",
        "refuses to start",
    )
    assert said(megatron("--data-parallel-sharding-strategy optim_grads"), "without --use-megatron-fsdp")
    assert said(megatron("--bf16 --fp16"), "contradict", "precision")
    assert said(megatron(""), "neither --bf16 nor --fp16")
    assert said(
        megatron("--recompute-granularity full --recompute-method block --recompute-num-layers 2"), "block"
    )
    assert said(
        megatron("--recompute-granularity selective --recompute-modules mlp core_attn"), "attention core only"
    )
    assert said(megatron("--fp8-format hybrid --bf16"), "not modelled", "8 bits")
    assert not said(megatron("--bf16 --num-layers 8"), "refuses")


def test_what_is_missing_says_where_to_give_it():
    line = "pretrain_gpt.py --tensor-model-parallel-size $TP --num-layers 40 --hidden-size 5120"
    found = read_launcher(f"{line} $REST")
    assert [one.split(": give")[0] for one in found.missing] == [
        "the value of $TP (--tensor-model-parallel-size), which only the run knows",
        "the value of $REST, which may hold further options: put them in",
        "the number of GPUs (nnodes x nproc-per-node)",
        "the micro-batch (--micro-batch-size)",
        "the number of attention heads",
        "the sequence length",
        "the vocabulary, which the tokenizer has",
    ]
    assert found.model is None and found.global_batch is None and found.gpus is None
    given = {"tp": 8, "gpus": 64, "micro_batch": 2, "heads": 40, "sequence": 2048, "vocabulary": 50257}
    complete = read_launcher(f"{line} --bf16", **given)
    assert complete.missing == [] and complete.plan.dp == 8
    assert complete.model.parameters == model("gpt3-13b").parameters
    assert complete.plan.micro_batch == 2 and complete.global_batch == 16


def test_models_that_labkit_cannot_describe_are_not_guessed():
    shape = "--num-layers 4 --hidden-size 64 --num-attention-heads 4 --seq-length 64 --vocab-size 256 --bf16"
    assert megatron(shape).model.ffn == 256
    assert megatron(f"{shape} --swiglu").model.ffn == 128  # 2/3 of 4 h in multiples of 64
    found = megatron(f"{shape} --multi-latent-attention --mtp-num-layers 1")
    assert found.model is None and said(found, "multi-latent attention", "predict further tokens")
    assert megatron(f"{shape} --mtp-num-layers 0").model is not None


# ---- DeepSpeed: case C3 of the public reports, and the forms that its JSON comes in

JSON = '{{"zero_optimization": {{"stage": 1}}, {}}}'


@pytest.mark.parametrize(
    ("batch", "gpus", "expected"),
    [
        ({"train_batch_size": 256, "train_micro_batch_size_per_gpu": 4}, 16, (4, 4, 256)),
        ({"train_batch_size": 256, "gradient_accumulation_steps": 4}, 16, (4, 4, 256)),
        ({"train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 4}, 16, (4, 4, 256)),
        # Given one: the micro-batch is the batch over the replicas, not the batch.
        ({"train_batch_size": 256}, 16, (16, 1, 256)),
        ({"train_micro_batch_size_per_gpu": 4}, 16, (4, 1, 64)),
        # All three say how many GPUs there are.
        (
            {"train_batch_size": 256, "train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 8},
            None,
            (4, 8, 256),
        ),
    ],
)
def test_any_two_batch_numbers_give_the_third(batch, gpus, expected):
    text = JSON.format(", ".join(f'"{name}": {value}' for name, value in batch.items()))
    found = read_launcher(text, **({} if gpus is None else {"gpus": gpus}))
    assert (found.plan.micro_batch, found.plan.accumulation, found.plan.global_batch) == expected
    assert found.plan.dp == found.gpus == (gpus or 8)


def test_batch_numbers_that_disagree():
    numbers = '"train_batch_size": 100, "train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 4'
    found = read_launcher(JSON.format(numbers), gpus=16)
    assert said(found, "100 is not", "4 x gradient_accumulation_steps 4 x 16 = 256", "refuses to start")
    only = read_launcher(JSON.format('"gradient_accumulation_steps": 4'), gpus=16)
    assert any("give global_batch=" in one for one in only.missing) and only.global_batch is None


def test_json_as_people_write_it():
    found = read_launcher(DEEPSPEED, gpus=16)
    assert (found.plan.zero, found.plan.dp, found.plan.micro_batch, found.plan.accumulation) == (3, 16, 4, 4)
    assert found.precision == "bf16" and found.unknown == ["brand_new_switch.depth 2"]
    assert said(found, "offload_optimizer", "host's memory") and len(found.warnings) == 1
    assert any("gradient checkpointing" in one and "recompute=" in one for one in found.missing)
    full = read_launcher(DEEPSPEED, gpus=16, recompute="full", fused_attention=True, model=model("llama2-7b"))
    assert full.missing == [] and full.plan.recompute == "full" and full.model.name == "llama2-7b"


def test_more_of_deepspeed():
    auto = read_launcher('{"train_batch_size": "auto", "zero_optimization": {"stage": 2}}', gpus=8)
    assert any("'auto'" in one and "give global_batch=" in one for one in auto.missing)
    assert read_launcher('{"train_batch_size": 8, "zero_optimization": true}', gpus=8).plan.zero == 1
    tensor = '{"train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 4, %s}'
    cut = read_launcher(tensor % '"tensor_parallel": {"autotp_size": 4}', gpus=32)
    assert (cut.plan.tp, cut.plan.dp, cut.plan.global_batch) == (4, 8, 64)
    assert said(read_launcher(tensor % '"tensor_parallel": {"autotp_size": 3}', gpus=32), "no multiple", "3")
    sequence = read_launcher(tensor % '"sequence_parallel_size": 4', gpus=32).plan
    assert (sequence.cp, sequence.context, sequence.dp) == (4, "all_to_all", 8)
    meshed = read_launcher(tensor % '"sequence_parallel_size": 4, "data_parallel_size": 8')
    assert (meshed.gpus, meshed.plan.dp, meshed.plan.cp) == (32, 8, 4)
    both = read_launcher(
        '{"train_batch_size": 8, "bf16": {"enabled": true}, "fp16": {"enabled": true}}', gpus=8
    )
    assert said(both, "bf16 and fp16")
    log = 'INFO [config.py] json = {\n "train_batch_size": 64,\n "zero_optimization": {"stage": 2}\n}\nstep\n'
    assert read_launcher(log, gpus=8).plan.zero == 2
    mics = '{"train_batch_size": 64, "zero_optimization": {"stage": 3, "mics_shard_size": 8}}'
    assert read_launcher(mics, gpus=32).plan.shard_ranks == 8


# ---- torchtitan


def test_a_configuration():
    found = read_launcher(TORCHTITAN, gpus=256)
    plan = found.plan
    assert (plan.tp, plan.pp, plan.dp, plan.zero, plan.sequence_parallel) == (8, 4, 8, 2, True)
    # Local batches of 8 in pieces of 2 on 8 replicas; a step is one of them, as no global batch is given.
    assert (plan.micro_batch, plan.accumulation, plan.global_batch) == (2, 4, 64)
    assert found.model.parameters == model("llama3.1-70b").parameters and found.model.sequence == 8192
    assert found.unknown == ["parallelism.wobble_degree 2"]
    assert said(found, "enable_async_tensor_parallel") and said(found, "converters")
    assert plan.stage_layers is None and plan.recompute == "full"


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        (
            {"pipeline_parallel_degree = 4": "pipeline_parallel_degree = 1"},
            {"zero": 3, "dp": 32, "micro_batch": 8},
        ),
        (
            {"data_parallel_shard_degree = -1": "data_parallel_shard_degree = 8"},
            {"dp": 8, "shard_ranks": None},
        ),
        (
            {"replicate_degree = 1": "replicate_degree = 4"},
            {"dp": 8, "shard_ranks": 2},
        ),
        ({'"1F1B"': '"Interleaved1F1B"'}, {"v": 2, "schedule": "1f1b"}),
        ({'"1F1B"': '"ZBVZeroBubble"'}, {"v": 2, "schedule": "zb-v"}),
        ({'"1F1B"': '"Interleaved1F1B"\npipeline_parallel_layers_per_stage = 5'}, {"v": 4}),
        # 82 / 4 with a layer less at either end.
        (
            {
                "first_stage_less_layers = 0": "first_stage_less_layers = 1",
                "last_stage_less_layers = 0": "last_stage_less_layers = 1",
            },
            {"stage_layers": (20, 21, 20, 19)},
        ),
        ({"[parallelism]": "global_batch_size = 64\n[parallelism]"}, {"accumulation": 4}),
    ],
)
def test_what_its_settings_mean(changes, expected):
    text = TORCHTITAN
    for old, new in changes.items():
        assert old in text
        text = text.replace(old, new)
    plan = read_launcher(text, gpus=256).plan
    assert {name: getattr(plan, name) for name in expected} == expected


def test_older_sections_and_a_command_line():
    old = """
[model]
name = "llama3"
flavor = "8B"
[training]
batch_size = 1
seq_len = 8192
tensor_parallel_degree = 4
data_parallel_shard_degree = 8
[experimental]
pipeline_parallel_degree = 1
[activation_checkpoint]
mode = "selective"
"""
    found = read_launcher(old)
    assert (found.plan.tp, found.plan.dp, found.gpus, found.plan.zero) == (4, 8, 32, 3)
    assert said(found, "selective recompute (2)", "one layer of 2")
    line = "C=./llama3.toml ./run.sh --training.local_batch_size 4 --parallelism.tensor_parallel_degree 2"
    assert (read_launcher(line, gpus=8).framework, read_launcher(line, gpus=8).plan.dp) == ("torchtitan", 4)
    none = read_launcher(TORCHTITAN)
    assert any("give gpus=" in one for one in none.missing) and none.gpus is None
    assert said(read_launcher(TORCHTITAN, gpus=100), "100 GPUs", "32", "refuses")


# ---- anything


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("nothing of use\nhere\n", "starts no training"),
        ("{\n}\n", "none of the settings of DeepSpeed"),
        ('{"a": \n [1, \n', "line 3"),
        ('{"a": 1, "b": }', "mend it there"),
        ("[parallelism\nx = 1\n", "no TOML"),
        ("[parallelism]\nx = 1\n", "none of the settings of torchtitan"),
        ("{" * 4000 + "\n", "mend it there"),
        ('{"train_batch_size": "many"}', "give a whole number"),
        ("pretrain.py --tensor-model-parallel-size two --num-layers 4", "give a whole number"),
        ('{"train_batch_size": 1e400}', "give a whole number"),
        ('{"train_batch_size": -3}', "whole number"),
        (
            "deepspeed --num_nodes 2 --num_gpus 8 train.py --bf16 --deepspeed ds.json",
            "read ds.json, which it names",
        ),
        ("no/such/file.sh", "no file"),
        ("", "empty"),
        (7, "not from int"),
    ],
)
def test_refusals_in_one_sentence(text, words):
    with pytest.raises(InputRefused, match=words) as refusal:
        read_launcher(text)
    assert "\n" not in str(refusal.value) and len(str(refusal.value)) < 500


def test_arguments_are_checked():
    with pytest.raises(InputRefused, match="takes no 'gpu'"):
        read_launcher(SLURM, gpu=3)
    for wrong in ({"gpus": 2.5}, {"model": "llama2-7b"}, {"precision": "int4"}, {"tp": "two"}, {"gpus": "8"}):
        with pytest.raises(InputRefused):
            read_launcher(SLURM, **wrong)


@given(st.text(alphabet='{}[]":,=#-$ \n\\ab1.', max_size=120))
def test_any_text_is_read_or_refused(text):
    with suppress(InputRefused):
        read_launcher(f"{text}\n")


@given(st.integers(0, 2000), st.sampled_from([SLURM, DEEPSPEED, TORCHTITAN, printed()]))
def test_files_that_are_cut_are_read_or_refused(length, text):
    with suppress(InputRefused):
        read_launcher(text[:length] + "\n", gpus=64)
