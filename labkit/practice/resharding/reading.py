"""Who reads how much from whom when a checkpoint of one plan is loaded into another."""

from dataclasses import dataclass

import numpy as np

from labkit.errors import InputRefused
from labkit.planner.states import MIXED, Recipe
from labkit.practice.resharding.layout import Layout, Stretches
from labkit.practice.resharding.slices import overlap_segments
from labkit.spec import Plan, Transformer
from labkit.spec.checks import noun, without_arrays
from labkit.spec.replicas import shard_counts
from labkit.spec.rules import check_nouns

MOST_RANKS = 4096
WEIGHTS, OPTIMIZER = "weights", "optimizer"


@dataclass(frozen=True, eq=False, slots=True)
class Reads:
    """Bytes that each rank of the target reads of what each rank of the source wrote, shape (target, source).

    Of what several source ranks hold alike, the one of lowest number is asked, as where it alone had written.
    """

    weights: np.ndarray
    optimizer: np.ndarray

    @property
    def total(self) -> np.ndarray:
        """Of both."""
        return self.weights + self.optimizer

    @property
    def sources(self) -> np.ndarray:
        """From how many source ranks each target rank reads."""
        return (self.total > 0).sum(axis=1)


def reads(model: Transformer, source: Plan, target: Plan, recipe: Recipe = MIXED) -> Reads:
    """What every rank of ``target`` reads of a checkpoint that ``source`` wrote, slice by slice.

    Each parameter is found by its place in its tensor, with the cut axis laid first. The optimizer's states
    lie in equal pieces of a flat buffer over the ranks that shard it (stage 1 to 3), at stage 3 the weights
    as well. Padding of the vocabulary is not read: it is made anew. Refused: plans of arrays or of more than
    4,096 ranks, and plans that the model does not divide into.

    >>> gpt = Transformer("gpt", 4, 64, 4, 1000, 128)
    >>> read = reads(gpt, Plan(dp=2, zero=1), Plan(dp=4, zero=1))
    >>> read.weights.shape, read.sources.tolist(), int(read.optimizer.sum()) == 12 * gpt.parameters
    ((4, 2), [1, 1, 2, 2], True)
    """
    check_nouns(model=model)
    noun(recipe, Recipe, "the recipe")
    layouts = []
    for name, plan in (("source", source), ("target", target)):
        check_nouns(plan=plan)
        without_arrays(f"the {name} plan", plan=plan)
        if plan.ranks > MOST_RANKS:
            raise InputRefused(
                f"the {name} plan has {plan.ranks:,} ranks; give one of at most {MOST_RANKS:,}"
            )
        layouts.append(Layout(model, plan))
    old, new = layouts
    found = {}
    for kind, each in ((WEIGHTS, recipe.weights), (OPTIMIZER, recipe.optimizer)):
        table = _Index(old, kind)
        rows = [table.read(_held(new, rank, kind)) for rank in range(target.ranks)]
        found[kind] = each * np.array(rows)
    return Reads(**found)


class _Index:
    """The row of all parameters, cut where the source rank that is asked for them changes."""

    def __init__(self, layout: Layout, kind: str):
        asked: dict[tuple, int] = {}
        start, stop, owner = [], [], []
        for rank in range(layout.plan.ranks):
            for group, stretches in _held(layout, rank, kind).items():
                key = (group, *_who(layout, rank, kind, group))
                if asked.setdefault(key, rank) == rank:
                    own = stretches.own
                    start.append(own.start)
                    stop.append(own.stop)
                    owner.append(np.full(own.start.size, rank))
        start, stop, owner = (np.concatenate(column) for column in (start, stop, owner))
        order = np.argsort(start[stop > start])
        start, stop, owner = (column[stop > start][order] for column in (start, stop, owner))
        if start[0] or stop[-1] != layout.parameters or np.any(start[1:] != stop[:-1]):
            raise InputRefused(
                f"the plan does not hold every parameter of {layout.model.name} once; give one whose degrees "
                "divide heads, layers and experts"
            )
        self.cuts, self.owner, self.ranks = np.append(start, stop[-1]), owner, layout.plan.ranks

    def read(self, held: dict[str, Stretches]) -> np.ndarray:
        """Parameters read of each source rank."""
        sums = np.zeros(self.ranks)
        for stretches in held.values():
            found = overlap_segments(stretches.start, stretches.stop, self.cuts)
            sums += np.bincount(self.owner[found.source], found.length, self.ranks)
        return sums


def _held(layout: Layout, rank: int, kind: str) -> dict[str, Stretches]:
    """What a rank holds of the weights or of the optimizer: dense and experts."""
    plan = layout.plan
    held = {"dense": layout.dense(rank)}
    if layout.model.experts:
        held["experts"] = layout.experts(rank)
    if plan.zero < (3 if kind == WEIGHTS else 1):
        return held
    pieces = _pieces(plan)
    return {
        group: stretches.piece(_shard(layout, rank, group) % pieces[group], pieces[group])
        for group, stretches in held.items()
    }


def _who(layout: Layout, rank: int, kind: str, group: str) -> tuple:
    """What tells apart ranks that hold different parts: all with the same hold the same."""
    names = ("pp", "tp") if group == "dense" else ("pp", "ep", "etp")
    place = tuple(int(layout.at[name][rank]) for name in names)
    if layout.plan.zero < (3 if kind == WEIGHTS else 1):
        return place
    return (*place, _shard(layout, rank, group) % _pieces(layout.plan)[group])


def _shard(layout: Layout, rank: int, group: str) -> int:
    return int(layout.at["shard" if group == "dense" else "expert shard"][rank])


def _pieces(plan: Plan) -> dict[str, int]:
    """Over how many ranks the optimizer's states of dense parameters and of experts are sharded."""
    return dict(zip(("dense", "experts"), shard_counts(plan), strict=True))
