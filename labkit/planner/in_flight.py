"""Micro-batches whose activations a pipeline rank keeps at once, by schedule, in closed form."""

import numpy as np

from labkit.spec import Plan
from labkit.spec.checks import noun, whole
from labkit.units import plain


def in_flight(plan: Plan, rank):
    """Most micro-batches that pipeline rank ``rank`` (from 0) keeps; a chunk of v counts 1/v.

    GPipe keeps all m, 1F1B p - rank of them (Narayanan et al. 2021, section 2.2), with v chunks a rank
    (2 (p - 1 - rank) + (v - 1) p + 1) / v, which is 1 + (p - 1)/(p v) of a whole pipeline on the first
    (Korthikanti et al. 2022, section 4.2.3). The zero-bubble schedules are held to p, ZB-H2 to 2p - 1 and
    ZB-2p to 2p, on every rank (Qi et al. 2024, table 2 and section 5): a bound, because the part that a
    weight gradient needs, not all, waits for it. Never more than m. One rank without a pipeline keeps 1.
    Where ``stage_layers`` makes the chunks of a rank unequal, they count by their layers.

    >>> in_flight(Plan(pp=4, accumulation=16), np.arange(4)).tolist()
    [4.0, 3.0, 2.0, 1.0]
    >>> in_flight(Plan(pp=4, v=2, accumulation=16), np.arange(4)).tolist()
    [5.5, 4.5, 3.5, 2.5]
    """
    noun(plan, Plan, "the plan")
    rank = np.asarray(whole(rank, "a pipeline rank", 0, arrays=True), float)
    pp, v, m = (np.asarray(n, float) for n in (plan.pp, plan.v, plan.accumulation))
    ahead = np.maximum(pp - 1 - rank, 0)
    # With one chunk a rank fills the pipeline behind it; with more it starts twice as early, and all chunks.
    chunks = np.where(v > 1, 2 * ahead + (v - 1) * pp + 1, ahead + 1)
    if plan.stage_layers is not None and np.any(v > 1):
        chunks = _of_unequal_chunks(plan, rank, chunks)
    kept = {"gpipe": m, "1f1b": chunks / v, "zb-h2": 2 * pp - 1, "zb-2p": 2 * pp}
    schedule = np.asarray(plan.schedule)
    most = np.select([schedule == name for name in kept], list(kept.values()), pp)
    return plain(np.where(pp == 1, 1.0, np.minimum(m, most)))


def _of_unequal_chunks(plan: Plan, rank, chunks):
    """v times the micro-batches in flight, weighted by the layers of the chunks that they are in.

    Forwards go through the chunks p at a time: the first p of chunk 0, of chunk 1, and so on, then the next.
    """
    p, v = plan.pp, plan.v
    layers = np.asarray(plan.stage_layers, float).reshape(v, p)[:, rank.astype(int)]
    chunks = np.minimum(chunks, plan.accumulation * v)
    rounds, rest = np.divmod(chunks, p * v)
    of_chunk = rounds * p + np.clip(rest - p * np.arange(v).reshape(-1, *[1] * rank.ndim), 0, p)
    there = layers.sum(axis=0)
    return np.where(there > 0, v * (of_chunk * layers).sum(axis=0) / np.maximum(there, 1), v)
