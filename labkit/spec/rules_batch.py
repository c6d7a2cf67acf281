"""Rules of the run: batch arithmetic, the pipeline's micro-batches, and the ranks on their nodes."""

import numpy as np

from labkit.spec.hardware import Cluster
from labkit.spec.plan import Plan
from labkit.spec.rule import (
    ADVICE,
    IMPOSSIBLE,
    Rule,
    WayOut,
    counted,
    divisors,
    multiples,
    nearest,
    use,
)
from labkit.spec.rules_shape import tensor_ways
from labkit.spec.transformer import Transformer
from labkit.units import digits, format_share

ENOUGH_MICRO_BATCHES = 4  # micro-batches a stage: the guide's m >= 4 p
ENOUGH_SAMPLES = 4  # sequences a data-parallel rank: the guide's "ideally 4 or more"
_LONGEST_LIST = 6  # numbers that a sentence names


def batch(model: Transformer, cluster: Cluster, plan: Plan):
    """Global batch = micro-batch x accumulation x dp, all of them whole."""
    micro, steps, size = (
        np.asarray(v, float) for v in (plan.micro_batch, plan.accumulation, plan.global_batch)
    )
    fits = micro * steps * np.asarray(plan.dp) == size
    return ~(fits & (micro % 1 == 0) & (steps % 1 == 0))


def _batch(model, cluster, plan):
    micro, steps, size, dp = plan.micro_batch, plan.accumulation, plan.global_batch, plan.dp
    if micro % 1 == 0 and steps % 1 == 0:
        return _three_that_disagree(micro, steps, size, dp)
    if steps % 1:
        unit, kept = micro * dp, {"micro_batch": micro}
        pieces, share = f"micro-batches of {micro}", f"accumulation {digits(steps, 4)}"
        fits = [d for d in divisors(size) if size % (d * micro) == 0]
        others = use("micro_batch", nearest(micro, [d for d in divisors(size) if size % (d * dp) == 0]))
    else:
        unit, kept = steps * dp, {"accumulation": steps}
        pieces, share = counted(steps, "micro-batch"), f"micro-batch {digits(micro, 4)}"
        fits = [d for d in divisors(size) if size % (d * steps) == 0]
        counts = [d for d in divisors(size) if size % (d * dp) == 0 and d > 1]
        others = use("accumulation", counts if len(counts) <= _LONGEST_LIST else nearest(steps, counts))
    name = "accumulation" if steps % 1 else "micro-batch"
    sizes = multiples(size, unit)
    words = " or ".join(f"{one} ({name} {one // unit})" for one in sizes)
    return (
        f"a global batch of {counted(size, 'sequence')} does not divide into {pieces} on dp = {dp}: {size} "
        f"mod {unit} = {size % unit} ({share}); the last micro-batch would be short, and ranks would wait "
        "for each other for ever",
        [
            WayOut(f"use a global batch of {words}", tuple({"global_batch": one, **kept} for one in sizes)),
            *use("dp", nearest(dp, fits)),
            *others,
            WayOut("drop or pad the remainder"),
        ],
    )


def _three_that_disagree(micro: int, steps: int, size: int, dp: int):
    product = micro * steps * dp
    ways = [WayOut(f"use a global batch of {product}", ({"global_batch": product},))]
    if size % (micro * dp) == 0:
        ways += use("accumulation", [size // (micro * dp)])
    return (
        f"micro-batch {micro} x accumulation {steps} x dp {dp} = {product} is not the global batch {size}",
        [*ways, WayOut("leave one of the three out")],
    )


def interleaving(model: Transformer, cluster: Cluster, plan: Plan):
    """Virtual stages need a pipeline, and interleaved 1F1B hands out micro-batches p at a time."""
    pp, steps = np.asarray(plan.pp), np.asarray(plan.accumulation)
    by_turns = np.asarray(plan.schedule) == "1f1b"
    return (np.asarray(plan.v) > 1) & ((pp < 2) | (by_turns & (steps % pp != 0)))


def _interleaving(model, cluster, plan):
    if plan.pp < 2:
        return f"v = {plan.v} virtual stages need a pipeline, but pp = 1", use("v", [1])
    counts = multiples(plan.accumulation, plan.pp)
    whole = plan.micro_batch % 1 == 0  # otherwise the global batch stays, as in Plan.changed
    sizes = [one * plan.micro_batch * plan.dp if whole else plan.global_batch for one in counts]
    words = " or ".join(f"{one} (global batch {size})" for one, size in zip(counts, sizes, strict=True))
    return (
        f"interleaving over pp = {plan.pp} needs micro-batches in multiples of {plan.pp}, not "
        f"{digits(plan.accumulation, 4)}",
        [
            WayOut(f"use accumulation = {words}", tuple({"accumulation": one} for one in counts)),
            *use("v", [1]),
        ],
    )


def schedule(model: Transformer, cluster: Cluster, plan: Plan):
    """Of the schedules only 1F1B interleaves, and ZB-V is made of two virtual stages."""
    v, name = np.asarray(plan.v), np.asarray(plan.schedule)
    return ((v > 1) & ~np.isin(name, ("1f1b", "zb-v"))) | ((name == "zb-v") & (v != 2))


def _schedule(model, cluster, plan):
    other = WayOut("use schedule='1f1b'", ({"schedule": "1f1b"},))
    if plan.schedule == "zb-v":
        return f"zb-v has two virtual stages a rank, not v = {plan.v}", [*use("v", [2]), other]
    return f"{plan.schedule} has no virtual stages, but v = {plan.v}", [*use("v", [1]), other]


def ranks(model: Transformer, cluster: Cluster, plan: Plan):
    """tp x cp x pp x dp is the number of GPUs there are."""
    return np.asarray(plan.ranks) != cluster.n_gpus


def _ranks(model, cluster, plan):
    have, asked = cluster.n_gpus, plan.ranks
    degrees = [f"{name} {plan.degree(name)}" for name in ("tp", "cp", "pp", "dp") if plan.degree(name) > 1]
    said = f"{' x '.join(degrees) or 'no parallel degree'} = {counted(asked, 'rank')}"
    ways = _degrees_that_fill(model, cluster, plan)
    if asked % cluster.gpus_per_node == 0:
        nodes = asked // cluster.gpus_per_node
        ways.append(WayOut(f"take {counted(nodes, 'node')} ({counted(asked, 'GPU')})", ({"nodes": nodes},)))
    wrong = "but the cluster has" if asked > have else f"which leaves {have - asked} idle of"
    return f"{said}, {wrong} {counted(have, 'GPU')}", ways


def _degrees_that_fill(model: Transformer, cluster: Cluster, plan: Plan) -> list[WayOut]:
    """Another dp; where none fits, another pp or, where none fits either, another tp with its dp."""
    have = cluster.n_gpus
    if have % plan.model_ranks == 0:
        return use("dp", [have // plan.model_ranks])
    stages = [
        d for d in divisors(model.layers) if model.layers % (d * plan.v) == 0 and (d > 1 or plan.v == 1)
    ]
    others = (
        ("pp", plan.tp * plan.cp, stages),
        ("tp", plan.pp * plan.cp, [t for t in divisors(cluster.domain) if model.kv_heads % t == 0]),
    )
    for name, rest, values in others:
        fits = nearest(plan.degree(name), [one for one in values if have % (rest * one) == 0])
        if fits:
            pairs = [(one, have // (rest * one)) for one in fits]
            words = " or ".join(f"{name} = {one} with dp = {dp}" for one, dp in pairs)
            return [WayOut(f"use {words}", tuple({name: one, "dp": dp} for one, dp in pairs))]
    return [WayOut(f"choose degrees whose product is {have}")]


def inside_the_domain(model: Transformer, cluster: Cluster, plan: Plan):
    """Tensor parallel communicates in every layer: it belongs on the fast links."""
    return plan.crosses("tp", cluster.domain)


def _inside_the_domain(model, cluster, plan):
    first = "-".join(["tp", *(name for name in plan.order.split("-") if name != "tp")])
    reorder = {} if first == plan.order else {"order": first}
    if reorder and not plan.changed(order=first).crosses("tp", cluster.domain):
        ways = [WayOut("let the order begin with tp", (reorder,))]
    else:
        also = " and let the order begin with tp" if reorder else ""
        ways = [
            WayOut(way.words + also, tuple({**option, **reorder} for option in way.options))
            for way in tensor_ways(model, cluster, plan)
        ]
    return (
        f"tensor-parallel groups of {plan.tp} leave their domain of {counted(cluster.domain, 'GPU')} on fast "
        "links, and they have traffic in every layer",
        ways,
    )


def enough_micro_batches(model: Transformer, cluster: Cluster, plan: Plan):
    """Fewer than 4 p micro-batches leave about a fifth of a plain pipeline idle, or more."""
    pp = np.asarray(plan.pp)
    return (pp > 1) & (np.asarray(plan.accumulation) < ENOUGH_MICRO_BATCHES * pp)


def _enough_micro_batches(model, cluster, plan):
    p, v = plan.pp, plan.v

    def bubble(m):
        return format_share((p - 1) / (m * v + p - 1))

    ways = [_at_least(m * ENOUGH_MICRO_BATCHES * p, plan) for m in (1, 2)]
    wanted = [f"{o['accumulation']} ({bubble(o['accumulation'])}, {words})" for o, words in ways]
    return (
        f"{counted(plan.accumulation, 'micro-batch')} over pp = {p}: {bubble(plan.accumulation)} of a 1F1B "
        "step is idle",
        [WayOut(f"use accumulation = {' or better '.join(wanted)}", tuple(option for option, _ in ways))],
    )


def _at_least(steps: int, plan: Plan) -> tuple[dict, str]:
    """So many micro-batches: smaller ones where the global batch allows it, else a larger global batch."""
    size = plan.global_batch
    if size % (steps * plan.dp) == 0:
        words = f"micro-batch {size // (steps * plan.dp)}"
    else:
        size = steps * plan.dp * max(1, int(plan.micro_batch))
        words = f"global batch {size}"
    return {"accumulation": steps, "global_batch": size}, words


def enough_samples(model: Transformer, cluster: Cluster, plan: Plan):
    """Few sequences a data-parallel rank make small matrices and much communication for little work."""
    return np.asarray(plan.global_batch) < ENOUGH_SAMPLES * np.asarray(plan.dp)


def _enough_samples(model, cluster, plan):
    dp, size = plan.dp, plan.global_batch
    unit = dp * plan.micro_batch if plan.micro_batch % 1 == 0 else dp
    enough = -(-ENOUGH_SAMPLES * dp // unit) * unit
    fits = [d for d in divisors(size) if d * ENOUGH_SAMPLES <= size]
    return (
        f"a global batch of {counted(size, 'sequence')} over dp = {dp} leaves a rank "
        f"{counted(size / dp, 'sequence')}: small pieces compute inefficiently and communicate as much",
        [
            *use("dp", fits[-1:]),
            WayOut(f"use a global batch of at least {enough}", ({"global_batch": enough},)),
        ],
    )


RULES = (
    Rule("batch", IMPOSSIBLE, batch, _batch),
    Rule("interleaving", IMPOSSIBLE, interleaving, _interleaving),
    Rule("schedule", IMPOSSIBLE, schedule, _schedule),
    Rule("ranks", IMPOSSIBLE, ranks, _ranks),
    Rule("tensor parallel inside the domain", ADVICE, inside_the_domain, _inside_the_domain),
    Rule("micro-batches", ADVICE, enough_micro_batches, _enough_micro_batches),
    Rule("samples per rank", ADVICE, enough_samples, _enough_samples),
)
