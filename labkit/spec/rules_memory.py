"""Rules of memory: do sharding and recompute do what the plan asks of them, and at what price?"""

import numpy as np

from labkit.spec.hardware import Cluster
from labkit.spec.plan import Plan
from labkit.spec.replicas import shard_counts
from labkit.spec.rule import ADVICE, IMPOSSIBLE, Rule, WayOut, counted, divisors, nearest, use
from labkit.spec.transformer import Transformer
from labkit.units import digits


def shard_ranks(model: Transformer, cluster: Cluster, plan: Plan):
    """Sets of shards are of one size: ``shard_ranks`` divides dp x cp."""
    if plan.shard_ranks is None:
        return np.asarray(False)
    return np.asarray(plan.dp) * plan.cp % plan.shard_ranks != 0


def _shard_ranks(model, cluster, plan):
    same, shards = plan.dp * plan.cp, plan.shard_ranks
    return (
        f"shard_ranks = {shards} does not divide dp {plan.dp} x cp {plan.cp} = {counted(same, 'rank')}: "
        f"{same} mod {shards} = {same % shards}",
        [
            *use("shard_ranks", nearest(shards, divisors(same))),
            WayOut("leave it out to shard over all", ({"shard_ranks": None},)),
        ],
    )


def nothing_to_shard(model: Transformer, cluster: Cluster, plan: Plan):
    """Sharding spreads states over ranks that would hold the same ones; one rank alone has none to share."""
    return (np.asarray(plan.zero) > 0) & ~_shared(model, plan)


def _shared(model: Transformer, plan: Plan):
    """Whether more than one rank shares the states, or those of experts, which all of tp may hold."""
    ranks, of_experts = map(np.asarray, shard_counts(plan))
    return (ranks > 1) | ((model.experts > 0) & (of_experts > 1))


def _nothing_to_shard(model, cluster, plan):
    same = plan.dp * plan.cp
    wider = {"dp": 2} if same == 1 else {}
    if plan.shard_ranks is not None:
        wider["shard_ranks"] = None
    why = "dp x cp = 1" if same == 1 else f"shard_ranks = {plan.shard_ranks}"
    words = "use dp = 2 or more" if same == 1 else "leave it out to shard over all of dp x cp"
    return (
        f"zero = {plan.zero} with {why} shards nothing: each rank keeps all of its states, as with zero = 0",
        [WayOut(words, (wider,)), *use("zero", [0])],
    )


def sharded_gradients(model: Transformer, cluster: Cluster, plan: Plan):
    """From stage 2 on gradients are reduced for every micro-batch, and stage 3 gathers for each as well."""
    return (np.asarray(plan.zero) >= 2) & (np.asarray(plan.accumulation) > 1) & _shared(model, plan)


def _sharded_gradients(model, cluster, plan):
    m, deep = plan.accumulation, plan.zero == 3
    also = " and gathers parameters twice" if deep else ""
    refused = ", and some frameworks refuse it with a pipeline" if plan.pp > 1 else ""
    return (
        f"zero = {plan.zero} reduces gradients{also} for each of {counted(m, 'micro-batch')}: "
        f"{digits(3 * m if deep else m + 1, 4)} units of S(N-1)/N a step, not the 2 of zero = 1{refused}",
        [WayOut("use zero = 1 where its states fit", ({"zero": 1},))],
    )


def layers_per_checkpoint(model: Transformer, cluster: Cluster, plan: Plan):
    """More layers than one counts under full recompute alone, and up to the layers of a (virtual) stage."""
    every = np.asarray(plan.recompute_every)
    return (every > 1) & ((np.asarray(plan.recompute) != "full") | (every > _longest_stage(model, plan)))


def _longest_stage(model: Transformer, plan: Plan):
    """Layers of the longest (virtual) stage, at least 1."""
    if plan.stage_layers is not None:
        return max((1, *plan.stage_layers))
    return -(-model.layers // (np.asarray(plan.pp) * plan.v))


def _layers_per_checkpoint(model, cluster, plan):
    every, most = plan.recompute_every, int(_longest_stage(model, plan))
    single = use("recompute_every", [1])
    if plan.recompute != "full":
        full = {"recompute": "full", "recompute_every": min(every, most)}
        words = "use recompute='full'" + (f" with recompute_every = {most}" if every > most else "")
        return (
            f"recompute_every = {every} does nothing with recompute='{plan.recompute}', which keeps no "
            "checkpoints of layers",
            [*single, WayOut(words, (full,))],
        )
    kind = "virtual stage" if plan.v > 1 else "stage"
    return (
        f"recompute_every = {every} is more than the {counted(most, 'layer')} of a {kind}: it keeps one "
        f"checkpoint a {kind}, as {most} does",
        use("recompute_every", [most] if most == 1 else [1, most]),
    )


RULES = (
    Rule("shard ranks", IMPOSSIBLE, shard_ranks, _shard_ranks),
    Rule("nothing to shard", ADVICE, nothing_to_shard, _nothing_to_shard),
    Rule("sharded gradients", ADVICE, sharded_gradients, _sharded_gradients),
    Rule("layers per checkpoint", ADVICE, layers_per_checkpoint, _layers_per_checkpoint),
)
