"""How many ranks of a plan hold the same, and over how many of them sharding spreads it."""

import numpy as np

from labkit.spec.checks import noun
from labkit.spec.plan import Plan
from labkit.units import plain


def replica_counts(plan: Plan) -> tuple:
    """Ranks that hold the same parameters, dp x cp, and ranks with the same experts, tp dp cp / (ep etp)."""
    noun(plan, Plan, "the plan")
    return _counts(plan, np.asarray(plan.dp) * plan.cp)


def shard_counts(plan: Plan) -> tuple:
    """Over how many of these ZeRO spreads: all of them, or what ``shard_ranks`` of the dp x cp ranks hold.

    >>> shard_counts(Plan(dp=64)), shard_counts(Plan(dp=64, ep=4, shard_ranks=8))
    ((64, 64), (8, 2))
    """
    noun(plan, Plan, "the plan")
    same = np.asarray(plan.dp) * plan.cp
    return _counts(plan, same if plan.shard_ranks is None else np.minimum(same, plan.shard_ranks))


def _counts(plan, same) -> tuple:
    experts = np.asarray(plan.tp) * same // (np.asarray(plan.ep) * plan.expert_tp)
    return plain(same), plain(np.maximum(1, experts))
