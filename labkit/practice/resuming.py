"""Saving a small data-parallel training and going on with it on another number of ranks (claim 6.3-n).

A linear model under Adam, small enough to follow and exact enough to compare losses to rounding. Each rank
takes its part of the global batch, gradients are averaged, and the moments are sharded over the ranks as in
stage 1; on resuming, each new rank assembles its shard from the old ones.
"""

from dataclasses import dataclass, replace

import numpy as np

from labkit.errors import InputRefused
from labkit.practice.resharding.slices import assemble, cuts
from labkit.spec.checks import amount, noun, one_of, shown, whole

FEATURES, SAMPLES, MOST_STEPS = 13, 4096, 10_000
RATE = 0.2
FIRST, SECOND, TINY = 0.9, 0.999, 1e-8  # Adam as in Kingma and Ba (2015)


@dataclass(frozen=True, eq=False, slots=True)
class Checkpoint:
    """What a job has to save to go on as if nothing had been: each of these, and none of them from anew.

    ``weights``: shape (features,); ``first``, ``second``: the shard of each rank; ``steps`` taken, which
    Adam corrects its moments by; ``position``: samples read.
    """

    weights: np.ndarray
    first: tuple[np.ndarray, ...]
    second: tuple[np.ndarray, ...]
    steps: int
    position: int

    @property
    def ranks(self) -> int:
        """How many ranks wrote it."""
        return len(self.first)

    def without_optimizer(self) -> "Checkpoint":
        """The weights and the position alone: moments and their count begin anew."""
        nothing = tuple(np.zeros_like(shard) for shard in self.first)
        return replace(self, first=nothing, second=nothing, steps=0)

    def from_the_start(self) -> "Checkpoint":
        """All but the position in the data, which begins anew."""
        return replace(self, position=0)


def start(ranks: int) -> Checkpoint:
    """The state before the first step."""
    sizes = np.diff(cuts(FEATURES, whole(ranks, "ranks", most=SAMPLES)))
    nothing = tuple(np.zeros(size) for size in sizes)
    return Checkpoint(np.zeros(FEATURES), nothing, nothing, 0, 0)


def resharded(saved: Checkpoint, ranks: int) -> Checkpoint:
    """The same state for another number of ranks: moments cut anew, nothing else touched.

    >>> [shard.size for shard in resharded(start(3), 4).first]
    [4, 4, 4, 1]
    """
    noun(saved, Checkpoint, "the checkpoint")
    ranks = whole(ranks, "ranks", most=SAMPLES)
    first, second = (tuple(assemble(list(shards), ranks)) for shards in (saved.first, saved.second))
    return replace(saved, first=first, second=second)


def train(saved: Checkpoint, steps: int, batch: int, rate: float = RATE) -> tuple[Checkpoint, np.ndarray]:
    """``steps`` more steps of ``batch`` samples on the checkpoint's ranks: the new state and the losses.

    A loss is that of the step's own batch before its update, as training logs print it. The data is made
    from a fixed seed and read in a fixed order. Refused: a batch that the ranks do not divide.

    >>> whole_run = train(start(4), 20, 24)[1]
    >>> half, first_losses = train(start(4), 10, 24)
    >>> other = train(resharded(half, 6), 10, 24)[1]
    >>> bool(np.allclose(whole_run, [*first_losses, *other], rtol=1e-12))
    True
    """
    noun(saved, Checkpoint, "the checkpoint")
    steps, batch = whole(steps, "steps", most=MOST_STEPS), whole(batch, "the global batch", most=SAMPLES)
    rate = float(amount(rate, "the learning rate", arrays=False))
    ranks = saved.ranks
    if batch % ranks:
        raise InputRefused(
            f"a global batch of {batch} does not divide over {ranks} ranks; give a multiple of {ranks}"
        )
    inputs, wanted = _data()
    edges = cuts(FEATURES, ranks)
    weights, count, position = saved.weights.copy(), saved.steps, saved.position
    moments = [[shard.copy() for shard in shards] for shards in (saved.first, saved.second)]
    losses = np.empty(steps)
    for step in range(steps):
        parts = np.split((position + np.arange(batch)) % SAMPLES, ranks)
        errors = [inputs[mine] @ weights - wanted[mine] for mine in parts]
        gradients = [2 * e @ inputs[mine] / e.size for e, mine in zip(errors, parts, strict=True)]
        losses[step] = np.mean([np.mean(e**2) for e in errors])
        gradient = np.mean(gradients, axis=0)  # the all_reduce
        count, position = count + 1, position + batch
        for rank in range(ranks):  # each updates its part of the weights, which are then gathered
            part = slice(edges[rank], edges[rank + 1])
            first, second = (shards[rank] for shards in moments)
            first += (1 - FIRST) * (gradient[part] - first)
            second += (1 - SECOND) * (gradient[part] ** 2 - second)
            scale = np.sqrt(second / (1 - SECOND**count)) + TINY
            weights[part] -= rate * first / (1 - FIRST**count) / scale
    return Checkpoint(weights, *(tuple(shards) for shards in moments), count, position), losses


WAYS = ("all of it", "no optimizer", "another batch", "no position")


def resumed(way: str, ranks=(4, 6), steps=(300, 50), batch: int = 24) -> tuple[np.ndarray, np.ndarray]:
    """Losses of an unbroken run, and of one that is saved and goes on, in one of ``WAYS``, on other ranks.

    ``steps``: before and after the save. Another batch is twice the batch.
    """
    way = one_of(WAYS, way, "the way of going on", arrays=False).item()
    for pair, what in ((ranks, "ranks"), (steps, "steps")):
        if not (isinstance(pair, tuple | list) and len(pair) == 2):
            raise InputRefused(
                f"the {what} before and after the save are {shown(pair)}; give two whole numbers"
            )
    steps = tuple(whole(number, "steps", most=MOST_STEPS) for number in steps)
    unbroken = train(start(ranks[0]), sum(steps), batch)[1]
    saved, before = train(start(ranks[0]), steps[0], batch)
    saved = resharded(saved, ranks[1])
    if way == "no optimizer":
        saved = saved.without_optimizer()
    if way == "no position":
        saved = saved.from_the_start()
    after = train(saved, steps[1], 2 * batch if way == "another batch" else batch)[1]
    return unbroken, np.concatenate([before, after])


def _data() -> tuple[np.ndarray, np.ndarray]:
    chance = np.random.default_rng(63)
    inputs = chance.standard_normal((SAMPLES, FEATURES)) * np.geomspace(0.2, 2, FEATURES)
    truth = chance.standard_normal(FEATURES) * 3
    return inputs, inputs @ truth + 0.5 * chance.standard_normal(SAMPLES)


def repeats(total: int, read: int, again: int) -> dict[str, int]:
    """What a pass over ``total`` samples really sees where the position is lost after ``read`` of them.

    ``again``: samples read after resuming, from the first on. Counts of samples seen twice, once, never.

    >>> repeats(1000, 600, 400)
    {'twice': 400, 'once': 200, 'never': 400}
    """
    total, read, again = (
        whole(number, what, least)
        for number, what, least in (
            (total, "the samples", 1),
            (read, "the samples read before", 0),
            (again, "the samples read after", 0),
        )
    )
    if max(read, again) > total:
        raise InputRefused(f"one pass has {total:,} samples, not {max(read, again):,}; give at most as many")
    twice = min(read, again)
    once = max(read, again) - twice
    return {"twice": twice, "once": once, "never": total - twice - once}
