"""Rows of published tables as they come, for changes of single cells."""

from labkit.presets.measured import peaks_of

# A row of a Megatron-LM test as the published table has it, everything at its default.
SMALL = (
    "source_id,row_label,model,gpu,layers,hidden,ffn_hidden,gated_ffn,heads,kv_heads,vocab,seq_len",
    "mcore_golden_values,gpt/small dev dgx_a100,small,A100,12,512,2048,0,8,8,,1024",
    "tp,pp,dp,cp,ep,shard,sequence_parallel,interleave_v,pp_schedule,micro_batch,grad_accum",
    "1,4,2,1,1,DDP,0,1,1F1B,4,4",
    "recompute,precision,framework,peak_mem_GB,inferred_fields,notes",
    "none,bf16,Megatron-Core,2.5,,transformer-impl=transformer_engine",
)


def golden(**changes):
    """That row, with other texts in some columns."""
    names, texts = (",".join(SMALL[first::2]).split(",") for first in (0, 1))
    return dict(zip(names, texts, strict=True)) | changes


def only(row):
    """The one peak of a row that a model and a plan can say."""
    peaks, not_scored = peaks_of([row])
    assert not not_scored
    assert len(peaks) == 1
    return peaks[0]


# The first of SimuMax's rows, as the published table has it.
SIMUMAX = golden(
    source_id="simumax_b200",
    row_label="llama3_70b_tp2_pp1_dp4_l12_mbc4_cef",
    model="llama3-70b trimmed to 12 layers",
    gpu="B200-SXM",
    hidden="8192",
    ffn_hidden="28672",
    gated_ffn="1",
    heads="64",
    vocab="128256",
    seq_len="4096",
    tp="2",
    pp="1",
    dp="4",
    shard="distributed optimizer (ZeRO-1), no overlap",
    sequence_parallel="1",
    pp_schedule="none",
    micro_batch="1",
    global_batch="16",
    precision="bf16, fp32 grad accumulation",
    framework='Megatron-LM 23e00ed + TE 2.11, cross-entropy fusion ("cef")',
    peak_mem_GB="65.155",
    mem_kind="max over ranks of torch max_memory_allocated (source GiB 60.68); reserved GiB 62.53",
    notes="source simulator predicted 698.81 ms / 60.51 GiB; per-rank max_allocated MiB: "
    + " ".join(f"{rank}:{62136 - rank % 2}" for rank in range(8)),
)
REDIS = golden(
    source_id="vocab_parallelism",
    layers="32",
    hidden="3072",
    ffn_hidden="12288",
    heads="24",
    kv_heads="24",
    vocab="262144",
    seq_len="2048",
    pp="8",
    dp="1",
    shard="none",
    pp_schedule="1F1B (redis)",
    micro_batch="1",
    grad_accum="128",
    precision="bf16/fp16 (not stated)",
    peak_mem_GB="27.63",
    inferred_fields="vocab k=1024",
)
RANKS = "per-rank max_allocated MiB: "
