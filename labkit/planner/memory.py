"""Bytes per rank: of model states (weights, gradients, optimizer), and of one layer's activations."""

from dataclasses import dataclass, fields

import numpy as np

from labkit.collectives.place import check_count, check_ranks
from labkit.spec.checks import amount, noun, one_of
from labkit.spec.transformer import RECOMPUTE
from labkit.units import plain

_CARD = "the memory of a card, in bytes,"


@dataclass(frozen=True, slots=True)
class Recipe:
    """A precision recipe: bytes per parameter of each model state.

    ``weights`` and ``gradients`` are those of the forward and backward pass, ``master`` the optimizer's own
    copy of the weights, then Adam's two moments. Refused: a negative number, and nothing at all.
    """

    weights: float = 2.0
    gradients: float = 2.0
    master: float = 4.0
    first_moment: float = 4.0
    second_moment: float = 4.0

    def __post_init__(self):
        for field in fields(self):
            amount(getattr(self, field.name), f"{field.name} of a recipe, in bytes per parameter,", zero=True)
        amount(self.total, "the bytes per parameter of a recipe in all")

    @property
    def optimizer(self) -> float:
        """Bytes per parameter that the optimizer holds: master weights and moments."""
        return self.master + self.first_moment + self.second_moment

    @property
    def total(self) -> float:
        """Bytes per parameter of all states."""
        return self.weights + self.gradients + self.optimizer


# Mixed precision as in "ZeRO" (2020), section 3.1: 2 + 2 + 12. Frameworks often keep and reduce gradients in
# fp32, 2 + 4 + 12. Training in fp32 needs no second copy of the weights, 4 + 4 + 8.
MIXED, FP32_GRADIENTS, FP32 = Recipe(), Recipe(gradients=4.0), Recipe(weights=4.0, gradients=4.0, master=0.0)


def state_bytes(parameters, n=1, stage=0, recipe: Recipe = MIXED):
    """Bytes of model states on one of ``n`` data-parallel ranks at sharding stage 0 (plain) to 3.

    With the usual recipe, per parameter 16, 4 + 12/n, 2 + 14/n, 16/n: "ZeRO" (2020), section 5 and figure 1.
    The numbers may be arrays. Refused: parameters not above 0, ranks not whole or below 1, any other stage.

    >>> [state_bytes(13e9, 8, stage) / 1e9 for stage in range(4)]
    [208.0, 71.5, 48.75, 26.0]
    >>> [state_bytes(13e9, 8, stage, FP32_GRADIENTS) / 1e9 for stage in (0, 1)]
    [234.0, 97.5]
    """
    kept, divided = _kept_and_divided(parameters, stage, recipe)
    return plain(kept + divided / check_ranks(n))


def largest_model(memory, n=1, stage=0, recipe: Recipe = MIXED):
    """Parameters whose states just fill ``memory`` bytes on each of ``n`` ranks; inverts ``state_bytes``.

    A bound, not a promise: activations need room too. Refused: what ``state_bytes`` refuses.

    >>> largest_model(80e9), round(largest_model(80e9, recipe=FP32_GRADIENTS) / 1e9, 2)
    (5000000000.0, 4.44)
    """
    return plain(amount(memory, _CARD) / state_bytes(1.0, n, stage, recipe))


def smallest_ranks(parameters, memory, stage, recipe: Recipe = MIXED):
    """Fewest ranks whose model states leave room in ``memory`` bytes each; infinity when no number does.

    States must stay **below** the memory, since activations need some too: the answer is a floor, not a
    promise. Refused: what ``state_bytes`` refuses.

    >>> smallest_ranks(10e9, 80e9, 0), smallest_ranks(10e9, 80e9, 1), smallest_ranks(10e9, 80e9, 3)
    (inf, 4.0, 3.0)
    """
    kept, divided = _kept_and_divided(parameters, stage, recipe)
    room = amount(memory, _CARD) - kept
    with np.errstate(divide="ignore", invalid="ignore"):
        # Strictly below: where the quotient is whole, one rank more.
        return plain(np.where(room > 0, np.floor(divided / room) + 1, np.inf))


# What a layer keeps for its backward pass without recompute, in bytes per position and hidden element: 24 are
# inside the blocks, which tensor parallel divides; 10 are inputs of norms and blocks, and dropout masks.
_INSIDE, _AROUND = 24.0, 10.0


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
    sequence, micro_batch = amount(sequence, "the sequence"), amount(micro_batch, "the micro-batch")
    hidden, heads = amount(hidden, "hidden of a layer"), amount(heads, "heads of a layer")
    tp, recompute = check_count(tp, "the tensor-parallel degree"), one_of(RECOMPUTE, recompute, "recompute")
    sequence_parallel = one_of((False, True), sequence_parallel, "sequence_parallel")
    around = np.where(sequence_parallel, tp, 1.0)
    scores = np.where(recompute == "none", 5 * heads * sequence / (hidden * tp), 0.0)
    units = np.where(recompute == "full", 2 / around, _AROUND / around + _INSIDE / tp + scores)
    return plain(sequence * micro_batch * hidden * units)


def _kept_and_divided(parameters, stage, recipe):
    """Bytes of states that every rank keeps whole, and bytes that the ranks divide among them."""
    noun(recipe, Recipe, "the recipe")
    parameters = amount(parameters, "the number of parameters")
    stage = one_of((0, 1, 2, 3), stage, "the sharding stage (0: plain data parallel)")
    divided = (
        recipe.optimizer * (stage >= 1) + recipe.gradients * (stage >= 2) + recipe.weights * (stage >= 3)
    )
    return parameters * (recipe.total - divided), parameters * divided
