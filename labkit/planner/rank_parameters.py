"""Which parameters one rank of a plan really holds: the layers of its stage, cut by its groups, and the ends.

Tensor parallel divides the matrices and the biases of the first of two; norms, the router and the bias of
the second matrix stand whole on every rank ("Megatron-LM" 2019, section 3). The embedding is on the first
stage, the head on the last; where the two are tied and on different ranks, both hold the matrix.
"""

from dataclasses import dataclass

import numpy as np

from labkit.errors import InputRefused
from labkit.spec import Plan, Transformer
from labkit.spec.checks import one_of, together
from labkit.spec.rule import counted
from labkit.spec.rules import check_nouns
from labkit.units import plain

STAGES = ("first", "interior", "last")


@dataclass(frozen=True, slots=True)
class RankParameters:
    """Parameters on one rank: cut over its tensor-parallel group, whole on each rank of it, and its experts.

    They are apart because their gradients travel differently: experts are reduced over fewer ranks, and
    under sequence parallel each rank has but a summand of the gradients of what it holds whole. ``copied``:
    the part of ``split`` that several ranks hold alike, key and value matrices beyond the kv heads.
    ``positions``: the position embedding, whole on each rank with its whole gradient.
    """

    split: float
    whole: float
    experts: float
    copied: float = 0.0
    positions: float = 0.0

    @property
    def dense(self):
        """What is reduced over all data-parallel (and context-parallel) ranks."""
        return plain(np.asarray(self.split) + self.whole + self.positions)

    @property
    def total(self):
        """All parameters on the rank."""
        return plain(np.asarray(self.dense) + self.experts)


def layer_on_rank(model: Transformer, plan: Plan) -> RankParameters:
    """One layer's parameters on one rank; of an array of plans, arrays.

    >>> llama = Transformer("7b", 32, 4096, 32, 32000, 4096, ffn=11008, gated=True, norm="rms", bias=False)
    >>> layer_on_rank(llama, Plan()).total == llama.layer_parameters
    True
    """
    check_nouns(model=model, plan=plan)
    tp, etp, ep = (np.asarray(n, float) for n in (plan.tp, plan.expert_tp, plan.ep))
    h, q = model.hidden, model.query_width / tp
    # Ranks beyond the kv heads hold copies: at least one head each.
    heads = np.maximum(model.kv_heads / tp, 1)
    kv = heads * model.head_dim
    into_attention = int(model.bias or model.qkv_bias)
    key_value = 2 * kv * (h + into_attention)
    attention = q * (h + into_attention) + key_value + q * h
    into_mlp = (2 if model.gated else 1) * model.ffn * (h + int(model.bias))
    mlp, mlp_bias = into_mlp + model.ffn * h, h * int(model.bias)
    parts = model.layer_parts()
    whole = parts["norms"] + parts["router"] + h * int(model.bias)
    whole += 2 * model.head_dim * int(model.qk_norm)
    copied = np.where(tp > model.kv_heads, key_value, 0.0)
    if model.experts:
        return RankParameters(
            plain(attention),
            plain(whole),
            plain(model.experts / ep * (mlp / etp + mlp_bias)),
            plain(copied),
        )
    return RankParameters(plain(attention + mlp / tp), plain(whole + mlp_bias), 0.0, plain(copied))


def layers_on_rank(model: Transformer, plan: Plan, stage: str):
    """Layers on a rank of the ``first``, the fullest ``interior`` or the ``last`` stage (rank of a pipeline).

    0 for the interior of a pipeline without one. ``zb-v`` folds the stages: its first rank has both ends.
    """
    check_nouns(model=model, plan=plan)
    one_of(STAGES, stage, "the stage of a pipeline", arrays=False)
    pp = np.asarray(plan.pp)
    if plan.stage_layers is None:
        each = model.layers / pp
        return plain(np.where((pp < 3) & (stage == "interior"), 0.0, each))
    ranks = given_layers(model, plan).sum(axis=0)
    return {"first": ranks[0], "last": ranks[-1], "interior": ranks[1:-1].max(initial=0.0)}[stage].item()


def most_layers(model: Transformer, plan: Plan):
    """Layers on a rank of the stage that has most of them: the one that the others wait for.

    >>> gpt = Transformer("small", layers=4, hidden=64, heads=4, vocabulary=1000, sequence=128)
    >>> most_layers(gpt, Plan(pp=2, stage_layers=(1, 3)))
    3.0
    """
    return plain(np.maximum.reduce([np.asarray(layers_on_rank(model, plan, stage)) for stage in STAGES]))


def given_layers(model: Transformer, plan: Plan) -> np.ndarray:
    """Layers of each chunk of each rank, shape (v, pp), where the plan names those of its stages."""
    if np.ndim(plan.pp) or np.ndim(plan.v) or (plan.v > 1 and np.ndim(plan.schedule)):
        raise InputRefused("stage_layers are those of one pipeline; give single pp, v and schedule")
    stages, given = plan.pp * plan.v, plan.stage_layers
    if len(given) != stages or sum(given) != model.layers:
        raise InputRefused(
            f"stage_layers has {counted(len(given), 'number')} with {sum(given)} layers in all; give "
            f"{counted(stages, 'number')} that add up to the {model.layers} of {model.name}"
        )
    chunks = np.asarray(given, float).reshape(plan.v, plan.pp)
    if (
        plan.v > 1 and plan.schedule == "zb-v"
    ):  # the second half of the stages comes back from the last rank to the first
        chunks[1:] = chunks[1:, ::-1]
    return chunks


def has_ends(plan: Plan, first, last) -> tuple[np.ndarray, np.ndarray]:
    """Whether a rank holds the embedding, and whether it holds the head: first and last stage of a pipeline.

    ``first`` and ``last``: whether it is the pipeline's first rank, or its last, arrays as well.
    """
    first, last = np.asarray(first), np.asarray(last)
    one, folded = np.asarray(plan.pp) == 1, np.asarray(plan.schedule) == "zb-v"
    both_ends = (one & (first | last)) | (folded & first)
    return both_ends | first, both_ends | (last & ~folded)


def end_parameters(model: Transformer, plan: Plan, embeds, predicts) -> RankParameters:
    """Parameters beside the layers on a rank that ``embeds``, ``predicts`` or both; these may be arrays.

    The vocabulary is padded as the plan pads it; tied ends on one rank share the matrix.
    """
    check_nouns(model=model, plan=plan)
    together("the ends", plan=plan, embeds=embeds, predicts=predicts)
    embeds, predicts = (np.asarray(one_of((False, True), end, "an end")) for end in (embeds, predicts))
    matrix = np.asarray(plan.padded_vocabulary(model.vocabulary)) * model.hidden / np.asarray(plan.tp, float)
    matrices = embeds * 1.0 + predicts * np.where(model.tied & embeds, 0.0, 1.0)
    parts = model.parts()
    norm = parts["other norms"] / (2 if model.embedding_norm else 1)
    return RankParameters(
        plain(matrices * matrix),
        plain(embeds * (norm * model.embedding_norm) + predicts * norm),
        0.0,
        positions=plain(embeds * float(parts["positions"])),
    )


def rank_parameters(model: Transformer, plan: Plan, stage: str) -> RankParameters:
    """Parameters on a rank of the ``first``, fullest ``interior`` or ``last`` stage; of array plans, arrays.

    A pipeline of one stage is first and last at once.

    >>> gpt = Transformer("small", layers=4, hidden=64, heads=4, vocabulary=1000, sequence=128)
    >>> rank_parameters(gpt, Plan(vocabulary_multiple=1), "first").total == gpt.parameters
    True
    """
    layer, layers = layer_on_rank(model, plan), np.asarray(layers_on_rank(model, plan, stage))
    ends = end_parameters(model, plan, *has_ends(plan, stage == "first", stage == "last"))
    return RankParameters(
        plain(layers * layer.split + ends.split),
        plain(layers * layer.whole + ends.whole),
        plain(layers * layer.experts),
        plain(layers * layer.copied),
        ends.positions,
    )


def fullest(model: Transformer, plan: Plan) -> RankParameters:
    """The most that any rank holds: of ``dense`` in all, of ``whole``, of experts and of copies."""
    stages = [rank_parameters(model, plan, stage) for stage in STAGES]

    def most(kind):
        return plain(np.maximum.reduce([np.asarray(getattr(held, kind), float) for held in stages]))

    dense = most("dense")
    whole = most("whole")
    return RankParameters(plain(np.asarray(dense) - whole), whole, most("experts"), most("copied"))
