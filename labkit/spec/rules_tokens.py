"""Rules of tokens: are experts and pieces of the sequence spread evenly over the ranks?"""

import math

import numpy as np

from labkit.spec.hardware import Cluster
from labkit.spec.plan import Plan
from labkit.spec.rule import IMPOSSIBLE, Rule, WayOut, counted, divisors, multiples, nearest, use
from labkit.spec.transformer import Transformer


def experts(model: Transformer, cluster: Cluster, plan: Plan):
    """Each expert-parallel rank holds as many experts; a dense model has none to spread."""
    ep = np.asarray(plan.ep)
    return (ep > 1) if not model.experts else (model.experts % ep != 0)


def _experts(model, cluster, plan):
    if not model.experts:
        return f"{model.name} has no experts to spread over ep = {plan.ep}", use("ep", [1])
    each = -(-model.experts // plan.ep)
    more, total = each * plan.ep - model.experts, each * plan.ep
    return (
        f"the experts do not split over ep = {plan.ep}: {model.experts} mod {plan.ep} = "
        f"{model.experts % plan.ep}",
        [
            *use("ep", nearest(plan.ep, divisors(model.experts))),
            WayOut(
                f"add {counted(more, 'redundant expert')} ({total} = {plan.ep} x {each})",
                ({"experts": total},),
            ),
        ],
    )


def expert_ranks(model: Transformer, cluster: Cluster, plan: Plan):
    """Expert groups are carved out of the ranks of a stage: ep x etp divides tp x cp x dp."""
    wanted = np.asarray(plan.ep) * plan.expert_tp
    return (model.experts > 0) & (plan.stage_ranks % wanted != 0)


def _expert_ranks(model, cluster, plan):
    stage, etp, wanted = plan.stage_ranks, plan.expert_tp, plan.ep * plan.expert_tp
    fits = [d for d in divisors(model.experts) if stage % (d * etp) == 0]
    step = wanted // math.gcd(wanted, plan.tp * plan.cp)
    sizes = [(dp, plan.tp * plan.cp * dp) for dp in multiples(plan.dp, step)]
    replicas = " or ".join(
        f"{dp} ({counted(each, 'rank')} a stage, {counted(each * plan.pp, 'GPU')} in all)"
        for dp, each in sizes
    )
    return (
        f"experts take ep {plan.ep} x etp {etp} = {counted(wanted, 'rank')}, but a stage has {stage} "
        f"(tp {plan.tp} x cp {plan.cp} x dp {plan.dp})",
        [
            *use("ep", nearest(plan.ep, fits)),
            WayOut(f"use dp = {replicas}", tuple({"dp": dp} for dp, _ in sizes)),
        ],
    )


def sequence(model: Transformer, cluster: Cluster, plan: Plan):
    """Context-parallel ranks take equal pieces: one each, or with a balanced ring an early and a late one."""
    return model.sequence % _pieces(plan, plan.cp) != 0


def _pieces(plan: Plan, cp):
    """Pieces that the plan, with so many context-parallel ranks, cuts the sequence into."""
    cp = np.asarray(cp)
    two = (np.asarray(plan.context) == "ring") & np.asarray(plan.balanced, bool) & (cp > 1)
    return cp * np.where(two, 2, 1)


def _sequence(model, cluster, plan):
    pieces, s = int(_pieces(plan, plan.cp)), model.sequence
    words = f"2 x cp = {pieces}" if pieces > plan.cp else f"cp = {pieces}"
    fits = [cp for cp in divisors(s) if s % int(_pieces(plan, cp)) == 0]
    return (
        f"the sequence does not cut into {words} pieces: {s} mod {pieces} = {s % pieces}",
        [*use("cp", nearest(plan.cp, fits)), _padded(model, plan)],
    )


def sequence_parallel(model: Transformer, cluster: Cluster, plan: Plan):
    """Sequence parallel cuts a rank's piece of the sequence once more, over the tensor-parallel ranks."""
    tp = np.asarray(plan.tp)
    return np.asarray(plan.sequence_parallel, bool) & (tp > 1) & (model.sequence % (tp * plan.cp) != 0)


def _sequence_parallel(model, cluster, plan):
    pieces, s = plan.cp * plan.tp, model.sequence
    return (
        f"sequence parallel cannot cut the sequence into cp x tp = {pieces} pieces: {s} mod {pieces} = "
        f"{s % pieces}",
        [_padded(model, plan), WayOut("turn sequence_parallel off", ({"sequence_parallel": False},))],
    )


def _padded(model: Transformer, plan: Plan) -> WayOut:
    """A length that every cut of the plan divides."""
    step = math.lcm(int(_pieces(plan, plan.cp)), plan.cp * plan.tp if plan.sequence_parallel else 1)
    longer = -(-model.sequence // step) * step
    return WayOut(f"pad the sequence to {longer}", ({"sequence": longer},))


def all_to_all(model: Transformer, cluster: Cluster, plan: Plan):
    """all_to_all context parallelism spreads a tensor-parallel rank's heads over the cp ranks."""
    used = (np.asarray(plan.context) == "all_to_all") & (np.asarray(plan.cp) > 1)
    return used & (model.heads % np.asarray(plan.tp) == 0) & ~_heads_spread(model, plan, plan.cp)


def _heads_spread(model: Transformer, plan: Plan, cp):
    """Whether heads and kv heads spread over the ranks of the plan with so many context-parallel ones."""
    over = np.asarray(plan.tp) * np.asarray(cp)
    copied = np.asarray(plan.replicate_kv, bool) & (over % model.kv_heads == 0)
    return (model.heads % over == 0) & ((model.kv_heads % over == 0) | copied)


def _all_to_all(model, cluster, plan):
    over, a, kv = plan.tp * plan.cp, model.heads, model.kv_heads
    fits = [cp for cp in divisors(a // plan.tp) if cp == 1 or _heads_spread(model, plan, cp)]
    ways = use("cp", nearest(plan.cp, fits))
    if a % over == 0 and over % kv == 0:
        words = f"hold each kv head on {over // kv} ranks (replicate_kv=True)"
        ways.insert(0, WayOut(words, ({"replicate_kv": True},)))
    kv_said = f", {kv} mod {over} = {kv % over} for the kv heads" if kv < a else ""
    return (
        f"all_to_all spreads the heads over tp x cp = {over} ranks: {a} mod {over} = {a % over}{kv_said}",
        [*ways, WayOut("use context='ring'", ({"context": "ring"},))],
    )


RULES = (
    Rule("experts", IMPOSSIBLE, experts, _experts),
    Rule("expert ranks", IMPOSSIBLE, expert_ranks, _expert_ranks),
    Rule("sequence", IMPOSSIBLE, sequence, _sequence),
    Rule("sequence parallel", IMPOSSIBLE, sequence_parallel, _sequence_parallel),
    Rule("all_to_all", IMPOSSIBLE, all_to_all, _all_to_all),
)
