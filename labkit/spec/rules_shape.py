"""Rules of shape: does the model divide the way tensor and pipeline parallelism cut it?"""

import numpy as np

from labkit.spec.hardware import Cluster
from labkit.spec.plan import Plan
from labkit.spec.rule import ADVICE, IMPOSSIBLE, Rule, WayOut, counted, divisors, listed, nearest, use
from labkit.spec.transformer import Transformer

_LONGEST_LIST = 16  # stages that a sentence names one by one


def heads(model: Transformer, cluster: Cluster, plan: Plan):
    """Every tensor-parallel rank takes whole heads."""
    return model.heads % np.asarray(plan.tp) != 0


def _heads(model, cluster, plan):
    a, tp = model.heads, plan.tp
    return (
        f"the heads do not split over tp = {tp}: {a} mod {tp} = {a % tp} "
        f"({a} splits over {listed(divisors(a))})",
        tensor_ways(model, cluster, plan),
    )


def kv_heads(model: Transformer, cluster: Cluster, plan: Plan):
    """KV heads are split over the ranks or, where the plan says so, each held by several."""
    tp = np.asarray(plan.tp)
    copied = np.asarray(plan.replicate_kv, bool) & (tp % model.kv_heads == 0)
    own = model.kv_heads < model.heads  # otherwise they are the heads, which have a rule of their own
    return own & (model.kv_heads % tp != 0) & ~copied


def _kv_heads(model, cluster, plan):
    kv, tp = model.kv_heads, plan.tp
    said = counted(kv, "kv head")
    if tp % kv == 0:
        message = f"{said} over tp = {tp}: each rank would hold 1/{tp // kv} of a kv head"
    else:
        message = (
            f"{said} over tp = {tp} can neither be split nor copied evenly: {kv} mod {tp} = {kv % tp} and "
            f"{tp} mod {kv} = {tp % kv} ({kv} splits over {listed(divisors(kv))})"
        )
    return message, tensor_ways(model, cluster, plan)


def tensor_ways(model: Transformer, cluster: Cluster, plan: Plan) -> list[WayOut]:
    """The largest tp up to the plan's that the model splits over and whose groups fill a fast-link domain.

    And one with kv heads held by several ranks, where that allows a larger tp.
    """
    needs = [model.heads]
    if not model.experts or plan.etp is None:
        needs.append(model.ffn)
    if plan.vocabulary_multiple == 0:
        needs.append(model.vocabulary)
    fits = [t for t in divisors(cluster.domain) if t <= plan.tp and not any(need % t for need in needs)]
    split = max(t for t in fits if model.kv_heads % t == 0)
    copied = [t for t in fits if t > split and t % model.kv_heads == 0]
    ways = []
    if copied:
        tp, each = max(copied), max(copied) // model.kv_heads
        verb = "keep" if tp == plan.tp else "use"
        words = f"{verb} tp = {tp} and hold each kv head on {each} ranks (replicate_kv=True)"
        ways.append(WayOut(words + _filled(tp, cluster), ({"tp": tp, "replicate_kv": True},)))
    return [*ways, WayOut(f"use tp = {split}{_filled(split, cluster)}", ({"tp": split},))]


def _filled(tp: int, cluster: Cluster) -> str:
    groups = cluster.domain // tp
    return f", {groups} such groups in a domain of {cluster.domain} GPUs" if groups > 1 else ""


def ffn(model: Transformer, cluster: Cluster, plan: Plan):
    """The width of the MLP, or of one expert, splits over the ranks that share it."""
    return model.ffn % np.asarray(plan.expert_tp if model.experts else plan.tp) != 0


def _ffn(model, cluster, plan):
    name, degree = ("etp", plan.expert_tp) if model.experts else ("tp", plan.tp)
    message = (
        f"the MLP's width does not split over {name} = {degree}: {model.ffn} mod {degree} = "
        f"{model.ffn % degree}"
    )
    if not model.experts:
        return message, tensor_ways(model, cluster, plan)
    fits = [d for d in divisors(model.ffn) if plan.stage_ranks % (d * plan.ep) == 0]
    return message, use("etp", nearest(degree, fits or divisors(model.ffn)))


def vocabulary(model: Transformer, cluster: Cluster, plan: Plan):
    """Without padding the vocabulary itself must split over the ranks."""
    return (np.asarray(plan.vocabulary_multiple) == 0) & (model.vocabulary % np.asarray(plan.tp) != 0)


def _vocabulary(model, cluster, plan):
    v, tp = model.vocabulary, plan.tp
    smallest, usual = (-(-v // piece) * piece for piece in (tp, 128 * tp))
    return (
        f"the vocabulary does not split over tp = {tp} without padding: {v} mod {tp} = {v % tp}",
        [
            WayOut(f"pad it to {smallest} (vocabulary_multiple=1)", ({"vocabulary_multiple": 1},)),
            WayOut(f"to {usual}, a multiple of 128 x {tp}", ({"vocabulary_multiple": 128},)),
        ],
    )


def padding(model: Transformer, cluster: Cluster, plan: Plan):
    """Rows that hold no token are stored with the checkpoint."""
    return np.asarray(plan.padded_vocabulary(model.vocabulary)) != model.vocabulary


def _padding(model, cluster, plan):
    padded = plan.padded_vocabulary(model.vocabulary)
    return (
        f"the vocabulary of {model.vocabulary} is padded to {padded}, {padded // plan.tp} rows a rank, "
        f"{counted(padded - model.vocabulary, 'row')} of them for no token",
        [WayOut("cut these rows when the checkpoint is exported: a loader that expects none refuses it")],
    )


def layers(model: Transformer, cluster: Cluster, plan: Plan):
    """The layers of all (virtual) stages add up to the model's: none is silently left out."""
    stages = np.asarray(plan.pp) * plan.v
    if plan.stage_layers is None:
        return model.layers % stages != 0
    return (len(plan.stage_layers) != stages) | (sum(plan.stage_layers) != model.layers)


def _layers(model, cluster, plan):
    stages = plan.pp * plan.v
    kind = "virtual stage" if plan.v > 1 else "stage"
    if plan.stage_layers is not None:
        given, held = len(plan.stage_layers), sum(plan.stage_layers)
        message = (
            f"stage_layers has {counted(given, 'number')} for {counted(stages, kind)}"
            if given != stages
            else f"the stages hold {held} of {counted(model.layers, 'layer')}"
        )
        return message, [_uneven(model.layers, stages)]
    each, left = divmod(model.layers, stages)
    said = f"{counted(model.layers, 'layer')} over {counted(stages, kind)}"
    if not each:
        return f"{said} leave {counted(stages - left, kind)} empty", _other_depth(model, cluster, plan)
    return (
        f"{said} do not split evenly: {each} each would leave {left} out",
        [_uneven(model.layers, stages), *_other_depth(model, cluster, plan)],
    )


def even_stages(layers: int, stages: int) -> tuple[int, ...]:
    """Layers as even as can be; the odd ones in the middle, where no embedding and no head weighs.

    >>> even_stages(40, 16)
    (2, 2, 2, 2, 3, 3, 3, 3, 3, 3, 3, 3, 2, 2, 2, 2)
    """
    each, more = divmod(layers, stages)
    start = (stages - more) // 2
    return tuple(each + (start <= i < start + more) for i in range(stages))


def _uneven(layers: int, stages: int) -> WayOut:
    """The way out of giving each stage its own number of layers."""
    each, more = divmod(layers, stages)
    split = even_stages(layers, stages)
    words = f"stage_layers={split}"
    if stages > _LONGEST_LIST:
        words = f"stage_layers with {more} times {each + 1} and {stages - more} times {each}"
    return WayOut(f"give each its own number, as {words}", ({"stage_layers": split},))


def _other_depth(model: Transformer, cluster: Cluster, plan: Plan) -> list[WayOut]:
    """Numbers of stages, or of virtual stages a rank, that the layers split over evenly."""
    pp, v = plan.pp, plan.v
    shallowest = 1 if v == 1 else 2  # virtual stages need a pipeline
    fits = [d // v for d in divisors(model.layers) if d % v == 0 and shallowest <= d // v <= cluster.n_gpus]
    ways = use("pp", nearest(pp, fits))
    if model.layers % pp == 0 and plan.schedule != "zb-v":  # which has two virtual stages, no other number
        ways += use("v", nearest(v, divisors(model.layers // pp)))
    if ways:
        return ways
    if model.layers % pp == 0:
        return [WayOut("use v = 1 with schedule='1f1b'", ({"v": 1, "schedule": "1f1b"},))]
    fits = nearest(pp, divisors(model.layers))
    return [WayOut(f"use v = 1 and pp = {listed(fits)}", tuple({"v": 1, "pp": one} for one in fits))]


RULES = (
    Rule("heads", IMPOSSIBLE, heads, _heads),
    Rule("kv heads", IMPOSSIBLE, kv_heads, _kv_heads),
    Rule("ffn", IMPOSSIBLE, ffn, _ffn),
    Rule("vocabulary", IMPOSSIBLE, vocabulary, _vocabulary),
    Rule("layers", IMPOSSIBLE, layers, _layers),
    Rule("padding", ADVICE, padding, _padding),
)
