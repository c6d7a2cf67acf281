"""Launch scripts with the traits of real ones: who starts how many processes, how options are handed over."""

import gzip
import re

import pytest

from labkit.errors import InputRefused
from labkit.evidence.launchers import read_launcher

MODEL = (
    "--num-layers 32 --hidden-size 4096 --num-attention-heads 32 --seq-length 4096 "
    "--max-position-embeddings 4096 --vocab-size 50257 --bf16"
)
RUN = f"pretrain_gpt.py --tensor-model-parallel-size 4 --micro-batch-size 1 --global-batch-size 64 {MODEL}"


@pytest.mark.parametrize(
    ("start", "gpus"),
    [
        ("torchrun --nnodes 4 --nproc-per-node 8", 32),
        ("torchrun --nproc_per_node=8", 8),  # torchrun's own default is one host
        ("srun -N4 --ntasks-per-node 8 python", 32),
        ("srun -N 4 --gpus-per-node=8 --ntasks-per-node=1 torchrun --nproc-per-node 8", 32),
        ("srun --nodes=4 --ntasks-per-node=1 --gpus-per-node=8 accelerate launch", 32),
        ("srun -n 32 --ntasks-per-node=8 python", 32),
        ("srun -n32 --gpus-per-node a100:8 python", 32),
        ("srun -N 4 --ntasks-per-node=1 --gres gpu:8 accelerate launch", 32),
        ("mpirun -np 32 --bind-to none python", 32),
        ("mpirun -np 32 -N 8 -H a:8,b:8,c:8,d:8 -x NCCL_DEBUG python", 32),
        ("#SBATCH -N 4\n#SBATCH --ntasks-per-node=8\nsrun python", 32),
        ("#SBATCH -N4 -J job  # four of them\n#SBATCH --gres gpu:8\nsrun python", 32),
        (
            "#SBATCH --nodes 4\n#SBATCH --ntasks-per-node=1\n"
            "srun torchrun --nnodes $SLURM_NNODES --nproc-per-node 8",
            32,
        ),
        (
            "#SBATCH -N 4 -n 32\nW=$((SLURM_NTASKS/8))\ntorchrun --nnodes $W --nproc-per-node 8",
            32,
        ),
        ("CUDA_DEVICE_MAX_CONNECTIONS=1 torchrun --nnodes 4 --nproc-per-node 8", 32),
    ],
)
def test_the_gpus_of_a_start(start, gpus):
    found = read_launcher(f"{start} {RUN}\n")
    assert (found.gpus, found.plan.tp, found.plan.dp) == (gpus, 4, gpus // 4)
    assert found.missing == [] and found.warnings == []


@pytest.mark.parametrize(
    ("start", "says"),
    [
        ("torchrun --nnodes=2:4 --nproc-per-node=8", "--nnodes is '2:4'"),
        ("#SBATCH --nodes=2-4\n#SBATCH --ntasks-per-node=8\nsrun python", "--nodes is '2-4'"),
        ("torchrun --nnodes 4 --nproc-per-node=gpu", "--nproc-per-node is 'gpu'"),
        ("deepspeed --num_nodes -1 --num_gpus 8", "'-1'"),
        ("#SBATCH --ntasks-per-node=8\nsrun python", "the number of hosts"),
    ],
)
def test_what_only_the_start_knows_is_missing_and_refuses_nothing(start, says):
    found = read_launcher(f"{start} {RUN}\n")
    assert any(says in one and "give gpus=" in one for one in found.missing) and found.plan.tp == 4
    assert read_launcher(f"{start} {RUN}\n", gpus=16).plan.dp == 4


@pytest.mark.parametrize(
    "script",
    [
        f'OPTIONS="{RUN}"\nsrun -N 4 --ntasks-per-node=8 sh -c "python -u $OPTIONS"\n',
        f'L="torchrun --nnodes 4 --nproc-per-node 8"\nC="{RUN}"\nsrun bash -c "cd x; $L --rank $R $C"\n',
        f"DIR=`pwd`\ntorchrun --nnodes 4 --nproc-per-node 8 $DIR/{RUN}\n",
        f'A="--bf16"\nA="$A {RUN[16:]}"\nA+=" --mock-data"\ntorchrun --nnodes 4 --nproc-per-node 8 x.py $A\n',
        f": ${{N:=4}}\ntorchrun --nnodes $N --nproc-per-node 8 {RUN}\n",
        f"torchrun --nnodes 4 --nproc-per-node 8 {RUN} --attention-backend auto\n",
    ],
)
def test_options_are_found_however_they_are_handed_over(script):
    found = read_launcher(script)
    assert (found.gpus, found.plan.tp, found.plan.dp, found.global_batch) == (32, 4, 8, 64)
    assert found.model.layers == 32 and found.missing == [] and found.warnings == []
    windows = read_launcher(script.replace("\n", "\r\n"))
    assert (windows.plan, windows.model, windows.missing) == (found.plan, found.model, [])


def test_a_switch_that_a_branch_empties():
    script = f'E="--fp8-format hybrid"\nE=""\ntorchrun --nproc-per-node 8 {RUN} $E\n'
    assert read_launcher(script).warnings == [
        "E is set more than once (--fp8-format hybrid, then nothing): the last counts"
    ]


def test_words_that_only_the_run_knows_may_hold_options():
    found = read_launcher(f"torchrun --nproc-per-node 8 {RUN} --mock-data $EXTRA\n")
    assert found.missing == ["the value of $EXTRA, which may hold further options: put them in"]


def test_a_fork_with_deepspeed():
    found = read_launcher(
        f"torchrun --nproc-per-node 8 {RUN} --embed-layernorm --pad-vocab-size-to 250880 --zero-stage 1 "
        "--position-embedding-type alibi --partition-activations --num-experts 0\n"
    )
    assert found.model.embedding_norm and found.model.learned_positions == 0 and found.model.experts == 0
    assert found.plan.zero == 1 and found.unknown == []
    (warning,) = found.warnings
    assert warning.startswith("--partition-activations is not modelled")


def test_values_as_a_log_prints_them():
    facts = {
        "attention_backend": "AttnBackend.unfused",
        "cp_comm_type": "['a2a']",
        "num_experts": "[8]",
        "world_size": 8,
        "micro_batch_size": 1,
        "global_batch_size": 8,
    }
    lines = (f"  {name} {'.' * (48 - len(name))} {value}\n" for name, value in facts.items())
    found = read_launcher("".join(lines), layers=4, hidden=64, heads=4, vocabulary=1000, sequence=128)
    assert not found.plan.fused_attention and found.plan.context == "all_to_all"
    assert found.model.experts == 8 and found.unknown == []


# ---- DeepSpeed


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            '{"zero_optimization": {"stage": 1}, "zero_optimization": {"stage": 2}}',
            "'zero_optimization' twice",
        ),
        ('{"train_batch_size": ' + "9" * 5000 + "}", "too many digits"),
        (
            '{"train_batch_size": 64, "x": "' + "y" * 1_000_001 + '"}',
            "does not end within 1,000,000 characters",
        ),
        ('{"x": ' + '{"x": ' * 5000 + "1" + "}" * 5001, "nested too deeply"),
        ('{"train_batch_size": 0}', "train_batch_size is '0'; give a whole number from 1 up"),
        ('{"train_batch_size": 8, "sequence_parallel_size": -2}', "sequence_parallel_size is '-2'"),
        (
            '{"zero_optimization": {"stage": -1}}',
            "zero_optimization.stage is '-1'; give a whole number from 0 up",
        ),
        ('{"zero_optimization": {"stage": []}}', "zero_optimization.stage is '\\[\\]'"),
    ],
)
def test_json_that_is_refused(text, says):
    with pytest.raises(InputRefused, match=says) as refusal:
        read_launcher(text)
    assert "\n" not in str(refusal.value)


def test_what_is_off_in_json_is_off():
    zero = {"offload_optimizer": '{"device": "none"}', "offload_param": '{"device": "cpu"}'}
    inner = ", ".join(f'"{name}": {value}' for name, value in zero.items())
    found = read_launcher(f'{{"train_batch_size": 8, "zero_optimization": {{"stage": 3, {inner}}}}}', gpus=8)
    (warning,) = found.warnings
    assert "offload_param.device is not modelled" in warning


def test_a_configuration_that_a_script_holds():
    script = 'X=${HOME}\nC="\n  {\n  "zero_optimization": {"stage": 2}, "train_batch_size": 8}\n"\n'
    assert read_launcher(script, gpus=8).plan.zero == 2


# ---- torchtitan


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        (
            "tensor_parallel_degree = 0",
            "parallelism.tensor_parallel_degree is '0'; give a whole number from 1",
        ),
        ("tensor_parallel_degree = -2", "tensor_parallel_degree is '-2'"),
        ("data_parallel_shard_degree = -3", "is '-3'; give a whole number from 1 up, or -1"),
        ("pipeline_parallel_microbatch_size = 0", "pipeline_parallel_microbatch_size is '0'"),
        (
            "pipeline_parallel_first_stage_less_layers = -4",
            "less_layers is '-4'; give a whole number from 0 up",
        ),
        ("[training]\nlocal_batch_size = 0", "training.local_batch_size is '0'"),
        ("[training]\nseq_len = inf", "training.seq_len is 'inf'"),
    ],
)
def test_numbers_that_are_none(lines, says):
    with pytest.raises(InputRefused, match=re.escape(says)):
        read_launcher(f"[parallelism]\npipeline_parallel_degree = 2\n{lines}\n", gpus=8)


def test_the_first_names_of_its_settings():
    found = read_launcher(
        '[model]\nname = "llama3"\nflavor = "8B"\n[training]\nbatch_size = 8\ndata_parallel_degree = -1\n'
        "tensor_parallel_degree = 2\n[experimental]\npipeline_parallel_degree = 2\n"
        'pipeline_parallel_schedule = "gpipe"\n',
        gpus=32,
    )
    assert (found.plan.tp, found.plan.pp, found.plan.dp, found.plan.schedule) == (2, 2, 8, "gpipe")
    assert found.unknown == []


def test_its_options_on_a_command_line():
    found = read_launcher(
        "torchrun --nnodes 2 --nproc_per_node 8 --rdzv_backend c10d --tee 3 -m torchtitan.train "
        "--job.config_file ./llama3_8b.toml --parallelism.tensor_parallel_degree 2 "
        "--training.local_batch_size 1\n"
    )
    assert (found.gpus, found.plan.tp, found.plan.dp) == (16, 2, 8) and found.unknown == []
    assert found.warnings[0] == "./llama3_8b.toml, which holds the other settings, is not read here"
    with pytest.raises(InputRefused, match=r"read \./llama3_8b\.toml, which it names"):
        read_launcher("torchrun --nproc_per_node=8 -m torchtitan.train --job.config_file ./llama3_8b.toml\n")


# ---- files


def test_files_that_hold_no_text(tmp_path):
    path = tmp_path / "run.sh"
    for data, says in (
        (b"", "run.sh is empty; give what starts your training"),
        (bytes(range(256)) * 20, "run.sh is binary data; give"),
        (gzip.compress(RUN.encode() * 50, mtime=0), "run.sh is binary data, packed with gzip; give"),
    ):
        path.write_bytes(data)
        with pytest.raises(InputRefused, match=says):
            read_launcher(path)
    with pytest.raises(InputRefused, match="is a directory; name the file inside it"):
        read_launcher(tmp_path)
