"""Bytes per rank of model states: weights, gradients, optimizer; plain or sharded over ranks."""

from dataclasses import dataclass, fields

import numpy as np

from labkit.collectives.place import check_ranks
from labkit.spec.checks import amount, noun, one_of, together
from labkit.units import plain

_STAGE = "the sharding stage (0: plain data parallel)"
_CARD = "the memory of a card, in bytes,"


@dataclass(frozen=True, slots=True)
class Recipe:
    """A precision recipe: bytes per parameter of each model state.

    ``weights`` and ``gradients`` are those of the forward and backward pass, ``accumulation`` a copy of the
    gradients in higher precision into which micro-batches are added, ``master`` the optimizer's own copy of
    the weights, then Adam's two moments. The copy is sharded with the gradients. Single numbers, because what
    a plan holds is laid along its stages. Refused: a negative number, an array, and nothing at all.
    """

    weights: float = 2.0
    gradients: float = 2.0
    accumulation: float = 0.0
    master: float = 4.0
    first_moment: float = 4.0
    second_moment: float = 4.0

    def __post_init__(self):
        for field in fields(self):
            what = f"{field.name} of a recipe, in bytes per parameter,"
            amount(getattr(self, field.name), what, zero=True, arrays=False)
        amount(self.total, "the bytes per parameter of a recipe in all")

    @property
    def optimizer(self) -> float:
        """Bytes per parameter that the optimizer holds: master weights and moments."""
        return self.master + self.first_moment + self.second_moment

    @property
    def all_gradients(self) -> float:
        """Bytes per parameter of the gradients and of the copy in which they are accumulated."""
        return self.gradients + self.accumulation

    @property
    def total(self) -> float:
        """Bytes per parameter of all states."""
        return self.weights + self.all_gradients + self.optimizer


# Mixed precision as in "ZeRO" (2020), section 3.1: 2 + 2 + 12. Many frameworks keep and reduce gradients in
# fp32, 2 + 4 + 12 (the 18 bytes of Megatron-LM's distributed optimizer); some add 16-bit gradients up in an
# fp32 copy, 2 + 2 + 4 + 12 (DeepSpeed with bf16). Training in fp32 needs no second copy of the weights,
# 4 + 4 + 8.
MIXED, FP32_GRADIENTS, FP32_ACCUMULATION = Recipe(), Recipe(gradients=4.0), Recipe(accumulation=4.0)
FP32 = Recipe(weights=4.0, gradients=4.0, master=0.0)


def state_bytes(parameters, n=1, stage=0, recipe: Recipe = MIXED):
    """Bytes of model states on one of ``n`` data-parallel ranks at sharding stage 0 (plain) to 3.

    With the usual recipe, per parameter 16, 4 + 12/n, 2 + 14/n, 16/n: "ZeRO" (2020), section 5 and figure 1.
    The numbers may be arrays. Refused: parameters not above 0, ranks not whole or below 1, any other stage.

    >>> [state_bytes(13e9, 8, stage) / 1e9 for stage in range(4)]
    [208.0, 71.5, 48.75, 26.0]
    >>> [state_bytes(13e9, 8, stage, FP32_GRADIENTS) / 1e9 for stage in (0, 1)]
    [234.0, 97.5]
    """
    together("model states", parameters=parameters, n=n, stage=stage)
    each = bytes_by_state(n, stage, recipe)
    return plain(amount(parameters, "the number of parameters") * sum(map(np.asarray, each.values())))


def bytes_by_state(n=1, stage=0, recipe: Recipe = MIXED) -> dict:
    """Bytes per parameter on one of ``n`` ranks of ``parameters``, ``gradients`` and ``optimizer_states``.

    >>> bytes_by_state(8, 2)
    {'parameters': 2.0, 'gradients': 0.25, 'optimizer_states': 1.5}
    """
    noun(recipe, Recipe, "the recipe")
    stage, n = one_of((0, 1, 2, 3), stage, _STAGE), check_ranks(n)
    together("model states", n=n, stage=stage)
    return {
        "parameters": plain(recipe.weights / np.where(stage >= 3, n, 1)),
        "gradients": plain(recipe.all_gradients / np.where(stage >= 2, n, 1)),
        "optimizer_states": plain(recipe.optimizer / np.where(stage >= 1, n, 1)),
    }


def largest_model(memory, n=1, stage=0, recipe: Recipe = MIXED):
    """Parameters whose states just fill ``memory`` bytes on each of ``n`` ranks; inverts ``state_bytes``.

    A bound, not a promise: activations need room too. Refused: what ``state_bytes`` refuses.

    >>> largest_model(80e9), round(largest_model(80e9, recipe=FP32_GRADIENTS) / 1e9, 2)
    (5000000000.0, 4.44)
    """
    together("the largest model", memory=memory, n=n, stage=stage)
    return plain(amount(memory, _CARD) / state_bytes(1.0, n, stage, recipe))


def smallest_ranks(parameters, memory, stage, recipe: Recipe = MIXED):
    """Fewest ranks whose model states leave room in ``memory`` bytes each; infinity when no number does.

    States must stay **below** the memory, since activations need some too: the answer is a floor, not a
    promise. Refused: what ``state_bytes`` refuses.

    >>> smallest_ranks(10e9, 80e9, 0), smallest_ranks(10e9, 80e9, 1), smallest_ranks(10e9, 80e9, 3)
    (inf, 4.0, 3.0)
    """
    together("the smallest number of ranks", parameters=parameters, memory=memory, stage=stage)
    parameters, room = amount(parameters, "the number of parameters"), amount(memory, _CARD)
    one, two = ([np.asarray(state) for state in bytes_by_state(n, stage, recipe).values()] for n in (1, 2))
    # What two ranks save is half of what ranks divide among them; the rest every rank keeps whole.
    divided = parameters * sum(2 * (alone - half) for alone, half in zip(one, two, strict=True))
    room = room - parameters * sum(2 * half - alone for alone, half in zip(one, two, strict=True))
    with np.errstate(divide="ignore", invalid="ignore"):
        # Strictly below: where the quotient is whole, one rank more.
        return plain(np.where(room > 0, np.floor(divided / room) + 1, np.inf))
