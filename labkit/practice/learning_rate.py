"""Learning rate and warm-up when the global batch changes, and up to which batch a larger one helps.

Linear in the batch for plain gradient descent (Goyal et al. 2017, "Accurate, Large Minibatch SGD"), square
root for adaptive optimizers such as Adam (Malladi et al. 2022, "On the SDEs and Scaling Rules for Adaptive
Gradient Algorithms"). Both hold while noise dominates the gradient, so not beyond the critical batch
(McCandlish et al. 2018, "An Empirical Model of Large-Batch Training").
"""

from dataclasses import dataclass

import numpy as np

from labkit.spec.checks import amount, one_of, together
from labkit.units import plain

RULES = {"linear": 1.0, "square root": 0.5}  # the power of the batch that the rate goes with
WARM_UPS = ("in proportion", "same steps", "same samples")


def rate_factor(batch, new_batch, rule: str = "linear"):
    """By what the learning rate is multiplied when the global batch changes; floats or arrays.

    ``rule``: ``linear`` (plain gradient descent) or ``square root`` (adaptive optimizers). Refused: batches
    that are not above 0, and another rule.

    >>> [round(rate_factor(64, 512, rule), 2) for rule in RULES]
    [8.0, 2.83]
    """
    rule = one_of(tuple(RULES), rule, "the rule of the learning rate", arrays=False).item()
    together("a learning rate", batch=batch, new_batch=new_batch)
    batch, new_batch = amount(batch, "the batch"), amount(new_batch, "the new batch")
    return plain((new_batch / batch) ** RULES[rule])


@dataclass(frozen=True, slots=True)
class WarmUp:
    """A warm-up: its ``rule``, ``steps``, the ``samples`` in them, and its ``share`` of the run's steps."""

    rule: str
    steps: float
    samples: float
    share: float


def warm_ups(steps, total_steps, batch, new_batch) -> list[WarmUp]:
    """A warm-up of ``steps`` of ``total_steps`` carried over to another batch, by each of three rules.

    The run sees as many samples as before, so it has total_steps x batch / new_batch steps. In proportion:
    steps x new_batch / batch, which is the square of that ratio in samples; ``same steps``: the ratio;
    ``same samples``: steps x batch / new_batch, the same share of the run. Floats or arrays.

    >>> [(w.steps, w.samples / 128_000, w.share) for w in warm_ups(2000, 100_000, 64, 512)]
    [(16000.0, 64.0, 1.28), (2000.0, 8.0, 0.16), (250.0, 1.0, 0.02)]
    """
    together("a warm-up", steps=steps, total_steps=total_steps, batch=batch, new_batch=new_batch)
    steps, total = amount(steps, "the steps of warm-up"), amount(total_steps, "the steps of the run")
    batch, new_batch = amount(batch, "the batch"), amount(new_batch, "the new batch")
    ratio = new_batch / batch
    found = []
    for rule, power in zip(WARM_UPS, (1, 0, -1), strict=True):
        now = steps * ratio**power
        found.append(WarmUp(rule, plain(now), plain(now * new_batch), plain(now * ratio / total)))
    return found


def steps_needed(batch, critical):
    """Steps to a given loss, over those of an endless batch: 1 + critical / batch; floats or arrays.

    ``critical``: the noise scale of the gradient, in samples (see ``strategies.gradient_noise``). McCandlish
    et al. (2018), equations 2.11 and 5.1.

    >>> steps_needed(1000, 1000), round(steps_needed(64, 1000) / steps_needed(512, 1000), 2)
    (2.0, 5.63)
    """
    together("steps", batch=batch, critical=critical)
    return plain(1 + amount(critical, "the critical batch") / amount(batch, "the batch"))


def samples_needed(batch, critical):
    """Samples to a given loss, over those of the smallest batch: 1 + batch / critical; floats or arrays.

    >>> round(samples_needed(512, 1000) / samples_needed(64, 1000), 2)
    1.42
    """
    together("samples", batch=batch, critical=critical)
    return plain(1 + amount(batch, "the batch") / amount(critical, "the critical batch"))


def rate_for_noise(batch, critical):
    """The best rate of gradient descent over that of an endless batch: 1 / (1 + critical / batch).

    In proportion to small batches, level beyond the critical one. McCandlish et al. (2018), equation 2.9.

    >>> [round(rate_for_noise(b, 1000), 3) for b in (1, 10, 1000, 1e6)]
    [0.001, 0.01, 0.5, 0.999]
    """
    return plain(1 / np.asarray(steps_needed(batch, critical)))
