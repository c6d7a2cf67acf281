"""The ten rows of the guide's table in words and numbers, for one plan and what was looked at on the way."""

from dataclasses import dataclass

import numpy as np

from labkit.planner.activations import layer_on_plan
from labkit.planner.candidates import TIGHT, Candidate
from labkit.planner.memory import RankMemory, memory
from labkit.planner.rank_parameters import layer_on_rank
from labkit.planner.states import state_bytes
from labkit.spec import Cluster, Plan, Transformer
from labkit.spec.rule import counted
from labkit.spec.rules_batch import ENOUGH_MICRO_BATCHES, ENOUGH_SAMPLES
from labkit.strategies.pipeline import bubble_share
from labkit.units import format_bytes, format_share

# In the guide's order, with the sections that each rests on.
JUDGEMENTS = {
    "A whole replica fits a card": "3.1",
    "Only optimizer or gradients are too much": "4.1",
    "Activations take too much": "4.2, 6.3",
    "Layers have to be cut": "3.2, 3.4",
    "A pipeline is needed as well": "3.3, 3.4",
    "Cards are left": "3.4",
    "The global batch is large enough": "3.4",
    "It fits in no way so far": "4.1",
    "The model has experts": "3.4",
    "Ranks and topology agree": "5.1",
}


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table: a ``judgement``, its ``condition`` in numbers, whether it ``holds``, what to do.

    ``source``: the sections of the guide it rests on. ``load``: what the condition compares, in multiples of
    the room there is; NaN where it is no matter of bytes.
    """

    number: int
    judgement: str
    condition: str
    holds: bool
    action: str
    source: str
    load: float = float("nan")


@dataclass(frozen=True, slots=True)
class Looked:
    """What was looked at. ``alone``: data parallel alone, by stage of sharding; ``shared``: whether the batch
    divides over all cards. ``runs``: whether one of the cuts ``tried`` last does; ``leanest``: bytes of the
    leanest of those tried before, none of which fits.
    """

    alone: RankMemory
    shared: bool
    runs: bool
    tried: list[Candidate]
    leanest: float = np.inf


@dataclass(frozen=True, slots=True)
class Rows:
    """What the rows are worded from: the plan, its cut, what was looked at for it and for what was asked."""

    model: Transformer
    cluster: Cluster
    plan: Plan
    cut: Candidate
    needs: str
    looked: Looked
    asked: Looked
    capacity: float

    def all(self) -> tuple[Row, ...]:
        """The ten rows in order."""
        rows = (
            self._alone(),
            self._sharding(),
            self._activations(),
            self._layers(),
            self._stages(),
            self._replicas(),
            self._batch(),
            self._stage_three(),
            self._experts(),
            self._topology(),
        )
        said = zip(JUDGEMENTS.items(), rows, strict=True)
        return tuple(
            Row(number, judgement, condition, holds, action, source, *load)
            for number, ((judgement, source), (condition, holds, action, *load)) in enumerate(said, 1)
        )

    def _of(self, size: float) -> str:
        return f"{format_bytes(size)} of {format_bytes(self.capacity)}"

    def _alone(self):
        states, total = float(self.asked.alone.states[0]), float(self.asked.alone.total[0])
        holds = total <= self.capacity and self.asked.shared
        return (
            f"states {format_bytes(states)} + {format_bytes(total - states)} = {self._of(total)}",
            holds,
            "data parallel alone, gradients in buckets" if holds else "go on",
            total / self.capacity,
        )

    def _sharding(self):
        plan = self.plan
        one, two = (float(self.asked.alone.total[stage]) for stage in (1, 2))
        holds = plan.model_ranks == 1 and plan.zero in (1, 2)
        if holds:
            action = f"stage {plan.zero} of sharding, nothing is cut"
        elif plan.model_ranks == 1:
            action = "not needed"
        else:
            action = "stage 1 all the same: it sends no more" if plan.zero == 1 else "nothing to shard yet"
        return (
            f"stage 1 {format_bytes(one)}, stage 2 {self._of(two)}",
            holds,
            action,
            (one if plan.zero < 2 else two) / self.capacity,
        )

    def _activations(self):
        plan, held = self.plan, self.cut.memory
        without = memory(self.model, self.cluster, plan.changed(recompute="none", sequence_parallel=False))
        kept, room = without.at_peak.activations, self.capacity - held.states - held.others
        holds = kept > room
        means = [f"{plan.recompute} recompute"] * (plan.recompute != "none")
        means += ["sequence parallel"] * plan.sequence_parallel
        action = f"{', '.join(means)}: {format_bytes(held.activations)}" if means else "keep them"
        return (
            f"{format_bytes(kept)} without means against it, room for {format_bytes(room)}",
            holds,
            action
            if holds or plan.recompute != "none"
            else "keep them" + ", sequence parallel with tp" * bool(means),
            kept / room,
        )

    def _layers(self):
        plan, model = self.plan, self.model
        alone = Plan(micro_batch=plan.micro_batch, fused_attention=plan.fused_attention)
        layer = state_bytes(layer_on_rank(model, alone).total) + layer_on_plan(model, alone)
        thin = self.cut.thin  # thin stages are no way out where the plan has none
        uncut = [one.memory.total for one in self.looked.tried if one.tp == 1 and one.thin <= thin]
        least = min(uncut, default=np.nan)
        asks = {"global batch": "the batch asks", "layer": "a layer asks"}
        why = asks.get(self.needs, f"{self.needs} ask, not the layer")
        return (
            f"one {format_bytes(layer)}; uncut at best {self._of(least)}",
            plan.tp > 1,
            f"tp = {plan.tp}, {counted(model.heads // plan.tp, 'head')} each: {why}"
            if plan.tp > 1
            else "tp = 1",
            least / self.capacity,
        )

    def _stages(self):
        plan = self.plan
        one = [one.memory.total for one in self.looked.tried if one.tp == plan.tp and one.pp == 1]
        total = one[0] if one else self.cut.memory.total
        action = "pp = 1, no bubble"
        if plan.pp > 1:
            layers, m = -(-self.model.layers // plan.pp), plan.accumulation
            thin = f", thin (< {TIGHT})" * (layers < TIGHT)
            short = f" (< {ENOUGH_MICRO_BATCHES} p)" * (m < ENOUGH_MICRO_BATCHES * plan.pp)
            bubble = format_share(bubble_share(plan.pp, m))
            action = f"pp = {plan.pp}: {counted(layers, 'layer')}{thin}; m = {m}{short}, bubble {bubble}"
        return (
            f"without stages {self._of(total)}",
            plan.pp > 1,
            action,
            total / self.capacity,
        )

    def _replicas(self):
        plan = self.plan
        return (
            f"{plan.ranks:,} / ({plan.tp} x {plan.pp}) = {counted(plan.dp, 'replica')}",
            plan.dp > 1,
            f"dp = {plan.dp}" if plan.dp > 1 else "dp = 1: one replica takes them all",
        )

    @property
    def _batch_decides(self) -> bool:
        """Whether a coarser cut fits too, but not with replicas that share the batch evenly."""
        plan, fits = self.plan, np.asarray(self.asked.alone.total) <= self.capacity
        coarser = [
            one for one in self.looked.tried if one.tp * one.pp < plan.model_ranks and not one.whole_batch
        ]
        alone = plan.model_ranks > 1 and not self.asked.shared and bool(fits.any())
        return alone or any(one.memory.total <= self.capacity for one in coarser)

    def _batch(self):
        plan = self.plan
        each = plan.global_batch / plan.dp
        action = "enough"
        if self._batch_decides:
            action = f"not for more replicas: dp = {plan.dp}"
        elif each < ENOUGH_SAMPLES:
            action = f"it runs; better {ENOUGH_SAMPLES} a replica"
        return (
            f"{counted(each, 'sequence')} a replica, in {counted(plan.accumulation, 'micro-batch')} of "
            f"{plan.micro_batch}",
            each >= ENOUGH_SAMPLES,
            action,
        )

    def _stage_three(self):
        holds = self.plan.zero == 3
        total = self.looked.leanest if holds and np.isfinite(self.looked.leanest) else self.cut.memory.total
        return (
            f"{'at best' if holds else 'the fullest rank has'} {self._of(total)}",
            holds,
            f"stage 3, a layer ahead: {format_bytes(self.cut.memory.total)}" if holds else "not needed",
            total / self.capacity,
        )

    def _experts(self):
        model, plan = self.model, self.plan
        if not model.experts:
            return "none", False, "nothing to spread"
        each = counted(model.experts // plan.ep, "expert")
        return (
            f"{model.experts}, a token visits {model.top_k}",
            True,
            f"ep = {plan.ep}, {each} a rank; set a capacity",
        )

    def _topology(self):
        plan, domain = self.plan, self.cluster.domain
        inside = not plan.crosses("tp", domain)
        place = "inside" if inside else "beyond"
        return (
            f"{plan.tp} x {plan.pp} x {plan.dp} = {plan.ranks:,} GPUs; tp {place} {domain}",
            inside and plan.ranks == self.cluster.n_gpus,
            "it runs: check the mapping, then tune",
        )
