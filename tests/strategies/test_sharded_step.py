"""Sharded data parallel on real arrays: every stage learns the same, moves and holds what it should."""

import numpy as np
import pytest

from labkit.errors import InputRefused
from labkit.planner.traffic import Workload, sharded
from labkit.strategies.sharded_step import sharded_training

RNG = np.random.default_rng(4)
LAYERS, WIDTH, N = 3, 8, 4
WEIGHTS, TARGETS = RNG.normal(size=(LAYERS, WIDTH)), RNG.normal(size=(N, 5, LAYERS, WIDTH))


def gradient(rank, micro_batch, weights):
    """Of a loss that couples all weights: the mean of (w - target)^4 / 4, and its square of the sum."""
    return (weights - TARGETS[rank, micro_batch]) ** 3 + weights.sum()


def run(stage, m=1, **more):
    return sharded_training(gradient, WEIGHTS, N, stage, m, **more)


def by_hand(m, steps=3, rate=0.1):
    """Adam on one rank with the mean gradient of all."""
    weights, first, second = WEIGHTS.copy(), np.zeros_like(WEIGHTS), np.zeros_like(WEIGHTS)
    for step in range(1, steps + 1):
        g = np.mean([gradient(rank, i, weights) for rank in range(N) for i in range(m)], axis=0)
        first, second = 0.9 * first + 0.1 * g, 0.999 * second + 0.001 * g * g
        weights -= rate * first / (1 - 0.9**step) / (np.sqrt(second / (1 - 0.999**step)) + 1e-8)
    return weights


@pytest.mark.parametrize("stage", range(4))
@pytest.mark.parametrize("m", [1, 5])
def test_every_stage_is_adam_on_one_rank(stage, m):
    trained = run(stage, m)
    assert trained.weights == pytest.approx(np.tile(by_hand(m), (N, 1, 1)), rel=1e-9)
    assert trained.divergence == 0


@pytest.mark.parametrize("m", [1, 5])
def test_what_moves_in_units_of_the_weights(m):
    """Claim 4.1-d: 2, 2, m + 1 and 3 m."""
    assert [run(stage, m).sent() for stage in range(4)] == pytest.approx([2, 2, m + 1, 3 * m])
    assert [run(stage, m).collectives for stage in (1, 2, 3)] == [
        2 * LAYERS,
        (m + 1) * LAYERS,
        3 * m * LAYERS,
    ]


@pytest.mark.parametrize("stage", [1, 2, 3])
def test_the_bill_says_the_same(stage):
    work = Workload(LAYERS * WIDTH, LAYERS, WIDTH, 1, micro_batches=5)
    unit = 2 * LAYERS * WIDTH * (N - 1) / N
    assert sum(row.bytes_per_rank for row in sharded(work, N, stage)) / unit == pytest.approx(
        run(stage, 5).sent()
    )


def test_reduce_scatter_is_half_and_without_the_other_half_replicas_diverge():
    """Claim 4.1-e: the gradients' half alone is 1; each rank then has its own shard right, and no other."""
    whole, half = run(1), run(1, gather=False)
    assert (whole.sent("gradients"), whole.sent("new weights"), half.sent()) == pytest.approx((1, 1, 1))
    assert half.divergence > 0.1 and whole.divergence == 0
    # After one step, before wrong weights have made wrong gradients:
    first, cut = run(1, steps=1), run(1, steps=1, gather=False)
    for rank in range(N):
        mine = np.zeros(WIDTH, bool)
        mine[rank * WIDTH // N : (rank + 1) * WIDTH // N] = True
        assert cut.weights[rank][:, mine] == pytest.approx(first.weights[rank][:, mine])
        assert np.array_equal(cut.weights[rank][:, ~mine], WEIGHTS[:, ~mine])


def test_what_a_rank_holds():
    size = LAYERS * WIDTH
    held = [tuple(run(stage).held.values()) for stage in range(4)]
    assert held == [
        (size, size, 2 * size),
        (size, size, 2 * size / N),
        (size, size / N, 2 * size / N),
        (size / N, size / N, 2 * size / N),
    ]


@pytest.mark.parametrize("stage", range(4))
def test_one_rank_sends_nothing_and_learns_the_same(stage):
    alone = sharded_training(gradient, WEIGHTS, 1, stage)
    assert alone.sent() == 0 and alone.calls == [] and alone.divergence == 0
    assert alone.weights == pytest.approx(sharded_training(gradient, WEIGHTS, 1, 0).weights)


def test_the_weights_given_stay_as_they_are():
    before = WEIGHTS.copy()
    for stage in range(4):
        run(stage)
    assert np.array_equal(WEIGHTS, before)


def test_a_function_that_works_on_its_weights_changes_nothing_else():
    def careless(rank, micro_batch, weights):
        found = gradient(rank, micro_batch, weights)
        weights *= 2
        return found

    for stage in range(4):
        changed = sharded_training(careless, WEIGHTS, N, stage, micro_batches=2)
        kept = sharded_training(gradient, WEIGHTS, N, stage, micro_batches=2)
        assert np.array_equal(changed.weights, kept.weights)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: sharded_training(gradient, WEIGHTS, 3), "3 ranks do not divide layers of 8"),
        (lambda: run(4), "sharding stage is 4"),
        (lambda: run(1, 0), "micro-batches is 0"),
        (lambda: sharded_training(lambda *a: None, WEIGHTS, 4), "a gradient is None"),
        (lambda: sharded_training(gradient, WEIGHTS[0], 4), r"weights has the shape \(8,\)"),
        (lambda: run(1, gather=1), "gather is 1"),
    ],
)
def test_refused(call, words):
    with pytest.raises(InputRefused, match=words):
        call()
