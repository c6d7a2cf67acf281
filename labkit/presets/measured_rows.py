"""Rows of published training measurements, as facts: one dict for each stage that was measured.

Four sources are read: SimuMax on B200, Zero Bubble, Vocabulary Parallelism, and the golden values of
Megatron-LM's functional tests. Their rows have columns for shape, degrees and batch; what else a run did is
said in the notes as ``option=value`` (Megatron-LM's options without their dashes), or is alike in all runs.
A cell that is needed and blank, or says what is not known here, is a reason not to score its row.
"""

import re
from math import ceil, prod

from labkit.errors import InputRefused
from labkit.presets import measured_cells as cells
from labkit.spec.checks import noun, shown
from labkit.spec.transformer import DEEPEST
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
    # MooreThreads/SimuMax, simu_tools/megatron_scripts/scripts/run_pretrain_llama3.sh.
    "simumax_b200": _GPT
    | {"tied": 0, "norm": "rms", "bias": 0, "dropout": 0, "learned_positions": 0, "fused_attention": 1}
    | {"unused_gradients": 1, "context": "all_to_all", "kind": "allocated"},
    # sail-sg/zero-bubble-pipeline-parallelism, the first examples/pretrain_zero_bubble.sh:
    # no flash attention, 2048 positions, tied. The printed sizes of the models leave 25,000 to 32,000 tokens
    # of a SentencePiece vocabulary; the fullest stage holds none of it.
    "zero_bubble": _GPT
    | {"tied": 1, "dropout": 1, "learned_positions": 2048, "fused_attention": 0, "vocabulary": 32000}
    | {"kind": "printed"},
    # sail-sg/VocabularyParallelism, pretrain_gpt.sh: flash attention, no dropout.
    "vocab_parallelism": _GPT | {"tied": 0, "dropout": 0, "fused_attention": 1, "kind": "reserved"},
    "mcore_golden_values": _GPT | {"kind": "allocated"},
}
# Bytes of a parameter's gradient by what a row says of its precision. SimuMax's launcher and Megatron-LM in
# bf16 (megatron/training/arguments.py) add gradients up in fp32; in fp16, which the launch scripts of the
# two pipeline papers use, Megatron-LM does not.
_NOT_STATED = {"bf16/fp16 (not stated)": 2}
_GRADIENT_BYTES = {
    "simumax_b200": {"bf16, fp32 grad accumulation": 4},
    "zero_bubble": _NOT_STATED,
    "vocab_parallelism": _NOT_STATED,
    "mcore_golden_values": {"bf16": 4, "fp16": 2},
}
_TEXTS = ("row_label", "model", "gpu", "precision", "framework", "peak_mem_GB", "inferred_fields", "notes")
_MAY_LACK = ("global_batch", "mem_kind")
_GPT2_TOKENS = 50257  # of the tests' tokenizer: states at the end of a step agree to the byte with this
_ROUNDED = 0.01  # a printed peak may be off by so much
_SMALL_TEST = 1024  # hidden; larger tests bring tokenizers of their own
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
    or the row does not say enough of it, ``not_expressed`` says why. Refused: a row of another source, or
    without a column that is needed.
    """
    noun(row, dict, "a measured row")
    source = row.get("source_id")
    if not isinstance(source, str) or source not in _EVERY_RUN:
        raise InputRefused(f"source_id of a measured row is {shown(source)}; use {', '.join(_EVERY_RUN)}")
    texts = {name: row.get(name) for name in (*_TEXTS, *cells.CELLS)}
    texts |= {name: row.get(name, "") for name in _MAY_LACK}
    lacking = [name for name, text in texts.items() if not isinstance(text, str)]
    if lacking:
        raise InputRefused(f"a measured row has no text {lacking[0]}; give all columns of its table")
    doubts = []
    facts = _facts(texts, source, doubts)
    stages = _peaks(texts, facts, doubts)
    _check_batch(texts, facts, doubts)
    facts["not_expressed"] = "; ".join([*_why_not(texts, facts), *doubts])
    return [facts | measured for measured in stages]


def _facts(row: dict[str, str], source: str, doubts: list[str]) -> dict:
    """What a row says of its model and plan; what of it is not known goes to the doubts."""
    facts = dict.fromkeys(COLUMNS, "") | {"source": source, "label": row["row_label"], "gpu": row["gpu"]}
    said = cells.read(row, cells.CELLS, doubts, cells.MAY_BE_BLANK)
    facts |= {"experts": 0, "top_k": 0, "qk_norm": 0} | _EVERY_RUN[source]
    facts |= {name: value for name, value in said.items() if value != ""}
    facts["recompute_every"] = cells.recompute_every(row["recompute"])
    precision = {"precision": ("gradient_bytes", _GRADIENT_BYTES[source].get)}
    facts |= cells.read(row, precision, doubts)
    if (
        facts["tp"] == 1 and facts["sequence_parallel"]
    ):  # a launcher may ask for it: there is nothing to split
        facts["sequence_parallel"] = 0
    if facts["pp"] == 1 and facts["schedule"] in ("", "none"):
        facts["schedule"] = "1f1b"
    if source == "mcore_golden_values":
        facts |= _options(row, facts, doubts)
    if "cross-entropy fusion" in row["framework"]:
        facts["loss"] = "in place"
    if source == "vocab_parallelism":
        facts["learned_positions"] = facts["sequence"]
        if "vocab k=1024" in row["inferred_fields"] and facts["vocabulary"]:  # the artifact's 256k is 256000
            facts["vocabulary"] = facts["vocabulary"] * 1000 // 1024
    facts["stage_layers"] = _stage_layers(row, facts)
    return facts


def _options(row: dict[str, str], facts: dict, doubts: list[str]) -> dict:
    """What the options of a Megatron-LM test say, and its defaults."""
    said = cells.options(row["notes"])
    found = cells.read(dict.fromkeys(cells.OPTIONS, "False") | cells.USUAL | said, cells.OPTIONS, doubts)
    found["qk_norm"] = int("qk_layernorm" in row["row_label"])
    found["learned_positions"] = facts["sequence"] if found.pop("learned") else 0
    # TransformerEngine's "auto" is fused; the local implementation stores the scores.
    backend, engine, flash = (found.pop(name) for name in ("backend", "engine", "flash"))
    found["fused_attention"] = int(bool(backend and (engine or flash)))
    if not row["vocab"] and facts["hidden"] and facts["hidden"] <= _SMALL_TEST:
        found["vocabulary"] = _GPT2_TOKENS
    if "num-experts" in said:
        usual = {"moe-router-topk": "2", "moe-ffn-hidden-size": row["ffn_hidden"]}
        usual |= {"expert-tensor-parallel-size": row["tp"], "moe-token-dispatcher-type": "allgather"}
        found |= cells.read(usual | said, cells.EXPERT_OPTIONS, doubts)
    if "multi_dist_optimizer_instances" in row["row_label"] and facts["dp"] and facts["cp"]:  # two of them
        found["shard_ranks"] = max(1, facts["dp"] * facts["cp"] // 2)
    return found


def _stage_layers(row: dict[str, str], facts: dict) -> str:
    """Layers of each stage, in order and with blanks between, where they are not equal."""
    if not all(facts[name] for name in ("layers", "pp", "v")):
        return ""
    layers, stages = facts["layers"], facts["pp"] * facts["v"]
    if not 1 < stages <= layers + 2 <= DEEPEST:  # with two fewer than stages the end stages are empty
        return ""
    if "(redis)" in row["pp_schedule"]:
        if not all(facts[name] for name in ("hidden", "sequence", "vocabulary", "ffn")):
            return ""
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


def _whole_stages(facts: dict) -> bool:
    """Whether every stage has a whole number of layers, as far as the row says."""
    layers, pp, v = (facts[name] for name in ("layers", "pp", "v"))
    if facts["stage_layers"]:
        return sum(map(int, facts["stage_layers"].split())) == layers
    return not (layers and pp) or layers % (pp * (v or 1)) == 0


def _why_not(row: dict[str, str], facts: dict) -> list[str]:
    """Why a model and a plan cannot say what was run."""
    said = cells.options(row["notes"])
    has_experts = facts["ep"] not in ("", 1) or re.search("moe|mixtral", row["model"].lower())
    split = re.search(r"\((vocab-\d|interlaced)\)", row["pp_schedule"])
    pipeline = facts["pp"] not in ("", 1)
    checks = (
        ("multi-latent-attention" in said or "deepseek" in row["model"].lower(), "multi-latent attention"),
        ("mtp-num-layers" in said, "multi-token prediction"),
        ("moe-shared-expert-intermediate-size" in said, "shared experts"),
        (has_experts and not facts["experts"], "how many experts is not known"),
        (facts["experts"] and not row["ep"], "ep is not given"),
        (split, "the vocabulary is split over the stages of the pipeline"),
        (pipeline and row["pp_schedule"] in ("", "none"), "the schedule of the pipeline is not given"),
        (pipeline and not row["interleave_v"], "interleave_v is not given"),
        (not (row["ffn_hidden"] or facts["ffn"]), "ffn_hidden is not given"),
        (not facts["vocabulary"], "the vocabulary is not known"),
        (not _whole_stages(facts), "the layers of its stages are not known"),
    )
    unsaid = [why for word, why in _UNSAID.items() if word in row["row_label"]]
    return [*(why for holds, why in checks if holds), *unsaid]


def _check_batch(row: dict[str, str], facts: dict, doubts: list[str]) -> None:
    """A global batch that is given is that of the other numbers."""
    parts = [facts[name] for name in ("dp", "micro_batch", "accumulation")]
    if row["global_batch"] and all(parts) and row["global_batch"] != str(prod(parts)):
        doubts.append(f"global_batch {shown(row['global_batch'])} is not dp x micro_batch x grad_accum")


def _peaks(row: dict[str, str], facts: dict, doubts: list[str]) -> list[dict]:
    """The measured stages with their bytes: of the ranks of a stage the fullest."""
    source, fullest = facts["source"], {"stage": "", "peak": ""}
    printed = cells.decimal(row["peak_mem_GB"])
    if not printed:
        odd = row["peak_mem_GB"] and printed is None
        doubts.append(
            f"peak_mem_GB {shown(row['peak_mem_GB'])} is not known" if odd else "no peak was measured"
        )
        return [fullest]
    if source == "simumax_b200" and "max_allocated MiB" in row["notes"]:
        return _stage_peaks(row, facts, printed * GB, doubts) or [fullest]
    if source == "vocab_parallelism":
        # artifact/quick_exp.sh divides the MiB of "max reserved" by 1024, and calls it GB.
        return [{"stage": "", "peak": round(printed * GiB)}]
    last = source == "mcore_golden_values" and facts["pp"]
    return [{"stage": facts["pp"] - 1 if last else "", "peak": round(printed * GB)}]


def _stage_peaks(row: dict[str, str], facts: dict, printed: float, doubts: list[str]) -> list[dict]:
    """The fullest rank of each stage in the notes, which list all ranks; nothing where they do not."""
    degrees = [facts[name] for name in ("tp", "cp", "dp", "pp")]
    ranks = cells.of_ranks(row["notes"])
    if not all(degrees):
        return []  # which is a doubt already
    if ranks is None or len(ranks) != prod(degrees):
        doubts.append("the notes do not list every rank once")
        return []
    if abs(max(ranks) * MiB / printed - 1) > _ROUNDED:
        doubts.append("peak_mem_GB is not that of the fullest rank in the notes")
        return []
    each = len(ranks) // facts["pp"]  # ranks of a stage are neighbours: the order is tp-cp-dp-pp
    peaks = [max(ranks[stage * each :][:each]) for stage in range(facts["pp"])]
    stages = [{"stage": stage, "peak": mib * MiB} for stage, mib in enumerate(peaks)]
    held = re.search(r"reserved GiB ([0-9]{1,6}(\.[0-9]{1,9})?)", row["mem_kind"])
    if held:
        stages[peaks.index(max(peaks))]["reserved"] = round(float(held[1]) * GiB)
    return stages
