"""What becomes of each tensor when a checkpoint is loaded into another plan: one row each."""

from dataclasses import dataclass

import numpy as np

from labkit.practice.resharding.formats import DP, EP, PP, STAGE, TP, changes
from labkit.practice.resharding.layout import stage_of_layers
from labkit.practice.resharding.slices import cuts, overlaps
from labkit.practice.resharding.tensors import (
    EXPERT,
    KV,
    VOCABULARY,
    WHOLE,
    Tensor,
    degree,
    padded_length,
    tensors,
)
from labkit.spec import Plan, Transformer
from labkit.spec.replicas import shard_counts
from labkit.spec.rule import Problem, counted

KEPT, ANEW, MOVED, COPIED = "as it is", "cut anew", "moved", "whole"


@dataclass(frozen=True, slots=True)
class TensorChange:
    """What becomes of one tensor: into how many pieces it was and will be cut, and what a target piece reads.

    ``change``: ``as it is``, ``cut anew``, ``moved`` to another stage of the pipeline, or ``whole`` on every
    rank; ``least``, ``most``: source pieces that a target piece reads from, 0 where that follows from
    other rows; ``says``: the sizes in words, or
    why the target cannot cut it (then ``fits`` is False).
    """

    name: str
    source: int
    target: int
    change: str
    least: int
    most: int
    fits: bool
    says: str


_SPOILS = {  # which rule keeps which tensors from being cut
    "heads": ("query", "projection"),
    "kv heads": ("key and value",),
    "ffn": ("MLP", "experts"),
    "vocabulary": ("embedding", "head"),
    "experts": ("experts",),
    "expert ranks": ("experts",),
}


def rows(model: Transformer, source: Plan, target: Plan, broken: dict[str, Problem]) -> list[TensorChange]:
    """A row for each tensor, the layers over the stages, and the optimizer's states; ``broken`` by rule."""
    moved = PP in changes(source, target)
    found = []
    for tensor in tensors(model):
        why = _why(tensor, model, broken)
        found.append(_cannot(tensor, source, target, why) if why else _row(tensor, source, target, moved))
    found.append(_layers(model, source, target, broken.get("layers")))
    found.append(_states(source, target))
    return found


def _why(tensor: Tensor, model: Transformer, broken: dict[str, Problem]) -> str:
    """Why a tensor cannot be cut; heads that have no kv heads of their own bring key and value with them."""
    shared = tensor.cut == KV and model.kv_heads == model.heads
    for rule, names in _SPOILS.items():
        if rule in broken and (tensor.name in names or (rule == "heads" and shared)):
            return broken[rule].message
    return ""


def _cannot(tensor: Tensor, source: Plan, target: Plan, why: str) -> TensorChange:
    return TensorChange(
        tensor.name, degree(tensor, source), degree(tensor, target), "cannot be cut", 0, 0, False, why
    )


def _row(tensor: Tensor, source: Plan, target: Plan, moved: bool) -> TensorChange:
    old, new = degree(tensor, source), degree(tensor, target)
    change = MOVED if moved else KEPT
    if tensor.cut == WHOLE:
        return TensorChange(tensor.name, 1, 1, COPIED, 1, 1, True, "each rank of its stage holds all of it")
    cut = [_cut(tensor, plan) for plan in (source, target)]
    read = overlaps(*(np.minimum(ends, tensor.length) for ends in cut))
    counts = np.bincount(read.target, minlength=len(cut[1]) - 1)
    counts = counts[counts > 0]
    if not np.array_equal(*cut):
        change = ANEW
    sizes = (
        " -> ".join(_size(tensor, plan) for plan in (source, target))
        if change == ANEW
        else _size(tensor, target)
    )
    says = sizes + _padding(tensor, source, target)
    if tensor.cut == EXPERT and source.expert_tp != target.expert_tp:
        change, says = ANEW, f"{says}; inside each, columns of {source.expert_tp} -> {target.expert_tp} ranks"
    return TensorChange(tensor.name, old, new, change, int(counts.min()), int(counts.max()), True, says)


def _cut(tensor: Tensor, plan: Plan) -> np.ndarray:
    """Where the distinct pieces begin; ranks beyond the kv heads hold copies and cut no further."""
    pieces = degree(tensor, plan)
    if tensor.cut == KV:
        pieces = min(pieces, tensor.length)
    return cuts(padded_length(tensor, plan), pieces)


def _size(tensor: Tensor, plan: Plan) -> str:
    pieces = degree(tensor, plan)
    if tensor.cut == KV and pieces > tensor.length:
        return f"1 {tensor.unit} on each of {pieces // tensor.length} ranks"
    each = padded_length(tensor, plan) // pieces
    return f"{pieces} x {counted(each, tensor.unit)}"


def _padding(tensor: Tensor, source: Plan, target: Plan) -> str:
    """What happens to rows that hold no token."""
    if tensor.cut != VOCABULARY:
        return ""
    old, new = (padded_length(tensor, plan) for plan in (source, target))
    if old == new:
        return f"; padded to {new:,}" if new > tensor.length else ""
    return (
        f"; padded {old:,} -> {new:,}: drop {counted(old - tensor.length, 'row')} of padding, add "
        + counted(new - tensor.length, "new one")
    )


def _layers(model: Transformer, source: Plan, target: Plan, broken: Problem | None) -> TensorChange:
    """The layers over the stages of the pipeline."""
    if broken:
        return TensorChange("layers", source.pp, target.pp, "cannot be cut", 0, 0, False, broken.message)
    old, new = (stage_of_layers(model, plan) for plan in (source, target))
    pairs = {(int(a), int(b)) for a, b in zip(old, new, strict=True)}
    reads = np.bincount([b for _, b in pairs], minlength=target.pp)
    went = int(np.sum(old != new))
    says = f"{went} of {model.layers} on another stage" if went else f"all {model.layers} on the same stage"
    change = MOVED if not np.array_equal(old, new) or source.pp != target.pp else KEPT
    return TensorChange(
        "layers", source.pp, target.pp, change, int(reads.min()), int(reads.max()), True, says
    )


def _states(source: Plan, target: Plan) -> TensorChange:
    """The optimizer's states over the ranks that shard them."""
    old, new = (shard_counts(plan)[0] if plan.zero else 1 for plan in (source, target))
    changed = changes(source, target)
    inside = any(name in changed for name in (TP, PP, EP))
    if old == new and not inside and STAGE not in changed:
        return TensorChange("optimizer states", old, new, KEPT, 1, 1, True, _shards(old))
    if inside:
        return TensorChange(
            "optimizer states", old, new, ANEW, 0, 0, True, "as their tensors, then " + _shards(new)
        )
    if old == new == 1:
        return TensorChange("optimizer states", 1, 1, COPIED, 1, 1, True, "whole on every replica")
    counts = np.bincount(overlaps(cuts(old * new, old), cuts(old * new, new)).target)
    says = f"flat buffers of each tp and pp rank, {_shards(old)} -> {_shards(new)}"
    only = " and nothing else" if changed == (DP,) else ""
    return TensorChange(
        "optimizer states", old, new, ANEW, int(counts.min()), int(counts.max()), True, says + only
    )


def _shards(pieces: int) -> str:
    return "whole on every replica" if pieces == 1 else f"{pieces} shards"
