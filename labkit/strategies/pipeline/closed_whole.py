"""The span of schedules that run a backward as one block: GPipe, 1F1B and interleaved 1F1B."""

import numpy as np

from labkit.strategies.pipeline.kinds import FIRST, INNER, LAST, LONGER, Stages, most


def gpipe_span(stages: Stages) -> np.ndarray:
    """One micro-batch's way through all stages and back, and m - 1 of the slowest forward and backward.

    Exact: forwards and backwards are each a flow shop of equal jobs.
    """
    slowest = most(stages.forward) + most(stages.backward)
    return _round_trip(stages) + (stages.m - 1) * slowest


def one_f_one_b_span(stages: Stages) -> np.ndarray:
    """A round trip at the start and one at the end; between them the slowest ring of neighbouring stages.

    After its warm-up stage i needs the gradient of the micro-batch p - i before. Stages i to j are a ring
    that turns j - i + 1 micro-batches in the sum of their forwards and backwards and 2 (j - i) transfers:
    without transfers the slowest stage alone is worst, with them all of equal stages are. A ring from stage i
    on turns between that stage's first gradient and its last forward.
    """
    p, m, hop, work = stages.p, stages.m, 2 * stages.transfer, stages.work
    sides, sums, trip = (stages.forward, stages.backward), stages.sums(work), _round_trip(stages)
    # Below a light last stage is a stage that has more blocks of its own to run than to wait for it.
    run_on = sum(np.maximum(most(side[:LAST]) - work[LAST] - hop, 0) for side in sides)
    span = np.maximum(trip, m * most(work))
    for kind in stages.kinds:
        start, number = stages.start[kind], stages.number[kind]
        # With few micro-batches only the last m - 1 stages form rings; those before run all of one side.
        begin = np.maximum(start, p - m + 1)
        one_side = trip + (m - 1) * np.maximum(stages.forward[kind], stages.backward[kind])
        span = np.maximum(span, np.where((number > 0) & (start <= p - m), one_side, 0))
        below = sums[kind] + (begin - start) * work[kind] + hop * begin
        ends = 2 * trip - below + (0 if kind == LAST else run_on)
        rings = ends + _rings(stages, kind, m - 1 - p + begin)
        span = np.maximum(span, np.where(begin < start + number, rings, 0))
    return span


def _rings(stages: Stages, kind: int, turns: np.ndarray) -> np.ndarray:
    """The longest that ``turns`` micro-batches take in a ring from a kind of stage on up to any other."""
    hop, work = 2 * stages.transfer, stages.work
    size, seconds, slowest, longest = 0.0, 0.0, 0.0, np.asarray(0.0)
    for last in stages.kinds[stages.kinds.index(kind) :]:
        size = size + stages.number[last]
        seconds = seconds + stages.number[last] * work[last]
        slowest = np.maximum(slowest, work[last])
        length = np.maximum(size, 1)
        rounds = np.floor(turns / length)
        rest = turns - rounds * length
        over = np.maximum(rest * (seconds / length) + hop * np.maximum(rest - 1, 0), rest * slowest)
        longest = np.maximum(longest, rounds * (seconds + hop * (length - 1)) + over)
    return longest


def interleaved_span(stages: Stages) -> np.ndarray:
    """A round trip through all chunks, and the work of the last rank, of the one before it or of the first.

    A rank with k ranks above it turns round over them in the first and in the last round of p micro-batches,
    or runs 2 k forwards, or backwards, of its own if these take longer; between is its own work. Transfers
    hide in that up to half of a chunk's forward and backward; longer ones make one ring of all ranks, which
    turns 2 p - 1 chunks.
    """
    p, m, v, hop, work = stages.p, stages.m, stages.v, 2 * stages.transfer, stages.work
    sides, longer = (stages.forward, stages.backward), stages.number[LONGER]
    trip = _round_trip(stages) + sum(_held_up(stages, side) for side in sides)
    first, next_last, last = stages.on_ranks(work)
    span = trip + (m - p) * last + (p - 1) * work[LAST]
    # A transfer longer than a forward shows whenever gradients go round to the next chunk.
    block = np.minimum(stages.inner(stages.forward), stages.inner(stages.backward))
    span = span + (m - p) * (v - 1) * np.maximum(stages.transfer - block, 0)
    # The last rank hands over to a busier first one on the way round, and gets back before the end.
    handed_over = (m - 2 * p) * (first - last) - stages.inner(work) + hop
    span = span + np.where(m > 2 * p, np.maximum(handed_over, 0), 0)
    above = work[LAST] + hop
    between = np.minimum(longer, p - 2) * work[LONGER] + np.maximum(p - 2 - longer, 0) * work[INNER]
    over_all = above + between + hop * (p - 2)
    for k, on_rank, over, is_longer in (
        (1, next_last, above, longer > 0),
        (p - 1, first, over_all, longer >= p - 1),
    ):
        forward, backward = (np.where(is_longer, side[LONGER], side[INNER]) for side in sides)
        turns = np.maximum(over, 2 * k * forward) + np.maximum(over, 2 * k * backward)
        beside = trip - over + turns + (m - p) * on_rank + (p - 1 - 2 * k) * (forward + backward)
        span = np.maximum(span, np.where(p > 1, beside, 0))
    turns = m * v - (v + 1) * p
    ring = (stages.sums(work)[-1] / v + hop * (p - 1)) / (2 * p - 1)
    wide = trip + over_all + forward + backward + turns * ring
    span = np.where((p > 1) & (turns > 0), np.maximum(span, wide), span)
    return np.maximum(span, m * most((first, next_last, last)))


def _held_up(stages: Stages, side) -> np.ndarray:
    """By what p micro-batches on the first stage exceed one micro-batch's way through the first chunk."""
    p, inner = stages.p, np.minimum(stages.number[INNER], stages.p - 1)
    way = side[FIRST] + inner * side[INNER] + (p - 1 - inner) * side[LONGER]
    return np.maximum(p * (side[FIRST] - stages.transfer) - way, 0)


def _round_trip(stages: Stages) -> np.ndarray:
    """One micro-batch alone: through all stages, and back."""
    return stages.sums(stages.work)[-1] + 2 * stages.transfer * (stages.p * stages.v - 1)
