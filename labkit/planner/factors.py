"""Where one more factor of 2 in the number of GPUs costs the least: tensor, pipeline or data parallel."""

from dataclasses import dataclass

import numpy as np

from labkit.errors import InputRefused
from labkit.planner.bill import step_bill
from labkit.planner.step import BUCKET, step_time
from labkit.spec import Cluster, Plan, Transformer
from labkit.spec.rules import allowed, check_nouns
from labkit.spec.rules_batch import ENOUGH_MICRO_BATCHES


@dataclass(frozen=True, slots=True)
class Factor:
    """A strategy that got the last factor 2: the plan, its bytes and seconds a step, its batch.

    ``exposed``: communication that nothing hides, and the bubble, of all ``seconds``; ``smallest_batch``: the
    global batch with 4 micro-batches a stage (one a replica without a pipeline).
    """

    name: str
    plan: Plan
    bytes_per_card: float
    exposed: float
    seconds: float
    smallest_batch: float


def factor_two(model: Transformer, cluster: Cluster, plan: Plan) -> list[Factor]:
    """The same GPUs and global batch with the last factor 2 of ``plan.dp`` given to TP, to PP, or left to DP.

    Empty where dp is odd. A degree that the model or its batch does not allow is left out: layers that do not
    divide, heads that do not split. Tensor parallel beyond the fast-link domain is allowed, and pays for it.
    """
    check_nouns(model=model, cluster=cluster, plan=plan)
    if not plan.single:
        raise InputRefused("this compares one plan with others; give single numbers, not arrays")
    if plan.dp % 2:
        return []
    half, found = plan.dp // 2, []
    options = {
        "TP": {
            "tp": 2 * plan.tp,
            "dp": half,
            "sequence_parallel": True,
            "replicate_kv": 2 * plan.tp > model.kv_heads,
        },
        "PP": {"pp": 2 * plan.pp, "dp": half, "stage_layers": None},
        "DP": {},
    }
    for name, changes in options.items():
        ep = int(np.gcd(plan.ep, changes.get("dp", plan.dp)))
        one = plan.changed(**changes, ep=ep)
        if allowed(model, cluster, one):
            found.append(_factor(name, model, cluster, one))
    return found


def _factor(name, model, cluster, plan) -> Factor:
    sent = sum(row.bytes_per_rank for row in step_bill(model, cluster, plan, bucket=BUCKET))
    step = step_time(model, cluster, plan)
    stages = ENOUGH_MICRO_BATCHES * plan.pp if plan.pp > 1 else 1
    batch = stages * plan.dp * plan.micro_batch
    return Factor(name, plan, sent, step.exposed + step.bubble, step.total, batch)
