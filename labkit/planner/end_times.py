"""Seconds of compute at the ends of a model, and of the optimizer: what is not in a layer, on one rank."""

from dataclasses import dataclass

import numpy as np

from labkit.planner.kernels import streaming_seconds
from labkit.planner.products import product_seconds
from labkit.planner.rank_parameters import fullest
from labkit.planner.states import MIXED, Recipe
from labkit.spec import Gpu, Plan, Transformer
from labkit.spec.checks import noun, together
from labkit.spec.replicas import shard_counts
from labkit.spec.rules import check_nouns
from labkit.units import plain

_BYTES = 2.0  # of an activation in half precision
# Bytes that the loss moves for each logit: forward it reads 16 bits and writes their softmax in fp32,
# backward it reads that and writes the gradient in 16 bits.
_LOSS_FORWARD, _LOSS_BACKWARD = 2.0 + 4.0, 4.0 + 2.0
_LOSS_KERNELS = 3
_UPDATE_KERNELS = 3  # of many tensors at once: square sums, scaling, update


@dataclass(frozen=True, slots=True)
class EndTimes:
    """Seconds of one end for one micro-batch, without the starts of kernels: ``starts`` of each pass.

    ``backward`` is the whole of it, ``weight_gradient`` a part.
    """

    forward: float
    backward: float
    weight_gradient: float
    starts: float


def embedding_times(model: Transformer, gpu: Gpu, plan: Plan) -> EndTimes:
    """The look-up of a micro-batch's rows, which reads and writes them, and its scattered gradient."""
    tokens = _checked(model, gpu, plan)
    rows = 2 * _BYTES * tokens * model.hidden
    forward = np.asarray(streaming_seconds(rows, gpu)) - gpu.kernels.launch
    return EndTimes(plain(forward), plain(forward), plain(forward / 2), 1.0)


def head_times(model: Transformer, gpu: Gpu, plan: Plan) -> EndTimes:
    """The output head, whose columns tensor parallel cuts, and the loss over the logits."""
    tokens = _checked(model, gpu, plan)
    columns = np.asarray(plan.padded_vocabulary(model.vocabulary)) / np.asarray(plan.tp, float)
    m, n, launch = np.ceil(tokens), np.ceil(columns), gpu.kernels.launch
    forward, inputs, weights = (
        np.asarray(product_seconds(*shape, gpu)) - launch
        for shape in ((m, n, model.hidden), (m, model.hidden, n), (model.hidden, n, m))
    )
    loss = [
        np.asarray(streaming_seconds(each * tokens * columns, gpu)) - launch
        for each in (_LOSS_FORWARD, _LOSS_BACKWARD)
    ]
    return EndTimes(
        plain(forward + loss[0]), plain(inputs + weights + loss[1]), plain(weights), 1.0 + _LOSS_KERNELS
    )


def update_times(model: Transformer, gpu: Gpu, plan: Plan, recipe: Recipe = MIXED) -> tuple:
    """Seconds of the optimizer's update on the fullest rank, once a step, and the kernels that it starts.

    It is memory-bound: Adam reads gradients, master weights and both moments, writes the last three and the
    weights, and the norm of all gradients is taken before. From stage 1 on a rank updates its shard alone.
    """
    _checked(model, gpu, plan)
    noun(recipe, Recipe, "the recipe")
    held, counts = fullest(model, plan), shard_counts(plan)
    elements = sum(
        np.asarray(each) / np.where(np.asarray(plan.zero) > 0, shards, 1)
        for each, shards in zip((held.dense, held.experts), counts, strict=True)
    )
    gradients = recipe.accumulation or recipe.gradients
    moved = 2 * gradients + 2 * recipe.optimizer + recipe.weights * (recipe.master > 0)
    seconds = np.asarray(streaming_seconds(moved * elements, gpu)) - gpu.kernels.launch
    return plain(seconds), float(_UPDATE_KERNELS)


def _checked(model, gpu, plan):
    """Positions of a micro-batch on a rank."""
    check_nouns(model=model, plan=plan)
    noun(gpu, Gpu, "the gpu")
    together("the ends of a model", gpu=gpu, plan=plan)
    return plan.positions(model.sequence)
