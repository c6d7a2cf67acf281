"""The schedules that run a backward as one block: GPipe, 1F1B and interleaved 1F1B."""

from labkit.errors import InputRefused
from labkit.spec.checks import whole
from labkit.spec.rule import listed, multiples
from labkit.strategies.pipeline.order import Order, check_counts
from labkit.strategies.timeline import BACKWARD, FORWARD


def gpipe(p: int, m: int) -> Order:
    """All forwards, then all backwards, on each of ``p`` stages with ``m`` micro-batches.

    Backwards run in reverse (last in, first out), as in Huang et al. 2019 (GPipe), figure 2.

    >>> gpipe(2, 2)[0]
    [('forward', 0, 0), ('forward', 1, 0), ('backward', 1, 0), ('backward', 0, 0)]
    """
    p, m, _ = check_counts(p, m)
    return [
        [(FORWARD, k, i) for k in range(m)] + [(BACKWARD, k, i) for k in reversed(range(m))] for i in range(p)
    ]


def one_f_one_b(p: int, m: int, warmup: int = 1) -> Order:
    """One forward, one backward in turn, once stage i has run ``warmup`` x (p - 1 - i) forwards ahead.

    ``warmup=1`` is plain 1F1B (Narayanan et al. 2021, section 2.2.1): stage i holds at most p - i
    micro-batches. ``warmup=2`` doubles the warm-up: at most 2 (p - i) - 1, the slack in which transfers hide.
    ``warmup=0`` is no pipeline at all: one micro-batch after the other.

    >>> one_f_one_b(2, 2)[0]
    [('forward', 0, 0), ('forward', 1, 0), ('backward', 0, 0), ('backward', 1, 0)]
    >>> one_f_one_b(2, 2)[1]
    [('forward', 0, 1), ('backward', 0, 1), ('forward', 1, 1), ('backward', 1, 1)]
    """
    p, m, _ = check_counts(p, m)
    warmup = whole(warmup, "the warm-up factor", least=0)
    order = []
    for i in range(p):
        forwards = [(FORWARD, k, i) for k in range(m)]
        backwards = [(BACKWARD, k, i) for k in range(m)]
        order.append(in_turn(forwards, backwards, ahead=warmup * (p - 1 - i)))
    return order


def interleaved(p: int, m: int, v: int) -> Order:
    """Interleaved 1F1B: each of ``p`` ranks has ``v`` chunks, rank i the stages i, p + i, 2 p + i, ...

    "Efficient Large-Scale Language Model Training on GPU Clusters Using Megatron-LM" (Narayanan et al. 2021),
    section 2.2.2: micro-batches go in groups of p through chunk after chunk, forwards from the first,
    backwards from the last; rank i runs 2 (p - 1 - i) + (v - 1) p forwards ahead. One chunk is plain 1F1B.
    Refused: with v above 1, micro-batches that are no multiple of p.

    >>> [f"{kind[0]}{k}{'ab'[stage // 2]}" for kind, k, stage in interleaved(2, 2, 2)[1]]
    ['f0a', 'f1a', 'f0b', 'b0b', 'f1b', 'b1b', 'b0a', 'b1a']
    """
    p, m, v = check_counts(p, m, v)
    if v == 1:
        return one_f_one_b(p, m)
    if m % p:
        raise InputRefused(
            f"{m} micro-batches are no multiple of the {p} pipeline ranks, which interleaving needs; "
            f"use {listed(multiples(m, p))}"
        )
    turns = [(chunk, k) for first in range(0, m, p) for chunk in range(v) for k in range(first, first + p)]
    order = []
    for i in range(p):
        forwards = [(FORWARD, k, chunk * p + i) for chunk, k in turns]
        backwards = [(BACKWARD, k, (v - 1 - chunk) * p + i) for chunk, k in turns]
        order.append(in_turn(forwards, backwards, ahead=2 * (p - 1 - i) + (v - 1) * p))
    return order


def in_turn(forwards: list, backwards: list, ahead: int) -> list:
    """``ahead`` forwards, then a forward and a backward in turn, then the backwards that are left."""
    ahead = min(ahead, len(forwards))
    steady = len(forwards) - ahead
    pairs = zip(forwards[ahead:], backwards[:steady], strict=True)
    return forwards[:ahead] + [op for pair in pairs for op in pair] + backwards[steady:]
