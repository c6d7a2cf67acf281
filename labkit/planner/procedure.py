"""The guide's table of decisions, row by row, from a model and a cluster to a plan that runs.

Ten questions in the order of section 5.2, each answered with the numbers of this model on this cluster. Data
parallel alone comes first, with the sharding that it needs; then cuts, recomputing only where no cut fits
without. The cut itself is that of ``labkit.planner.decide``: the rows choose its options and explain
it, and never choose another. What comes out runs; ``labkit.planner.tuning`` makes it fast.
"""

from dataclasses import dataclass, replace

import numpy as np

from labkit.planner.candidates import candidates, choose
from labkit.planner.decide import what_tensor_parallel_is_for
from labkit.planner.memory import RankMemory, memory
from labkit.planner.procedure_rows import Looked, Row, Rows
from labkit.spec import Cluster, Plan, Transformer
from labkit.spec.checks import amount, noun, whole
from labkit.spec.rule import divisors
from labkit.spec.rules import check_nouns
from labkit.units import digits, wrapped

STAGES = (0, 1, 2)  # of sharding, tried for data parallel alone
# What is tried for a cut, in turn: full recompute costs a third more compute, stage 3 gathers layers for
# every micro-batch. Selective recompute saves something only where attention scores are kept.
CUTS = tuple({"zero": zero, "recompute": mode} for zero in (1, 3) for mode in ("none", "selective", "full"))


@dataclass(frozen=True, slots=True, repr=False)
class Procedure:
    """The ten rows, and the plan that they lead to: it is possible and fits.

    ``memory``: of its fullest rank; ``needs``: what asks for its tensor parallel, as in ``Decision``.
    """

    title: str
    rows: tuple[Row, ...]
    plan: Plan
    memory: RankMemory
    needs: str

    def __repr__(self):
        lines = [self.title]
        for row in self.rows:
            said = "yes" if row.holds else "no"
            lines.append(
                f"{row.number:>2} {row.judgement}? {row.condition}: {said} -> {row.action} ({row.source})"
            )
        return "\n".join(part for line in lines for part in wrapped(line, indent="   "))


def procedure(
    model: Transformer,
    cluster: Cluster,
    global_batch: int,
    micro_batch: int = 1,
    *,
    fused_attention: bool = True,
    max_memory: float | None = None,
) -> Procedure:
    """The table's ten answers and its plan on all GPUs of the cluster, in plain 1F1B.

    Data parallel alone at the first of ``STAGES`` that fits in ``max_memory`` bytes a card (all that the card
    leaves to a job, unless given) and shares the batch evenly; else the cut that ``decide`` makes with the
    first options of ``CUTS`` that allow one; else the same with smaller micro-batches. Refused, in one
    sentence: a model that does not fit however it is cut, and a batch that no cut can share.

    >>> from labkit.spec import Gpu, Link
    >>> card = Gpu("80 GB card", 80e9, {"bf16": 312e12}, 0.5)
    >>> nodes = Cluster("8 x 8", card, 8, 8, Link(2e-6, 235e9), Link(5e-6, 25e9), 8)
    >>> gpt = Transformer("13B", 40, 5120, 40, 50257, 2048, learned_positions=2048)
    >>> found = procedure(gpt, nodes, global_batch=512)
    >>> [row.number for row in found.rows if row.holds], found.plan.zero, found.plan.dp
    ([2, 6, 7, 10], 1, 64)
    """
    check_nouns(model=model, cluster=cluster)
    micro_batch = whole(micro_batch, "micro_batch of a plan")
    capacity = cluster.gpu.usable if max_memory is None else max_memory
    capacity = float(amount(capacity, "max_memory, in bytes of a card,", endless=True, arrays=False))
    asked = None
    for micro in divisors(micro_batch)[::-1]:
        options = {"global_batch": global_batch, "micro_batch": micro, "fused_attention": fused_attention}
        looked = _look(model, cluster, options, capacity)
        asked = asked or looked  # the rows tell of the micro-batch that was asked for
        if looked.runs:
            break
    chosen = choose(model, cluster, looked.tried, capacity)  # or its sentence, where nothing runs
    needs, _ = what_tensor_parallel_is_for(model, looked.tried, chosen, capacity)
    plan = chosen.plan
    if plan.dp == 1 and not model.experts:
        plan = plan.changed(zero=0)  # one replica has nothing to shard
    rows = Rows(model, cluster, plan, chosen, needs, looked, asked, capacity).all()
    title = (
        f"{model.name} ({digits(model.parameters / 1e9)} B) on {cluster.n_gpus} x {cluster.gpu.name}, "
        f"{global_batch} x {model.sequence} tokens: {named(plan)}, zero {plan.zero}, recompute "
        f"{plan.recompute}"
    )
    return Procedure(title, rows, plan, chosen.memory, needs)


def named(plan: Plan) -> str:
    """The degrees of a plan.

    >>> named(Plan(tp=4, pp=2, dp=8)), named(Plan(dp=64))
    ('TP 4 x PP 2 x DP 8', 'DP 64')
    """
    noun(plan, Plan, "the plan")
    degrees = [(name.upper(), plan.degree(name)) for name in ("tp", "cp", "pp", "dp")]
    return " x ".join(f"{name} {n}" for name, n in degrees if n > 1) or "one card"


def _look(model, cluster, options: dict, capacity: float) -> Looked:
    """Goes through the options until some run."""
    alone = next(one for one in candidates(model, cluster, **options) if one.tp == one.pp == 1)
    held = memory(model, cluster, alone.plan.changed(zero=np.array(STAGES))).at_peak
    for place, stage in enumerate(STAGES):
        parts = (np.asarray(part)[place].item() for part in (held.states, held.activations, held.others))
        sharded = replace(alone, memory=RankMemory(*parts), options={**alone.options, "zero": stage})
        if alone.whole_batch and sharded.memory.total <= capacity:
            return Looked(held, True, True, [sharded])
    leanest = np.inf
    for step in CUTS:
        if step["recompute"] == "selective" and options["fused_attention"]:
            continue
        tried = candidates(model, cluster, **options, sequence_parallel=True, **step)
        if any(one.whole_batch and one.memory.total <= capacity for one in tried):
            return Looked(held, alone.whole_batch, True, tried, leanest)
        leanest = min(leanest, *(one.memory.total for one in tried))
    return Looked(held, alone.whole_batch, False, tried, leanest)
