"""Limits of a healthy step, as the guide names them (5.4), and what follows from them taken together.

They were named one by one. ``left_over`` and ``efficiency_needed`` say what they ask of each other.
"""

from dataclasses import dataclass

import numpy as np

from labkit.errors import InputRefused
from labkit.spec.checks import amount, shown, together
from labkit.strategies.checks import share
from labkit.units import plain

# Llama 3 405B: FLOP/s of a GPU on so many H100 ("The Llama 3 Herd of Models", 2024, table 4), and the dense
# bf16 peak that the MFU of 38 to 43 % printed there rests on.
PUBLISHED_RATES = {
    "8,192 cards": 430e12,
    "16,384 cards": 400e12,
    "16,384 cards, sequences of 131,072": 380e12,
}
PUBLISHED_PEAK = 989e12


@dataclass(frozen=True, slots=True)
class Limits:
    """The guide's limits (5.4), as shares.

    ``efficiency``: (GPUs, least efficiency against one GPU); ``data`` and ``tensor``: largest exposed share
    of a step of either parallelism's communication; ``mfu``: the usual range; ``spread``: how far ranks may
    lie apart.
    """

    efficiency: tuple[tuple[int, float], ...] = ((1, 1.0), (8, 0.85), (64, 0.6))
    data: float = 0.10
    tensor: float = 0.30
    mfu: tuple[float, float] = (0.40, 0.55)
    spread: float = 0.05

    def efficiency_at(self, gpus, base=1):
        """Least efficiency of ``gpus`` GPUs against a base of ``base`` GPUs; both may be arrays.

        The guide names 8 and 64 GPUs against one. Between them the line is straight in log N, an assumption;
        beyond them the last value holds. Against a larger base it is the ratio of both: a job that just
        passes at ``base`` and at ``gpus``. Refused: numbers below 1.

        >>> GUIDE.efficiency_at(8), GUIDE.efficiency_at(64), round(GUIDE.efficiency_at(64, 8), 3)
        (0.85, 0.6, 0.706)
        """
        together("a scaling efficiency", gpus=gpus, base=base)
        return plain(self._against_one(gpus) / self._against_one(base))

    def _against_one(self, gpus) -> np.ndarray:
        gpus = amount(gpus, "the number of GPUs")
        if np.any(gpus < 1):
            raise InputRefused(f"the number of GPUs is {shown(gpus)}; give a number from 1 up")
        points, least = np.array(self.efficiency).T
        return np.interp(np.log2(gpus), np.log2(points), least)


GUIDE = Limits()


def scaling_efficiency(per_s, gpus, base_per_s, base_gpus):
    """What a GPU of the job gets done, over what one of the base does; all may be arrays (claim 5.4-c).

    ``per_s``: samples or tokens a second of all ``gpus`` GPUs together. The base is the smallest replica
    that runs, with the plan and the batch that each replica of the job has (weak scaling).

    >>> [round(e, 3) for e in scaling_efficiency(np.array([160, 120]), np.array([16, 24]), 240, 8).tolist()]
    [0.333, 0.167]
    """
    per_s, gpus, base_per_s, base_gpus = _amounts(per_s, gpus, base_per_s, base_gpus)
    return plain((per_s / gpus) / (base_per_s / base_gpus))


def left_over(*shares):
    """What is left of a whole when each takes its share of what those before it leave; floats or arrays.

    >>> round(left_over(3 / 19, 0.30, 0.10), 2)
    0.53
    """
    shares = _shares(shares)
    left = 1.0
    for one in shares:
        left = left * (1 - one)
    return plain(left)


def efficiency_needed(mfu: float, single: float) -> float:
    """The efficiency with which a job whose one GPU has the MFU ``single`` reaches ``mfu``.

    >>> round(efficiency_needed(0.40, 0.55), 3)
    0.727
    """
    single = share(single, "the MFU of one GPU")
    if not single:
        raise InputRefused("the MFU of one GPU is 0; give a share above 0")
    return share(mfu, "the MFU") / single


def _amounts(per_s, gpus, base_per_s, base_gpus) -> list[np.ndarray]:
    names = ("throughput", "number of GPUs", "throughput of the base", "number of GPUs of the base")
    given = dict(zip(names, (per_s, gpus, base_per_s, base_gpus), strict=True))
    together("a scaling efficiency", **given)
    return [amount(value, f"the {name}") for name, value in given.items()]


def _shares(given) -> list[np.ndarray]:
    together("shares", **{f"share {i}": one for i, one in enumerate(given)})
    shares = [amount(one, "a share", zero=True) for one in given]
    for one in shares:
        if np.any(one > 1):
            raise InputRefused(f"a share is {shown(one)}; use 0 to 1")
    return shares
