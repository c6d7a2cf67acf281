"""Which parameters each rank of a plan holds, as stretches of one long row of all parameters of the model.

In that row the tensors stand one after the other, each with the axis that is cut laid first. What a rank
holds is then a list of stretches, whatever cuts it: pipeline, tensor and expert parallel, and a sharded
optimizer, whose flat buffer of all that a rank trains is cut into equal pieces ("ZeRO", 2020).
"""

from dataclasses import dataclass

import numpy as np

from labkit.errors import InputRefused
from labkit.planner.rank_parameters import given_layers
from labkit.practice.resharding.slices import cuts
from labkit.practice.resharding.tensors import (
    EXPERT,
    FIRST,
    KV,
    LAST,
    LAYER,
    VOCABULARY,
    WHOLE,
    Tensor,
    padded_length,
    tensors,
)
from labkit.spec import Plan, Transformer, rules_shape, rules_tokens
from labkit.spec.checks import without_arrays
from labkit.spec.grid import RankGrid
from labkit.spec.plan_words import said
from labkit.spec.rules import check_nouns


@dataclass(frozen=True, eq=False, slots=True)
class Stretches:
    """Parts of the row, in the order in which a rank holds them: columns of equal length.

    ``room``: parameters it takes on the rank, more than stop - start where padding follows; ``copy``: whether
    another rank of the same stage, or another stage, has the same and is asked for it.
    """

    start: np.ndarray
    stop: np.ndarray
    room: np.ndarray
    copy: np.ndarray

    def piece(self, index: int, pieces: int) -> "Stretches":
        """One of equal pieces of the flat buffer that holds them; padding fills the last."""
        ends = np.cumsum(self.room)
        begins = ends - self.room
        each = -(-int(ends[-1]) // pieces) if ends.size else 0
        low, high = index * each, (index + 1) * each
        start = self.start + np.clip(low - begins, 0, self.stop - self.start)
        stop = self.start + np.clip(high - begins, 0, self.stop - self.start)
        room = np.clip(np.minimum(high, ends) - np.maximum(low, begins), 0, None)
        some = stop > start
        return Stretches(start[some], stop[some], room[some], self.copy[some])

    @property
    def own(self) -> "Stretches":
        """Without the copies."""
        keep = ~self.copy
        return Stretches(self.start[keep], self.stop[keep], self.room[keep], self.copy[keep])


class Layout:
    """Where the parameters of a model lie in a plan. Refused: plans that the model does not split over."""

    def __init__(self, model: Transformer, plan: Plan):
        _refuse_uneven(model, plan)
        self.model, self.plan = model, plan
        self.tensors = tensors(model)
        self.begins, self.parameters = _begins(model, self.tensors)
        self.stage_of = stage_of_layers(model, plan)
        self.at = _positions(plan)
        self._known: dict[tuple, Stretches] = {}

    def dense(self, rank: int) -> Stretches:
        """All but the experts of one rank."""
        return self._held(int(self.at["pp"][rank]), int(self.at["tp"][rank]), None, None)

    def experts(self, rank: int) -> Stretches:
        """The experts of one rank."""
        stage, ep, etp = (int(self.at[name][rank]) for name in ("pp", "ep", "etp"))
        return self._held(stage, None, ep, etp)

    def _held(self, stage, tp, ep, etp) -> Stretches:
        key = (stage, tp, ep, etp)
        if key not in self._known:
            rows = []
            for tensor in self.tensors:
                if (tensor.cut == EXPERT) == (tp is None):
                    for begin in self._begins_on(tensor, stage):
                        rows += self._cut(tensor, begin, tp, ep, etp)
            if tp is not None and self._copies_embedding(stage):
                rows += [(*row[:3], True) for row in self._cut(self.tensors[0], 0, tp, ep, etp)]
            columns = np.array(rows, dtype=np.int64).reshape(-1, 4).T
            self._known[key] = Stretches(*columns[:3], columns[3].astype(bool))
        return self._known[key]

    def _copies_embedding(self, stage: int) -> bool:
        """Whether a stage predicts with a copy of the embedding, because that is on another."""
        plan, apart = self.plan, self.plan.pp > 1 and self.plan.schedule != "zb-v"
        return self.model.tied and apart and stage == plan.pp - 1

    def _begins_on(self, tensor: Tensor, stage: int) -> list[int]:
        begins = self.begins[tensor.name]
        if tensor.place == LAYER:
            return begins[self.stage_of == stage].tolist()
        folded = self.plan.schedule == "zb-v"
        here = 0 if tensor.place == FIRST or folded else self.plan.pp - 1
        return begins.tolist() if stage == here else []

    def _cut(self, tensor: Tensor, begin: int, tp, ep, etp) -> list[tuple]:
        """The stretches of one tensor that begins at ``begin``: (start, stop, room, copy)."""
        width, plan = tensor.width, self.plan
        if tensor.cut == EXPERT:
            low, high = cuts(tensor.length, plan.ep)[ep : ep + 2].tolist()
            column, last = divmod(
                width, self.model.ffn
            )  # a column of its MLP; the bias behind the sum is whole
            a, b = (cuts(self.model.ffn, plan.expert_tp)[etp : etp + 2] * column).tolist()
            rows = []
            for end in range(begin + (low + 1) * width, begin + (high + 1) * width, width):
                rows.append((end - width + a, end - width + b, b - a, False))
                rows.append((end - last, end, last, etp > 0))
            return rows
        if tensor.cut == WHOLE:
            return [(begin, begin + tensor.parameters, tensor.parameters, tp > 0)]
        if tensor.cut == KV and plan.tp > tensor.length:  # each held by several ranks
            several = plan.tp // tensor.length
            low, high, copy = tp // several, tp // several + 1, tp % several > 0
        else:
            low, high = cuts(padded_length(tensor, plan), plan.tp)[tp : tp + 2].tolist()
            copy = False
        stop = min(high, tensor.length)  # rows of padding hold no parameter of the model
        start = min(low, stop)
        room = (high - low if tensor.cut == VOCABULARY else stop - start) * width
        return [(begin + start * width, begin + stop * width, room, copy)]


def stage_of_layers(model: Transformer, plan: Plan) -> np.ndarray:
    """The pipeline rank of each layer, shape (layers,). Refused: layers that the stages do not share evenly.

    >>> gpt = Transformer("gpt", 8, 64, 4, 1000, 128)
    >>> stage_of_layers(gpt, Plan(pp=2)).tolist(), stage_of_layers(gpt, Plan(pp=2, v=2)).tolist()
    ([0, 0, 0, 0, 1, 1, 1, 1], [0, 0, 1, 1, 0, 0, 1, 1])
    """
    check_nouns(model=model, plan=plan)
    without_arrays("a pipeline", plan=plan)
    _refuse_uneven(model, plan, "layers")
    if plan.stage_layers is None:
        counts = np.full((plan.v, plan.pp), model.layers // (plan.pp * plan.v))
    else:
        counts = given_layers(model, plan).astype(int)
    ranks = np.tile(np.arange(plan.pp), (plan.v, 1))
    if plan.schedule == "zb-v" and plan.v > 1:  # comes back from the last rank to the first
        ranks[1:] = ranks[1:, ::-1]
        counts[1:] = counts[1:, ::-1]
    return np.repeat(ranks.ravel(), counts.ravel())


def _begins(model: Transformer, listed: list[Tensor]) -> tuple[dict[str, np.ndarray], int]:
    """Where each tensor begins in the row, one place a layer; and the row's length."""
    order = [t for t in listed if t.place == FIRST], [t for t in listed if t.place == LAYER]
    begins, at = {}, 0
    for tensor in order[0]:
        begins[tensor.name] = np.array([at])
        at += tensor.parameters
    each = sum(tensor.parameters for tensor in order[1])
    layers = at + each * np.arange(model.layers, dtype=np.int64)
    inside = 0
    for tensor in order[1]:
        begins[tensor.name] = layers + inside
        inside += tensor.parameters
    at += each * model.layers
    for tensor in (t for t in listed if t.place == LAST):
        begins[tensor.name] = np.array([at])
        at += tensor.parameters
    return begins, at


_SPLITS = {
    "heads": rules_shape.heads,
    "kv heads": rules_shape.kv_heads,
    "MLP": rules_shape.ffn,
    "vocabulary": rules_shape.vocabulary,
    "layers": rules_shape.layers,
    "experts": rules_tokens.experts,
    "expert groups": rules_tokens.expert_ranks,
}


def _refuse_uneven(model: Transformer, plan: Plan, *names: str) -> None:
    for name in names or _SPLITS:
        if _SPLITS[name](model, None, plan):  # none of these looks at the cluster
            raise InputRefused(
                f"the {name} of {model.name} do not split over {said(plan)}; reshard() says what works"
            )


def _positions(plan: Plan) -> dict[str, np.ndarray]:
    """Of every rank its place in each dimension and its shard of a sharded optimizer; the same of experts."""
    mesh = RankGrid(plan).mesh
    names = list(reversed(plan.order.split("-")))
    places = dict(zip(names, np.indices(mesh.shape).reshape(len(names), -1), strict=True))
    at = {name: place[np.argsort(mesh.ravel())] for name, place in places.items()}
    at["shard"] = at["dp"] * plan.cp + at["cp"]
    stage = np.moveaxis(mesh, names.index("pp"), 0).reshape(plan.pp, -1)
    order = np.empty(plan.ranks, int)
    order[stage] = np.arange(stage.shape[1])
    at["etp"], rest = order % plan.expert_tp, order // plan.expert_tp
    at["ep"], at["expert shard"] = rest % plan.ep, rest // plan.ep
    return at
