"""Tensor parallel: one layer split over t ranks, run on real matrices, its collectives counted.

First matrix of a block by columns, second by rows: each rank then runs the block of ``layer`` on its own part
of the matrices and gets a summand of the output ("Megatron-LM", Shoeybi et al. 2019, section 3). Sequence
parallel cuts the rest of the layer, norm, dropout and residual, along the positions (Korthikanti et al. 2022,
section 4.2.2).
"""

from dataclasses import dataclass, replace

import numpy as np

from labkit.errors import InputRefused
from labkit.spec.checks import noun, one_of, whole
from labkit.strategies.checks import flag, shaped
from labkit.strategies.communicator import Call, Communicator
from labkit.strategies.layer import (
    BLOCKS,
    COLUMNS,
    GAINS,
    KEEP,
    ROWS,
    Weights,
    checked,
    gelu,
    norm,
    norm_backward,
    saved_bytes,
)

RECOMPUTE = ("none", "selective", "full")


@dataclass(frozen=True, slots=True, eq=False)
class LayerPass:
    """A forward and backward pass over t ranks.

    ``outputs`` and ``input_gradients``: what each rank holds, the whole array or, under sequence parallel,
    its positions. ``gradients``: by name, joined to the unsplit shapes. ``calls``: the collectives, in order.
    ``saved``: bytes of activations that each rank keeps from forward to backward.
    """

    outputs: list[np.ndarray]
    input_gradients: list[np.ndarray]
    gradients: dict[str, np.ndarray]
    calls: list[Call]
    saved: list[float]


def split_weights(weights: Weights, t: int) -> list[Weights]:
    """Each rank's part of a layer: whole heads, with their columns and rows; both gains whole.

    With fewer kv heads than ranks each is copied to as many ranks as share it. Refused: ``t`` that does not
    divide heads and ffn, and kv heads of which neither divides the other.

    >>> from labkit.strategies.layer import random_layer
    >>> _, _, weights, _ = random_layer(heads=8, kv_heads=2)
    >>> [(part.heads, part.kv_heads) for part in split_weights(weights, 4)]
    [(2, 1), (2, 1), (2, 1), (2, 1)]
    """
    noun(weights, Weights, "the weights")
    t = whole(t, "the tensor-parallel degree")
    ffn, kv_heads = weights.up.shape[1], weights.kv_heads
    if weights.heads % t or ffn % t or (kv_heads % t and t % kv_heads):
        raise InputRefused(
            f"{weights.heads} heads, {kv_heads} kv heads and {ffn} ffn columns do not all split over {t} "
            "ranks (kv heads may be copied evenly instead); choose another t"
        )
    copies = max(1, t // kv_heads)
    cut = {name: np.split(getattr(weights, name), t, axis=0) for name in ROWS}
    for name in COLUMNS:
        of_each = copies if name in ("key", "value") else 1
        parts = np.split(getattr(weights, name), t // of_each, axis=1)
        cut[name] = [parts[rank // of_each] for rank in range(t)]
    return [replace(weights, **{name: parts[rank] for name, parts in cut.items()}) for rank in range(t)]


def split_layer(
    x: np.ndarray,
    d_output: np.ndarray,
    weights: Weights,
    masks,
    t: int,
    *,
    sequence_parallel: bool = False,
    recompute: str = "none",
    keep_inputs: bool = False,
) -> LayerPass:
    """The layer of ``layer.whole_layer`` over ``t`` ranks, forward and backward.

    ``recompute``: ``none``, ``selective`` (the attention probabilities) or ``full`` (the whole layer, whose
    forward collectives run again). Under sequence parallel a rank saves its positions of a block's input and
    gathers the rest again in the backward pass, as Korthikanti et al. do (section 4.2.2), or saves the whole
    with ``keep_inputs``. Gradients of the gains under sequence parallel, and of copied kv heads, are
    summands: an all_reduce of them closes the pass (in training once per step, not per micro-batch).
    Refused: what ``split_weights`` refuses, another ``recompute``, and positions that t does not divide.
    """
    one_of(RECOMPUTE, recompute, "recompute")
    flag(sequence_parallel, "sequence_parallel")
    flag(keep_inputs, "keep_inputs")
    x, d_output, masks = checked(x, d_output, weights, masks)
    ranks = _Ranks(split_weights(weights, t), sequence_parallel, keep_inputs)
    held, masks = ranks.part(x), [ranks.part(mask) for mask in masks]
    outputs, saved = ranks.forward(held, masks, "forward")
    if recompute == "selective":
        for kept in saved[0]:
            del kept["probabilities"]
    if recompute == "full":
        bytes_saved = [saved_bytes([{"residual": rank}]) for rank in held]
        _, saved = ranks.forward(held, masks, "recompute")
    else:
        bytes_saved = [saved_bytes([block[rank] for block in saved]) for rank in range(t)]
    input_gradients, gradients = ranks.backward(ranks.part(d_output), saved)
    return LayerPass(
        outputs, input_gradients, ranks.joined(gradients, weights), ranks.talk.calls, bytes_saved
    )


class _Ranks:
    """The ranks of one tensor-parallel group: their weights, and how the rest of the layer is held."""

    def __init__(self, weights: list[Weights], sequence_parallel: bool, keep_inputs: bool):
        self.weights, self.talk = weights, Communicator()
        self.sequence_parallel = sequence_parallel
        self.gathers_again = sequence_parallel and not keep_inputs

    def part(self, array: np.ndarray) -> list[np.ndarray]:
        """Each rank's positions of an array, or all of them."""
        n = len(self.weights)
        if not self.sequence_parallel:
            return [array] * n
        if len(array) % n:
            raise InputRefused(f"{len(array)} positions cannot be cut for {n} ranks; use a multiple of {n}")
        return np.split(array, n)

    def enter(self, arrays, purpose):
        """Every rank's whole array, before a block or the gradient of its output."""
        return self.talk.all_gather(arrays, purpose) if self.sequence_parallel else arrays

    def leave(self, summands, purpose):
        """The sum of the ranks' summands, after a block or for the gradient of its input."""
        return (self.talk.reduce_scatter if self.sequence_parallel else self.talk.all_reduce)(
            summands, purpose
        )

    def forward(self, held, masks, purpose):
        """Outputs, and for each block what each rank saves."""
        saved = []
        for (gain, block, _), mask in zip(BLOCKS, masks, strict=True):
            normed = [norm(x, getattr(w, gain)) for x, w in zip(held, self.weights, strict=True)]
            whole = self.enter(normed, purpose)
            summands, kept = zip(*map(block, whole, self.weights), strict=True)
            out = self.leave(summands, purpose)
            if self.gathers_again:
                kept = [{**of_rank, "input": own} for of_rank, own in zip(kept, normed, strict=True)]
            saved.append(
                [
                    {"residual": x, "mask": m, **of_rank}
                    for x, m, of_rank in zip(held, mask, kept, strict=True)
                ]
            )
            held = [x + y * m / KEEP for x, y, m in zip(held, out, mask, strict=True)]
        return held, saved

    def backward(self, d_held, saved):
        """Input gradients, and every rank's gradients by name."""
        gradients = [{} for _ in self.weights]
        for (gain, _, backward), kept in zip(reversed(BLOCKS), reversed(saved), strict=True):
            d_out = [g * of_rank["mask"] / KEEP for g, of_rank in zip(d_held, kept, strict=True)]
            d_whole = self.enter(d_out, "backward")
            if self.gathers_again:
                inputs = self.enter([of_rank["input"] for of_rank in kept], "gather again")
                kept = [{**of_rank, "input": x} for of_rank, x in zip(kept, inputs, strict=True)]
            summands, found = zip(*map(backward, d_whole, kept, self.weights), strict=True)
            d_normed = self.leave(summands, "backward")
            for rank, w in enumerate(self.weights):
                d_x, d_gain = norm_backward(d_normed[rank], kept[rank]["residual"], getattr(w, gain))
                d_held[rank] = d_held[rank] + d_x
                gradients[rank] |= {**found[rank], gain: d_gain}
        return d_held, gradients

    def joined(self, gradients: list[dict], weights: Weights) -> dict[str, np.ndarray]:
        """The ranks' gradients in the unsplit shapes, after the sums that are still missing."""
        t, purpose = len(self.weights), "gradients"
        if self.sequence_parallel:
            sums = self.talk.all_reduce([np.stack([g[name] for name in GAINS]) for g in gradients], purpose)
            for g, total in zip(gradients, sums, strict=True):
                g |= dict(zip(GAINS, total, strict=True))
        copies = max(1, t // weights.kv_heads)
        for first in range(0, t, copies):
            group = gradients[first : first + copies]
            sums = self.talk.all_reduce([np.stack([g["key"], g["value"]]) for g in group], purpose)
            for g, (key, value) in zip(group, sums, strict=True):
                g |= {"key": key, "value": value}
        whole = {name: gradients[0][name] for name in GAINS}
        for name in COLUMNS:
            step = copies if name in ("key", "value") else 1
            whole[name] = np.concatenate([g[name] for g in gradients[::step]], axis=1)
        return whole | {name: np.concatenate([g[name] for g in gradients], axis=0) for name in ROWS}


def split_mlp(
    x: np.ndarray, up: np.ndarray, down: np.ndarray, t: int, *, first: str = "columns", sum_between=True
) -> tuple[np.ndarray, list[Call]]:
    """GELU(x up) down, and its collectives, with the first matrix cut by ``columns`` or by ``rows``.

    By columns every rank applies GELU to its own columns, and one all_reduce ends the block. By rows the
    ranks hold summands of x up, and the GELU of a sum is not the sum of GELUs: they must be summed between,
    which is a second all_reduce, as wide as the MLP. Without it (``sum_between=False``) the result is wrong.
    Refused: another ``first``, and a width that t does not divide.
    """
    one_of(("columns", "rows"), first, "the cut of the first matrix")
    flag(sum_between, "sum_between")
    t = whole(t, "the tensor-parallel degree")
    up = shaped(up, "up", "hidden", "ffn")
    down = shaped(down, "down", up.shape[1], "hidden")
    x = shaped(x, "x", "positions", up.shape[0])
    if len(up) % t or len(down) % t:
        raise InputRefused(
            f"{t} ranks cannot cut a matrix of {len(up)} x {len(down)}; use a divisor of both sides"
        )
    talk = Communicator()
    if first == "columns":
        wide = [x @ part for part in np.split(up, t, axis=1)]
    else:
        parts = zip(np.split(x, t, axis=1), np.split(up, t, axis=0), strict=True)
        wide = [x_part @ up_part for x_part, up_part in parts]
    second = np.split(down, t, axis=0)
    if first == "rows" and sum_between:
        sums = talk.all_reduce(wide, "between")
        wide = [np.split(total, t, axis=1)[rank] for rank, total in enumerate(sums)]
    elif first == "rows":
        second = [down] * t
    return talk.all_reduce([gelu(a) @ b for a, b in zip(wide, second, strict=True)], "end")[0], talk.calls
