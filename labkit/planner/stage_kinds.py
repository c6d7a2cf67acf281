"""The stages of a pipeline as at most four kinds: first, inner, a longer inner, last.

Of equal layers all inner stages are alike, so a search over many plans never has an array of p stages. A
stage is a chunk of layers: with v chunks a rank there are p v of them.
"""

from dataclasses import dataclass

import numpy as np

from labkit.planner.rank_parameters import given_layers
from labkit.spec import Plan, Transformer
from labkit.spec.rules import check_nouns

FIRST, INNER, LONGER, LAST = range(4)


@dataclass(frozen=True, slots=True)
class StageKinds:
    """Arrays with the four kinds along the last axis: ``layers`` of a stage of each, and how many there are.

    ``embeds``, ``predicts``: 1 where a kind holds the embedding, the head. A single stage is the last, with
    both; of two, one is the first.
    """

    layers: np.ndarray
    counts: np.ndarray
    embeds: np.ndarray
    predicts: np.ndarray


def stage_kinds(model: Transformer, plan: Plan) -> StageKinds:
    """The kinds of a plan's stages; of an array of plans, arrays with one more axis.

    Of ``stage_layers`` the longest inner stages are one kind, all others the mean of them. Refused: what
    ``given_layers`` refuses.

    >>> gpt = Transformer("gpt", 8, 64, 4, 1000, 128)
    >>> kinds = stage_kinds(gpt, Plan(pp=4, stage_layers=(1, 2, 3, 2)))
    >>> kinds.layers.tolist(), kinds.counts.tolist()
    ([1.0, 2.0, 3.0, 2.0], [1.0, 1.0, 1.0, 1.0])
    """
    check_nouns(model=model, plan=plan)
    stages = np.asarray(plan.pp, float) * plan.v
    several = stages > 1
    if plan.stage_layers is None:
        each = model.layers / stages
        layers = [each] * 4
        inner, longer = np.maximum(stages - 2, 0), 0.0 * stages
    else:
        chunks = given_layers(model, plan)
        if plan.v > 1 and plan.schedule == "zb-v":
            chunks[1:] = chunks[1:, ::-1]
        row = chunks.ravel()
        middle = row[1:-1] if row.size > 2 else row[:1]
        most = middle.max()
        rest = middle[middle < most]
        layers = [row[0], rest.mean() if rest.size else most, most, row[-1]]
        inner, longer = (float(rest.size), float(max(0, row.size - 2 - rest.size)))
    one, none = np.ones_like(stages), np.zeros_like(stages)
    return StageKinds(
        _along(*layers),
        _along(1.0 * several, inner, longer, one),
        _along(1.0 * several, none, none, 1.0 * ~several),
        _along(none, none, none, one),
    )


def _along(*kinds) -> np.ndarray:
    return np.stack(np.broadcast_arrays(*(np.asarray(kind, float) for kind in kinds)), axis=-1)
