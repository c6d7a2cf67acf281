"""What a gigabyte saved costs: sharding stages and recompute, each against what it follows (claim 4.1-i).

Two ladders: plain data parallel, stages 1, 2, 3; and no recompute, selective, full. Bytes saved are those of
``memory`` on the fullest stage, so that gathered layers and gradients on their way count against stage 3.
What it costs is seconds of a step: work that is added, and the part of it that nothing hides.
"""

from dataclasses import dataclass

import numpy as np

from labkit.errors import InputRefused
from labkit.planner.compute import compute_time
from labkit.planner.memory import memory
from labkit.planner.rank_parameters import layers_on_rank
from labkit.planner.sharding import ShardedLayer, sharded_layer
from labkit.spec import Cluster, Plan, Transformer
from labkit.spec.rules import check_nouns
from labkit.strategies.prefetch import prefetched
from labkit.units import GB


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


def savings(model: Transformer, cluster: Cluster, plan: Plan) -> list[Saving]:
    """Stages 1 to 3, selective and full recompute on one plan, each the only change to the step before it.

    Communication is that of equal layers, one after the other: gradients hide under the backward pass of the
    last micro-batch, from stage 2 on of each one; the weights of stages 1 and 2 are gathered after the update
    and hide nowhere; stage 3 is the timeline of ``prefetched``. Recompute is not hidden. A fused attention
    keeps no scores, so that selective recompute saves nothing. The ends of the model and tensor parallel's
    own communication are left out of the seconds. Refused: an array of plans.

    >>> from labkit.spec import Gpu, Link
    >>> gpt = Transformer("13b", 40, 5120, 40, 50257, 2048)
    >>> nodes = Cluster("8 x 8", Gpu("g", 80e9, {"bf16": 312e12}, 0.5), 8, 8, Link(0, 3e11), Link(0, 5e10), 8)
    >>> plan = Plan(dp=64, micro_batch=1, accumulation=16, fused_attention=False)
    >>> [one.option for one in sorted(savings(gpt, nodes, plan), key=lambda one: one.work_per_gb)]
    ['stage 1', 'selective recompute', 'stage 2', 'stage 3', 'full recompute']
    """
    check_nouns(model=model, cluster=cluster, plan=plan)
    if not plan.single:
        raise InputRefused("savings are those of one plan; give single numbers, not arrays")
    found = []
    ladder = [plan.changed(zero=stage, recompute="none") for stage in range(4)]
    layers = int(np.ceil(layers_on_rank(model, plan, "first")))
    one = sharded_layer(model, cluster, ladder[0])
    bills = [_sharding(one, layers, plan, stage) for stage in range(4)]
    held = [memory(model, cluster, step).peak for step in ladder]
    for stage in (1, 2, 3):
        more = (after - before for before, after in zip(bills[stage - 1], bills[stage], strict=True))
        name = f"stage {stage - 1}" if stage > 1 else "plain data parallel"
        found.append(Saving(f"stage {stage}", name, held[stage - 1] - held[stage], *more))
    modes = ("none", "selective", "full")
    ladder = [plan.changed(zero=0, recompute=mode) for mode in modes]
    held = [memory(model, cluster, step).peak for step in ladder]
    flops = [model.hardware_flops(plan.global_batch, recompute=mode) for mode in modes]
    for step in (1, 2):
        more = compute_time(flops[step] - flops[step - 1], cluster.gpu) / plan.ranks
        name = f"{modes[step - 1]} recompute" if step > 1 else "no recompute"
        found.append(Saving(f"{modes[step]} recompute", name, held[step - 1] - held[step], 0.0, more, more))
    return found


def _sharding(one: ShardedLayer, layers: int, plan: Plan, stage: int) -> tuple[float, float, float]:
    """Bytes sent, seconds on the network and exposed seconds of a step at a sharding stage."""
    m, ring = plan.accumulation, (one.ranks - 1) / one.ranks
    gathers, scatters = {0: (0, 2), 1: (1, 1), 2: (1, m), 3: (2 * m, m)}[stage]
    sent = layers * ring * (gathers * one.weights + scatters * one.gradients)
    seconds = layers * (gathers * one.gather + scatters * one.scatter)
    if stage == 3:
        times = (one.forward, one.backward, one.gather, one.scatter)
        return sent, seconds, m * prefetched(layers, *times, plan.prefetch).exposed
    # An all_reduce is a reduce_scatter and an all_gather.
    reduced = 2 * one.scatter if stage == 0 else one.scatter
    passes = m if stage == 2 else 1
    exposed = passes * prefetched(layers, one.forward, one.backward, 0.0, reduced).exposed
    return sent, seconds, exposed + gathers * layers * one.gather
