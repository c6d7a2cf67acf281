"""What training relies on: two halves of an all_reduce, layout changes, a token-weighted loss."""

import numpy as np
import pytest

from labkit.collectives import all_reduce_in_halves, change_layout, reduce_loss, replay, run, trace
from labkit.errors import InputRefused
from tests.collectives.collective_cases import LINK


@pytest.mark.parametrize("algorithm", ["ring", "halving_doubling", "pairwise"])
@pytest.mark.parametrize(("n", "length"), [(4, 8), (5, 13), (8, 3)])
def test_all_reduce_is_reduce_scatter_then_all_gather(algorithm, n, length):
    inputs = np.random.default_rng(1).integers(-50, 50, (n, length))
    halves = all_reduce_in_halves(inputs, algorithm=algorithm)
    whole = run(trace("all_reduce", "ring", n), inputs)
    for rank in range(n):
        assert halves.results[rank].tolist() == whole[rank].tolist() == inputs.sum(axis=0).tolist()


@pytest.mark.parametrize("size", [10, 4096, 1_000_003])
def test_and_the_bytes_are_equal_rank_by_rank(size):
    halves = all_reduce_in_halves(np.ones((8, 8)))
    parts = [replay(half, size, LINK) for half in (halves.scatter, halves.gather)]
    whole = replay(trace("all_reduce", "ring", 8), size, LINK)
    assert (parts[0].sent + parts[1].sent).tolist() == whole.sent.tolist()
    assert parts[0].seconds + parts[1].seconds == pytest.approx(whole.seconds)


def test_an_update_on_the_shards_equals_the_update_on_the_whole():
    gradients = np.random.default_rng(2).normal(size=(4, 10))
    weights = np.random.default_rng(3).normal(size=10)
    pieces = np.array_split(weights, 4)
    halves = all_reduce_in_halves(gradients, lambda rank, shard: pieces[rank] - 0.1 * shard / 4)
    for result in halves.results:
        assert result == pytest.approx(weights - 0.1 * gradients.mean(axis=0))
    for update in (lambda rank, shard: shard[:1], lambda rank, shard: shard.sum()):
        with pytest.raises(InputRefused, match="keep the length"):
            all_reduce_in_halves(gradients, update)
    with pytest.raises(InputRefused, match="one row per rank"):
        all_reduce_in_halves(np.zeros(3))


@pytest.mark.parametrize("algorithm", ["linear", "pairwise"])
def test_sequence_shards_become_head_shards_and_return(algorithm):
    n, sequence, heads, width = 4, 12, 8, 3
    whole = np.arange(sequence * heads * width).reshape(sequence, heads, width)
    by_sequence = np.split(whole, n, axis=0)
    by_heads = change_layout(by_sequence, cut=1, join=0, algorithm=algorithm)
    for rank, expected in enumerate(np.split(whole, n, axis=1)):
        assert np.array_equal(by_heads[rank], expected)
    for back, before in zip(
        change_layout(by_heads, cut=0, join=1, algorithm=algorithm), by_sequence, strict=True
    ):
        assert np.array_equal(back, before)


@pytest.mark.parametrize(
    ("shards", "cut", "words"),
    [
        ([np.zeros((2, 4))] * 3, 1, "divide by 3 ranks"),
        ([], 0, "0 shapes; give one array per rank"),
        ([np.zeros((2, 2)), np.zeros((2, 4))], 1, "2 shapes"),
        ([np.zeros((2, 2))] * 2, 2, "no axes 2 and 0"),
    ],
)
def test_shards_that_cannot_change_layout_are_refused(shards, cut, words):
    with pytest.raises(InputRefused, match=words):
        change_layout(shards, cut=cut, join=0)


@pytest.mark.parametrize("algorithm", ["tree", "linear", "ring"])
def test_a_loss_is_weighted_by_tokens(algorithm):
    weighted, plain = reduce_loss([4.0, 2.0, 3.0], [1000, 3000, 0], algorithm)
    assert (weighted, plain) == (2.5, 3.0)
    with pytest.raises(InputRefused, match="at least one token"):
        reduce_loss([4.0, 2.0], [0, 0])
