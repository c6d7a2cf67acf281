"""Proof that a trace does what its operation promises: by contributor sets, and by moving real numbers."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from labkit.collectives.collective import Collective, collective
from labkit.collectives.sends import Trace
from labkit.errors import InputRefused


@dataclass(frozen=True, slots=True)
class Proof:
    """What was checked: ``rounds``, ``messages`` (round, source, destination) and chunk ``sends``."""

    rounds: int
    messages: int
    sends: int


def prove(trace: Trace, length: int | None = None) -> Proof:
    """Check the trace both ways; refused with the rank, chunk and round where it goes wrong.

    Contributor sets: no rank sends what it does not hold, no contribution is added twice, and at the end
    every rank holds exactly what the operation promises. Real data: arrays of ``length`` whole numbers per
    rank are moved by the same sends and must end as the sums and copies promised; by default ``length`` is no
    multiple of the pieces.

    >>> from labkit.collectives import trace
    >>> prove(trace("all_reduce", "ring", 4))
    Proof(rounds=6, messages=24, sends=24)
    """
    promise = collective(trace)
    _check_goal(trace, promise, contributors(trace, promise))
    length = 2 * trace.parts + 1 if length is None else length
    inputs = np.random.default_rng(trace.n).integers(-1000, 1000, (trace.n, length)).astype(float)
    _check_data(trace, promise, inputs)
    messages = len(np.unique((trace.round * trace.n + trace.src) * trace.n + trace.dst))
    return Proof(trace.rounds, messages, len(trace.round))


def contributors(trace: Trace, promise: Collective | None = None) -> np.ndarray:
    """The final state, boolean (rank, chunk, contributor); refused at the first send that breaks a rule."""
    held = (promise or collective(trace)).start()
    for number, now in enumerate(trace.in_rounds()):
        src, dst, chunk, reduce = (
            column[now] for column in (trace.src, trace.dst, trace.chunk, trace.reduce)
        )
        moved = held[src, chunk]
        empty = ~moved.any(axis=1)
        if empty.any():
            i = np.argmax(empty)
            raise InputRefused(
                f"round {number}: rank {src[i]} sends chunk {chunk[i]} without holding any of it; "
                "send it after the round in which it arrives"
            )
        for layer in _layers(number, dst, chunk, reduce, trace.chunks):
            to, what, adds = dst[layer], chunk[layer], reduce[layer]
            twice = held[to, what] & moved[layer] & adds[:, None]
            if twice.any():
                i, who = np.argwhere(twice)[0]
                raise InputRefused(
                    f"round {number}: rank {to[i]} adds the contribution of rank {who} to chunk {what[i]} "
                    "a second time; each contribution may be reduced once"
                )
            held[to, what] = moved[layer] | (held[to, what] & adds[:, None])
    return held


def run(trace: Trace, inputs: np.ndarray) -> list[np.ndarray]:
    """Each rank's result of the operation on real arrays.

    ``inputs``: (n, length), row r is rank r's buffer of the whole message (an all_gather or gather reads
    only rank r's piece of it, a broadcast or scatter only row 0; an all_to_all cuts each row into n blocks,
    one per destination). A rank to which the operation promises nothing gets an empty array.

    >>> from labkit.collectives import trace
    >>> run(trace("all_reduce", "ring", 2), np.array([[1, 2, 3], [10, 20, 30]]))[1].tolist()
    [11, 22, 33]
    """
    promise = collective(trace)
    *_, state = _states(trace, promise, inputs)
    return _results(trace, promise, state, np.shape(inputs)[1])


def history(trace: Trace, inputs: np.ndarray) -> Iterator[np.ndarray]:
    """The state before the first and after every round: arrays (rank, chunk, width).

    Chunks are padded to equal width. Where a rank holds nothing of a chunk the state is NaN, or 0 if the
    arrays are of whole numbers.
    """
    for state in _states(trace, collective(trace), inputs):
        yield state.copy()


def _states(trace: Trace, promise: Collective, inputs: np.ndarray) -> Iterator[np.ndarray]:
    """``history`` without copies: one array that changes."""
    inputs = np.asarray(inputs)
    if inputs.ndim != 2 or len(inputs) != trace.n:
        raise InputRefused(
            f"inputs must have one row per rank, {trace.n} rows; the array has shape {inputs.shape}"
        )
    state = _padded(trace, inputs)
    state[~promise.holds] = np.nan if np.issubdtype(state.dtype, np.inexact) else 0
    yield state
    for number, now in enumerate(trace.in_rounds()):
        src, dst, chunk, reduce = (
            column[now] for column in (trace.src, trace.dst, trace.chunk, trace.reduce)
        )
        moved = state[src, chunk]
        for layer in _layers(number, dst, chunk, reduce, trace.chunks):
            to, what, adds = dst[layer], chunk[layer], reduce[layer, None]
            state[to, what] = np.where(adds, state[to, what] + moved[layer], moved[layer])
        yield state


def _results(trace: Trace, promise: Collective, state: np.ndarray, length: int) -> list[np.ndarray]:
    """Per rank the chunks the operation promises it, joined in order and without padding."""
    widths = np.diff(trace.bounds(length))[np.arange(trace.chunks) % trace.parts]
    real = np.arange(state.shape[2]) < widths[:, None]
    return [state[rank][promise.wants[rank][:, None] & real] for rank in range(trace.n)]


def _padded(trace: Trace, inputs: np.ndarray) -> np.ndarray:
    """Every rank's buffer as (rank, chunk, width), zeros beyond the end of a chunk."""
    bounds = trace.bounds(inputs.shape[1])
    width = int(np.diff(bounds).max())
    column = bounds[:-1, None] + np.arange(width)
    real = column < bounds[1:, None]
    # Only in range once clipped; what is clipped is padding.
    pieces = np.where(real, inputs[:, np.minimum(column, inputs.shape[1] - 1)], 0)
    return np.take(pieces, np.arange(trace.chunks) % trace.parts, axis=1)


def _layers(number, dst, chunk, reduce, chunks) -> Iterator[np.ndarray]:
    """Indices of a round's sends, split so that none writes the same chunk of the same rank twice.

    Several may be reduced into one chunk in a round, as when a node hears from both children. A send that
    stores must be the only one to its chunk.
    """
    key = dst * chunks + chunk
    rest = np.arange(len(dst))
    if len(np.unique(key)) == len(key):
        yield rest
        return
    while len(rest):
        _, first = np.unique(key[rest], return_index=True)
        yield rest[first]
        left = np.delete(rest, first)
        stored = np.isin(key[rest], key[left]) & ~reduce[rest]
        if stored.any():
            i = rest[np.argmax(stored)]
            raise InputRefused(
                f"round {number}: rank {dst[i]} is sent chunk {chunk[i]} twice, one of them to be stored; "
                "use different rounds"
            )
        rest = left


def _check_goal(trace: Trace, promise: Collective, held: np.ndarray) -> None:
    wrong = promise.wants & (held != promise.contributors).any(axis=2)
    if wrong.any():
        rank, chunk = np.argwhere(wrong)[0]
        has, should = (
            np.flatnonzero(held[rank, chunk]).tolist(),
            np.flatnonzero(promise.contributors[chunk]).tolist(),
        )
        raise InputRefused(
            f"after {trace.rounds} rounds of {trace.op} rank {rank} holds the contributions {has} to chunk "
            f"{chunk}; it should hold {should}"
        )


def _check_data(trace: Trace, promise: Collective, inputs: np.ndarray) -> None:
    *_, state = _states(trace, promise, inputs)
    expected = np.einsum("ci,icw->cw", promise.contributors.astype(float), _padded(trace, inputs))
    wrong = promise.wants & (state != expected).any(axis=2)
    if wrong.any():
        rank, chunk = np.argwhere(wrong)[0]
        raise InputRefused(
            f"after {trace.rounds} rounds of {trace.op} the numbers of chunk {chunk} on rank {rank} are not "
            "those promised; compare its sends with the contributor sets"
        )
