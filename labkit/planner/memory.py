"""Memory of a plan: bytes per rank, by part and by stage of the pipeline; the fullest stage decides.

Model states (``states``, ``rank_parameters``), activations of the micro-batches in flight (``activations``,
``in_flight``, ``recompute``), what comes and goes (logits, gathered layers, gradients on their way), and what
the libraries take for themselves.
"""

from dataclasses import dataclass
from functools import reduce

import numpy as np

from labkit.errors import InputRefused
from labkit.planner.activations import layer_activations
from labkit.planner.conventions import USUAL, Conventions
from labkit.planner.in_flight import in_flight
from labkit.planner.rank_parameters import end_parameters, given_layers, has_ends, layer_on_rank
from labkit.planner.recompute import checkpoints, recomputed_bytes
from labkit.planner.states import bytes_by_state
from labkit.spec import Cluster, Plan, Transformer
from labkit.spec.checks import broadcasting, noun, shown
from labkit.spec.replicas import replica_counts, shard_counts
from labkit.spec.rules import check_nouns
from labkit.strategies.prefetch import gathered_layers, whole_gradients
from labkit.units import GB, format_memory, plain, words

STATES = ("parameters", "gradients", "optimizer_states", "embedding")
ACTIVATIONS = ("activations", "in_flight", "logits")
PASSING = ("gathered", "buckets", "workspace")
ALLOCATED = (*STATES, *ACTIVATIONS, *PASSING)
LIBRARIES = ("communicators", "slack")
PARTS = (*ALLOCATED, *LIBRARIES)
_SOFTMAX = 4.0  # bytes per logit that a loss keeps for its backward
_COLUMNS = 8  # stages shown side by side


@dataclass(frozen=True, slots=True)
class RankMemory:
    """Bytes on one rank: model ``states``, ``activations`` with the loss, and all that is neither."""

    states: float
    activations: float
    others: float = 0.0

    @property
    def total(self):
        """All of it."""
        return plain(np.asarray(self.states) + self.activations + self.others)


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Memory:
    """Bytes on a rank of each stage, by part: every array ends in an axis of stages.

    ``stages``: which ranks of the pipeline they are, from 0; all of a single plan, of an array of plans the
    first, the second (of ``stage_layers`` the first of each kind) and the last, among them the fullest.
    ``capacity``: bytes that the card leaves to the job. Parts: ``parameters``, ``gradients`` and
    ``optimizer_states`` of the layers; all three of the ``embedding`` and the head; ``activations`` of one
    micro-batch, ``in_flight`` those of the others that the pipeline keeps; ``logits`` and all else at the
    loss; ``gathered`` layers of stage 3; ``buckets``, gradients before they are reduced or added up;
    ``workspace`` of matrix products; ``communicators``; ``slack`` of the allocator.
    """

    parts: dict[str, np.ndarray]
    stages: np.ndarray
    capacity: float

    def sum(self, names=PARTS) -> np.ndarray:
        """Bytes of some parts together, by stage. Refused: names that are none of ``PARTS``."""
        if not isinstance(names, tuple | list) or not names or not set(map(str, names)) <= set(PARTS):
            raise InputRefused(f"parts are {shown(names)}; give a tuple of some of {', '.join(PARTS)}")
        return _added([self.parts[name] for name in names])

    @property
    def total(self) -> np.ndarray:
        """All bytes, by stage."""
        return self.sum()

    @property
    def allocated(self) -> np.ndarray:
        """What the framework's own counter of allocated bytes would show at its peak, by stage."""
        return self.sum(ALLOCATED)

    @property
    def peak(self):
        """Bytes on the fullest stage: what has to fit, however empty the others are."""
        return plain(reduce(np.maximum, np.moveaxis(self.total, -1, 0)))

    @property
    def fullest(self):
        """The number of the fullest stage; of an array of plans, numbers."""
        return self._at_fullest(np.broadcast_to(self.stages, self.total.shape))

    @property
    def fits(self):
        """Whether the fullest stage fits the card."""
        return plain(np.asarray(self.peak) <= self.capacity)

    @property
    def at_peak(self) -> RankMemory:
        """The fullest stage in three sums."""
        sums = (STATES, ACTIVATIONS, (*PASSING, *LIBRARIES))
        return RankMemory(*(self._at_fullest(self.sum(names)) for names in sums))

    def _at_fullest(self, by_stage: np.ndarray):
        """What stands at the fullest stage of each plan."""
        place = np.expand_dims(self.total.argmax(axis=-1), -1)
        return plain(np.take_along_axis(by_stage, place, -1)[..., 0])

    def __repr__(self):
        if self.total.ndim > 1 or np.ndim(self.capacity):
            fits = np.asarray(self.fits)
            return f"memory of {fits.size:,} plans or cards; {fits.mean():.0%} fit"
        columns = np.arange(self.stages.size)
        if columns.size > _COLUMNS:
            columns = np.unique([0, 1, self.fullest, columns[-1]])
        rows = {words(name): part for name, part in self.parts.items() if part.any()}
        rows["in all"] = self.total
        lines = [f"{'GB on a rank of stage':24}" + "".join(f"{self.stages[i]:>8}" for i in columns)]
        lines += [
            f"{name:24}" + "".join(f"{part[i] / GB:8.2f}" for i in columns) for name, part in rows.items()
        ]
        fits = "fits" if self.fits else "does not fit"
        peak = f"the fullest, stage {self.fullest}, {fits}: {format_memory(self.peak)}"
        return "\n".join([*lines, f"{peak} of {format_memory(self.capacity)}"])


def _added(parts: list[np.ndarray]) -> np.ndarray:
    """The sum of broadcast parts: what is the same along an axis is added up once for all of it."""
    own = [part[tuple(slice(None if step else 1) for step in part.strides)] for part in parts]
    return np.broadcast_to(reduce(np.add, own), parts[0].shape)


def memory(model: Transformer, cluster: Cluster, plan: Plan, conventions: Conventions = USUAL) -> Memory:
    """Peak memory of each stage of a plan, or of the stages that can be the fullest of an array of plans.

    States are sharded over dp x cp ranks (or ``plan.shard_ranks`` of them), those of experts over the ranks
    among these that hold the same experts; where that is one rank, nothing is sharded. Stage 3 gathers a
    layer, and those it prefetches, whole; from stage 2 on the gradients of two layers are there before they
    are scattered, and where gradients are added up in another precision, those of one. A pipeline rank keeps
    the layers of its chunks for every micro-batch in flight. The moment of the peak: all that are in flight,
    and one of them at the loss or in the backward of a layer. Sources are named in what this adds up.

    Without ``stage_layers`` a stage has layers / pp, whole or not: ``problems`` refuses what is not.
    Refused: nouns of another type, and stage_layers that are not those of the plan.

    >>> from labkit.spec import Gpu, Link
    >>> card = Gpu("80 GB card", 80e9, {"bf16": 312e12}, 0.5)
    >>> node = Cluster("node", card, 1, 8, Link(2e-6, 235e9), Link(5e-6, 25e9), 8)
    >>> gpt = Transformer("13B", 40, 5120, 40, 50257, 2048)
    >>> found = memory(gpt, node, Plan(pp=4, dp=2, zero=1, micro_batch=1, accumulation=8))
    >>> found.fullest, found.fits, (found.total / 1e9).round(1).tolist()
    (0, True, [52.3, 45.8, 42.1, 42.2])
    """
    check_nouns(model=model, cluster=cluster, plan=plan)
    noun(conventions, Conventions, "the conventions")
    given = None if plan.stage_layers is None else given_layers(model, plan)
    if plan.single:
        stages = np.arange(plan.pp)
    else:
        stages = _ends_and_second(plan) if given is None else _unlike(given)
    given = None if given is None else given[:, stages]
    plan = plan.with_axis()
    embeds, predicts = has_ends(plan, stages == 0, stages == np.asarray(plan.pp) - 1)
    layers = model.layers / np.asarray(plan.pp, float) if given is None else given.sum(axis=0)
    layer, ends = layer_on_rank(model, plan), end_parameters(model, plan, embeds, predicts)
    parts = _states(plan, conventions.recipe, layers, layer, ends)
    parts |= _activations(model, plan, conventions, layers, given, stages, embeds, predicts)
    parts |= _passing(model, plan, conventions, layers, layer, ends, predicts)
    shape = np.broadcast_shapes(*(np.shape(part) for part in parts.values()), stages.shape)
    parts["communicators"] = conventions.communicator * _groups(model, plan)
    parts = {name: np.broadcast_to(np.asarray(part, float), shape) for name, part in parts.items()}
    parts["slack"] = conventions.slack * _added([parts[name] for name in ALLOCATED])
    broadcasting({"the card": np.shape(cluster.gpu.usable), "the plan": shape[:-1]}, "one memory")
    return Memory({name: parts[name] for name in PARTS}, stages, cluster.gpu.usable)


def _ends_and_second(plan: Plan) -> np.ndarray:
    """First, second and last rank of each pipeline: of equal stages one of these is the fullest."""
    last = np.asarray(plan.pp) - 1
    return np.stack([np.zeros_like(last), np.minimum(1, last), last], axis=-1)


def _unlike(given: np.ndarray) -> np.ndarray:
    """The ends, and of ranks between that have the same layers the first, which keeps most in flight."""
    _, first = np.unique(given[:, 1:-1], axis=1, return_index=True)
    return np.unique([0, *(1 + first), given.shape[1] - 1])


def _states(plan, recipe, layers, layer, ends) -> dict:
    """Parameters, gradients and optimizer states of the layers; all of them of the ends."""
    dense, experts = (bytes_by_state(shards, plan.zero, recipe) for shards in shard_counts(plan))
    parts = {
        name: layers * (np.asarray(layer.dense) * dense[name] + np.asarray(layer.experts) * experts[name])
        for name in dense
    }
    return {**parts, "embedding": np.asarray(ends.total) * sum(map(np.asarray, dense.values()))}


def _activations(model, plan, conventions, layers, given, stages, embeds, predicts) -> dict:
    """What the layers keep of one micro-batch and of the others in flight, and the logits of one."""
    one = layer_activations(model, plan, conventions.packed_qkv, conventions.imbalance)
    around = np.where(plan.sequence_parallel, plan.tp, 1)
    positions = plan.positions(model.sequence)
    # A chunk of layers ends where its stage ends: no group of recomputed layers goes beyond.
    full, every = np.asarray(plan.recompute) == "full", plan.recompute_every
    if given is None:
        chunks = np.where(np.asarray(plan.schedule) == "zb-v", 2, plan.v)
        inputs, group = chunks * np.asarray(checkpoints(layers / chunks, every)), layers / chunks
        sizes = None
    else:
        # Chunks go before the axes of an array of plans.
        given = given.reshape(plan.v, *[1] * (max(full.ndim, np.ndim(every)) - 1), stages.size)
        inputs, group = np.asarray(checkpoints(given, every)), given.max(axis=0)
        sizes = np.where(full, inputs, given)
        inputs = inputs.sum(axis=0)
    kept = np.where(full, inputs * one.boundary, layers * one.kept)
    # Dropout after the embedding keeps a mask, a norm after it its input.
    first = embeds * positions * model.hidden * (model.dropout + 2 * model.embedding_norm) / around
    # The last norm and the head keep their inputs; the head's gradient is made beside that of the logits.
    rows = np.asarray(plan.padded_vocabulary(model.vocabulary)) / np.asarray(plan.tp, float)
    logits = positions * (4 * model.hidden / around + conventions.logit_bytes * rows)
    logits = predicts * (logits + conventions.recipe.weights * model.hidden * rows)
    again = np.where(full, recomputed_bytes(group, every, one.boundary, one.kept), 0.0)
    # The loss and the backward of a layer come one after the other: the larger of the two counts.
    passing = np.maximum(again + one.backward - logits, 0.0) * (layers > 0)
    others = np.maximum(np.asarray(in_flight(plan, stages, sizes)) - 1, 0.0)
    # GPipe has computed all losses before the first backward, and keeps what each needs.
    losses = positions * (4 * model.hidden / around + min(conventions.logit_bytes, _SOFTMAX) * rows)
    waiting = predicts * (np.asarray(plan.schedule) == "gpipe") * losses
    return {
        "activations": kept + first + passing,
        "in_flight": others * (kept + first + waiting),
        "logits": logits,
    }


def _passing(model, plan, conventions, layers, layer, ends, predicts) -> dict:
    """Whole layers of stage 3, and gradients before they are reduced or added up."""
    recipe = conventions.recipe
    dense, experts = (np.asarray(count) for count in shard_counts(plan))
    matrix = np.asarray(end_parameters(model, plan, False, predicts).total)
    whole = np.asarray(layer.dense) * (dense > 1) + np.asarray(layer.experts) * (experts > 1)
    gathered = np.asarray(gathered_layers(layers, plan.prefetch)) * whole + matrix * (dense > 1)
    # Frameworks that add 16-bit gradients up in fp32 first make them for one matrix after the other; experts
    # of a layer share the place of one.
    local = np.maximum(1, model.experts / np.asarray(plan.ep, float))
    added = recipe.all_gradients > recipe.weights
    made = recipe.weights * added * (np.asarray(layer.dense) + np.asarray(layer.experts) / local)
    copies = (np.asarray(count) > 1 for count in replica_counts(plan))
    held = (layers * np.asarray(layer.dense) + ends.total, layers * np.asarray(layer.experts))
    copied = sum(alike * each for alike, each in zip(copies, held, strict=True))
    made = made + conventions.copied_gradients * recipe.gradients * copied
    reduced = (np.asarray(plan.zero) >= 2) & (whole > 0)
    return {
        "gathered": np.where(np.asarray(plan.zero) == 3, recipe.weights * gathered, 0.0),
        "buckets": np.where(reduced, recipe.gradients * np.asarray(whole_gradients(layers)) * whole, made),
        "workspace": conventions.workspace,
    }


def _groups(model, plan):
    """Groups of ranks that a rank communicates in; one of a single rank is none, the same ranks are one."""
    counts = [
        (np.asarray(n), np.asarray(s)) for n, s in zip(replica_counts(plan), shard_counts(plan), strict=True)
    ]
    apart = (np.asarray(plan.ep) > 1) | (np.asarray(plan.expert_tp) != plan.tp)
    sizes = [plan.tp, plan.cp, plan.pp]
    if model.experts:
        sizes += [plan.ep, np.where(np.asarray(plan.expert_tp) != plan.tp, plan.expert_tp, 1)]
    for (same, shards), there in zip(counts, (True, bool(model.experts) & apart), strict=True):
        hybrid = (np.asarray(plan.zero) > 0) & (shards < same)
        sizes += [
            np.where(there, np.where(hybrid, shards, same), 1),
            np.where(there & hybrid, same // shards, 1),
        ]
    return sum(np.asarray(size) > 1 for size in sizes)
