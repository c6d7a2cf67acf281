"""Memory of a pipeline stage under 1F1B: model states, and the activations of the micro-batches in flight."""

from dataclasses import dataclass

import numpy as np

from labkit.errors import InputRefused
from labkit.planner.activations import layer_activation_bytes
from labkit.planner.rank_parameters import STAGES, layers_on_rank, rank_parameters
from labkit.planner.states import state_bytes
from labkit.spec import Plan, Transformer
from labkit.spec.checks import one_of
from labkit.spec.rules import check_nouns
from labkit.units import plain

_LOGIT_BYTES = 4.0  # the logits, and the head's input with its norm: 4 s b (h + V) / t together


@dataclass(frozen=True, slots=True)
class StageMemory:
    """Bytes on one rank: model ``states`` and ``activations``, those of the head included."""

    states: float
    activations: float

    @property
    def total(self):
        """All of it; workspace, fragmentation and communication buffers come on top."""
        return plain(np.asarray(self.states) + self.activations)


def layer_on_plan(model: Transformer, plan: Plan):
    """Bytes of activations that a rank keeps of one layer and micro-batch: ``layer_activation_bytes``."""
    check_nouns(model=model, plan=plan)
    return layer_activation_bytes(
        model.sequence / np.asarray(plan.cp, float),
        plan.micro_batch,
        model.hidden,
        model.heads,
        plan.tp,
        plan.sequence_parallel,
        plan.recompute,
    )


def stage_memory(model: Transformer, plan: Plan, stage: str) -> StageMemory:
    """Memory of a rank of the ``first``, fullest ``interior`` or ``last`` stage; of array plans, arrays.

    Stage i of p keeps min(m, p - i) micro-batches of its layers ("1F1B": Narayanan et al. 2021, section 2.2),
    so the first stage of an even pipeline keeps one micro-batch of **all** layers however many stages there
    are. Full recompute adds the working set of one layer. The head adds 4 s b (h + V)/t on the last stage
    (Korthikanti et al. 2022, section 4.3). Refused: a schedule other than plain 1F1B.
    """
    check_nouns(model=model, plan=plan)
    one_of(STAGES, stage, "the stage of a pipeline", arrays=False)
    if not np.all((np.asarray(plan.schedule) == "1f1b") & (np.asarray(plan.v) == 1)):
        raise InputRefused("this counts the memory of plain 1F1B; leave schedule and v of the plan out")
    held = rank_parameters(model, plan, stage)
    shards = np.asarray(plan.dp) * plan.cp
    states = np.asarray(held.dense) * state_bytes(1.0, shards, plan.zero)
    if model.experts:
        same = np.maximum(1, np.asarray(plan.tp) * shards // (np.asarray(plan.ep) * plan.expert_tp))
        states = states + np.asarray(held.experts) * state_bytes(1.0, same, plan.zero)
    pp, m = np.asarray(plan.pp), np.asarray(plan.accumulation)
    behind = {"first": pp, "interior": pp - 1, "last": np.ones_like(pp)}[stage]
    kept = np.minimum(m, np.maximum(behind, 1)) * np.asarray(layers_on_rank(model, plan, stage))
    activations = kept * layer_on_plan(model, plan)
    again = np.asarray(plan.recompute) == "full"
    activations = activations + np.where(again, _working_set(model, plan), 0.0)
    tokens = np.asarray(plan.micro_batch) * model.sequence / np.asarray(plan.cp, float)
    head = _LOGIT_BYTES * tokens * (model.hidden + model.vocabulary) / np.asarray(plan.tp)
    predicts = (stage == "last") | (pp == 1)
    return StageMemory(plain(states), plain(activations + np.where(predicts, head, 0.0)))


def _working_set(model, plan):
    """What one layer keeps while its forward is repeated for its backward."""
    s = model.sequence / np.asarray(plan.cp, float)
    return layer_activation_bytes(
        s, plan.micro_batch, model.hidden, model.heads, plan.tp, plan.sequence_parallel, "selective"
    )


def peak_memory(model: Transformer, plan: Plan) -> StageMemory:
    """The memory of the fullest stage."""
    check_nouns(model=model, plan=plan)
    # In an even pipeline the interior holds no more than the first stage, and fewer micro-batches.
    stages = STAGES if plan.stage_layers is not None else ("first", "last")
    first, *others = (stage_memory(model, plan, stage) for stage in stages)
    states, activations = np.asarray(first.states), np.asarray(first.activations)
    for other in others:
        more = np.asarray(other.total) > states + activations
        states = np.where(more, other.states, states)
        activations = np.where(more, other.activations, activations)
    return StageMemory(plain(states), plain(activations))
