"""Which plans of a search can run: those that break no rule and fit the card, and why the others cannot."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from labkit.planner.memory import memory
from labkit.planner.plan_space import Space, plan_spaces
from labkit.spec import Cluster, Transformer
from labkit.spec.checks import amount, noun, without_arrays
from labkit.spec.rule import IMPOSSIBLE
from labkit.spec.rules import RULES

MEMORY = "memory"  # the reason of a plan that is possible and does not fit
_TOGETHER = 2**18  # plans computed at a time: few enough for the caches, enough for NumPy
_STAGES = 3  # that the memory of a plan looks at where it does not name the layers of each


@dataclass(slots=True)
class Census:
    """Plans ``tried``, and how many of them were ``refused`` for which reason."""

    tried: int = 0
    refused: dict[str, int] = field(default_factory=dict)

    def refuse(self, reason: str, number: int) -> None:
        """Counts plans that have this reason."""
        if number:
            self.refused[reason] = self.refused.get(reason, 0) + number

    @property
    def possible(self) -> int:
        """Plans that no rule refuses, whether they fit or not."""
        return self.tried - sum(number for reason, number in self.refused.items() if reason != MEMORY)


def feasible(
    model: Transformer,
    cluster: Cluster,
    global_batch: int,
    fixed: dict | None,
    capacity: float,
    census: Census,
) -> Iterator[tuple[Space, np.ndarray, np.ndarray]]:
    """Pieces of the space of a search: plans, which of them can run in ``capacity`` bytes, and their bytes.

    Each plan that cannot is counted in the ``census`` once: for the first rule that it breaks, in the order
    of ``RULES``, or for its memory. A piece has no cut of which nothing runs.
    """
    for space in plan_spaces(model, cluster, global_batch, fixed):
        for piece, alive in _pieces(space, _possible(space, census)):
            peak = np.broadcast_to(memory(model, cluster, piece.plan).peak, piece.shape)
            runs = alive & (peak <= capacity)
            census.refuse(MEMORY, _count(alive, piece.shape) - int(np.count_nonzero(runs)))
            cuts = runs.any(axis=(1, 2, 3, 4))
            if cuts.any():
                yield piece.part(cuts), runs[cuts], peak[cuts]


def capacity_of(cluster: Cluster, max_memory: float | None) -> float:
    """Bytes of a card that a plan may take: what the card leaves to a job, at most ``max_memory``."""
    noun(cluster, Cluster, "the cluster")
    without_arrays("a search", cluster=cluster)
    if max_memory is None:
        return cluster.gpu.usable
    most = amount(max_memory, "max_memory, in bytes of a card,", endless=True, arrays=False)
    return min(most.item(), cluster.gpu.usable)


def _possible(space: Space, census: Census) -> np.ndarray:
    """Of the plans of a space those that break no rule: a mask that broadcasts to its shape."""
    plan, alive = space.plan, space.canonical
    census.tried += _count(alive, space.shape)
    for rule in RULES:
        if rule.severity == IMPOSSIBLE:
            broken = rule.mask(space.model, space.cluster, plan)
            if np.any(broken):
                hit = alive & broken
                census.refuse(rule.name, _count(hit, space.shape))
                alive = alive & ~hit
    return alive


def _count(mask: np.ndarray, shape: tuple[int, ...]) -> int:
    """Plans of a space of this shape that a mask holds, which may have axes of length 1."""
    return int(np.count_nonzero(mask)) * (math.prod(shape) // max(1, mask.size))


def _pieces(space: Space, alive: np.ndarray) -> Iterator[tuple[Space, np.ndarray]]:
    """What is left of a space, without cuts and pipelines of which nothing is, in pieces of bounded size."""
    cuts, pipelines = alive.any(axis=(1, 2, 3, 4)), alive.any(axis=(0, 1, 2, 3))
    space, alive = space.part(cuts, pipelines), alive[cuts][..., pipelines]
    options = max(1, math.prod(space.shape[1:]))
    layers = space.others["stage_layers"]
    each = max(1, _TOGETHER // options * _STAGES // max(_STAGES, len(layers or ())))
    for start in range(0, space.shape[0], each):
        here = slice(start, start + each)
        yield space.part(here), alive[here]
