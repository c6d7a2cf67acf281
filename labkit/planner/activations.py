"""Bytes of activations that a rank keeps of a layer for the backward pass."""

from dataclasses import dataclass

import numpy as np

from labkit.collectives.place import check_count
from labkit.errors import InputRefused
from labkit.spec import Plan, Transformer
from labkit.spec.checks import amount, one_of, shown, together
from labkit.spec.rules import check_nouns
from labkit.spec.transformer import RECOMPUTE
from labkit.units import plain

# What a layer keeps for its backward pass without recompute, in bytes per position and hidden element: 24 are
# inside the blocks, which tensor parallel divides; 10 are inputs of norms and blocks, and dropout masks.
_INSIDE, _AROUND = 24.0, 10.0
_SCORES, _SCORES_ALONE = 5.0, 2.0  # bytes of an attention score: with dropout and its mask, and without
_ROUTER = 4.0  # bytes of a router's logit, and of its probability


def layer_activation_bytes(
    sequence, micro_batch, hidden, heads, tp=1, sequence_parallel=False, recompute="none"
):
    """Bytes of activations that one rank keeps of **one** layer and micro-batch, in 16 bits.

    All may be arrays. In units of s b h: 10 + 24/t + 5 a s/(h t) with tensor parallel t; with sequence
    parallel as well 34/t + 5 a s/(h t). ``recompute``: ``none``; ``selective`` drops the last term, the
    attention scores, as a fused attention does; ``full`` keeps the layer's input alone, 2, or 2/t under
    sequence parallel.
    Korthikanti et al. (2022), sections 4 and 5 and table 2, for an MLP of 4 h and as many kv heads as heads;
    a gated MLP or fewer kv heads differ. Refused: numbers not above 0, and another ``recompute``.

    >>> units = 2048 * 4 * 5120
    >>> layer_activation_bytes(2048, 4, 5120, 40, recompute="selective") / units
    34.0
    >>> [layer_activation_bytes(2048, 4, 5120, 40, 8, sp, "selective") / units for sp in (False, True)]
    [13.0, 4.25]
    """
    together(
        "a layer",
        sequence=sequence,
        micro_batch=micro_batch,
        hidden=hidden,
        heads=heads,
        tp=tp,
        sequence_parallel=sequence_parallel,
        recompute=recompute,
    )
    sequence, micro_batch = amount(sequence, "the sequence"), amount(micro_batch, "the micro-batch")
    hidden, heads = amount(hidden, "hidden of a layer"), amount(heads, "heads of a layer")
    tp, recompute = check_count(tp, "the tensor-parallel degree"), one_of(RECOMPUTE, recompute, "recompute")
    sequence_parallel = one_of((False, True), sequence_parallel, "sequence_parallel")
    around = np.where(sequence_parallel, tp, 1.0)
    scores = np.where(recompute == "none", _SCORES * heads * sequence / (hidden * tp), 0.0)
    units = np.where(recompute == "full", 2 / around, _AROUND / around + _INSIDE / tp + scores)
    return plain(sequence * micro_batch * hidden * units)


@dataclass(frozen=True, slots=True)
class LayerActivations:
    """Bytes that one rank keeps of one layer and one micro-batch.

    ``kept``: for its own backward pass, which full recompute makes again. ``boundary``: the layer's input
    alone, what full recompute keeps. ``backward``: gradients of activations that come on top while the
    backward is in the layer's widest part.
    """

    kept: float
    boundary: float
    backward: float


def layer_activations(
    model: Transformer, plan: Plan, packed_qkv: bool = False, imbalance: float = 1.0
) -> LayerActivations:
    """Activations of one layer in 16 bits, tensor by tensor, for any model; of an array of plans, arrays.

    Around the blocks, whole on every tensor-parallel rank unless sequence parallel: inputs of two norms and
    of two blocks, 8 h, and two dropout masks, 2 h, if the model has dropout. Inside, cut over the ranks:
    query, key, value and the attention's output, 2 (2 q + 2 kv); of the MLP the first product and what the
    activation function makes of it, 4 f, or 6 f where it is gated; attention scores, 5 a s (2 a s without
    dropout), unless they are recomputed or attention is fused. A norm of query and key keeps their inputs;
    all_to_all context parallel keeps the attention's output before its second exchange as well.
    ``packed_qkv``: query, key and value are pieces of one product, which outlives rotated query and key.
    Of experts each rank keeps the rows of its own tokens' ``top_k`` choices, in and out, not divided by ep:
    with ep more ranks send theirs; ``imbalance``: times the mean that the fullest rank gets. The router's
    logits and probabilities come with them, in 32 bits.

    For a dense MLP of 4 h, as many kv heads as heads and dropout this is ``layer_activation_bytes``:
    Korthikanti et al. (2022), sections 4 and 5.

    >>> gpt = Transformer("13B", 40, 5120, 40, 50257, 2048)
    >>> plan = Plan(tp=8, micro_batch=4, fused_attention=False)
    >>> layer_activations(gpt, plan).kept == layer_activation_bytes(2048, 4, 5120, 40, tp=8)
    True
    """
    check_nouns(model=model, plan=plan)
    one_of((False, True), packed_qkv, "packed_qkv", arrays=False)
    check_imbalance(imbalance)
    tp = np.asarray(plan.tp, float)
    tokens = plan.positions(model.sequence)
    around = np.where(plan.sequence_parallel, tp, 1.0)
    h = model.hidden
    attention, scores = _attention(model, plan, packed_qkv)
    mlp, widest = _mlp(model, plan, around, imbalance)
    inside = attention + mlp
    outside = (8 + 2 * model.dropout) * h / around
    return LayerActivations(
        plain(tokens * (outside + inside)),
        plain(tokens * 2 * h / around),
        plain(tokens * (2 * h / around + np.maximum(widest, scores))),
    )


def check_imbalance(imbalance) -> float:
    """The load of the fullest rank over the mean: 1 or more."""
    if amount(imbalance, "the imbalance", arrays=False) < 1:
        raise InputRefused(f"the imbalance is {shown(imbalance)}, the fullest over the mean; give 1 or more")
    return float(imbalance)


def layer_on_plan(model: Transformer, plan: Plan):
    """Bytes of one layer and micro-batch that stay between forward and backward, under the plan's recompute.

    >>> gpt = Transformer("13B", 40, 5120, 40, 50257, 2048)
    >>> layer_on_plan(gpt, Plan(recompute="full")) == 2 * 2048 * 5120
    True
    """
    one = layer_activations(model, plan)
    return plain(np.where(np.asarray(plan.recompute) == "full", one.boundary, one.kept))


def _attention(model, plan, packed_qkv) -> tuple:
    """Bytes that attention keeps of a position, inside its block, and what its backward adds to them."""
    tp = np.asarray(plan.tp, float)
    q, kv = model.query_width / tp, np.maximum(model.kv_heads / tp, 1) * model.head_dim
    exchanged = (np.asarray(plan.context) == "all_to_all") & (np.asarray(plan.cp) > 1)
    rotated = packed_qkv and not model.learned_positions
    copies = rotated * 2 * (q + kv) + model.qk_norm * 2 * (q + kv) + exchanged * 2 * q
    # Scores are stored, or made again for the backward of their layer, where their gradients join them.
    count = np.where(plan.fused_attention, 0.0, model.heads / tp * model.sequence)
    scores = (_SCORES if model.dropout else _SCORES_ALONE) * count
    again = np.asarray(plan.recompute) == "selective"
    return (
        2 * (2 * q + 2 * kv) + copies + np.where(again, 0.0, scores),
        _SCORES_ALONE * count + np.where(again, scores, 0.0),
    )


def _mlp(model, plan, around, imbalance) -> tuple:
    """Bytes that the MLP keeps of a position, and what its backward adds to them at its widest."""
    first, second = (4, 2) if model.gated else (2, 2)  # of an element: first product, activation function
    # When the gradients of both are there, the second product's input, as large as one, is free again.
    if not model.experts:
        width = model.ffn / np.asarray(plan.tp, float)
        return (first + second) * width, first * width
    # The ranks of an expert see the tokens of all of them, and cut its width.
    etp = np.asarray(plan.expert_tp, float)
    rows, width = imbalance * model.top_k * etp / np.asarray(plan.tp, float), model.ffn / etp
    router = 2 * _ROUTER * model.experts / around
    return (
        rows * (4 * model.hidden + (first + second) * width) + router,
        rows * (2 * model.hidden + first * width),
    )
