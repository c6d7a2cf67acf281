"""The toy run of claim 6.3-n: resumed on other ranks it goes on to rounding, without its state not."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pytest import approx

from labkit.errors import InputRefused
from labkit.practice.resuming import (
    FEATURES,
    WAYS,
    Checkpoint,
    _data,
    repeats,
    resharded,
    resumed,
    start,
    train,
)

DIVIDE_24 = st.sampled_from([1, 2, 3, 4, 6, 8, 12, 24])


@given(DIVIDE_24, DIVIDE_24, st.integers(1, 30))
@settings(max_examples=25)
def test_resumed_on_any_number_of_ranks_it_is_the_same_run(before, after, steps):
    unbroken = train(start(1), 2 * steps, 24)[1]
    saved, first = train(start(before), steps, 24)
    second = train(resharded(saved, after), steps, 24)[1]
    assert np.concatenate([first, second]) == approx(unbroken, rel=1e-12)


def test_one_rank_is_plain_adam():
    """The optimizer as in its paper, written down without shards."""
    inputs, wanted = _data()
    w, m, v = (np.zeros(FEATURES) for _ in range(3))
    for step in range(1, 6):
        x, y = (a[(step - 1) * 24 : step * 24] for a in (inputs, wanted))
        gradient = 2 * (x @ w - y) @ x / 24
        m, v = 0.9 * m + 0.1 * gradient, 0.999 * v + 0.001 * gradient**2
        w = w - 0.2 * (m / (1 - 0.9**step)) / (np.sqrt(v / (1 - 0.999**step)) + 1e-8)
    assert train(start(1), 5, 24)[0].weights == approx(w)


@pytest.mark.parametrize("way", WAYS)
def test_what_is_lost_shows(way):
    unbroken, broken = resumed(way)
    assert np.array_equal(unbroken[:300], broken[:300])
    apart = np.abs(unbroken - broken)[300:].max()
    assert apart < 1e-12 if way == "all of it" else apart > 0.1


def test_without_the_optimizer_the_loss_rises_first():
    unbroken, broken = resumed("no optimizer")
    assert broken[300:310].mean() > 1.3 * unbroken[300:310].mean()


def test_a_checkpoint_in_parts():
    saved = train(start(3), 4, 24)[0]
    assert saved.ranks == 3 and [one.size for one in saved.first] == [5, 5, 3]
    assert (saved.steps, saved.position) == (4, 96)
    assert saved.from_the_start().position == 0
    bare = saved.without_optimizer()
    assert bare.steps == 0 and not any(shard.any() for shard in bare.first)
    assert bare.position == 96 and bare.weights is saved.weights


@given(st.integers(1, 500), st.integers(0, 500), st.integers(0, 500))
def test_repeats_counted_one_by_one(total, read, again):
    if max(read, again) > total:
        return
    seen = np.bincount([*range(read), *range(again)], minlength=total)
    assert repeats(total, read, again) == {
        "twice": int((seen == 2).sum()),
        "once": int((seen == 1).sum()),
        "never": int((seen == 0).sum()),
    }


def test_refused():
    with pytest.raises(InputRefused, match="does not divide over 5 ranks"):
        train(start(5), 1, 24)
    with pytest.raises(InputRefused, match="one pass has 10 samples"):
        repeats(10, 11, 0)
    with pytest.raises(InputRefused, match="give a Checkpoint"):
        resharded({}, 2)
    assert isinstance(start(2), Checkpoint)
