"""Bytes of model states (weights, gradients, optimizer) per rank. Activations come with the chapters that
need them.
"""

import numpy as np

from labkit.errors import InputRefused

# Bytes per parameter of mixed precision with Adam: bf16 weights, bf16 gradients, fp32 master weights and two
# moments.
WEIGHTS, GRADIENTS, OPTIMIZER = 2.0, 2.0, 4.0 + 4.0 + 4.0


def state_bytes(parameters, n=1, stage=0):
    """Bytes of model states on one of ``n`` data-parallel ranks at sharding stage 0 (plain) to 3.

    Per parameter 16, 4 + 12/n, 2 + 14/n, 16/n: "ZeRO" (2020), section 5 and figure 1.

    >>> [state_bytes(13e9, 8, stage) / 1e9 for stage in range(4)]
    [208.0, 71.5, 48.75, 26.0]
    """
    if stage not in (0, 1, 2, 3):
        raise InputRefused(f"there is no sharding stage {stage}; use 0 (plain data parallel), 1, 2 or 3")
    parts = ((OPTIMIZER, 1), (GRADIENTS, 2), (WEIGHTS, 3))
    each = sum(part / np.asarray(n, float) if stage >= first else part for part, first in parts)
    result = np.asarray(parameters * each, float)
    return result.item() if result.ndim == 0 else result


def smallest_ranks(parameters, memory, stage):
    """Fewest ranks whose model states leave room in ``memory`` bytes each; infinity when no number does.

    States must stay **below** the memory, since activations need some too: the answer is a floor, not a
    promise.

    >>> smallest_ranks(10e9, 80e9, 0), smallest_ranks(10e9, 80e9, 1), smallest_ranks(10e9, 80e9, 3)
    (inf, 4.0, 3.0)
    """
    kept = np.asarray(state_bytes(parameters, np.inf, stage), float)
    divided = state_bytes(parameters, 1, 0) - kept
    room = np.asarray(memory, float) - kept
    with np.errstate(divide="ignore", invalid="ignore"):
        # Strictly below: where the quotient is whole, one rank more.
        ranks = np.where(room > 0, np.floor(divided / room) + 1, np.inf)
    return ranks.item() if ranks.ndim == 0 else ranks
