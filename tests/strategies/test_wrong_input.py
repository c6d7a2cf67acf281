"""Every argument of every public function given what it is not: used, or refused in one sentence.

Python's own errors, warnings (errors here) and sentences that say nothing but a type's address fail.
"""

import numpy as np
import pytest

from labkit.errors import InputRefused
from labkit.intervals import intersection, intervals, length, subtract, union
from labkit.spec import Link, Transformer
from labkit.strategies import (
    buckets,
    checkpoint,
    contention,
    context,
    data,
    expert_exchange,
    expert_layer,
    experts,
    layer,
    overlap,
    overlap_check,
    prefetch,
    stream_check,
    streams,
    tensor,
    tensor_overlap,
    tensor_streams,
)
from labkit.strategies import pipeline as pipe
from labkit.strategies.communicator import Communicator
from labkit.strategies.gradient_noise import gradient_noise
from labkit.strategies.model_blocks import transformer_blocks
from labkit.strategies.sharded_step import sharded_training
from labkit.strategies.timeline import FORWARD, Timeline
from labkit.strategies.two_streams import Task, two_streams

WRONG = [
    None,
    "x",
    "3",
    np.nan,
    np.inf,
    -1,
    0,
    2.5,
    True,
    [],
    [1, 2],
    [[1, 2], [3]],
    [["a"]],
    {},
    1j,
    object(),
]
WRONG += [
    np.array([2, 4]),
    np.array(["a", "b"]),
    np.ones((2, 2, 2)),
    10**12,
    -(10**400),
    np.datetime64("2020"),
]

X, D, WEIGHTS, MASKS = layer.random_layer(8, 4, 4, 4)
ATTENTION = np.random.default_rng(0).normal(size=(4, 4, 8, 3))
ROUTING = experts.drop_late(experts.route(experts.popularity(4), 2, 3), 1)
SEATS = experts.place_experts(4, 2)
BLOCKS = [overlap.Block(1, 2, (4,)), overlap.Block(1, 2, (4,))]
ROWS, UP, DOWN = np.ones((2, 3, 4)), np.ones((4, 4, 6)), np.ones((4, 6, 4))
FOUR = np.ones(4)  # seconds of the four kinds of stages
LINK, MATRIX, TALK = Link(1e-6, 1e9), [[1.0, 2.0], [3.0, 4.0]], Communicator()
ONE, OTHER, TWO = intervals([0], [2]), intervals([1], [3]), [np.ones((4, 4))] * 2
MODEL = Transformer("small", layers=2, hidden=64, heads=4, vocabulary=1000, sequence=128)
RUN = pipe.simulate(pipe.zb_h1(2, 2), 1, 2)
KERNEL = streams.Kernel("double", ("x",), "y", lambda x: 2 * x)


def seconds(size):
    return 1e-9 * size


def share(part):
    return part


def constant(rank, micro_batch, weights):
    return weights


CALLS = {
    "gpipe": (pipe.gpipe, 4, 4),
    "one_f_one_b": (pipe.one_f_one_b, 4, 4, 1),
    "interleaved": (pipe.interleaved, 2, 4, 2),
    "zb_h1": (pipe.zb_h1, 2, 4),
    "zb_h2": (pipe.zb_h2, 2, 4),
    "zb_v": (pipe.zb_v, 2, 4, 0.5, 1.0, 0.0, 0.5),
    "greedy": (pipe.greedy, 2, 4, 2, 1.0, 2.0, 0.0, 1.0),
    "simulate": (pipe.simulate, pipe.zb_h1(2, 2), 1.0, 2.0, 0.0, 1.0),
    "stage_times": (pipe.stage_times, 2, 1.0, 2.0, 0.0, 1.0),
    "vocabulary": (lambda e, h, spread: pipe.stage_times(2, embedding=e, head=h, spread=spread), 0, 1, True),
    "bubble_share": (pipe.bubble_share, 4, 4, 1),
    "bubble_over_ideal": (pipe.bubble_over_ideal, 4, 4, 1),
    "pipeline_span": (pipe.pipeline_span, "1f1b", 4, 4, 1, FOUR, 2 * FOUR, FOUR, 0.5, 1),
    "pipeline_work": (pipe.pipeline_work, "1f1b", 4, 4, 1, FOUR, 2 * FOUR, 1),
    "peak_in_flight": (pipe.peak_in_flight, pipe.zb_h1(2, 2), 1.0),
    "sends": (pipe.sends, pipe.zb_h1(2, 2)),
    "schedule": (pipe.schedule, "1F1B", 4, 4, 1, pipe.stage_times(4)),
    "in_flight": (RUN.in_flight, 0, 1.0),
    "steps": (RUN.steps, "pp"),
    "ddp_buckets": (buckets.ddp_buckets, [4, 4], 9, 2, ["a", "b"]),
    "bucket_warnings": (buckets.bucket_warnings, 1e6, 1e6, 1e6),
    "Block": (overlap.Block, 1, 2, (4,)),
    "step_timeline": (overlap.step_timeline, BLOCKS, seconds, 4, 4, 1.0, True),
    "step_seconds": (overlap.step_seconds, BLOCKS, seconds, 4, 4, 1.0),
    "backward_seconds": (overlap.backward_seconds, [1, 2], [1, 2], 1.0),
    "best_bucket": (overlap.best_bucket, BLOCKS, seconds, np.array([4, 8]), 4, 1.0),
    "random_stack": (checkpoint.random_stack, 2, 8, 2, 4),
    "stack_pass": (checkpoint.stack_pass, X, D, [(WEIGHTS, MASKS)] * 2, 1),
    "gradient": (data.gradient, lambda w: (w**2).sum(), np.ones(2)),
    "synchronised": (data.synchronised, np.ones((2, 1, 3)), [[1], [2]], "ring"),
    "gradient_noise": (lambda b, n, d, w, s: gradient_noise(b, n, draws=d, weights=w, seed=s), 8, 2, 4, 3, 0),
    "two_streams": (two_streams, [Task(FORWARD, 0, 1.0)], 1.0),
    "Task": (lambda *task: two_streams([Task(FORWARD, 0, 1.0), Task(*task)]), FORWARD, 1, 1.0, (0,)),
    "in_turn": (tensor_overlap.in_turn, 1.0, share, 2),
    "in_chunks": (tensor_overlap.in_chunks, 1.0, 1.0, share, 2, 2, 1.2),
    "half_batches": (tensor_overlap.half_batches, 1.0, share, 2, 1.2),
    "beside": (tensor_overlap.beside_weight_gradients, 1.0, 1.0, share, 2, 1.2),
    "overlap_gain": (contention.overlap_gain, 1.0, 2.0, 1.2),
    "break_even": (contention.break_even, 1.0, 2.0),
    "break_even_beside": (contention.break_even_beside, 1.2),
    "run": (streams.run, [[KERNEL, streams.AllReduce("y")]] * 2, [{"x": np.ones(2), "y": np.ones(2)}] * 2),
    "check": (stream_check.check, [[KERNEL]]),
    "Kernel": (streams.Kernel, "double", ("x",), "y", lambda x: 2 * x, 1.0, "compute"),
    "kernel's value": (lambda y: streams.run([[streams.Kernel("y", (), "y", lambda: y)]], [{}]), 1.0),
    "kernel's function": (
        lambda f: streams.run([[streams.Kernel("y", ("x",), "y", f)]], [{"x": np.ones(2)}]),
        lambda x: 2 * x,
    ),
    "buffer": (lambda x: streams.run([[KERNEL]], [{"x": x}]), 1.0),
    "AllReduce": (streams.AllReduce, "y", 1.0, "world", "communication"),
    "Record": (streams.Record, "e", "compute"),
    "Wait": (streams.Wait, "e", "communication"),
    "tensor_case": (tensor_streams.tensor_case, "in turn", 2),
    "overlap_findings": (overlap_check.overlap_findings, RUN, 0.1, 0),
    "popularity": (experts.popularity, 4, 1.0, 0.5, 0),
    "route": (experts.route, experts.popularity(4), 2, 3, 2, 0),
    "expert_capacity": (experts.expert_capacity, 1.0, 4, 2, 4),
    "drop_late": (experts.drop_late, ROUTING, 1.0),
    "place_experts": (experts.place_experts, 4, 2, "balanced", [1, 2, 3, 4]),
    "tokens_per_rank": (experts.tokens_per_rank, [1, 2, 3, 4], SEATS, 2),
    "imbalance": (experts.imbalance, [1, 2]),
    "token_matrix": (expert_exchange.token_matrix, ROUTING, SEATS),
    "row_matrix": (expert_exchange.row_matrix, ROUTING, SEATS),
    "exchange_seconds": (expert_exchange.exchange_seconds, MATRIX, LINK),
    "leaving_share": (expert_exchange.leaving_share, MATRIX, 1),
    "layer_seconds": (expert_exchange.layer_seconds, MATRIX, 2.0, 3.0, 1e9, LINK),
    "unsplit": (expert_layer.unsplit, ROWS, ROWS, UP, DOWN, ROUTING),
    "split": (expert_layer.split, ROWS, ROWS, UP, DOWN, ROUTING, SEATS),
    "random_layer": (layer.random_layer, 8, 4, 4, 4, 16, 0),
    "whole_layer": (layer.whole_layer, X, D, WEIGHTS, MASKS),
    "split_weights": (tensor.split_weights, WEIGHTS, 2),
    "split_layer": (tensor.split_layer, X, D, WEIGHTS, MASKS, 2),
    "split_layer, how": (
        lambda s, r, k: tensor.split_layer(
            X, D, WEIGHTS, MASKS, 2, sequence_parallel=s, recompute=r, keep_inputs=k
        ),
        True,
        "none",
        False,
    ),
    "split_mlp": (
        lambda *a: tensor.split_mlp(*a[:4], first=a[4], sum_between=a[5]),
        X,
        WEIGHTS.up,
        WEIGHTS.down,
        2,
        "rows",
        True,
    ),
    "ring_attention": (context.ring_attention, *ATTENTION, 2, True),
    "all_to_all_attention": (context.all_to_all_attention, *ATTENTION, 2),
    "chunks_of_ranks": (context.chunks_of_ranks, 2, True),
    "all_reduce": (lambda arrays: TALK.all_reduce(arrays, "forward"), TWO),
    "reduce_scatter": (lambda arrays: TALK.reduce_scatter(arrays, "forward"), TWO),
    "all_gather": (lambda arrays: TALK.all_gather(arrays, "forward"), TWO),
    "all_to_all": (lambda arrays, cut, join: TALK.all_to_all(arrays, cut, join, "forward"), TWO, 0, 1),
    "pass_on": (lambda arrays: TALK.pass_on(arrays, "forward"), TWO),
    "transformer_blocks": (transformer_blocks, MODEL, 1.0, 1e12, 2.0),
    "prefetch_timeline": (prefetch.prefetch_timeline, 4, 1.0, 2.0, 1.0, 1.0, 1, False, 1.0),
    "prefetched": (prefetch.prefetched, 4, 1.0, 2.0, 1.0, 1.0, 1, False, 1.0),
    "gathered_layers": (prefetch.gathered_layers, 4, 1),
    "whole_gradients": (prefetch.whole_gradients, 4),
    "prefetch_bytes": (prefetch.prefetch_bytes, 4, 1.0, 1.0, 1),
    "break_even_bandwidth": (prefetch.break_even_bandwidth, 1.0, 2.0, 1e9, 1e9, 8, 1e-5),
    "sharded_training": (sharded_training, constant, np.ones((2, 4)), 2, 1, 2, 2, 0.1, True),
    "Timeline": (Timeline, [0], [0.0], [1.0], [FORWARD], [0]),
    "intervals": (intervals, [0], [1]),
    "union": (union, ONE, OTHER),
    "intersection": (intersection, ONE, OTHER),
    "subtract": (subtract, ONE, OTHER),
    "length": (length, ONE),
}
ARGUMENTS = [(name, at) for name, (_, *arguments) in CALLS.items() for at in range(len(arguments))]


@pytest.mark.parametrize(("name", "at"), ARGUMENTS, ids=[f"{name}-{at}" for name, at in ARGUMENTS])
def test_wrong_input_is_refused_in_one_sentence(name, at):
    call, *right = CALLS[name]
    call(*right)
    for wrong in WRONG:
        try:
            call(*right[:at], wrong, *right[at + 1 :])
        except InputRefused as refused:
            assert (
                "\n" not in str(refused) and " object at 0x" not in str(refused) and len(str(refused)) < 250
            )


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: pipe.gpipe(10**5, 10**5), "make an order of 10,000,000,000 forwards; use up to 1,000,000"),
        (lambda: pipe.schedule("1F1B", 2, 2, None, pipe.stage_times(2)), "chunks per rank is None"),
        (lambda: pipe.simulate([[(FORWARD, 0.5, 0)]], 1, 2), "of another form"),
        (lambda: pipe.bubble_share(4, 0), "micro-batches is 0"),
        (lambda: RUN.in_flight(2), "the rank is 2; give a whole number from 0 to 1"),
        (lambda: Timeline([0], [0], [1], ["nap"], [0]), "the kinds forward, backward"),
        (lambda: Timeline([-1], [0], [1], [FORWARD], [0]), "lanes counted from 0"),
        (lambda: Timeline([0.5], [0], [1], [FORWARD], [0]), "column lane of a timeline has other things"),
        (lambda: Timeline([0], [np.inf], [np.inf], [FORWARD], [0]), "a block is finite"),
        (lambda: overlap.step_seconds(BLOCKS, lambda size: 1.0), r"answered with the shape \(\)"),
        (lambda: overlap.step_timeline(BLOCKS, lambda size: -size), "seconds of an all_reduce"),
        (lambda: overlap.step_seconds(BLOCKS, seconds, [[1, 2]]), r"caps have the shape \(1, 2\)"),
        (lambda: two_streams([Task(FORWARD, 0, 1.0, (0,))]), "waits for"),
        (lambda: experts.route([np.nan, 1], 1, 1, 1), "popularity of an expert"),
        (lambda: experts.route(experts.popularity(8), 10**6, 10**6), "too many draws"),
        (lambda: expert_exchange.token_matrix(ROUTING, [0, 1, 2, 0]), "whole numbers from 0 to 1"),
        (
            lambda: context.ring_attention(*ATTENTION[:2], np.ones((3, 8, 3)), ATTENTION[3], 2),
            "value has the shape",
        ),
        (
            lambda: context.ring_attention(ATTENTION[0], *np.ones((2, 3, 8, 3)), ATTENTION[3], 2),
            "4 query heads",
        ),
        (lambda: layer.whole_layer(X[:, :3], D, WEIGHTS, MASKS), r"x has the shape \(8, 3\)"),
        (lambda: length(np.ones((2, 3))), r"shape \(k, 2\)"),
        (lambda: intervals(["a"], [1]), "must be numbers"),
    ],
)
def test_what_went_through_before_is_refused(call, words):
    with pytest.raises(InputRefused, match=words):
        call()
