"""The noise of a gradient that is averaged over cards: a matter of the global batch alone (claim 3.4-h)."""

import numpy as np

from labkit.errors import InputRefused
from labkit.spec.checks import whole

MOST = 10**9  # numbers drawn, some ten seconds


def gradient_noise(global_batch: int, cards: int, *, draws=400, weights=16, seed=0) -> float:
    """Relative noise of the averaged gradient: RMS distance from the full gradient over its length.

    ``draws`` batches of a least-squares problem with ``weights`` unknowns; each is cut over ``cards``, every
    card averages the gradients of its samples, and the cards' averages are averaged, as data parallel does.
    The seed fixes the samples, not who gets them. "An Empirical Model of Large-Batch Training" (2018) calls
    the square of this, times the batch, the noise scale. Refused: a batch that the cards do not divide.

    >>> round(gradient_noise(512, 8) - gradient_noise(512, 256), 12)
    0.0
    """
    global_batch, cards = whole(global_batch, "the global batch"), whole(cards, "the number of cards")
    draws, weights = whole(draws, "the number of draws"), whole(weights, "the number of weights")
    if global_batch * draws * weights > MOST:
        raise InputRefused(
            f"{draws} draws of {global_batch} samples with {weights} weights take too long; use fewer"
        )
    seed = whole(seed, "the seed", least=0)
    if global_batch % cards:
        raise InputRefused(
            f"a global batch of {global_batch} cannot be shared evenly by {cards} cards; use a divisor of it"
        )
    random = np.random.default_rng(seed)
    truth = random.normal(size=weights)
    squares = 0.0
    for _ in range(draws):
        x = random.normal(size=(global_batch, weights))
        # At weights 0 the residual is minus the target, and the full gradient is minus the truth.
        target = x @ truth + random.normal(size=global_batch)
        samples = -target[:, None] * x
        of_card = samples.reshape(cards, -1, weights).mean(axis=1)
        squares += np.sum((of_card.mean(axis=0) + truth) ** 2)
    return float(np.sqrt(squares / draws / np.sum(truth**2)))
