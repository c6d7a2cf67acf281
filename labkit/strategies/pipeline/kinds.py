"""Stages of a pipeline by kind, first, inner, longer inner and last, for arrays of plans."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

KINDS = ("first", "inner", "longer", "last")
FIRST, INNER, LONGER, LAST = range(len(KINDS))

Times = tuple[np.ndarray, ...]  # one array for each kind


@dataclass(frozen=True, eq=False)
class Stages:
    """Pipelines of ``p`` ranks with ``v`` stages each, and what a micro-batch takes on a stage of each kind.

    All are arrays that broadcast. ``number``: of stages of a kind. The longer inner stages follow the others;
    a single stage is the last. Times of a kind that a pipeline lacks are 0.
    """

    p: np.ndarray
    m: np.ndarray
    v: np.ndarray
    transfer: np.ndarray
    number: Times
    forward: Times
    backward: Times
    weight: Times

    @classmethod
    def of(cls, p, m, v, longer, forward, backward, weight, transfer) -> "Stages":
        """From the times of each kind, which a pipeline may lack."""
        ends = np.minimum(p * v - 1, 1)
        number = ends, np.maximum(p * v - 2 - longer, 0), longer, np.asarray(1.0)
        kinds = (
            tuple(_where_there(times[kind], number[kind]) for kind in range(len(KINDS)))
            for times in (forward, backward, weight)
        )
        return cls(p, m, v, np.where(p > 1, transfer, 0.0), number, *kinds)

    @cached_property
    def kinds(self) -> list[int]:
        """The kinds that some pipeline has."""
        return [kind for kind, number in enumerate(self.number) if np.any(number)]

    @cached_property
    def gradient(self) -> Times:
        """The part of the backward that the stage before waits for."""
        return tuple(b - w for b, w in zip(self.backward, self.weight, strict=True))

    @cached_property
    def pair(self) -> Times:
        """Forward and gradient: what a micro-batch waits for."""
        return tuple(f + g for f, g in zip(self.forward, self.gradient, strict=True))

    @cached_property
    def work(self) -> Times:
        """Forward and backward."""
        return tuple(f + b for f, b in zip(self.forward, self.backward, strict=True))

    @cached_property
    def start(self) -> Times:
        """The first stage of each kind, counted from 0."""
        return self.sums((1.0, 1.0, 1.0, 1.0))[:-1]

    def sums(self, times: Times) -> Times:
        """Seconds on all stages before the first of each kind, and last on all."""
        total, sums = np.asarray(0.0), []
        for number, one in zip(self.number, times, strict=True):
            sums.append(total)
            total = total + number * one
        return *sums, total

    def inner(self, times: Times) -> np.ndarray:
        """Seconds on the first inner stage, of either kind."""
        return np.where(self.number[INNER] > 0, times[INNER], times[LONGER])

    def on_ranks(self, times: Times) -> Times:
        """Seconds on all stages of the first rank, of the one before the last, and of the last.

        Stages go round the ranks; no rank between has more of the longer ones than the one before the last.
        """
        p, v, longer = self.p, self.v, self.number[LONGER]
        first = self._chunks(times, times[FIRST], v - 1, np.floor((longer + 1) / p))
        last = self._chunks(times, times[LAST], v - 1, np.floor(longer / p))
        first = np.where(p > 1, first, self.sums(times)[-1])
        between = np.where(p > 2, self._chunks(times, 0.0, v, np.ceil(longer / p)), first)
        return first, between, np.where(p > 1, last, first)

    def _chunks(self, times: Times, end, others, longer) -> np.ndarray:
        """Seconds on a rank with an ``end`` of the model and ``others``, at most so many of them longer."""
        longer = np.minimum(longer, others)
        return end + longer * times[LONGER] + (others - longer) * times[INNER]


def most(values) -> np.ndarray:
    """The most of several arrays, place by place."""
    result = np.asarray(0.0)
    for value in values:
        result = np.maximum(result, value)
    return result


def _where_there(times: np.ndarray, number: np.ndarray) -> np.ndarray:
    """The times of a kind, 0 where there is no stage of it."""
    there = number > 0
    if there.all():
        return times
    return times * there if there.any() else np.asarray(0.0)
