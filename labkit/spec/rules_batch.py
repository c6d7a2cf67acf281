"""Rules of the run: batch arithmetic, the pipeline's micro-batches, and the ranks on their nodes."""

import numpy as np

from labkit.spec.hardware import Cluster
from labkit.spec.plan import Plan
from labkit.spec.rule import ADVICE, IMPOSSIBLE, Rule, divisors, listed, nearest
from labkit.spec.transformer import Transformer
from labkit.units import digits, format_share

ENOUGH_MICRO_BATCHES = 4  # micro-batches a stage: the guide's m >= 4 p
ENOUGH_SAMPLES = 4  # sequences a data-parallel rank: the guide's "ideally 4 or more"


def batch(model: Transformer, cluster: Cluster, plan: Plan):
    """Global batch = micro-batch x accumulation x dp, all of them whole."""
    micro, steps, whole = (
        np.asarray(v, float) for v in (plan.micro_batch, plan.accumulation, plan.global_batch)
    )
    fits = micro * steps * np.asarray(plan.dp) == whole
    return ~(fits & (micro % 1 == 0) & (steps % 1 == 0))


def _batch(model, cluster, plan):
    micro, steps, whole, dp = plan.micro_batch, plan.accumulation, plan.global_batch, plan.dp
    if micro % 1 == 0 and steps % 1 == 0:
        return (
            f"micro-batch {micro} x accumulation {steps} x dp {dp} = {micro * steps * dp} is not the global "
            f"batch {whole}",
            f"leave one of the three out, or set the global batch to {micro * steps * dp}",
        )
    if steps % 1:
        piece, name, share = micro * dp, "accumulation", steps
        fits = [d for d in divisors(whole) if whole % (d * micro) == 0]
    else:
        piece, name, share = steps * dp, "micro-batch", micro
        fits = [d for d in divisors(whole) if whole % (d * steps) == 0]
    below, above = int(whole // piece) * piece, (int(whole // piece) + 1) * piece
    near = [f"{size} ({name} {size // piece})" for size in (below, above) if size > 0]
    degrees = nearest(dp, fits)
    other = f", or dp = {degrees}" if degrees else ""
    if name == "micro-batch":
        counts = [d for d in divisors(whole) if whole % (d * dp) == 0 and d > 1]
        other = f", or accumulation = {listed(counts)}" if counts else other
    known = f"micro-batch {micro}" if name == "accumulation" else f"accumulation {steps}"
    return (
        f"a global batch of {whole} over dp {dp} with {known} gives {name} {digits(share, 4)}, not a whole "
        "number: the last micro-batch would be short and ranks would wait for each other for ever",
        f"use a global batch of {' or '.join(near)}{other}; or drop or pad the remainder",
    )


def interleaving(model: Transformer, cluster: Cluster, plan: Plan):
    """Interleaved 1F1B hands out micro-batches p at a time, and needs more than one stage."""
    pp, steps = np.asarray(plan.pp), np.asarray(plan.accumulation)
    return (np.asarray(plan.v) > 1) & ((pp < 2) | (steps % pp != 0))


def _interleaving(model, cluster, plan):
    if plan.pp < 2:
        return f"v = {plan.v} virtual stages need a pipeline, but pp = 1", "use v = 1 or pp of at least 2"
    below, above = (int(plan.accumulation // plan.pp) + k for k in (0, 1))
    near = [str(k * plan.pp) for k in (below, above) if k]
    return (
        f"interleaving over pp = {plan.pp} needs micro-batches in multiples of it, not "
        f"{digits(plan.accumulation, 4)}",
        f"use {' or '.join(near)} micro-batches, or v = 1",
    )


def schedule(model: Transformer, cluster: Cluster, plan: Plan):
    """Of the schedules only 1F1B interleaves, and ZB-V is made of two virtual stages."""
    v, name = np.asarray(plan.v), np.asarray(plan.schedule)
    return ((v > 1) & ~np.isin(name, ("1f1b", "zb-v"))) | ((name == "zb-v") & (v != 2))


def _schedule(model, cluster, plan):
    if plan.schedule == "zb-v":
        return f"zb-v has two virtual stages a rank, not v = {plan.v}", "use v = 2"
    return f"{plan.schedule} has no virtual stages, but v = {plan.v}", "use v = 1, or schedule='1f1b'"


def ranks(model: Transformer, cluster: Cluster, plan: Plan):
    """tp x cp x pp x dp is the number of GPUs there are."""
    return np.asarray(plan.ranks) != cluster.n_gpus


def _ranks(model, cluster, plan):
    have, replica = cluster.n_gpus, plan.model_ranks
    product = f"tp {plan.tp} x cp {plan.cp} x pp {plan.pp} x dp {plan.dp} = {plan.ranks} ranks"
    whole = have // replica
    if plan.ranks > have:
        does = f"use dp = {whole}" if whole else "lower tp, cp or pp"
        return f"{product}, but the cluster has {have} GPUs", f"{does}, or take {plan.ranks} GPUs"
    idle = have - plan.ranks
    better = f"use dp = {whole}" if whole > plan.dp else "choose degrees whose product it is"
    left = have - whole * replica
    rest = f" ({left} stay idle)" if left and whole > plan.dp else ""
    return f"{product} leave {idle} of the cluster's {have} GPUs idle", f"{better}{rest}"


def inside_the_domain(model: Transformer, cluster: Cluster, plan: Plan):
    """Tensor parallel communicates in every layer: it belongs on the fast links."""
    return plan.crosses("tp", cluster.domain)


def _inside_the_domain(model, cluster, plan):
    fits = [d for d in divisors(model.heads) if cluster.domain % d == 0]
    closer = "" if plan.order.startswith("tp") else " and let the order begin with tp"
    return (
        f"a tensor-parallel group of {plan.tp} leaves its {cluster.domain} GPUs on fast links, and it has "
        "traffic in every layer",
        f"use tp up to {max(fits)}{closer}",
    )


def enough_micro_batches(model: Transformer, cluster: Cluster, plan: Plan):
    """Fewer than 4 p micro-batches leave more than a fifth of a plain pipeline idle."""
    pp = np.asarray(plan.pp)
    return (pp > 1) & (np.asarray(plan.accumulation) < ENOUGH_MICRO_BATCHES * pp)


def _enough_micro_batches(model, cluster, plan):
    p, v = plan.pp, plan.v

    def bubble(m):
        return format_share((p - 1) / (m * v + p - 1))

    few, enough, plenty = plan.accumulation, ENOUGH_MICRO_BATCHES * p, 2 * ENOUGH_MICRO_BATCHES * p
    smallest = digits(enough * plan.dp * plan.micro_batch, 12)
    return (
        f"{digits(few, 4)} micro-batches over pp = {p} leave {bubble(few)} of the step idle",
        f"ask for at least {enough} ({bubble(enough)}), better {plenty} ({bubble(plenty)}): at this "
        f"micro-batch a global batch of at least {smallest}",
    )


def enough_samples(model: Transformer, cluster: Cluster, plan: Plan):
    """Few sequences a data-parallel rank make small matrices and much communication for little work."""
    return np.asarray(plan.global_batch) < ENOUGH_SAMPLES * np.asarray(plan.dp)


def _enough_samples(model, cluster, plan):
    each = plan.global_batch / plan.dp
    return (
        f"a global batch of {plan.global_batch} over dp = {plan.dp} leaves {digits(each)} sequences a rank",
        f"use dp up to {max(1, plan.global_batch // ENOUGH_SAMPLES)}, or a global batch of at least "
        f"{ENOUGH_SAMPLES * plan.dp}: small pieces compute inefficiently and communicate as much",
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
