"""Sharded data parallel on a plan: is this network enough for stage 3, from what batch on, and hybrids.

``labkit.strategies.prefetch`` has the timeline in plain seconds; here a model, a cluster and a plan say what
a layer's compute, gather and reduce_scatter take. Every number of the plan may be an array.
"""

from dataclasses import dataclass, replace

import numpy as np

from labkit.errors import InputRefused
from labkit.planner.compute import compute_time
from labkit.planner.plan_seats import expert_data_seats, plan_seats, shard_seats
from labkit.planner.rank_parameters import layer_on_rank, layers_on_rank
from labkit.planner.states import MIXED, Recipe
from labkit.planner.traffic import BillRow, Seats, Workload, bill_row, data_parallel, seats, sharded
from labkit.spec import Cluster, Link, Plan, Transformer
from labkit.spec.checks import amount, noun, shown, together, whole
from labkit.spec.replicas import shard_counts
from labkit.spec.rules import check_nouns
from labkit.strategies.prefetch import Prefetched, break_even_bandwidth, prefetched
from labkit.units import plain


def hybrid(work: Workload, shards, replicas, stage=3, *, bucket=None, stride=1, domain=8) -> list[BillRow]:
    """Sharding over ``shards`` neighbours and ``replicas`` of that: the rows of ``sharded``, and one between.

    Both are numbers of ranks, or ``Seats``. Once a step, the replicas all_reduce the gradients of their
    shard, in buckets of ``bucket`` bytes where it is given. States are divided by ``shards``, and most bytes
    stay among neighbours. Zhao et al. (2023, PyTorch FSDP), section 3.2.2.

    >>> for row in hybrid(Workload(13e9, 40, 5120, 2048), 8, 8):
    ...     print(row.collective, f"{row.bytes_per_rank / 1e9:.4g} GB", row.link)
    all_gather 45.5 GB inside
    reduce_scatter 22.75 GB inside
    all_reduce 5.688 GB across
    """
    noun(work, Workload, "the work")
    together("hybrid sharding", work=work, shards=shards, replicas=replicas, stride=stride, domain=domain)
    if not (isinstance(shards, Seats) and isinstance(replicas, Seats)):
        shards, replicas, stride = (
            np.asarray(whole(number, name, arrays=True))
            for number, name in (
                (shards, "the ranks of a set of shards"),
                (replicas, "the number of replicas"),
                (stride, "the stride of a group"),
            )
        )
        replicas = seats(plain(replicas), plain(shards * stride), domain)
        shards = seats(plain(shards), plain(stride), domain)
    shard = replace(work, parameters=work.parameters / shards.ranks)
    return sharded(work, shards, stage, bucket=bucket) + data_parallel(shard, replicas, bucket=bucket)


@dataclass(frozen=True, slots=True)
class ShardedLayer:
    """One layer of one micro-batch on a rank under stage 3: seconds, bytes, and the ring that carries it.

    ``weights``, ``gradients``: bytes of the gathered layer. The ring has ``ranks``, takes ``latency`` seconds
    for a gather of no bytes, and moves ``bandwidth`` bytes/s out of each rank beside that.
    """

    forward: float
    backward: float
    gather: float
    scatter: float
    weights: float
    gradients: float
    ranks: int
    latency: float
    bandwidth: float


def sharded_layer(model: Transformer, cluster: Cluster, plan: Plan, recipe: Recipe = MIXED) -> ShardedLayer:
    """What prefetch has to hide, and under what, for one layer of a model on a cluster.

    Forward: FLOPs of a layer, attention scores included, at the reached share of peak, divided over tp x cp;
    backward twice that, and what is recomputed. Gather and reduce_scatter: a ring over the ranks that share
    a set of shards. ``recipe`` gives the bytes of a weight and of a gradient. The head and the embedding are
    left out, and tensor parallel's own communication. ``plan.zero`` is not looked at: the question is what
    stage 3 would be like. Refused: experts that are sharded over other ranks than the rest of a layer.
    """
    check_nouns(model=model, cluster=cluster, plan=plan)
    noun(recipe, Recipe, "the recipe")
    together("one layer", cluster=cluster, plan=plan)
    counts = shard_counts(plan)
    at, _ = shard_seats(plan_seats(plan, "cp", "dp", domain=cluster.domain), counts[0])
    if model.experts:
        _check_experts(plan, at, shard_seats(expert_data_seats(plan, cluster.domain), counts[1])[0])
    share = model.layers * np.asarray(plan.tp, float) * plan.cp
    flops = model.forward_flops(plan.micro_batch)
    forward = (sum(map(np.asarray, flops.values())) - flops["head"]) / share
    done = model.hardware_flops(plan.micro_batch, recompute=plan.recompute)
    again = (np.asarray(done) - model.model_flops(plan.micro_batch)) / share
    held = np.asarray(layer_on_rank(model, plan).total)
    weights, gradients = held * recipe.weights, held * recipe.gradients
    gather, scatter, latency = (
        np.asarray(bill_row("stage 3", collective, size, 1, at).seconds(cluster))
        for collective, size in (("all_gather", weights), ("reduce_scatter", gradients), ("all_gather", 0.0))
    )
    ranks = np.asarray(at.ranks)
    with np.errstate(invalid="ignore", divide="ignore"):
        bandwidth = np.where(ranks > 1, weights * (ranks - 1) / ranks / (gather - latency), np.inf)
    values = (
        compute_time(forward, cluster.gpu),
        compute_time(2 * forward + again, cluster.gpu),
        gather,
        scatter,
        weights,
        gradients,
        ranks,
        latency,
        bandwidth,
    )
    return ShardedLayer(*map(plain, values))


def _check_experts(plan: Plan, at: Seats, experts_at: Seats) -> None:
    """Refuses plans whose experts are gathered over other ranks than the rest of a layer."""
    pairs = ((at.ranks, experts_at.ranks), (at.members, experts_at.members))
    if any(np.any(np.asarray(one) != other) for one, other in pairs):
        degrees = f"with tp {shown(plan.tp)}, ep {shown(plan.ep)} and etp {shown(plan.expert_tp)}"
        raise InputRefused(
            f"{degrees} a layer's experts and the rest of it are gathered over different ranks; this knows "
            "one group of shards, so use ep = 1 and etp = tp"
        )


def stage_three(
    model: Transformer, cluster: Cluster, plan: Plan, recipe: Recipe = MIXED, keep_last=False
) -> Prefetched:
    """One micro-batch of stage 3 on one rank, ``plan.prefetch`` layers gathered ahead; a step has m of them.

    On a pipeline that of the first stage. ``keep_last``: see ``prefetched``. Refused: what ``sharded_layer``
    refuses, and plans with different depths of prefetch or numbers of layers on a rank.
    """
    one = sharded_layer(model, cluster, plan, recipe)
    layers, depth = (
        np.unique(np.ceil(number)) for number in (layers_on_rank(model, plan, "first"), plan.prefetch)
    )
    if layers.size > 1 or depth.size > 1:
        raise InputRefused(
            "a timeline has one depth of prefetch and one number of layers; give plans alike in both"
        )
    times = (one.forward, one.backward, one.gather, one.scatter)
    return prefetched(int(layers[0]), *times, int(depth[0]), keep_last)


@dataclass(frozen=True, slots=True)
class BreakEven:
    """Whether a network is enough for stage 3: bytes/s out of a rank, and tokens per rank and micro-batch.

    ``has``: the bandwidth of the ring as it is; ``needs``: from which on a prefetched layer hides at this
    batch (infinity: at none, because latency is too long). ``tokens``: those of this batch, and
    ``enough_tokens``: from which on this network hides it.
    """

    has: float
    needs: float
    tokens: float
    enough_tokens: float

    @property
    def enough(self):
        """Whether all but the first gather and the last reduce_scatter of a micro-batch hides."""
        return plain(np.asarray(self.tokens) >= self.enough_tokens)


def break_even(model: Transformer, cluster: Cluster, plan: Plan, recipe: Recipe = MIXED) -> BreakEven:
    """The bandwidth and the batch from which on stage 3 hides on this cluster: claim 4.1-c, solved.

    Compute grows with the micro-batch and the gathers do not, so there is always an ``enough_tokens``, at
    the sequence length of the model.

    >>> from labkit.spec import Gpu
    >>> gpt = Transformer("13b", 40, 5120, 40, 50257, 2048)
    >>> nodes = Cluster("8 x 8", Gpu("g", 80e9, {"bf16": 312e12}, 0.5), 8, 8, Link(0, 3e11), Link(0, 5e10), 8)
    >>> found = break_even(gpt, nodes, Plan(dp=64, micro_batch=1, zero=3))
    >>> f"{found.needs / 1e9:.1f} of {found.has / 1e9:.0f} GB/s, {found.enough_tokens:.0f} tokens"
    '70.3 of 343 GB/s, 420 tokens'
    """
    one = sharded_layer(model, cluster, plan, recipe)
    rounds = np.maximum(np.asarray(one.ranks) - 1, 1)
    needs = break_even_bandwidth(
        one.forward, one.backward, one.weights, one.gradients, one.ranks, np.asarray(one.latency) / rounds
    )
    tokens = np.asarray(plan.micro_batch, float) * model.sequence / plan.cp
    both = np.asarray(one.gather) + one.scatter
    times = np.maximum(np.asarray(one.gather) / one.forward, both / one.backward)
    return BreakEven(one.bandwidth, needs, plain(tokens), plain(tokens * times))


def latency_passes(weights, link: Link):
    """Ranks from which on a ring gather of a layer spends more on latency than on bytes: W / (alpha B).

    N alpha B is the size at which both are equal (``bucket_for_share``), so stage 3's 3 L m (N - 1) latencies
    a step pass its bandwidth term there, whatever L and m: claim 4.1-h. Infinity without latency.

    >>> round(latency_passes(0.63e9, Link(5e-6, 50e9)))
    2520
    """
    noun(link, Link, "the link")
    together("a gather", weights=weights, link=link)
    weights, alpha = amount(weights, "the bytes of a layer's weights"), np.asarray(link.alpha, float)
    with np.errstate(divide="ignore", invalid="ignore"):
        return plain(np.where(alpha == 0, np.inf, weights / (alpha * link.bandwidth)))
