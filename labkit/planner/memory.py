"""Bytes of model states (weights, gradients, optimizer) per rank.

Activations come with the chapters that need them.
"""

import numpy as np

from labkit.collectives.place import check_ranks
from labkit.errors import InputRefused
from labkit.units import plain

# Bytes per parameter in mixed precision with Adam: bf16 weights and gradients; fp32 master weights and two
# moments for the optimizer.
WEIGHTS, GRADIENTS, OPTIMIZER = 2.0, 2.0, 4.0 + 4.0 + 4.0


def state_bytes(parameters, n=1, stage=0):
    """Bytes of model states on one of ``n`` data-parallel ranks at sharding stage 0 (plain) to 3.

    Per parameter 16, 4 + 12/n, 2 + 14/n, 16/n: "ZeRO" (2020), section 5 and figure 1. All three may be
    arrays. Refused: parameters not above 0, ranks not whole or below 1, and any other stage.

    >>> [state_bytes(13e9, 8, stage) / 1e9 for stage in range(4)]
    [208.0, 71.5, 48.75, 26.0]
    """
    kept, divided = _kept_and_divided(parameters, stage)
    return plain(kept + divided / check_ranks(n))


def smallest_ranks(parameters, memory, stage):
    """Fewest ranks whose model states leave room in ``memory`` bytes each; infinity when no number does.

    States must stay **below** the memory, since activations need some too: the answer is a floor, not a
    promise. Refused: what ``state_bytes`` refuses.

    >>> smallest_ranks(10e9, 80e9, 0), smallest_ranks(10e9, 80e9, 1), smallest_ranks(10e9, 80e9, 3)
    (inf, 4.0, 3.0)
    """
    kept, divided = _kept_and_divided(parameters, stage)
    room = np.asarray(memory, float) - kept
    with np.errstate(divide="ignore", invalid="ignore"):
        # Strictly below: where the quotient is whole, one rank more.
        return plain(np.where(room > 0, np.floor(divided / room) + 1, np.inf))


def _kept_and_divided(parameters, stage):
    """Bytes of states that every rank keeps whole, and bytes that the ranks divide among them."""
    parameters, stage = np.asarray(parameters, float), np.asarray(stage)
    if not (parameters > 0).all():
        raise InputRefused("the number of parameters must be above 0; give a positive number")
    if not np.isin(stage, (0, 1, 2, 3)).all():
        raise InputRefused(f"there is no sharding stage {stage}; use 0 (plain data parallel), 1, 2 or 3")
    divided = OPTIMIZER * (stage >= 1) + GRADIENTS * (stage >= 2) + WEIGHTS * (stage >= 3)
    return parameters * (WEIGHTS + GRADIENTS + OPTIMIZER - divided), parameters * divided
