"""Micro-batches whose activations a pipeline rank keeps at once, by schedule, in closed form."""

import numpy as np

from labkit.errors import InputRefused
from labkit.spec import Plan
from labkit.spec.checks import amount, broadcasting, noun, whole
from labkit.units import plain


def in_flight(plan: Plan, rank, sizes=None):
    """Most micro-batches that pipeline rank ``rank`` (from 0) keeps; a chunk of v counts 1/v.

    GPipe keeps all m, 1F1B p - rank of them (Narayanan et al. 2021, section 2.2), with v chunks a rank
    (2 (p - 1 - rank) + (v - 1) p + 1) / v, which is 1 + (p - 1)/(p v) of a whole pipeline on the first
    (Korthikanti et al. 2022, section 4.2.3). The zero-bubble schedules are held to p, ZB-H2 to 2p - 1 and
    ZB-2p to 2p, on every rank (Qi et al. 2024, table 2 and section 5): a bound, because the part that a
    weight gradient needs, not all, waits for it. Never more than m. One rank without a pipeline keeps 1.
    ``sizes``, shape (v, ...): what each chunk of a rank keeps, where chunks are not alike; single p and v.
    Refused: ranks beyond the pipeline, numbers that do not broadcast, sizes of another number of chunks.

    >>> in_flight(Plan(pp=4, accumulation=16), np.arange(4)).tolist()
    [4.0, 3.0, 2.0, 1.0]
    >>> in_flight(Plan(pp=4, v=2, accumulation=16), np.arange(4)).tolist()
    [5.5, 4.5, 3.5, 2.5]
    """
    noun(plan, Plan, "the plan")
    rank = np.asarray(whole(rank, "a pipeline rank", 0, arrays=True), float)
    pp, v, m = (np.asarray(n, float) for n in (plan.pp, plan.v, plan.accumulation))
    shapes = {"the plan": np.broadcast_shapes(pp.shape, v.shape, m.shape), "ranks": rank.shape}
    broadcasting(shapes, "what is in flight")
    if np.any(rank >= pp):
        raise InputRefused(f"a pipeline rank is {int(rank.max())}; of {plan.pp} they count from 0")
    ahead = pp - 1 - rank
    # With one chunk a rank fills the pipeline behind it; with more it starts twice as early, and all chunks.
    chunks = np.where(v > 1, 2 * ahead + (v - 1) * pp + 1, ahead + 1)
    interleaved = chunks / v if sizes is None or plan.v == 1 else _of_unequal_chunks(plan, chunks, sizes)
    kept = {"gpipe": m, "1f1b": interleaved, "zb-h2": 2 * pp - 1, "zb-2p": 2 * pp}
    schedule = np.asarray(plan.schedule)
    most = np.select([schedule == name for name in kept], list(kept.values()), pp)
    return plain(np.where(pp == 1, 1.0, np.minimum(m, most)))


def _of_unequal_chunks(plan: Plan, ahead, sizes):
    """Micro-batches in flight at the peak, weighted by the sizes of the chunks that they are in.

    Forwards go through the chunks p at a time, backwards the other way round, and after ``ahead`` forwards
    one follows the other: the peak is the largest of one round of that.
    """
    sizes = amount(sizes, "the sizes of the chunks of a rank", zero=True)
    if np.ndim(plan.pp) or np.ndim(plan.v) or sizes.shape[:1] != (plan.v,):
        raise InputRefused(
            f"sizes have the shape {sizes.shape}; give one row for each of v = {plan.v} chunks"
        )
    sizes = np.moveaxis(sizes, 0, -1)[..., None, :]
    p, chunk = plan.pp, np.arange(plan.v)
    total = np.asarray(plan.accumulation, float)[..., None] * plan.v
    done = np.arange(p * plan.v)  # backwards, of one round
    begun = np.minimum(np.asarray(ahead)[..., None] + done, total)
    alive = _in_chunk(begun, p, chunk) - _in_chunk(np.minimum(done, begun), p, chunk[::-1])
    there = sizes.sum(axis=(-1, -2))
    return np.where(there > 0, (alive * sizes).sum(axis=-1).max(axis=-1) / np.where(there > 0, there, 1), 1.0)


def _in_chunk(count, p, place):
    """Of the first ``count`` passes, p at a time through all chunks, those in the chunk at ``place``."""
    rounds, rest = np.divmod(np.asarray(count)[..., None], p * place.size)
    return rounds * p + np.clip(rest - p * place, 0, p)
