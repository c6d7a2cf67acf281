"""Pipelines to try: every schedule on random unequal stages, and start times worked out another way."""

from functools import cache
from itertools import pairwise

from hypothesis import strategies as st

from labkit.strategies.pipeline import SCHEDULES, one_f_one_b, schedule, stage_times
from labkit.strategies.timeline import BACKWARD, COMPUTING, FORWARD, INPUT_GRADIENT, WEIGHT_GRADIENT


def make(name, p, m, v=1):
    """The order of a schedule and its stage times: forward 1 and backward 2 of a whole rank."""
    chunks = SCHEDULES[name].chunks(v)
    times = stage_times(p * chunks, 1 / chunks, 2 / chunks)
    return schedule(name, p, m, v, times), times


@st.composite
def pipelines(draw, names=tuple(SCHEDULES)):
    """An order and its times: unequal stages, unequal boundaries, some of them free."""
    name = draw(st.sampled_from(sorted(names)))
    p, v = draw(st.integers(1, 5)), draw(st.integers(1, 3))
    m = draw(st.integers(1, 10)) if name != "interleaved 1F1B" else p * draw(st.integers(1, 3))
    stages = p * SCHEDULES[name].chunks(v)
    seconds = st.floats(0.01, 10)
    forward, backward = (draw(st.lists(seconds, min_size=stages, max_size=stages)) for _ in range(2))
    transfer = draw(st.lists(st.just(0.0) | seconds, min_size=stages - 1, max_size=stages - 1))
    weight = [share * whole for share, whole in zip(draw(_shares(stages)), backward, strict=True)]
    times = stage_times(stages, forward, backward, transfer, weight)
    if name == "1F1B" and draw(st.booleans()):
        return one_f_one_b(p, m, warmup=2), times
    return schedule(name, p, m, v, times), times


def _shares(stages):
    return st.lists(st.floats(0.05, 0.95), min_size=stages, max_size=stages)


def longest_path(order, times):
    """Start of every (kind, micro-batch, stage), by walking back from it along all that must come before."""
    forward, backward, transfer, weight = (column.tolist() for column in times)
    rank_of = {stage: rank for rank, operations in enumerate(order) for _, _, stage in operations}
    split = any(kind == WEIGHT_GRADIENT for kind, _, _ in order[0])
    gradient = INPUT_GRADIENT if split else BACKWARD
    duration = {FORWARD: forward, WEIGHT_GRADIENT: weight, BACKWARD: backward}
    duration[INPUT_GRADIENT] = [whole - part for whole, part in zip(backward, weight, strict=True)]
    before = {op: previous for operations in order for previous, op in pairwise(operations)}
    last = len(rank_of) - 1

    def hop(lower):
        return transfer[lower] if rank_of[lower] != rank_of[lower + 1] else 0.0

    @cache
    def stop(op):
        return start(op) + duration[op[0]][op[2]]

    @cache
    def start(op):
        kind, k, stage = op
        waits = [0.0]
        if op in before:
            waits.append(stop(before[op]))
        if kind == FORWARD and stage > 0:
            waits.append(stop((FORWARD, k, stage - 1)) + hop(stage - 1))
        if kind == gradient and stage == last:
            waits.append(stop((FORWARD, k, stage)))
        if kind == gradient and stage < last:
            waits.append(stop((gradient, k, stage + 1)) + hop(stage))
        if kind == WEIGHT_GRADIENT:
            waits.append(stop((INPUT_GRADIENT, k, stage)))
        return max(waits)

    return {op: start(op) for operations in order for op in operations}


def computing(run):
    """(kind, micro-batch, stage) -> (start, stop), without the transfers."""
    columns = [column.tolist() for column in (run.kind, run.item, run.stage, run.start, run.stop)]
    blocks = zip(*columns, strict=True)
    return {(kind, k, stage): (start, stop) for kind, k, stage, start, stop in blocks if kind in COMPUTING}
