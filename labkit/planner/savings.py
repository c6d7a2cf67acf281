"""What a gigabyte saved costs: sharding stages and recompute, each against what it follows (claim 4.1-i).

Two ladders: plain data parallel, stages 1, 2, 3; and no recompute, selective, full. Bytes saved are those of
``memory`` on the fullest stage, so that gathered layers and gradients on their way count against stage 3.
What it costs is seconds of a step: work that is added, and the part of it that nothing hides. Bytes sent and
seconds of the network are those of ``step_bill``, row by row.
"""

from dataclasses import dataclass
from itertools import pairwise
from math import ceil, isclose

from labkit.planner.bill import step_bill
from labkit.planner.compute import compute_time
from labkit.planner.conventions import USUAL, Conventions
from labkit.planner.memory import memory
from labkit.planner.rank_parameters import most_layers
from labkit.planner.sharding import sharded_layer
from labkit.spec import Cluster, Plan, Transformer
from labkit.spec.checks import noun, without_arrays
from labkit.spec.rules import check_nouns
from labkit.spec.transformer import RECOMPUTE
from labkit.strategies.prefetch import prefetched
from labkit.units import GB

# Rows of the bill that carry gradients and sharded weights, by the first words of their names.
_SHARDING = ("data parallel", "stage 1", "stage 2", "stage 3")


@dataclass(frozen=True, slots=True)
class Saving:
    """One option against the one before it: bytes ``saved`` on a rank, and what a step pays for them.

    ``sent``: more bytes that a rank sends a step, ``seconds``: more work, of the network or of the GPU, and
    ``exposed``: what of it lengthens the step. All may be negative.
    """

    option: str
    after: str
    saved: float
    sent: float
    seconds: float
    exposed: float

    @property
    def work_per_gb(self) -> float:
        """Seconds of added work for each GB saved; infinity where nothing is saved."""
        return self.seconds / (self.saved / GB) if self.saved > 0 else float("inf")

    @property
    def exposed_per_gb(self) -> float:
        """Seconds that the step gets longer for each GB saved; infinity where nothing is saved."""
        return self.exposed / (self.saved / GB) if self.saved > 0 else float("inf")


def savings(
    model: Transformer, cluster: Cluster, plan: Plan, conventions: Conventions = USUAL
) -> list[Saving]:
    """Stages 1 to 3, selective and full recompute on one plan, each the only change to the step before it.

    Bytes saved: what the fullest stage gets emptier, counted by the ``conventions`` of ``memory``. Bytes sent
    and seconds: those of the stage with the most layers, which the others wait for. Collectives are those of
    the bill, over ``shard_ranks`` where shards are hybrid, with the replicas' all_reduce.

    Hidden is what fits under equal layers, over which the bytes of the ends and the compute of the head are
    dealt out: gradients under the backward pass of the last micro-batch, from stage 2 on of each one; stage 3
    in the timeline of ``prefetched``; what replicas reduce, after the last micro-batch's scatters. The
    weights of stages 1 and 2 are gathered after the update and hide nowhere: an implementation may gather
    them under the next forward pass, which is left out. Recompute, and the communication that it repeats, is
    not hidden and hides nothing. A fused attention keeps no scores, so that selective recompute saves
    nothing. Refused: arrays, and what ``sharded_layer`` refuses.

    >>> from labkit.spec import Gpu, Link
    >>> gpt = Transformer("13b", 40, 5120, 40, 50257, 2048)
    >>> nodes = Cluster("8 x 8", Gpu("g", 80e9, {"bf16": 312e12}, 0.5), 8, 8, Link(0, 3e11), Link(0, 5e10), 8)
    >>> plan = Plan(dp=64, micro_batch=1, accumulation=16, fused_attention=False)
    >>> [one.option for one in sorted(savings(gpt, nodes, plan), key=lambda one: one.work_per_gb)]
    ['stage 1', 'selective recompute', 'stage 2', 'stage 3', 'full recompute']
    """
    check_nouns(model=model, cluster=cluster, plan=plan)
    noun(conventions, Conventions, "the conventions")
    without_arrays("a table of savings", model=model, cluster=cluster, plan=plan)
    plain = plan.changed(zero=0, recompute="none")
    layers = ceil(most_layers(model, plan))
    layer = sharded_layer(model, cluster, plain, conventions.recipe)
    head = model.forward_flops(plan.micro_batch)["head"] / (plan.tp * plan.cp) / layers
    forward = layer.forward + compute_time(head, cluster.gpu)
    backward = layer.backward + compute_time(2 * head, cluster.gpu)
    stages = {f"stage {stage}" if stage else "plain data parallel": {"zero": stage} for stage in range(4)}
    modes = {f"{'no' if mode == 'none' else mode} recompute": {"recompute": mode} for mode in RECOMPUTE}
    found = []
    for ladder in (stages, modes):
        plans = (plain.changed(**step) for step in ladder.values())
        rungs = [_rung(model, cluster, one, conventions, (layers, forward, backward)) for one in plans]
        for (after, before), (option, now) in pairwise(zip(ladder, rungs, strict=True)):
            costs = (_more(now[part], before[part]) for part in ("sent", "seconds", "exposed"))
            found.append(Saving(option, after, before["held"] - now["held"], *costs))
    return found


def _more(now: float, before: float) -> float:
    """The difference, without that of two roundings."""
    return 0.0 if isclose(now, before) else now - before


def _rung(model, cluster, plan: Plan, conventions, compute) -> dict[str, float]:
    """Bytes held and sent, and seconds that differ between rungs: the network, and what is computed again."""
    rows = step_bill(model, cluster, plan, recipe=conventions.recipe)
    # Seconds on the network by collective; the reductions of the replicas are all_reduces, as are stage 0's.
    each, others = dict.fromkeys(("all_gather", "reduce_scatter", "all_reduce"), 0.0), 0.0
    for row in rows:
        if row.strategy.split(",")[0] in _SHARDING:
            each[row.collective] += row.seconds(cluster)
        else:
            others += row.seconds(cluster)
    flops = model.hardware_flops(plan.global_batch, recompute=plan.recompute)
    again = flops - model.model_flops(plan.global_batch)  # of layers alone
    share = most_layers(model, plan) / model.layers / (plan.ranks / plan.pp)
    work = others + compute_time(again, cluster.gpu) * share
    return {
        "held": memory(model, cluster, plan, conventions).peak,
        "sent": sum(row.bytes_per_rank for row in rows),
        "seconds": work + sum(each.values()),
        "exposed": work + _exposed(each, plan, *compute),
    }


def _exposed(each: dict[str, float], plan: Plan, layers: int, forward: float, backward: float) -> float:
    """Exposed seconds of a step's gathers, reduce_scatters and all_reduces, dealt out over equal layers."""
    passes = plan.accumulation if plan.zero >= 2 else 1
    gather = each["all_gather"] / (2 * passes * layers) if plan.zero == 3 else 0.0
    scatter, once = each["reduce_scatter"] / (passes * layers), each["all_reduce"] / layers
    before, last = (
        prefetched(layers, forward, backward, gather, sends, plan.prefetch).exposed
        for sends in (scatter, scatter + once)
    )
    after_update = 0.0 if plan.zero == 3 else each["all_gather"]
    return max(passes - 1, 0) * before + last + after_update
