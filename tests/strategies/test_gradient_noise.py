"""The noise of averaged gradients: the global batch counts, the cards do not."""

import numpy as np
import pytest

from labkit.errors import InputRefused
from labkit.strategies.gradient_noise import gradient_noise


def test_cards_do_not_matter():
    noise = [gradient_noise(512, cards) for cards in (1, 8, 64, 256, 512)]
    assert noise == pytest.approx([noise[0]] * 5, rel=1e-12)


def test_noise_falls_with_the_root_of_the_global_batch_to_its_known_value():
    """At weights 0 a sample has -(x w + e) x: variances add up to (n + 1) |w|^2 + n s^2 for n weights."""
    n = 16
    w = np.random.default_rng(0).normal(size=n)
    expected = np.sqrt(((n + 1) * (w @ w) + n) / (w @ w))
    for batch in (128, 512):
        assert gradient_noise(batch, 8, draws=2000) * np.sqrt(batch) == pytest.approx(expected, rel=0.02)


def test_refusals():
    with pytest.raises(InputRefused, match="cannot be shared evenly by 7 cards"):
        gradient_noise(512, 7)
    with pytest.raises(InputRefused, match="number of cards"):
        gradient_noise(512, 0)
