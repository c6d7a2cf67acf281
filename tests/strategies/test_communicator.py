"""The communicator: what each collective returns, and that its bytes are those of the closed forms."""

import numpy as np
import pytest

from labkit.collectives import volume
from labkit.errors import InputRefused
from labkit.strategies.communicator import Communicator, sent_per_rank, tally


def arrays(n, shape=(12, 5)):
    return list(np.random.default_rng(n).integers(-9, 9, (n, *shape)).astype(float))


@pytest.mark.parametrize("n", [1, 2, 3, 4])
def test_results(n):
    parts, talk = arrays(n), Communicator()
    total = sum(parts)
    assert all(np.array_equal(out, total) for out in talk.all_reduce(parts, "x"))
    scattered = talk.reduce_scatter(parts, "x")
    assert np.array_equal(np.concatenate(scattered), total) and len(scattered) == n
    assert all(np.array_equal(out, np.concatenate(parts)) for out in talk.all_gather(parts, "x"))
    swapped = talk.all_to_all(parts, cut=0, join=1, purpose="x")
    assert np.array_equal(np.vstack(swapped), np.hstack(parts))
    assert [np.array_equal(out, parts[i - 1]) for i, out in enumerate(talk.pass_on(parts, "x"))] == n * [True]
    assert len(talk.calls) == (0 if n == 1 else 5)


@pytest.mark.parametrize("n", [2, 3, 4])
def test_bytes_are_those_of_the_closed_forms(n):
    talk, parts = Communicator(), arrays(n)
    talk.all_reduce(parts, "x")
    talk.reduce_scatter(parts, "x")
    talk.all_gather(parts, "x")
    talk.all_to_all(parts, cut=0, join=0, purpose="x")
    size = 12 * 5 * 2.0
    sizes = [size, size, n * size, size]
    algorithms = ["ring", "ring", "ring", "pairwise"]
    for call, s, algorithm in zip(talk.calls, sizes, algorithms, strict=True):
        assert call.size == s and call.ranks == n
        assert call.sent == pytest.approx(volume(call.collective, algorithm, s, n).mean)


def test_counting():
    talk = Communicator()
    for purpose in ("forward", "backward", "forward"):
        talk.all_reduce(arrays(2, (3,)), purpose)
    assert tally(talk.calls) == {("forward", "all_reduce"): 2, ("backward", "all_reduce"): 1}
    assert sent_per_rank(talk.calls) == 18.0


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda talk: talk.all_reduce([np.ones(2), np.ones(3)], "x"), "arrays of 2 shapes"),
        (lambda talk: talk.reduce_scatter(arrays(5), "x"), "12 rows cannot be scattered evenly over 5"),
        (lambda talk: talk.all_to_all(arrays(3), 1, 0, "x"), "an axis of 5 cannot be cut evenly for 3"),
    ],
)
def test_refused(call, words):
    with pytest.raises(InputRefused, match=words):
        call(Communicator())
