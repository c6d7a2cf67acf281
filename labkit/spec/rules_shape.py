"""Rules of shape: does the model divide the way the plan cuts it?"""

import numpy as np

from labkit.spec.hardware import Cluster
from labkit.spec.plan import Plan
from labkit.spec.rule import ADVICE, IMPOSSIBLE, Rule, divisors, listed, nearest
from labkit.spec.transformer import Transformer


def heads(model: Transformer, cluster: Cluster, plan: Plan):
    """Every tensor-parallel rank takes whole heads."""
    return model.heads % np.asarray(plan.tp) != 0


def _heads(model, cluster, plan):
    best = max(d for d in divisors(model.heads) if cluster.domain % d == 0 and d <= plan.tp)
    groups = cluster.domain // best
    filled = (
        f" and fill the {cluster.domain} GPUs of a domain with {groups} such groups" if groups > 1 else ""
    )
    return (
        f"{model.heads} heads do not split over tp = {plan.tp}: {model.heads} mod {plan.tp} = "
        f"{model.heads % plan.tp}",
        f"use tp = {best}{filled} ({model.heads} splits over {listed(divisors(model.heads))})",
    )


def kv_heads(model: Transformer, cluster: Cluster, plan: Plan):
    """KV heads are split over the ranks or, where the plan says so, each held by several."""
    tp = np.asarray(plan.tp)
    copied = np.asarray(plan.replicate_kv, bool) & (tp % model.kv_heads == 0)
    own = model.kv_heads < model.heads  # otherwise they are the heads, which have a rule of their own
    return own & (model.kv_heads % tp != 0) & ~copied


def _kv_heads(model, cluster, plan):
    kv, tp = model.kv_heads, plan.tp
    splits = [d for d in divisors(kv) if model.heads % d == 0]
    if tp % kv == 0:
        return (
            f"{kv} kv heads do not split over tp = {tp}: a rank would hold 1/{tp // kv} of a head",
            f"hold each kv head on {tp // kv} ranks (replicate_kv=True), or use tp = {listed(splits)}",
        )
    usable = [d for d in splits if cluster.domain % d == 0 and d <= tp]
    best = max(usable)
    return (
        f"{kv} kv heads can neither be split over tp = {tp} nor copied evenly: {kv} mod {tp} = {kv % tp} and "
        f"{tp} mod {kv} = {tp % kv}",
        f"use tp = {best} with {cluster.domain // best} such groups in a domain of {cluster.domain} GPUs "
        f"(the kv heads split over {listed(splits)})",
    )


def ffn(model: Transformer, cluster: Cluster, plan: Plan):
    """The width of the MLP, or of one expert, splits over the ranks that share it."""
    return model.ffn % np.asarray(plan.expert_tp if model.experts else plan.tp) != 0


def _ffn(model, cluster, plan):
    name, degree = ("etp", plan.expert_tp) if model.experts else ("tp", plan.tp)
    return (
        f"the MLP's width {model.ffn} does not split over {name} = {degree}: remainder {model.ffn % degree}",
        f"use {name} = {nearest(degree, divisors(model.ffn))}",
    )


def vocabulary(model: Transformer, cluster: Cluster, plan: Plan):
    """Without padding the vocabulary itself must split over the ranks."""
    return (np.asarray(plan.vocabulary_multiple) == 0) & (model.vocabulary % np.asarray(plan.tp) != 0)


def _vocabulary(model, cluster, plan):
    v, tp = model.vocabulary, plan.tp
    smallest, usual = (-(-v // piece) * piece for piece in (tp, 128 * tp))
    return (
        f"the vocabulary of {v} does not split over tp = {tp} without padding: {v} mod {tp} = {v % tp}",
        f"pad it to {smallest} (vocabulary_multiple=1) or {usual} (a multiple of 128 x {tp})",
    )


def padding(model: Transformer, cluster: Cluster, plan: Plan):
    """Rows that hold no token are stored with the checkpoint."""
    return np.asarray(plan.padded_vocabulary(model.vocabulary)) != model.vocabulary


def _padding(model, cluster, plan):
    padded = plan.padded_vocabulary(model.vocabulary)
    return (
        f"the vocabulary of {model.vocabulary} is padded to {padded}, {padded // plan.tp} rows a rank: "
        f"{padded - model.vocabulary} rows hold no token",
        "cut them when the checkpoint is exported, or a loader refuses it",
    )


def layers(model: Transformer, cluster: Cluster, plan: Plan):
    """The layers of all (virtual) stages add up to the model's: none is silently left out."""
    stages = np.asarray(plan.pp) * plan.v
    if plan.stage_layers is None:
        return model.layers % stages != 0
    return (len(plan.stage_layers) != stages) | (sum(plan.stage_layers) != model.layers)


def _layers(model, cluster, plan):
    stages, kind = plan.pp * plan.v, "virtual stages" if plan.v > 1 else "stages"
    fits = [d // plan.v for d in divisors(model.layers) if d % plan.v == 0]
    by_degree = f"use pp = {nearest(plan.pp, fits)}" if nearest(plan.pp, fits) else "lower v"
    if plan.stage_layers is not None:
        held = sum(plan.stage_layers)
        wrong = (
            f"stage_layers names {len(plan.stage_layers)} of {stages} {kind}"
            if len(plan.stage_layers) != stages
            else f"the stages hold {held} of {model.layers} layers"
        )
        return (
            wrong,
            f"give {stages} numbers that add up to {model.layers}, as {_split(model.layers, stages)}",
        )
    each, left = divmod(model.layers, stages)
    if not each:
        return f"{model.layers} layers leave some of {stages} {kind} empty", by_degree
    return (
        f"{model.layers} layers do not split evenly over {stages} {kind}: {each} each leaves {left} out",
        f"{by_degree}, or give each its own, as stage_layers={_split(model.layers, stages)}",
    )


def _split(layers: int, stages: int) -> str:
    """Layers as even as can be; the odd ones in the middle, where no embedding and no head weighs."""
    each, left = divmod(layers, stages)
    start = (stages - left) // 2
    return "(" + ", ".join(str(each + (start <= i < start + left)) for i in range(stages)) + ")"


def experts(model: Transformer, cluster: Cluster, plan: Plan):
    """Each expert-parallel rank holds as many experts; a dense model has none to spread."""
    ep = np.asarray(plan.ep)
    return (ep > 1) if not model.experts else (model.experts % ep != 0)


def _experts(model, cluster, plan):
    if not model.experts:
        return f"{model.name} has no experts for ep = {plan.ep}", "use ep = 1"
    each = -(-model.experts // plan.ep)
    more = each * plan.ep - model.experts
    return (
        f"{model.experts} experts do not split over ep = {plan.ep}: {model.experts} mod {plan.ep} = "
        f"{model.experts % plan.ep}",
        f"use ep = {nearest(plan.ep, divisors(model.experts))}, or add {more} redundant experts "
        f"({each * plan.ep} = {plan.ep} x {each})",
    )


def expert_ranks(model: Transformer, cluster: Cluster, plan: Plan):
    """Expert groups are carved out of the ranks of a stage: ep x etp divides tp x cp x dp."""
    stage = np.asarray(plan.tp) * plan.cp * plan.dp
    return stage % (np.asarray(plan.ep) * plan.expert_tp) != 0


def _expert_ranks(model, cluster, plan):
    stage, wanted = plan.tp * plan.cp * plan.dp, plan.ep * plan.expert_tp
    fits = [d for d in divisors(stage) if d * plan.expert_tp <= stage and stage % (d * plan.expert_tp) == 0]
    lowest = next(dp for dp in range(1, wanted + 1) if plan.tp * plan.cp * dp % wanted == 0)
    return (
        f"experts take ep {plan.ep} x etp {plan.expert_tp} = {wanted} ranks, but a stage has {stage} "
        f"(tp {plan.tp} x cp {plan.cp} x dp {plan.dp})",
        f"use ep = {max([d for d in fits if d <= plan.ep], default=1)}, or dp = {lowest}: "
        f"{plan.tp * plan.cp * lowest} ranks a stage, {plan.model_ranks * lowest} GPUs in all",
    )


def context(model: Transformer, cluster: Cluster, plan: Plan):
    """Context-parallel ranks take equal pieces of the sequence, or of a rank's heads for all_to_all."""
    cp, ring = np.asarray(plan.cp), np.asarray(plan.context) == "ring"
    halves = np.where(ring & np.asarray(plan.balanced, bool) & (cp > 1), 2, 1)
    per_rank = model.heads // np.asarray(plan.tp)
    return (model.sequence % (cp * halves) != 0) | (~ring & (per_rank % cp != 0))


def _context(model, cluster, plan):
    per_rank = model.heads // plan.tp
    if plan.context == "all_to_all" and per_rank % plan.cp:
        return (
            f"all_to_all spreads the {per_rank} heads of a rank over cp = {plan.cp}: remainder "
            f"{per_rank % plan.cp}",
            f"use cp = {nearest(plan.cp, divisors(per_rank))}, or context='ring'",
        )
    halves = 2 if plan.context == "ring" and plan.balanced else 1
    pieces, words = halves * plan.cp, "2 x cp pieces" if halves == 2 else "cp pieces"
    nearby = [d // halves for d in divisors(model.sequence) if d % halves == 0]
    longer = -(-model.sequence // pieces) * pieces
    return (
        f"a sequence of {model.sequence} does not cut into {words} = {pieces}: remainder "
        f"{model.sequence % pieces}",
        f"use cp = {nearest(plan.cp, nearby)}, or pad the sequence to {longer}",
    )


def sequence_parallel(model: Transformer, cluster: Cluster, plan: Plan):
    """Sequence parallel cuts a rank's piece of the sequence once more, over the tensor-parallel ranks."""
    pieces = np.asarray(plan.cp) * plan.tp
    return np.asarray(plan.sequence_parallel, bool) & (model.sequence % pieces != 0)


def _sequence_parallel(model, cluster, plan):
    pieces = plan.cp * plan.tp
    return (
        f"sequence parallel cuts a sequence of {model.sequence} into cp x tp = {pieces} pieces: remainder "
        f"{model.sequence % pieces}",
        f"pad the sequence to {-(-model.sequence // pieces) * pieces}, or turn sequence_parallel off",
    )


RULES = (
    Rule("heads", IMPOSSIBLE, heads, _heads),
    Rule("kv heads", IMPOSSIBLE, kv_heads, _kv_heads),
    Rule("ffn", IMPOSSIBLE, ffn, _ffn),
    Rule("vocabulary", IMPOSSIBLE, vocabulary, _vocabulary),
    Rule("layers", IMPOSSIBLE, layers, _layers),
    Rule("experts", IMPOSSIBLE, experts, _experts),
    Rule("expert ranks", IMPOSSIBLE, expert_ranks, _expert_ranks),
    Rule("sequence", IMPOSSIBLE, context, _context),
    Rule("sequence parallel", IMPOSSIBLE, sequence_parallel, _sequence_parallel),
    Rule("padding", ADVICE, padding, _padding),
)
