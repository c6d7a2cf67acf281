"""algbw and busbw as nccl-tests defines them (its doc/PERFORMANCE.md): busbw = algbw x factor.

algbw is size / time. The factor turns it into what one rank's link must have carried, so that the figure
can be held against the link's rate whatever the number of ranks. It describes send/receive algorithms;
in-switch reduction moves fewer bytes and may show a busbw above the link rate.
"""

import numpy as np

from labkit.collectives.names import check_operation
from labkit.collectives.place import check_count, check_ranks
from labkit.errors import InputRefused
from labkit.units import plain


def busbw_factor(op, n):
    """busbw / algbw: 2(n-1)/n for all_reduce, (n-1)/n where each rank keeps its share, else 1.

    >>> busbw_factor("all_reduce", 8), busbw_factor("all_gather", 8), busbw_factor("broadcast", 8)
    (1.75, 0.875, 1.0)
    """
    check_operation(op)
    n = check_ranks(n)
    if op == "barrier":
        raise InputRefused("a barrier carries no bytes and has no bandwidth; compare its time instead")
    if op in ("broadcast", "reduce", "send_recv"):
        factor = np.ones_like(n)
    else:
        factor = (2 if op == "all_reduce" else 1) * (n - 1) / n
    return plain(factor)


def busbw(op, n, algbw):
    """busbw in bytes/s from algbw in bytes/s.

    >>> busbw("all_reduce", 8, 28.0e9)
    49000000000.0
    """
    return algbw * busbw_factor(op, n)


def node_factor(op, n, per_node):
    """Bytes that leave one node through its ports, over S: what algbw is multiplied by for their rate.

    Of ``n`` ranks, ``per_node`` in each node. For a ring it is ``busbw_factor``, so that busbw is the rate of
    all ports of a node together, however many GPUs share them. In an all_to_all each rank of a node sends
    (n - per_node)/n of its S elsewhere, and busbw is no rate of any port (an NVIDIA engineer in
    NVIDIA/nccl-tests issues 130 and 181). Inside one node it is 0. Refused: other operations, and a last node
    that is not full.

    >>> node_factor("all_reduce", 8, 4) == busbw_factor("all_reduce", 8), node_factor("all_to_all", 16, 8)
    (True, 4.0)
    """
    check_operation(op)
    if op not in ("all_reduce", "all_gather", "reduce_scatter", "all_to_all"):
        raise InputRefused(
            f"{op} sends unequal amounts from its nodes; use all_reduce, all_gather, reduce_scatter or "
            "all_to_all"
        )
    n, per_node = check_ranks(n), check_count(per_node, "the number of ranks of a node")
    if np.any((n > per_node) & (n % per_node != 0)):
        raise InputRefused("the last node is not full; give a number of ranks that is a multiple of a node's")
    factor = per_node * (n - per_node) / n if op == "all_to_all" else np.asarray(busbw_factor(op, n))
    return plain(np.where(n > per_node, factor, 0.0))


def algbw(op, n, busbw):
    """algbw in bytes/s from busbw in bytes/s; NaN where the factor is 0 (one rank).

    >>> algbw("all_reduce", 8, 49e9)
    28000000000.0
    """
    factor = np.asarray(busbw_factor(op, n))
    with np.errstate(divide="ignore", invalid="ignore"):
        return plain(np.where(factor > 0, busbw / factor, np.nan))
