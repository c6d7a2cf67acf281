"""A trace: the sends of one collective, round by round. Proof, cost and picture are three views of it.

All sends of a round read the state at its start; sends with the same (round, src, dst) are one message.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import chain, pairwise
from typing import NamedTuple

import numpy as np

from labkit.collectives.names import check_operation
from labkit.collectives.place import check_ranks
from labkit.errors import InputRefused

# In these every rank has a block of its own, so the message is cut into the same number of pieces for each.
_BLOCKS = ("reduce_scatter", "all_gather", "all_to_all", "scatter", "gather", "barrier")


class Send(NamedTuple):
    """In ``round``, ``src`` sends ``chunk`` to ``dst``, which adds it (``reduce``) or stores it."""

    round: int
    src: int
    dst: int
    chunk: int
    reduce: bool


@dataclass(frozen=True, slots=True)
class Trace:
    """Sends as five equally long arrays sorted by round, for ``n`` ranks.

    The message of S bytes is cut into ``parts`` pieces as ``numpy.array_split`` cuts, and chunk c has the
    length of piece c mod parts. ``chunks`` is ``chunk_count``: more than ``parts`` where every rank sends a
    message of its own.
    """

    op: str
    algorithm: str
    n: int
    parts: int
    chunks: int
    round: np.ndarray = field(repr=False)
    src: np.ndarray = field(repr=False)
    dst: np.ndarray = field(repr=False)
    chunk: np.ndarray = field(repr=False)
    reduce: np.ndarray = field(repr=False)

    @property
    def rounds(self) -> int:
        """Rounds from first to last."""
        return int(self.round[-1]) + 1 if len(self.round) else 0

    def sends(self) -> list[Send]:
        """The sends as a list, for reading and drawing."""
        columns = (self.round, self.src, self.dst, self.chunk, self.reduce)
        return [Send(*row) for row in zip(*(column.tolist() for column in columns), strict=True)]

    def in_rounds(self) -> list[slice]:
        """One slice of the arrays per round."""
        ends = np.searchsorted(self.round, np.arange(self.rounds + 1))
        return [slice(a, b) for a, b in pairwise(ends)]

    def bounds(self, length: int) -> np.ndarray:
        """First element of each piece of a message of ``length`` elements, and the end: parts + 1 numbers.

        The first ``length mod parts`` pieces are one longer, as ``numpy.array_split`` has it.
        """
        whole, longer = divmod(int(length), self.parts)
        pieces = np.arange(self.parts + 1)
        return whole * pieces + np.minimum(pieces, longer)

    def piece_bytes(self, size: float) -> np.ndarray:
        """Bytes of each piece: whole when ``size`` is whole, else equal shares; a barrier carries none."""
        if self.op == "barrier":
            return np.zeros(self.parts)
        if float(size).is_integer():
            return np.diff(self.bounds(int(size))).astype(float)
        return np.full(self.parts, size / self.parts)


def from_sends(op: str, algorithm: str, n: int, parts: int, chunks: int, sends: Iterable[Send]) -> Trace:
    """A Trace from sends in any order: also the door for an algorithm written by hand in a notebook.

    Refused: an unknown operation, pieces or chunks that cannot be its own, and a send that names a rank or a
    chunk that is not there.

    >>> from_sends("send_recv", "by hand", 2, 1, 2, [Send(0, 0, 1, 0, False), Send(0, 1, 2, 1, False)])
    Traceback (most recent call last):
    ...
    labkit.errors.InputRefused: round 0: rank 1 cannot send chunk 1 to rank 2; rounds count from 0, ...
    """
    check_operation(op)
    check_ranks(n)
    if parts < 1 or (op in _BLOCKS and parts % n):
        each = f"{n} or a multiple of it, a block for every rank" if op in _BLOCKS else "at least 1"
        raise InputRefused(f"{op} among {n} ranks cannot be cut into {parts} pieces; use {each}")
    if chunks != chunk_count(op, n, parts):
        raise InputRefused(
            f"{op} among {n} ranks in {parts} pieces has {chunk_count(op, n, parts)} chunks, not {chunks}; "
            "correct the number"
        )
    table = np.fromiter(chain.from_iterable(sends), dtype=np.int64).reshape(-1, 5)
    table = table[np.argsort(table[:, 0], kind="stable")]
    outside = (table[:, :4] < 0).any(axis=1) | (table[:, 1:4] >= (n, n, chunks)).any(axis=1)
    if outside.any():
        number, src, dst, chunk, _ = table[np.argmax(outside)]
        raise InputRefused(
            f"round {number}: rank {src} cannot send chunk {chunk} to rank {dst}; rounds count from 0, ranks "
            f"are 0 .. {n - 1} and chunks 0 .. {chunks - 1}"
        )
    columns = (np.ascontiguousarray(column) for column in table.T)
    round_, src, dst, chunk, reduce = columns
    return Trace(op, algorithm, n, parts, chunks, round_, src, dst, chunk, reduce.astype(bool))


def chunk_count(op: str, n: int, parts: int) -> int:
    """Chunks that a trace tells apart: ``parts``, or n x ``parts`` where every rank has its own message.

    >>> chunk_count("all_reduce", 4, 8), chunk_count("all_to_all", 4, 4), chunk_count("send_recv", 4, 1)
    (8, 16, 4)
    """
    return n * parts if op in ("all_to_all", "send_recv") else parts


def length(sends: list[Send]) -> int:
    """Rounds that the sends need."""
    return max((send.round for send in sends), default=-1) + 1


def after(first: list[Send], *others: list[Send]) -> list[Send]:
    """One list of sends after the other, rounds counted on."""
    joined = list(first)
    for sends in others:
        start = length(joined)
        joined += [Send(send.round + start, *send[1:]) for send in sends]
    return joined


def mirror(sends: list[Send], reduce: bool) -> list[Send]:
    """The same sends backwards in time, sources and destinations swapped.

    With ``reduce`` True a broadcast becomes a reduce, an all_gather a reduce_scatter; with False a scatter a
    gather, which stores what it receives.
    """
    last = length(sends) - 1
    return [Send(last - s.round, s.dst, s.src, s.chunk, reduce) for s in reversed(sends)]
