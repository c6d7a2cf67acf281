"""Rows of published training measurements, as facts: one dict for each stage that was measured.

Four sources are read: SimuMax on B200, Zero Bubble, Vocabulary Parallelism, and the golden values of
Megatron-LM's functional tests. Their rows have columns for shape, degrees and batch; what else a run did is
said in the notes as ``option=value`` (Megatron-LM's options without their dashes), or is alike in all runs.
"""

import re
from math import ceil

from labkit.errors import InputRefused
from labkit.spec.checks import noun, shown
from labkit.spec.plan import SCHEDULES
from labkit.units import GB, GiB, MiB

# What a row of our table says. ``loss``: copies of the logits that are alive at once, one of 16 bits and one
# of fp32 ("fp32 copy"), another fp32 copy more ("compiled": Megatron-LM's fused cross-entropy), or 16 bits
# alone that turn into their gradient ("in place": TransformerEngine's). ``unused_gradients``: 16-bit tensors
# that autograd is handed where a weight gradient went straight into fp32. ``stage`` blank: the fullest.
# ``reserved``: what the allocator held on the fullest stage of a run, where that was printed as well.
SHAPE = ("layers", "hidden", "heads", "kv_heads", "ffn", "gated", "experts", "top_k", "vocabulary")
SHAPE += ("sequence", "tied", "learned_positions", "norm", "bias", "dropout", "qk_norm")
PLAN = ("tp", "pp", "dp", "cp", "ep", "etp", "v", "schedule", "stage_layers", "micro_batch", "accumulation")
PLAN += ("zero", "shard_ranks", "recompute", "recompute_every", "sequence_parallel", "fused_attention")
PLAN += ("context",)
SETTINGS = ("gradient_bytes", "loss", "unused_gradients", "dispatcher")
COLUMNS = ("source", "label", "gpu", *SHAPE, *PLAN, *SETTINGS)
COLUMNS += ("stage", "peak", "kind", "reserved", "not_expressed")

_GPT = {"norm": "layer", "bias": 1, "loss": "fp32 copy", "unused_gradients": 0, "context": "ring"}
# What every run of a source did: its launch script, or Megatron-LM's defaults where a test says nothing.
_EVERY_RUN = {
    # MooreThreads/SimuMax, simu_tools/megatron_scripts/scripts/run_pretrain_llama3.sh: gradients in fp32.
    "simumax_b200": _GPT
    | {"tied": 0, "norm": "rms", "bias": 0, "dropout": 0, "learned_positions": 0, "fused_attention": 1}
    | {"gradient_bytes": 4, "unused_gradients": 1, "context": "all_to_all", "kind": "allocated"},
    # sail-sg/zero-bubble-pipeline-parallelism, the first examples/pretrain_zero_bubble.sh: gradients in fp16,
    # no flash attention, 2048 positions, tied. The printed sizes of the models leave 25,000 to 32,000 tokens
    # of a SentencePiece vocabulary; the fullest stage holds none of it.
    "zero_bubble": _GPT
    | {"tied": 1, "dropout": 1, "learned_positions": 2048, "fused_attention": 0, "vocabulary": 32000}
    | {"gradient_bytes": 2, "kind": "printed"},
    # sail-sg/VocabularyParallelism, pretrain_gpt.sh: gradients in fp16, flash attention, no dropout.
    "vocab_parallelism": _GPT
    | {"tied": 0, "dropout": 0, "fused_attention": 1, "gradient_bytes": 2, "kind": "reserved"},
    "mcore_golden_values": _GPT | {"kind": "allocated"},
}
# Columns that are read: whole numbers with our names of them, and texts.
_SAME = ("layers", "hidden", "heads", "kv_heads", "micro_batch", "tp", "pp", "dp", "cp", "ep")
_NUMBERS = {name: name for name in _SAME} | {"ffn_hidden": "ffn", "gated_ffn": "gated", "vocab": "vocabulary"}
_NUMBERS |= {"seq_len": "sequence", "interleave_v": "v", "grad_accum": "accumulation"}
_TEXTS = ("row_label", "model", "gpu", "shard", "sequence_parallel", "pp_schedule", "recompute", "precision")
_TEXTS += ("framework", "peak_mem_GB", "inferred_fields", "notes")
_GPT2_TOKENS = 50257  # of the tests' tokenizer: states at the end of a step agree to the byte with this
_SMALL_TEST = 1024  # hidden; larger tests bring tokenizers of their own
_FSDP = {"optim": 1, "optim_grads": 2, "optim_grads_params": 3}
# Words in the label of a test that say what no column does: what of it a plan cannot say.
_UNSAID = {
    "muon": "the optimizer is not Adam",
    "offload": "part of it is kept in the host's memory",
    "cudagraph": "CUDA graphs keep buffers of their own",
    "defer_embedding_wgrad": "the head's weight gradient waits with its inputs to the end of the step",
    "tunable_overlap": "more micro-batches in a group than stages fill the pipeline further",
}


def measured_facts(row: dict[str, str]) -> list[dict]:
    """The facts of one published row, one dict for each stage that was measured, with the keys ``COLUMNS``.

    Texts and numbers, "" for what is not known. Where a ``Transformer`` or a ``Plan`` cannot say what ran,
    ``not_expressed`` says why. Refused: a row of another source, without a column that is needed, or with
    words where a number belongs.
    """
    noun(row, dict, "a measured row")
    source = row.get("source_id")
    if source not in _EVERY_RUN:
        raise InputRefused(f"source_id of a measured row is {shown(source)}; use {', '.join(_EVERY_RUN)}")
    lacking = [name for name in (*_TEXTS, *_NUMBERS) if not isinstance(row.get(name), str)]
    if lacking:
        raise InputRefused(f"a measured row has no text {lacking[0]}; give all columns of its table")
    said = dict(pair.split("=", 1) for pair in row["notes"].split("; ") if "=" in pair)
    facts = dict.fromkeys(COLUMNS, "") | {"source": source, "label": row["row_label"], "gpu": row["gpu"]}
    facts |= _EVERY_RUN[source] | {name: value for name, value in _columns(row).items() if value != ""}
    if source == "mcore_golden_values":
        facts |= _options(row, said)
    if "cross-entropy fusion" in row["framework"]:
        facts["loss"] = "in place"
    if source == "vocab_parallelism":
        facts["learned_positions"] = facts["sequence"]
        if "vocab k=1024" in row["inferred_fields"]:  # the artifact's 256k is 256000
            facts["vocabulary"] = facts["vocabulary"] * 1000 // 1024
    facts["stage_layers"] = _stage_layers(row, facts)
    facts["not_expressed"] = _why_not(row, said, facts)
    return [facts | measured for measured in _peaks(row, facts)]


def _whole(row: dict[str, str], key: str):
    """The number under a key of a row or of its options, "" where it is not known."""
    if row[key] and not row[key].isdecimal():
        raise InputRefused(f"{key} of a measured row is {shown(row[key])}; give a whole number, or nothing")
    return int(row[key]) if row[key] else ""


def _columns(row: dict[str, str]) -> dict:
    """What the columns say on shape, degrees, batch, sharding, schedule and recompute."""
    facts = {ours: _whole(row, theirs) for theirs, ours in _NUMBERS.items()}
    facts |= {"experts": 0, "top_k": 0, "qk_norm": 0}
    zero, fsdp = re.search(r"ZeRO-(\d)", row["shard"]), re.search(r"FSDP \((\w+)\)", row["shard"])
    facts["zero"] = int(zero[1]) if zero else _FSDP.get(fsdp[1], "") if fsdp else 0
    facts["sequence_parallel"] = int(row["sequence_parallel"] == "1" and row["tp"] != "1")
    first = row["pp_schedule"].lower().split(" ")[0]
    facts["schedule"] = first if first in SCHEDULES else "1f1b" if first in ("none", "") else ""
    mode = re.fullmatch(r"(none|full|selective)( uniform (\d+)| modules=\[core_attn\])?", row["recompute"])
    facts["recompute"] = mode[1] if mode else ""
    facts["recompute_every"] = int(mode[3]) if mode and mode[3] else 1
    return facts


def _options(row: dict[str, str], said: dict[str, str]) -> dict:
    """What the options of a Megatron-LM test say, and its defaults."""
    on = {name for name, value in said.items() if value == "True"}
    facts = {
        "tied": int("untie-embeddings-and-output-weights" not in on),
        "norm": "rms" if said.get("normalization") == "RMSNorm" else "layer",
        "bias": int("disable-bias-linear" not in on),
        "dropout": int(said.get("hidden-dropout") not in ("0", "0.0")),
        "learned_positions": 0 if "position-embedding-type" in said else _whole(row, "seq_len"),
        "qk_norm": int("qk_layernorm" in row["row_label"]),
        # TransformerEngine's "auto" is fused; the local implementation stores the scores.
        "fused_attention": int(
            said.get("attention-backend", "auto") in ("auto", "flash", "fused")
            and (said.get("transformer-impl") != "local" or "use-flash-attn" in on)
        ),
        "loss": "compiled" if "cross-entropy-loss-fusion" in on else "fp32 copy",
        "unused_gradients": int("no-gradient-accumulation-fusion" not in on),
        "context": "all_to_all" if said.get("cp-comm-type") == "a2a" else "ring",
        # bf16 is added up in fp32 (megatron/training/arguments.py), fp16 is not.
        "gradient_bytes": {"bf16": 4, "fp16": 2}.get(row["precision"], ""),
    }
    if not row["vocab"] and (_whole(row, "hidden") or _SMALL_TEST + 1) <= _SMALL_TEST:
        facts["vocabulary"] = _GPT2_TOKENS
    if "num-experts" in said:
        usual = {"moe-router-topk": "2", "moe-ffn-hidden-size": row["ffn_hidden"]}
        said = usual | {"expert-tensor-parallel-size": row["tp"]} | said
        facts |= {"experts": _whole(said, "num-experts"), "top_k": _whole(said, "moe-router-topk")}
        facts |= {"ffn": _whole(said, "moe-ffn-hidden-size")}
        facts |= {"etp": _whole(said, "expert-tensor-parallel-size")}
        facts["dispatcher"] = said.get("moe-token-dispatcher-type", "allgather")
    if "multi_dist_optimizer_instances" in row["row_label"] and row["dp"] and row["cp"]:  # two of them
        facts["shard_ranks"] = max(1, _whole(row, "dp") * _whole(row, "cp") // 2)
    return facts


def _stage_layers(row: dict[str, str], facts: dict) -> str:
    """Layers of each stage, in order and with blanks between, where they are not equal."""
    if not all(facts[name] for name in ("layers", "pp", "v")):
        return ""
    layers, stages = facts["layers"], facts["pp"] * facts["v"]
    if "(redis)" in row["pp_schedule"]:
        counts = _redistributed(layers, stages, _head_in_layers(facts))
    elif "uneven_pipeline" in facts["label"] and stages > 2:
        # Its model_config.yaml gives --decoder-first-pipeline-num-layers 2, and as many last.
        counts = [2, *[(layers - 4) // (stages - 2)] * (stages - 2), 2]
    elif layers % stages and (layers + 2) % stages == 0:  # embedding and head stand for a layer each
        each = (layers + 2) // stages
        counts = [each - 1, *[each] * (stages - 2), each - 1]
    else:
        return ""
    return " ".join(map(str, counts))


def _head_in_layers(facts: dict) -> float:
    """The head's FLOPs in those of a layer with full attention, as Vocabulary Parallelism counts them."""
    h, s = facts["hidden"], facts["sequence"]
    return 2 * h * facts["vocabulary"] / (8 * h * h + 4 * s * h + 4 * h * facts["ffn"])


def _redistributed(layers: int, stages: int, head: float) -> list[int]:
    """Fewer layers on the last stage, for the head, the others even and later ones fuller.

    The layout is known for 256,000 tokens alone (artifact/test_one_host.csv: 4 4 4 5 5 5 5 0); this gives it.
    """
    last = min(layers // stages, max(0, ceil((layers + head) / stages - head)))
    each, more = divmod(layers - last, stages - 1)
    return [*[each] * (stages - 1 - more), *[each + 1] * more, last]


def _why_not(row: dict[str, str], said: dict[str, str], facts: dict) -> str:
    """Why a model and a plan cannot say what was run, or nothing."""
    found = [why for word, why in _UNSAID.items() if word in row["row_label"]]
    has_experts = facts["ep"] not in ("", 1) or re.search("moe|mixtral", row["model"].lower())
    split = re.search(r"\((vocab-\d|interlaced)\)", row["pp_schedule"])
    checks = (
        ("multi-latent-attention" in said or "deepseek" in row["model"].lower(), "multi-latent attention"),
        ("mtp-num-layers" in said, "multi-token prediction"),
        ("moe-shared-expert-intermediate-size" in said, "shared experts"),
        (has_experts and not facts["experts"], "how many experts is not known"),
        ("fp8" in row["precision"] or facts["gradient_bytes"] == "", f"precision {row['precision']}"),
        (split, "the vocabulary is split over the stages of the pipeline"),
        (facts["schedule"] == "", f"schedule {row['pp_schedule']}"),
        (facts["recompute"] == "", f"recompute {row['recompute']}"),
        (facts["zero"] == "", f"sharding {row['shard']}"),
        (not facts["vocabulary"], "the vocabulary is not known"),
        (not all(facts[name] for name in ("pp", "dp", "accumulation")), "degrees are not known"),
        (not row["peak_mem_GB"], "no peak was measured"),
    )
    return "; ".join([*(why for holds, why in checks if holds), *found])


def _peaks(row: dict[str, str], facts: dict) -> list[dict]:
    """The measured stages with their bytes: of the ranks of a stage the fullest."""
    ranks = {int(rank): int(mib) for rank, mib in re.findall(r"\b(\d+):(\d+)\b", row["notes"])}
    if facts["source"] == "simumax_b200" and ranks and facts["pp"]:
        each = len(ranks) // facts["pp"]  # ranks of a stage are neighbours: the order is tp-cp-dp-pp
        peaks = [max(ranks[stage * each + i] for i in range(each)) for stage in range(facts["pp"])]
        stages = [{"stage": stage, "peak": mib * MiB} for stage, mib in enumerate(peaks)]
        held = re.search(r"reserved GiB (\d+\.?\d*)", row.get("mem_kind", ""))
        if held:
            stages[peaks.index(max(peaks))]["reserved"] = round(float(held[1]) * GiB)
        return stages
    if not re.fullmatch(r"\d*\.?\d*", row["peak_mem_GB"]):
        raise InputRefused(f"peak_mem_GB of a measured row is {shown(row['peak_mem_GB'])}; give a number")
    printed = float(row["peak_mem_GB"] or 0)
    if facts["source"] == "vocab_parallelism":
        # artifact/quick_exp.sh divides the MiB of "max reserved" by 1024, and calls it GB.
        return [{"stage": "", "peak": round(printed * GiB)}]
    last = facts["source"] == "mcore_golden_values" and facts["pp"]
    return [{"stage": facts["pp"] - 1 if last else "", "peak": round(printed * GB)}]
