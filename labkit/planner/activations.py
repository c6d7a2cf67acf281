"""Bytes of activations that a rank keeps of a layer for the backward pass."""

import numpy as np

from labkit.collectives.place import check_count
from labkit.spec.checks import amount, one_of
from labkit.spec.transformer import RECOMPUTE
from labkit.units import plain

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
