"""Checkpointing run for real: a stack of layers that drops its activations and computes them again.

Only the input of every k-th layer survives the forward pass. The backward pass goes from group to group of k
layers: it repeats the group's forward from the input kept, then uses and drops what that saved. Chen et al.
(2016), "Training Deep Nets with Sublinear Memory Cost". Dropout must draw the same masks again; here they are
given.
"""

from dataclasses import dataclass

import numpy as np

from labkit.errors import InputRefused
from labkit.spec.checks import whole
from labkit.strategies.layer import (
    Weights,
    checked,
    layer_backward,
    layer_forward,
    random_layer,
    saved_bytes,
)

MOST_LAYERS = 256  # of a stack to try things on


@dataclass(frozen=True, slots=True, eq=False)
class StackPass:
    """Forward and backward pass of a stack of layers.

    ``gradients``: of each layer's weights by name. ``forwards``: how many times a layer ran forward.
    ``peak``: the most bytes of activations held at once, each array counted once.
    """

    output: np.ndarray
    input_gradient: np.ndarray
    gradients: list[dict[str, np.ndarray]]
    forwards: int
    peak: float


def random_stack(layers=8, positions=16, heads=4, head_dim=4):
    """(x, d_output, layers): a small stack to try things on; each layer is its weights and dropout masks."""
    layers = whole(layers, "the number of layers", most=MOST_LAYERS)
    drawn = [random_layer(positions, heads, heads, head_dim, seed=seed) for seed in range(layers)]
    x, d_output, _, _ = drawn[0]
    return x, d_output, [(weights, masks) for _, _, weights, masks in drawn]


def stack_pass(x: np.ndarray, d_output: np.ndarray, layers, every: int | None = None) -> StackPass:
    """The stack forward and backward, its input kept at every ``every``-th layer; None keeps everything.

    Where ``every`` does not divide the layers the first group is the short one, so that the last, whose
    backward runs while all inputs are still held, is never longer than it must be. Refused: what does not fit
    the layers, and ``every`` not whole or below 1.

    >>> stack = random_stack(layers=6)
    >>> kept, again = stack_pass(*stack), stack_pass(*stack, every=2)
    >>> kept.forwards, again.forwards, np.array_equal(kept.input_gradient, again.input_gradient)
    (6, 12, True)
    """
    x, d_output, layers = _checked(x, d_output, layers)
    every = None if every is None else whole(every, "layers per checkpoint")
    return _Stack(layers, every).run(x, d_output)


def _checked(x, d_output, layers):
    if not isinstance(layers, list | tuple) or not 1 <= len(layers) <= MOST_LAYERS:
        raise InputRefused(f"a stack has 1 to {MOST_LAYERS} layers; give a list of (weights, masks)")
    pairs = []
    for layer in layers:
        if not isinstance(layer, tuple | list) or len(layer) != 2:
            raise InputRefused("a layer of a stack is a pair; give (weights, masks)")
        x, d_output, masks = checked(x, d_output, *layer)
        pairs.append((layer[0], masks))
    return x, d_output, pairs


class _Stack:
    """A pass while it runs: the inputs and the saved arrays that are held now, and the most there were."""

    def __init__(self, layers: list[tuple[Weights, list]], every: int | None):
        self.layers, self.every = layers, every
        self.inputs: dict[int, np.ndarray] = {}
        self.saved: list[list[dict]] = []
        self.forwards, self.peak = 0, 0.0

    def run(self, x: np.ndarray, d_output: np.ndarray) -> StackPass:
        """Forward, then backward group by group, the last one first."""
        count, gradients = len(self.layers), []
        step = self.every or count
        groups = [(max(0, end - step), end) for end in range(count, 0, -step)]
        if self.every is None:
            output = self.save(x, 0, count)
        else:
            output = self.keep_inputs(x, {start for start, _ in groups})
        for start, end in groups:
            if self.every is not None:
                self.save(self.inputs[start], start, end)
            for at in reversed(range(start, end)):
                d_output, found = layer_backward(d_output, self.saved.pop(), self.layers[at][0])
                gradients.append(found)
            self.inputs.pop(start, None)
        return StackPass(output, d_output, gradients[::-1], self.forwards, self.peak)

    def keep_inputs(self, x: np.ndarray, starts: set[int]) -> np.ndarray:
        """All layers forward; the inputs of those in ``starts`` survive, nothing else."""
        for at in range(len(self.layers)):
            if at in starts:
                self.inputs[at] = x
            x, _ = self.layer(x, at)
        return x

    def save(self, x: np.ndarray, start: int, end: int) -> np.ndarray:
        """The layers from start to before end, with all that their backward needs."""
        for at in range(start, end):
            x, saved = self.layer(x, at)
            self.saved.append(saved)
            self.peak = max(self.peak, self.held())
        return x

    def layer(self, x: np.ndarray, at: int) -> tuple[np.ndarray, list[dict]]:
        """One layer forward, counted."""
        self.forwards += 1
        return layer_forward(x, *self.layers[at])

    def held(self) -> float:
        """Bytes of the distinct arrays held now: a group's first input is one of its saved arrays."""
        arrays = [*self.inputs.values()]
        arrays += [array for saved in self.saved for block in saved for array in block.values()]
        return saved_bytes([{id(array): array for array in arrays}])
