"""Cells of a published row, read: whole numbers and the words that are known here, of columns and options.

A cell is understood in full or not at all: what is not known becomes a doubt, a clause that names the cell,
and never a usual value.
"""

import re

from labkit.spec.checks import shown
from labkit.spec.plan import SCHEDULES

_NUMBER = "[1-9][0-9]{0,8}"
_OVERLAP = ("no overlap", "overlap-grad-reduce", "overlap-param-gather")
_SHARDING = {"none": 0, "DDP": 0, "distributed optimizer (ZeRO-1)": 1}
_SHARDING |= {f"ZeRO-{stage}": stage for stage in range(4)}
_SHARDING |= {"FSDP (optim)": 1, "FSDP (optim_grads)": 2, "FSDP (optim_grads_params)": 3}


def _whole(text: str) -> int | None:
    return int(text) if re.fullmatch(_NUMBER, text) else None


def _sharding(text: str) -> int | None:
    kind, *overlap = text.split(", ")
    return _SHARDING.get(kind) if set(overlap) <= set(_OVERLAP) else None


def _schedule(text: str) -> str | None:
    remarks = r"( interleaved)?( \((baseline|redis|vocab-[0-9]|interlaced|1 layer/chunk)\))?"
    found = re.fullmatch(rf"(\S+){remarks}", text)
    return found[1].lower() if found and found[1].lower() in (*SCHEDULES, "none") else None


def _recompute(text: str) -> str | None:
    found = re.fullmatch(rf"none|full( uniform {_NUMBER})?|selective( modules=\[core_attn\])?", text)
    return text.split(" ")[0] if found else None


def _dropout(text: str) -> int | None:
    return int(float(text) > 0) if re.fullmatch(r"0(\.[0-9]{1,9})?", text) else None


# Columns: our name of what they say, and how it is read.
_SAME = ("layers", "hidden", "heads", "kv_heads", "micro_batch", "tp", "pp", "dp", "cp", "ep")
CELLS = {name: (name, _whole) for name in _SAME} | {
    "ffn_hidden": ("ffn", _whole),
    "gated_ffn": ("gated", {"0": 0, "1": 1}.get),
    "vocab": ("vocabulary", _whole),
    "seq_len": ("sequence", _whole),
    "interleave_v": ("v", _whole),
    "grad_accum": ("accumulation", _whole),
    "shard": ("zero", _sharding),
    "sequence_parallel": ("sequence_parallel", {"0": 0, "1": 1}.get),
    "pp_schedule": ("schedule", _schedule),
    "recompute": ("recompute", _recompute),
}
# Whether these are needed depends on others: experts, a pipeline, a tokenizer that a source's runs share.
MAY_BE_BLANK = ("ffn_hidden", "vocab", "ep", "interleave_v", "pp_schedule")
# Megatron-LM's options in the notes, the same of them, and what it does where a test does not name them.
OPTIONS = {
    "untie-embeddings-and-output-weights": ("tied", {"True": 0, "False": 1}.get),
    "normalization": ("norm", {"RMSNorm": "rms", "LayerNorm": "layer"}.get),
    "disable-bias-linear": ("bias", {"True": 0, "False": 1}.get),
    "hidden-dropout": ("dropout", _dropout),
    "position-embedding-type": (
        "learned",
        {"learned_absolute": 1, **dict.fromkeys(("rope", "yarn", "mrope", "none"), 0)}.get,
    ),
    "attention-backend": ("backend", {"auto": 1, "flash": 1, "fused": 1, "unfused": 0, "local": 0}.get),
    "transformer-impl": ("engine", {"transformer_engine": 1, "local": 0}.get),
    "use-flash-attn": ("flash", {"True": 1, "False": 0}.get),
    "cross-entropy-loss-fusion": ("loss", {"True": "compiled", "False": "fp32 copy"}.get),
    "no-gradient-accumulation-fusion": ("unused_gradients", {"True": 0, "False": 1}.get),
    "cp-comm-type": ("context", {"p2p": "ring", "a2a+p2p": "ring", "a2a": "all_to_all"}.get),
}
USUAL = {
    "normalization": "LayerNorm",
    "hidden-dropout": "0.1",
    "position-embedding-type": "learned_absolute",
    "attention-backend": "auto",
    "transformer-impl": "transformer_engine",
    "cp-comm-type": "p2p",
}
EXPERT_OPTIONS = {
    "num-experts": ("experts", _whole),
    "moe-router-topk": ("top_k", _whole),
    "moe-ffn-hidden-size": ("ffn", _whole),
    "expert-tensor-parallel-size": ("etp", _whole),
    "moe-token-dispatcher-type": ("dispatcher", {one: one for one in ("allgather", "alltoall", "flex")}.get),
}


def read(texts: dict[str, str], table: dict, doubts: list[str], may_be_blank: tuple[str, ...] = ()) -> dict:
    """What the cells of a ``table`` say, by our names: "" for a blank one and for one that is not known.

    Either is a doubt, unless blank is allowed.
    """
    found = {}
    for name, (ours, understood) in table.items():
        value = understood(texts[name])
        if value is None and texts[name]:
            doubts.append(f"{name} {shown(texts[name])} is not known")
        elif value is None and name not in may_be_blank:
            doubts.append(f"{name} is not given")
        found[ours] = "" if value is None else value
    return found


def options(notes: str) -> dict[str, str]:
    """The ``option=value`` pairs of the notes.

    >>> options("seen on 8 GPUs; hidden-dropout=0.0; NCCL_ALGO=Ring")
    {'hidden-dropout': '0.0', 'NCCL_ALGO': 'Ring'}
    """
    return dict(pair.split("=", 1) for pair in re.split("; *", notes) if "=" in pair)


def recompute_every(recompute: str) -> int:
    """Layers of a checkpoint: N of "full uniform N", else 1."""
    found = re.fullmatch(f"full uniform ({_NUMBER})", recompute)
    return int(found[1]) if found else 1


def decimal(text: str) -> float | None:
    """A figure as it is printed; None for what is none.

    >>> decimal("65.155"), decimal("much")
    (65.155, None)
    """
    return float(text) if re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,9})?", text) else None


def of_ranks(notes: str) -> list[int] | None:
    """MiB of each rank, where the notes list them; None where a rank is missing, or what is listed is odd.

    >>> of_ranks("per-rank max_allocated MiB: 0:62136 1:62134; same run")
    [62136, 62134]
    >>> of_ranks("started at 12:30"), of_ranks("per-rank max_allocated MiB: 0:1 9:3")
    ([], None)
    """
    listed = re.search("per-rank max_allocated MiB: ([^;]*)", notes)
    if not listed:
        return []
    pairs = [re.fullmatch(f"([0-9]{{1,9}}):({_NUMBER})", pair) for pair in listed[1].split()]
    in_order = all(pair and int(pair[1]) == rank for rank, pair in enumerate(pairs))
    return [int(pair[2]) for pair in pairs] if pairs and in_order else None
