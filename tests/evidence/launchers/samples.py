"""Launcher files with the traits of real ones, written for these tests."""

# A Slurm script: options of the scheduler, arrays with comments, defaults, arithmetic, a branch, a pipe.
SLURM = r"""#!/bin/bash
#SBATCH --job-name=gpt-22b --partition=batch
#SBATCH --nodes=8
#SBATCH --ntasks-per-node=8          # one task a GPU
#SBATCH --gpus-per-node=8
set -euo pipefail
export CUDA_DEVICE_MAX_CONNECTIONS=1  # don't ask
cd "$(dirname "$0")/.."

NNODES=${SLURM_NNODES:-1}
GPUS_PER_NODE=8
WORLD_SIZE=$(($GPUS_PER_NODE * $NNODES))
TP=${TP:-8}; PP=${PP:-2}
DP=$(( WORLD_SIZE / (TP * PP) ))
MICRO=2
GLOBAL=$((MICRO * DP * 16))
NAME="gpt-${TP}x${PP}-$(date +%y%m%d)"

DISTRIBUTED_ARGS=(
    --nproc_per_node $GPUS_PER_NODE
    --nnodes $NNODES
    --rdzv_id $SLURM_JOB_ID
    --rdzv_backend c10d
    --rdzv_endpoint ${MASTER}:29500
)
MODEL_ARGS=(
    --num-layers 48            # twice the small one
    --hidden-size 6144
    --num-attention-heads 64
    --seq-length 2048
    --max-position-embeddings 2048
    --vocab-size 51200
)
PARALLEL_ARGS=(
    --tensor-model-parallel-size ${TP}
    --pipeline-model-parallel-size ${PP}
    --num-layers-per-virtual-pipeline-stage 6
    --use-distributed-optimizer
    --overlap-grad-reduce
)
if [ "$TP" -gt 1 ]; then
    PARALLEL_ARGS+=(--sequence-parallel)
fi
TRAINING=" \
    --micro-batch-size ${MICRO} \
    --global-batch-size ${GLOBAL} \
    --lr 1.0e-4 --min-lr 1e-5 \
    --recompute-granularity selective \
    --bf16 \
    --data-path 'my corpus' \
"
srun --label torchrun ${DISTRIBUTED_ARGS[@]} pretrain_gpt.py \
    ${MODEL_ARGS[@]} \
    "${PARALLEL_ARGS[@]}" \
    $TRAINING --save "/ckpt/$NAME" --hidden-frobnication 3 2>&1 | tee logs/$NAME.log
"""

# What a run prints of its arguments, a rank's prefix and a time before each line as some launchers do.
_PRINTED = {
    "account_for_embedding_in_pipeline_split": False,
    "add_bias_linear": False,
    "add_qkv_bias": False,
    "attention_dropout": 0.0,
    "bf16": True,
    "context_parallel_size": 2,
    "cp_comm_type": "['p2p']",
    "data_parallel_size": 4,
    "expert_model_parallel_size": 1,
    "expert_tensor_parallel_size": 4,
    "ffn_hidden_size": 28672,
    "fp8": None,
    "global_batch_size": 128,
    "group_query_attention": True,
    "hidden_dropout": 0.0,
    "hidden_size": 8192,
    "make_vocab_size_divisible_by": 128,
    "max_position_embeddings": 8192,
    "micro_batch_size": 1,
    "normalization": "RMSNorm",
    "num_attention_heads": 64,
    "num_experts": None,
    "num_layers": 80,
    "num_query_groups": 8,
    "padded_vocab_size": 32768,
    "pipeline_model_parallel_size": 4,
    "position_embedding_type": "rope",
    "recompute_granularity": "full",
    "recompute_method": "uniform",
    "recompute_num_layers": 2,
    "sequence_parallel": True,
    "seq_length": 8192,
    "some_new_argument": "always",
    "swiglu": True,
    "tensor_model_parallel_size": 4,
    "transformer_impl": "transformer_engine",
    "untie_embeddings_and_output_weights": True,
    "use_distributed_optimizer": True,
    "virtual_pipeline_model_parallel_size": None,
    "vocab_size": None,
    "world_size": 128,
}


def printed(prefix: str = "", **changes) -> str:
    """A log with the list of arguments in it, every line after ``prefix``."""
    lines = [f"  {name} {'.' * (48 - len(name))} {value}" for name, value in (_PRINTED | changes).items()]
    head = "-" * 24 + " arguments " + "-" * 24
    text = [
        "using world size: 128, data-parallel size: 4",
        head,
        *lines,
        "-" * 20 + " end of arguments " + "-" * 21,
    ]
    text += [
        "> initializing torch distributed ...",
        "iteration 1/ 500 | elapsed time per iteration (ms): 9012.3 |",
    ]
    return "".join(f"{prefix}{line}\n" for line in text)


DEEPSPEED = """{
  // effective batch of the paper
  "train_batch_size": 256,
  "gradient_accumulation_steps": 4,   # the rest follows
  "steps_per_print": 10,
  "bf16": {"enabled": true},
  "fp16": {"enabled": false, "loss_scale_window": 100},
  "optimizer": {"type": "AdamW", "params": {"lr": 3e-4, "betas": [0.9, 0.95]}},
  "zero_optimization": {
    "stage": 3,
    "overlap_comm": true,
    "offload_optimizer": {"device": "cpu", "pin_memory": true},
    "stage3_prefetch_bucket_size": 5e8,
  },
  "wall_clock_breakdown": false,
  "brand_new_switch": {"depth": 2},
}
# kept from the last run: {"train_batch_size": 1}
"""

TORCHTITAN = """# torchtitan Config.toml
[job]
dump_folder = "./outputs"
[profiling]
enable_profiling = true
[model]
name = "llama3"
flavor = "70B"
converters = ["float8"]
[optimizer]
name = "AdamW"
lr = 1.5e-4
[training]
local_batch_size = 8
seq_len = 8192
max_norm = 1.0
dataset = "c4"
[parallelism]
data_parallel_replicate_degree = 1
data_parallel_shard_degree = -1
tensor_parallel_degree = 8
enable_async_tensor_parallel = true
pipeline_parallel_degree = 4
pipeline_parallel_schedule = "1F1B"
pipeline_parallel_microbatch_size = 2
pipeline_parallel_first_stage_less_layers = 0
pipeline_parallel_last_stage_less_layers = 0
context_parallel_degree = 1
wobble_degree = 2
[checkpoint]
enable = false
[activation_checkpoint]
mode = "full"
"""
