"""Any schedule on random unequal stages: start times against a longest path, and what must always hold."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings

from labkit.errors import InputRefused
from labkit.strategies.pipeline import gpipe, interleaved, one_f_one_b, simulate, zb_h1, zb_v
from labkit.strategies.timeline import BACKWARD, FORWARD, INPUT_GRADIENT, TRANSFER, WEIGHT_GRADIENT
from tests.strategies.pipeline.pipeline_cases import computing, longest_path, pipelines


@given(pipelines())
@settings(max_examples=150)
def test_start_times_are_the_longest_paths(pipeline):
    order, times = pipeline
    starts = {op: start for op, (start, _) in computing(simulate(order, *times)).items()}
    assert starts == pytest.approx(longest_path(order, times), rel=1e-12)


@given(pipelines())
@settings(max_examples=100)
def test_a_rank_does_one_thing_at_a_time_and_its_whole_order(pipeline):
    order, times = pipeline
    run = simulate(order, *times)
    blocks = computing(run)
    assert len(blocks) == sum(len(operations) for operations in order)
    for operations in order:
        spans = [blocks[op] for op in operations]
        assert all(a[1] <= b[0] for a, b in pairwise(spans))
    m = 1 + run.item.max()
    work = np.zeros(run.lanes)
    for rank, operations in enumerate(order):
        own = list({stage for _, _, stage in operations})
        work[rank] = m * (times.forward + times.backward)[own].sum()
    assert run.busy == pytest.approx(work, rel=1e-12)
    assert np.all(run.idle >= -1e-9 * run.span)


@given(pipelines())
@settings(max_examples=100)
def test_each_micro_batch_goes_through_the_stages_in_order_once_per_kind(pipeline):
    order, times = pipeline
    run = simulate(order, *times)
    blocks = computing(run)
    gradient = INPUT_GRADIENT if INPUT_GRADIENT in run.kind else BACKWARD
    for k in range(1 + run.item.max()):
        way = [(FORWARD, k, s) for s in range(run.stages)]
        way += [(gradient, k, s) for s in reversed(range(run.stages))]
        assert all(blocks[a][1] <= blocks[b][0] for a, b in pairwise(way))
        if gradient == INPUT_GRADIENT:
            pairs = [((INPUT_GRADIENT, k, s), (WEIGHT_GRADIENT, k, s)) for s in range(run.stages)]
            assert all(blocks[a][1] <= blocks[b][0] for a, b in pairs)
    kinds = 2 if gradient == BACKWARD else 3
    assert len(blocks) == kinds * run.stages * (1 + run.item.max())


@given(pipelines())
@settings(max_examples=50)
def test_every_boundary_between_ranks_is_crossed_once_up_and_once_down_per_micro_batch(pipeline):
    order, times = pipeline
    run = simulate(order, *times)
    rank_of = {stage: rank for rank, operations in enumerate(order) for _, _, stage in operations}
    crossed = [s for s in range(run.stages - 1) if rank_of[s] != rank_of[s + 1]]
    moves = run.kind == TRANSFER
    m = 1 + run.item.max()
    assert np.count_nonzero(moves) == 2 * m * len(crossed)
    assert (run.stop - run.start)[moves].sum() == pytest.approx(
        2 * m * times.transfer[crossed].sum(), rel=1e-9
    )
    assert run.lane[moves].tolist() == [rank_of[s] for s in run.stage[moves]]


def test_without_warm_up_one_micro_batch_follows_the_other():
    assert simulate(one_f_one_b(4, 5, warmup=0), 1, 2, transfer=0.5).span == 5 * (4 * 3 + 2 * 3 * 0.5)


def test_nothing_is_sent_between_two_stages_of_one_rank():
    assert TRANSFER not in simulate(interleaved(1, 3, 2), 1, 2, transfer=5.0).kind
    turn = simulate(zb_v(2, 1), 1, 2, transfer=[1, 99, 1])
    assert turn.span == 4 + 1 + 1 + 4 * 1 + 1 + 1 + 1  # the weight gradients of the last two stages hide


@pytest.mark.parametrize("weight_gradient", [None, 1.0])
def test_the_weight_gradient_is_half_of_the_backward_unless_given(weight_gradient):
    run = simulate(zb_h1(2, 1), 1, 2, weight_gradient=weight_gradient)
    assert (run.stop - run.start)[run.kind == WEIGHT_GRADIENT].tolist() == [1, 1]


def test_an_order_whose_weight_gradient_comes_too_soon_never_ends():
    order = [[(FORWARD, 0, 0), (WEIGHT_GRADIENT, 0, 0), (INPUT_GRADIENT, 0, 0)]]
    with pytest.raises(InputRefused, match="for ever: rank 0 at weight gradient 0 of stage 0"):
        simulate(order, 1, 2)


def test_the_refusal_names_all_that_wait():
    order = one_f_one_b(2, 2)
    order[0] = order[0][::-1]
    with pytest.raises(InputRefused, match="rank 0 at backward 1 of stage 0, rank 1 at forward 0 of stage 1"):
        simulate(order, 1, 2)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: simulate(gpipe(2, 2), [1, 1, 1], 1), r"one per stage, shape \(2,\)"),
        (lambda: simulate(gpipe(2, 2), 1, 0), "backward time is 0; give a number above 0"),
        (lambda: simulate(gpipe(2, 2), 1, 1, [1, 1]), r"one per boundary, shape \(1,\)"),
        (lambda: simulate(gpipe(2, 2), 1, 1, -1), "transfer time is -1; give a number from 0 up"),
        (lambda: simulate(gpipe(2, 2), float("inf"), 1), "forward time is inf"),
        (lambda: simulate(zb_h1(2, 2), 1, 2, weight_gradient=2), "must take less"),
        (lambda: simulate([[(BACKWARD, 0, 0), (FORWARD, 0, 0)]], 1, 1), "for ever: rank 0 at backward 0"),
    ],
)
def test_refused(call, words):
    with pytest.raises(InputRefused, match=words):
        call()
