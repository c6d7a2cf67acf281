"""Context parallel: the attention of one long sequence over several ranks, on real matrices.

Two ways. The ring keeps queries where they are and passes keys and values round, each rank adding one block
after another to a running softmax (Liu et al. 2023, Ring Attention; the softmax Milakov and Gimelshein 2018).
The all_to_all changes the layout from positions to heads and back, and attention itself is then local (Jacobs
et al. 2023, DeepSpeed Ulysses). Arrays are (heads, positions, head dimension); attention is causal.
"""

from dataclasses import dataclass

import numpy as np

from labkit.errors import InputRefused
from labkit.spec.checks import whole
from labkit.strategies.attention import attention_gradients, probabilities, scores, weighted
from labkit.strategies.checks import flag, shaped
from labkit.strategies.communicator import Call, Communicator

MOST = 4096  # ranks


@dataclass(frozen=True, slots=True, eq=False)
class AttentionPass:
    """Attention over cp ranks, forward and backward, in the order of the whole sequence.

    ``gradients``: those of query, key and value. ``calls``: collectives and sends. ``work``: pairs of a query
    and a key that each rank computes forward in each of its turns, shape (turns, cp); a turn lasts as long as
    its busiest rank.
    """

    output: np.ndarray
    gradients: tuple[np.ndarray, np.ndarray, np.ndarray]
    calls: list[Call]
    work: np.ndarray

    @property
    def balance(self) -> float:
        """Mean work of a rank over the work on the critical path: 1 where nobody waits."""
        return float(self.work.sum() / self.work.shape[1] / self.work.max(axis=1).sum())


def chunks_of_ranks(cp: int, balanced: bool = True) -> list[tuple[int, ...]]:
    """Which chunks of the sequence each rank holds: one each, or an early and a late of 2 x cp (zigzag).

    Under a causal mask late positions see more keys. Rank r with chunks r and 2 cp - 1 - r has as much to do
    as every other ("The Llama 3 Herd of Models" 2024, section 3.3.2). One rank alone holds one chunk.

    >>> chunks_of_ranks(4)
    [(0, 7), (1, 6), (2, 5), (3, 4)]
    """
    cp = whole(cp, "the context-parallel degree", most=MOST)
    flag(balanced, "balanced")
    if cp == 1 or not balanced:
        return [(rank,) for rank in range(cp)]
    return [(rank, 2 * cp - 1 - rank) for rank in range(cp)]


def ring_attention(query, key, value, d_output, cp: int, balanced: bool = True) -> AttentionPass:
    """Keys and values pass round a ring of ``cp`` ranks; in turn i a rank works on those of rank r - i.

    Forward each rank passes its block on cp - 1 times. Backward it does so again, together with the gradients
    of the block, which go one hop more, home. A block that is all in a rank's future costs no work. Refused:
    positions that cp chunks, or 2 x cp when balanced, do not divide.

    >>> x = np.random.default_rng(0).normal(size=(4, 2, 8, 3))
    >>> split = ring_attention(*x, cp=2)
    >>> split.work.tolist(), split.balance  # of 36 pairs; unbalanced: [[10, 10], [0, 16]]
    ([[10, 10], [8, 8]], 1.0)
    """
    query, key, value, d_output = _checked(query, key, value, d_output)
    positions = _positions(query.shape[1], cp, balanced)
    q, k, v, d_out = ([array[:, at] for at in positions] for array in (query, key, value, d_output))
    talk, ranks = Communicator(), range(cp)
    running = [_Softmax(part) for part in q]
    held, work = [np.stack(pair) for pair in zip(k, v, strict=True)], []
    for turn in range(cp):
        work.append([])
        for rank in ranks:
            raw = scores(q[rank], held[rank][0], positions[rank], positions[(rank - turn) % cp])
            running[rank].add(raw, held[rank][1])
            work[-1].append(int(np.isfinite(raw[0, 0]).sum()))
        if turn < cp - 1:
            held = talk.pass_on(held, "forward")

    outputs = [softmax.output() for softmax in running]
    d_q = [np.zeros_like(part) for part in q]
    held = [np.stack(pair) for pair in zip(k, v, strict=True)]
    d_held = [np.zeros_like(pair) for pair in held]
    for turn in range(cp):
        for rank in ranks:
            block_k, block_v = held[rank]
            raw = scores(q[rank], block_k, positions[rank], positions[(rank - turn) % cp])
            p = np.exp(raw - running[rank].log_sum)
            found = attention_gradients(q[rank], block_k, block_v, p, outputs[rank], d_out[rank])
            d_q[rank] += found[0]
            d_held[rank] = d_held[rank] + np.stack(found[1:])
        if turn < cp - 1:
            held = talk.pass_on(held, "backward")
        d_held = talk.pass_on(d_held, "backward, gradients")
    d_k, d_v = zip(*d_held, strict=True)
    parts = (outputs, d_q, d_k, d_v)
    output, *gradients = (_in_order(part, positions) for part in parts)
    return AttentionPass(output, tuple(gradients), talk.calls, np.array(work))


def all_to_all_attention(query, key, value, d_output, cp: int) -> AttentionPass:
    """Each rank trades its positions of all heads for all positions of heads / cp, and back: 4 + 4 calls.

    Refused: positions, heads and kv heads that cp does not divide.

    >>> x = np.random.default_rng(0).normal(size=(4, 2, 8, 3))
    >>> [call.collective for call in all_to_all_attention(*x, cp=2).calls] == 8 * ["all_to_all"]
    True
    """
    query, key, value, d_output = _checked(query, key, value, d_output)
    cp = whole(cp, "the context-parallel degree")
    for count, name in ((len(query), "heads"), (len(key), "kv heads")):
        if count % cp:
            raise InputRefused(
                f"{count} {name} cannot be shared by {cp} ranks; use a divisor, or the ring, which needs none"
            )
    positions, talk = _positions(query.shape[1], cp, balanced=False), Communicator()

    def to_heads(array, purpose):
        return talk.all_to_all([array[:, at] for at in positions], cut=0, join=1, purpose=purpose)

    def to_positions(arrays, purpose):
        return np.concatenate(talk.all_to_all(arrays, cut=1, join=0, purpose=purpose), axis=1)

    q, k, v = (to_heads(array, "forward") for array in (query, key, value))
    p = [probabilities(*pair) for pair in zip(q, k, strict=True)]
    out = [weighted(*pair) for pair in zip(p, v, strict=True)]
    output = to_positions(out, "forward")
    d_out = to_heads(d_output, "backward")
    found = [attention_gradients(*of_rank) for of_rank in zip(q, k, v, p, out, d_out, strict=True)]
    gradients = tuple(to_positions(list(parts), "backward") for parts in zip(*found, strict=True))
    s = query.shape[1]
    # Heads differ from rank to rank, positions do not: count pairs for the share of a rank's heads.
    work = np.full((1, cp), s * (s + 1) // 2 // cp)
    return AttentionPass(output, gradients, talk.calls, work)


class _Softmax:
    """The softmax of one row after another block of keys: running maximum, sum and weighted values."""

    def __init__(self, query: np.ndarray):
        self.query = query
        self.maximum = self.total = self.summed = None

    def add(self, raw: np.ndarray, value: np.ndarray) -> None:
        """Takes in the scores (kv_heads, group, rows, columns) and values of one block of keys."""
        kv_heads, group, rows, _ = raw.shape
        if self.maximum is None:
            self.maximum = np.full((kv_heads, group, rows, 1), -np.inf)
            self.total = np.zeros_like(self.maximum)
            self.summed = np.zeros((kv_heads, group, rows, value.shape[-1]))
        # A rank's own block comes first, so that from then on no maximum is -inf.
        maximum = np.maximum(self.maximum, raw.max(axis=-1, keepdims=True))
        shrink, weight = np.exp(self.maximum - maximum), np.exp(raw - maximum)
        self.total = shrink * self.total + weight.sum(axis=-1, keepdims=True)
        self.summed = shrink * self.summed + weight @ value[:, None]
        self.maximum = maximum

    @property
    def log_sum(self) -> np.ndarray:
        """Log of the sum of exponentials: all that the backward pass needs of the softmax."""
        return self.maximum + np.log(self.total)

    def output(self) -> np.ndarray:
        """The weighted values over the sums, (heads, rows, d)."""
        return (self.summed / self.total).reshape(self.query.shape)


def _checked(query, key, value, d_output) -> tuple[np.ndarray, ...]:
    """The arrays of one attention; refused when their shapes do not fit each other."""
    query = shaped(query, "query", "heads", "positions", "head dimension")
    heads, positions, size = query.shape
    key = shaped(key, "key", "kv heads", positions, size)
    if heads % len(key):
        raise InputRefused(f"{heads} query heads cannot share {len(key)} kv heads evenly; use a divisor")
    value = shaped(value, "value", *key.shape)
    return query, key, value, shaped(d_output, "the output gradient", *query.shape)


def _positions(s: int, cp: int, balanced: bool) -> list[np.ndarray]:
    """Each rank's positions in the sequence."""
    held = chunks_of_ranks(cp, balanced)
    chunks = cp * len(held[0])
    if s % chunks:
        raise InputRefused(
            f"a sequence of {s} cannot be cut in {chunks} equal chunks for {cp} ranks; use a multiple"
        )
    cut = np.split(np.arange(s), chunks)
    return [np.concatenate([cut[chunk] for chunk in mine]) for mine in held]


def _in_order(parts, positions) -> np.ndarray:
    """The ranks' parts as one array in the order of the sequence."""
    whole = np.concatenate(parts, axis=1)
    return whole[:, np.argsort(np.concatenate(positions))]
