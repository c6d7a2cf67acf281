"""Where the groups of a plan sit: how many ranks of a group share a fast-link domain.

``labkit.spec.RankGrid`` lists the ranks of one plan; this is its answer for arrays of plans, in closed form.
"""

import numpy as np

from labkit.planner.traffic import Seats
from labkit.spec import Plan
from labkit.spec.checks import broadcasting, noun, whole
from labkit.spec.replicas import replica_counts
from labkit.units import plain


def plan_seats(plan: Plan, *dimensions: str, domain: int) -> Seats:
    """Seats of a group of one dimension (tp, cp, dp, pp), or of several together, as gradients use cp and dp.

    Where groups do not fill whole domains, ``members`` is what the worst of them is sure to find together.

    >>> plan_seats(Plan(tp=4, pp=4, dp=2), "dp", domain=8)
    Seats(ranks=2, link='inside', members=2)
    >>> plan_seats(Plan(tp=4, pp=4, dp=2, order="tp-cp-pp-dp"), "dp", domain=8).link
    'across'
    """
    noun(plan, Plan, "the plan")
    domain = whole(domain, "a fast-link domain", arrays=True)
    ranks = members = np.asarray(1)
    for name in dimensions:
        stride, degree = _whole(plan.stride(name)), _whole(plan.degree(name))
        ranks, members = ranks * degree, members * _together(plan, stride, degree, domain)
    return _seats(ranks, members)


def expert_seats(plan: Plan, domain: int) -> Seats:
    """Seats of an expert-parallel group: ``expert_tp`` apart among the ranks of a stage."""
    noun(plan, Plan, "the plan")
    return _of_stage(plan, plan.expert_tp, plan.ep, domain)


def expert_tensor_seats(plan: Plan, domain: int) -> Seats:
    """Seats of the ranks that share an expert: neighbours in a stage."""
    noun(plan, Plan, "the plan")
    return _of_stage(plan, 1, plan.expert_tp, domain)


def expert_data_seats(plan: Plan, domain: int) -> Seats:
    """Seats of the ranks that hold the same experts, over which their gradients are reduced."""
    noun(plan, Plan, "the plan")
    inner = _whole(plan.expert_tp) * _whole(plan.ep)
    return _of_stage(plan, inner, replica_counts(plan)[1], domain)


def shard_seats(everyone: Seats, shards) -> tuple[Seats, Seats]:
    """Seats of ``shards`` neighbours among a group, which share one set of shards, and of its replicas.

    >>> everyone = plan_seats(Plan(dp=64), "cp", "dp", domain=8)
    >>> for part in shard_seats(everyone, 8): print(part)
    Seats(ranks=8, link='inside', members=8)
    Seats(ranks=8, link='across', members=1)
    """
    noun(everyone, Seats, "the seats of the group")
    shards = whole(shards, "the ranks of a set of shards", arrays=True)
    broadcasting({"shards": np.shape(shards), "the group": np.shape(everyone.ranks)}, "seats")
    ranks, members = _whole(everyone.ranks), _whole(everyone.members)
    shards = np.minimum(_whole(shards), ranks)
    together = np.minimum(members, shards)
    return _seats(shards, together), _seats(
        np.maximum(1, ranks // shards), np.maximum(1, members // together)
    )


def _whole(number) -> np.ndarray:
    return np.asarray(number).astype(np.int64)


def _seats(ranks, members) -> Seats:
    return Seats(plain(ranks), plain(np.where(members < ranks, "across", "inside")), plain(members))


def _together(plan: Plan, stride, degree, domain):
    """Ranks of a group that share a domain: it fills a block of stride x degree ranks."""
    found = np.clip(np.gcd(stride * degree, domain) // stride, 1, degree)
    return np.where(_whole(plan.ranks) <= domain, degree, found)


def _of_stage(plan: Plan, stride, degree, domain) -> Seats:
    """Seats of a group numbered within its stage, whose ranks come in runs of the pipeline's stride."""
    domain = whole(domain, "a fast-link domain", arrays=True)
    stride, degree, run, pp = map(_whole, (stride, degree, plan.stride("pp"), plan.pp))
    run = np.where(pp == 1, domain, run)  # no rank of another stage between
    stage = _whole(plan.tp) * _whole(plan.cp) * _whole(plan.dp)
    here = np.where(domain % (run * pp) == 0, domain // pp, np.gcd(run, domain))
    here = np.where(_whole(plan.ranks) <= domain, stage, here)
    return _seats(degree, np.clip(np.gcd(stride * degree, here) // stride, 1, degree))
