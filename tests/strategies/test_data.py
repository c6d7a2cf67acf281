"""Data parallelism and accumulation on arrays: equal to the whole batch where they should be, 3.1-f."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labkit.errors import InputRefused
from labkit.strategies.data import gradient, synchronised


def loss(weights, inputs, targets):
    """Mean squared error of a tanh unit per output; no labkit code."""
    return ((np.tanh(inputs @ weights) - targets) ** 2).mean()


def batch(samples, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(samples, 3)), rng.normal(size=samples), rng.normal(size=3)


def test_the_complex_step_is_the_derivative():
    inputs, targets, weights = batch(16)
    out = np.tanh(inputs @ weights)
    by_hand = (2 * (out - targets) * (1 - out**2)) @ inputs / 16
    assert gradient(lambda w: loss(w, inputs, targets), weights) == pytest.approx(by_hand, rel=1e-13)


@given(n=st.integers(2, 6), m=st.integers(1, 4), each=st.integers(1, 5), seed=st.integers(0, 99))
@settings(max_examples=40)
def test_equal_shards_give_the_gradient_of_the_whole_batch(n, m, each, seed):
    inputs, targets, weights = batch(n * m * each, seed)
    shards = zip(np.split(inputs, n * m), np.split(targets, n * m), strict=True)
    gradients = np.array([gradient(lambda w, x=x, y=y: loss(w, x, y), weights) for x, y in shards])
    every_rank = synchronised(gradients.reshape(n, m, 3))
    whole = gradient(lambda w: loss(w, inputs, targets), weights)
    assert np.all(np.abs(every_rank - whole) < 1e-12)


@given(st.lists(st.integers(1, 9), min_size=2, max_size=6), st.integers(0, 99))
@settings(max_examples=40)
def test_unequal_shards_do_when_weighted_by_their_tokens(counts, seed):
    inputs, targets, weights = batch(sum(counts), seed)
    cuts = np.cumsum(counts)[:-1]
    shards = zip(np.split(inputs, cuts), np.split(targets, cuts), strict=True)
    gradients = np.array([gradient(lambda w, x=x, y=y: loss(w, x, y), weights) for x, y in shards])
    whole = gradient(lambda w: loss(w, inputs, targets), weights)
    weighted = synchronised(gradients[:, None], np.array(counts)[:, None])
    assert np.all(np.abs(weighted - whole) < 1e-12)
    # The same micro-batches accumulated on one rank.
    assert np.all(np.abs(synchronised(gradients[None], [counts]) - whole) < 1e-12)


def test_case_c5():
    """Two micro-batches of 10 and 90 tokens with 4.0 and 2.0: 3.0 as the mean of means, 2.2 by tokens."""
    values, tokens = np.array([4.0, 2.0]), np.array([10, 90])
    for shape in ((1, 2), (2, 1)):  # accumulated on one rank, and on two
        gradients, counts = values.reshape(*shape, 1), tokens.reshape(shape)
        assert synchronised(gradients).ravel() == pytest.approx(3.0)
        assert synchronised(gradients, counts).ravel() == pytest.approx(2.2)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((np.ones((2, 3)),), r"shape \(ranks, micro-batches, length\)"),
        ((np.ones((2, 0, 3)),), r"shape \(ranks, micro-batches, length\)"),
        ((np.ones((2, 1, 3)), [1, 2]), "2 ranks and 1 micro-batches"),
        ((np.ones((2, 1, 3)), [[-1], [2]]), "number of tokens"),
        ((np.ones((2, 1, 3)), [[0], [0]]), "not all 0"),
    ],
)
def test_refused(arguments, words):
    with pytest.raises(InputRefused, match=words):
        synchronised(*arguments)
