"""Seconds of compute of one layer and one micro-batch on one rank of a plan, kernel by kernel.

What a layer runs: matrix products (``products``), the attention core (``kernels``), and operations that only
stream tensors through memory: norms, residuals with dropout, the activation function, rotation of query and
key. Communication is not here (``step_traffic``).
"""

from dataclasses import dataclass

import numpy as np

from labkit.planner.kernels import attention_seconds, attention_starts, streaming_seconds
from labkit.planner.products import product_seconds
from labkit.spec import Gpu, Plan, Transformer
from labkit.spec.checks import noun, together
from labkit.spec.rules import check_nouns
from labkit.units import plain

_BYTES = 2.0  # of an activation in half precision
# Tensors (positions x hidden) that one layer reads and writes outside its matrix products, each operation one
# kernel: two norms (2 forward: in, out; 3 backward: gradient in and out, input), two residuals (3: two in,
# one out; backward 3: the gradient that comes by the residual is added).
_AROUND_FORWARD, _AROUND_BACKWARD = 2 * 2 + 2 * 3, 2 * 3 + 2 * 3
_DROPOUT_FORWARD, _DROPOUT_BACKWARD = 2 * 0.5, 2 * 2.5  # masks have one byte; backward: in, out, mask
# Tensors (positions x ffn) of the activation function, plain and gated.
_PLAIN_FORWARD, _PLAIN_BACKWARD, _GATED_FORWARD, _GATED_BACKWARD = 2, 3, 3, 5
_KERNELS_AROUND = 7  # two norms, two residuals, activation function, rotation of query and of key


@dataclass(frozen=True, slots=True)
class LayerTimes:
    """Seconds of one layer and micro-batch on a rank, without the starts of kernels, which are counted apart.

    ``backward`` is the whole of it, recomputed forward left out; ``weight_gradient`` a part of it.
    ``attention`` and ``attention_backward``: the attention core, parts of ``forward`` and ``backward``.
    ``starts``, ``backward_starts``: kernels of the forward and of the backward, ``attention_starts`` those
    of the attention core's forward.
    """

    forward: float
    backward: float
    weight_gradient: float
    attention: float
    attention_backward: float
    starts: float
    backward_starts: float
    attention_starts: float


def layer_times(model: Transformer, gpu: Gpu, plan: Plan) -> LayerTimes:
    """What one layer of the model takes on a rank of the plan; of an array of plans, arrays.

    Products: query, key and value in one, projection, the MLP's first (gate and up in one) and second, the
    router; of experts, as many products of their tokens as a rank holds experts, balanced. Tensor parallel
    cuts them as "Megatron-LM" (2019), section 3. A backward has two products for each. A ring of context
    parallel that is not ``balanced`` waits for the rank with the end of the sequence. Streaming counts each
    tensor that an operation reads or writes, as one fused kernel an operation does.
    """
    check_nouns(model=model, plan=plan)
    noun(gpu, Gpu, "the gpu")
    together("a layer", gpu=gpu, plan=plan)
    launch = gpu.kernels.launch
    tokens = plan.positions(model.sequence)
    shapes = [map(np.ceil, shape) for shape in _products(model, plan, tokens)]
    starts = float(len(shapes))
    m, k, n, count = (_beside(*sides) for sides in zip(*shapes, strict=True))
    forward, inputs, weights = (
        (np.asarray(product_seconds(*shape, gpu, count)) - launch).sum(axis=-1)
        for shape in ((m, n, k), (m, k, n), (k, n, m))
    )
    (core, core_starts), (core_back, core_back_starts) = (
        _attention(model, gpu, plan, backward) for backward in (False, True)
    )
    stream, stream_back = (streaming_seconds(size, gpu) - launch for size in _streamed(model, plan, tokens))
    return LayerTimes(
        *map(
            plain,
            (
                forward + core + stream,
                inputs + weights + core_back + stream_back,
                weights,
                core,
                core_back,
                starts + core_starts + _KERNELS_AROUND,
                2 * starts + core_back_starts + _KERNELS_AROUND,
                core_starts,
            ),
        )
    )


def _beside(*sides) -> np.ndarray:
    """The same side of all products, along the last axis."""
    return np.stack(np.broadcast_arrays(*(np.asarray(side, float) for side in sides)), axis=-1)


def _products(model: Transformer, plan: Plan, tokens):
    """Shapes (m, k, n, count) of the forward products of one layer on a rank: (m, k) x (k, n)."""
    tp, etp, ep = (np.asarray(degree, float) for degree in (plan.tp, plan.expert_tp, plan.ep))
    hidden, query = model.hidden, model.query_width / tp
    key_value = 2 * np.maximum(model.kv_heads / tp, 1) * model.head_dim
    yield tokens, hidden, query + key_value, 1
    yield tokens, query, hidden, 1
    into = 2 if model.gated else 1
    if not model.experts:
        yield tokens, hidden, into * model.ffn / tp, 1
        yield tokens, model.ffn / tp, hidden, 1
        return
    here = model.experts / ep
    routed = tokens * model.top_k * etp / tp / here  # of each expert on this rank, balanced
    yield tokens / np.where(plan.sequence_parallel, tp, 1.0), hidden, model.experts, 1
    yield routed, hidden, into * model.ffn / etp, here
    yield routed, model.ffn / etp, hidden, here


def _attention(model: Transformer, gpu: Gpu, plan: Plan, backward: bool):
    """Seconds of the attention core without starts of kernels, and how many it starts."""
    tp, cp = np.asarray(plan.tp, float), np.asarray(plan.cp, float)
    ring = np.asarray(plan.context) == "ring"
    # Traded, a rank has all positions of some heads; in a ring some positions of all its heads.
    of_heads = tp * np.where(ring, 1.0, cp)
    heads, kv_heads = model.heads / of_heads, np.maximum(model.kv_heads / of_heads, 1)
    queries = model.sequence / np.where(ring, cp, 1.0)
    last = np.where(ring & ~np.asarray(plan.balanced, bool), (2 * cp - 1) / cp, 1.0)
    sizes = (plan.micro_batch, heads, kv_heads, queries, model.sequence, model.head_dim, gpu)
    fused, seconds, starts = np.asarray(plan.fused_attention, bool), 0.0, 0.0
    for kind in np.unique(fused).tolist():
        count = attention_starts(kind, backward, model.dropout)
        one = attention_seconds(*sizes, fused=kind, backward=backward, dropout=model.dropout)
        seconds = np.where(fused == kind, one - gpu.kernels.launch * count, seconds)
        starts = np.where(fused == kind, float(count), starts)
    return seconds * last, starts


def _streamed(model: Transformer, plan: Plan, tokens):
    """Bytes that a layer's other operations read and write, forward and backward."""
    tp = np.asarray(plan.tp, float)
    around = tokens * model.hidden / np.where(plan.sequence_parallel, tp, 1.0)
    inside = tokens * model.ffn / tp
    if model.experts:
        inside = inside * model.top_k
    rotated = 0.0 if model.learned_positions else 2 * tokens * (model.query_width + model.kv_width) / tp
    masks = float(model.dropout)
    of_function = (_GATED_FORWARD, _GATED_BACKWARD) if model.gated else (_PLAIN_FORWARD, _PLAIN_BACKWARD)
    counts = (
        (_AROUND_FORWARD + masks * _DROPOUT_FORWARD, of_function[0]),
        (_AROUND_BACKWARD + masks * _DROPOUT_BACKWARD, of_function[1]),
    )
    return [_BYTES * (here * around + there * inside + rotated) for here, there in counts]
