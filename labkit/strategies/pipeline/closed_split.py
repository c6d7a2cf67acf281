"""The span of the zero-bubble schedules, whose weight gradients fill what ranks would else wait.

"Zero Bubble Pipeline Parallelism" (Qi et al. 2024), section 2 and table 2, has ZB-H1 and ZB-H2 with equal
stages; here stages are of four kinds, transfers take time and micro-batches may be few.
"""

import numpy as np

from labkit.strategies.pipeline.kinds import FIRST, INNER, LAST, LONGER, Stages


def zb_h1_span(stages: Stages) -> np.ndarray:
    """ZB-H1: the warm-up of 1F1B."""
    return _split_span(stages, 1)


def zb_h2_span(stages: Stages) -> np.ndarray:
    """ZB-H2: twice that warm-up."""
    return _split_span(stages, 2)


def zb_1p_span(stages: Stages) -> np.ndarray:
    """ZB-1p, as ZB-H1 where its weight gradients fill every wait. A bound: its order may do worse."""
    return _split_span(stages, 1, greedy=True)


def zb_2p_span(stages: Stages) -> np.ndarray:
    """ZB-2p, as ZB-H2 with room for one micro-batch more. A bound: its order may do worse."""
    return _split_span(stages, 2, more=1, greedy=True)


def _split_span(stages: Stages, warm_up: int, more: int = 0, greedy: bool = False) -> np.ndarray:
    """The longest of what the first and the last rank of each kind work and wait for.

    It is convex in the place of a rank among equal ones, but for the rings of transfers.
    """
    times = stages.forward, stages.gradient, stages.pair
    sums = [stages.sums(part) for part in times]
    span = np.asarray(0.0)
    for kind in stages.kinds:
        number = stages.number[kind]
        for place in (0.0, number - 1) if kind in (INNER, LONGER) else (0.0,):
            before = [total[kind] + place * part[kind] for total, part in zip(sums, times, strict=True)]
            rank = stages.start[kind] + place
            seconds = _by_way_of(stages, kind, rank, before, sums[2][-1], warm_up, more, greedy)
            span = np.maximum(span, seconds if np.all(number) else np.where(number > 0, seconds, 0))
    return span


def _by_way_of(stages: Stages, kind, rank, before, pairs, warm_up, more, greedy) -> np.ndarray:
    """From the start of a step to its end by way of one rank.

    ``before``: forwards, gradients and both of the stages before it, ``pairs``: both of all stages.
    """
    m, hop = stages.m, stages.transfer
    f, g, pair, w = (part[kind] for part in (stages.forward, stages.gradient, stages.pair, stages.weight))
    forwards, gradients, pairs_before = before
    behind, way = stages.p - 1 - rank, rank * hop
    # A micro-batch's way from this rank up to the last one and back.
    trip = pairs - pairs_before + 2 * hop * behind
    wait, ahead = trip - pair, np.minimum(warm_up * behind, m - 1)
    put_off = warm_up * rank + more  # micro-batches by which weight gradients come later
    left = np.minimum(put_off + 1, m)  # weight gradients after the last gradient
    end = np.maximum(left * w, gradients + way + stages.weight[FIRST])
    beside = ahead
    if not greedy:
        beside = np.minimum(ahead, np.maximum(m - 1 - put_off, 0))
        if warm_up > 1:
            end = np.maximum(end, _left_below(stages, rank, gradients, warm_up))
    own = m * pair + (m - left) * w
    own = own + np.maximum(wait - ahead * f, 0) + np.maximum(wait - ahead * g - beside * w, 0)
    # The ranks from this one on are a ring: a trip, and the weight gradient that comes before the next.
    turns, size = m - 2 - warm_up * behind, warm_up * behind + 1
    rounds = np.floor(turns / size)
    rest = turns - rounds * size
    weights = np.maximum(rounds + 1 - np.ceil(put_off / size), 0) + rest * (turns - rest >= put_off)
    ring = (2 + rounds) * trip + rest * pair + weights * w
    few = np.maximum(trip + (m - 1) * np.maximum(f, g), m * pair + (m - left) * w)
    return forwards + way + end + np.where(turns >= 0, np.maximum(own, ring), few)


def _left_below(stages: Stages, rank, gradients, warm_up: int) -> np.ndarray:
    """The way down from a rank to the lowest that has put off all weight gradients, and these."""
    lowest = np.minimum(rank, np.ceil((stages.m - 1) / warm_up))
    g, w = stages.inner(stages.gradient), stages.inner(stages.weight)
    below = np.where(lowest > 0, stages.gradient[FIRST] + (lowest - 1) * g, 0)
    weights = np.minimum(warm_up * lowest + 1, stages.m) * np.where(lowest > 0, w, stages.weight[FIRST])
    return np.where(lowest < rank, gradients - below + (rank - lowest) * stages.transfer + weights, 0)


def zb_v_span(stages: Stages) -> np.ndarray:
    """ZB-V: work and waits of the first rank, of the last and of one with a longer stage, or one long trip.

    Rank i has the stages i and 2 p - 1 - i. Before its first gradient at most 2 p forwards are its own, after
    its last forward 2 i gradients are; weight gradients fill waits longer than half of one.
    """
    p, m, hop, longer = stages.p, stages.m, stages.transfer, stages.number[LONGER]
    work, forward, gradient = stages.work, stages.forward, stages.gradient
    f, g, w = (stages.inner(part) for part in (forward, gradient, stages.weight))
    way = stages.sums(forward)[-1] + hop * (2 * p - 2)
    trip = stages.sums(stages.pair)[-1] + hop * (4 * p - 4)
    ahead = np.where(m < p, m, 2 * p - 1) * forward[FIRST] + np.where(m < p, m, 1) * forward[LAST]
    first = m * (work[FIRST] + work[LAST]) + np.maximum(way - ahead, 0) + (p - 1) * hop
    few = trip + (m - 1) * np.maximum(2 * np.maximum(f, g), stages.pair[LAST]) + stages.weight[FIRST]
    span = np.maximum(first, np.where(p > 1, few, 0))
    inner = work[INNER] + np.where(longer >= p - 1, work[LONGER], work[INNER])
    top = np.where(longer >= p, 2 * work[LONGER], inner)
    for rank, own in ((p - 1, top), (np.minimum(longer, p - 1), work[INNER] + work[LONGER])):
        begin = forward[FIRST] + (rank - 1) * f + rank * hop
        back = gradient[LAST] + (rank - 1) * g + rank * hop
        waits = np.maximum(way + back - begin - 2 * np.minimum(m, p) * f, 0)
        gap = np.maximum(f - g + 2 * hop, 0)
        waits = waits + rank * np.where((gap < w / 2) & (m > p), gap, 0)
        span = np.maximum(span, np.where(rank > 0, begin + m * own + waits, 0))
    return span
