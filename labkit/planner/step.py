"""Seconds of one optimizer step of a plan, and where they go: compute, communication, bubble, update.

The parts come from ``layer_times`` and ``end_times`` (kernels, from microbenchmarks), ``step_bill`` (what is
sent) and ``strategies.pipeline`` (when a stage can work). Here they are laid out: what waits for what, and
what hides. No constant of a training run is in it.
"""

import numpy as np

from labkit.planner.alike import Alike
from labkit.planner.bill import step_bill
from labkit.planner.compute import usual_precision
from labkit.planner.conventions import USUAL, Conventions
from labkit.planner.end_times import update_times
from labkit.planner.memory import memory
from labkit.planner.stage_kinds import FIRST, LAST, LONGER
from labkit.planner.stage_work import stage_work
from labkit.planner.step_traffic import StepTraffic, step_traffic
from labkit.spec import Cluster, Plan, StepTime, Transformer
from labkit.spec.checks import noun, one_of, together
from labkit.spec.rules import check_nouns
from labkit.strategies.contention import SLOW_DOWN, slow_down_factor
from labkit.strategies.pipeline import pipeline_span
from labkit.units import plain

_ROUNDING = 1e-12
BUCKET = 25e6  # bytes of gradients that travel together, the usual default of PyTorch's data parallel


def step_time(
    model: Transformer,
    cluster: Cluster,
    plan: Plan,
    *,
    bucket: float = BUCKET,
    overlap: bool = True,
    slow_down: float = SLOW_DOWN,
    conventions: Conventions = USUAL,
) -> StepTime:
    """Where the seconds of one step go on the busiest rank; of an array of plans, arrays.

    Compute: each matrix product by its shape, attention, and what streams through memory; full recompute does
    the forward again, selective the attention core. ``launch``: kernels times what starting one takes.
    Collectives inside a layer wait for their data and the layer for them, so they show, but for two: what
    sequence parallel gathers again runs beside a weight gradient, and the keys and values of a ring beside
    attention. Stages pass activations on without stopping; ``pp`` is what the step takes longer by them.
    Gradients hide under the last backward of a stage, in pieces of ``bucket`` bytes, the last of which shows;
    without ``overlap`` all of them show. Weights of stages 1 and 2 are gathered after the update, and show;
    stage 3 gathers layers ahead. ``bubble``: the pipeline's span less the work of its busiest rank, unequal
    stages and the head's weight included. Beside a hidden collective computing takes ``slow_down`` times as
    long, which is in ``compute``; transfers between stages need no processors to speak of.

    Left out: input, checkpoints and other waiting (``data``, ``idle`` are 0). ``conventions``: bytes of
    states. Refused: what ``step_bill`` and ``memory`` refuse, a ``bucket`` that is not above 0, and a
    ``slow_down`` below 1.
    """
    check_nouns(model=model, cluster=cluster, plan=plan)
    noun(conventions, Conventions, "the conventions")
    overlap = one_of((False, True), overlap, "overlap", arrays=False).item()
    slow_down = slow_down_factor(slow_down)
    together("a step", cluster=cluster, plan=plan, bucket=bucket)
    rows = step_bill(model, cluster, plan, recipe=conventions.recipe, bucket=bucket)
    traffic = step_traffic(model, cluster, plan, rows)
    alike = Alike.of(plan, cluster=cluster, bucket=bucket)
    work = stage_work(model, cluster.gpu, alike.plan(plan), alike.traffic(traffic))
    forward, backward = (sum(each.values()) for each in (work.forward, work.backward))
    m, longer = np.asarray(plan.accumulation, float), work.kinds.counts[..., LONGER].astype(int)
    order = plan.schedule, plan.pp, m, plan.v, forward, backward, work.weight_gradient
    spans = [alike.each(np.asarray(pipeline_span(*order, hop, longer))) for hop in (0.0, traffic.hop)]
    busiest = {cause: alike.each(m * seconds) for cause, seconds in work.busiest(plan).items()}
    waits = spans[0] - sum(busiest.values())
    at_end = _gradients(traffic, alike.each(backward, 1), plan, m, overlap)
    update, starts = update_times(model, cluster.gpu, plan, conventions.recipe)
    terms = {
        **busiest,
        "pp": np.maximum(spans[1] - spans[0], 0.0),
        "dp": busiest["dp"] + at_end,
        "optimizer": update,
        "launch": busiest["launch"] + starts * cluster.gpu.kernels.launch,
        "bubble": np.where(waits > _ROUNDING * spans[0], waits, 0.0),
    }
    inside = sum(np.asarray(terms[name]) for name in ("tp", "cp", "ep", "dp"))
    hidden = np.maximum(traffic.total - traffic.hop * traffic.hops - inside, 0.0)
    terms["compute"] = terms["compute"] + (1 - 1 / slow_down) * hidden
    shown = inside + terms["pp"]
    precision = usual_precision(cluster.gpu, None)
    return StepTime(
        **{name: plain(value) for name, value in terms.items()},
        communication=plain(np.maximum(traffic.total, shown)),
        tokens=plain(np.asarray(plan.global_batch) * model.sequence),
        gpus=plan.ranks,
        model_flops=model.model_flops(plan.global_batch),
        hardware_flops=model.hardware_flops(plan.global_batch, recompute=plan.recompute),
        peak=cluster.gpu.peak[precision],
        peak_memory=memory(model, cluster, plan, conventions).peak,
    )


def _gradients(traffic: StepTraffic, backward, plan: Plan, m, overlap: bool):
    """Seconds of gradients and weights that the step waits for at its end, or after each micro-batch."""
    # The first stage is done last.
    window = np.where(np.asarray(plan.pp) * plan.v > 1, backward[..., FIRST], backward[..., LAST])
    window = np.asarray(plan.v, float) * window * overlap
    last = np.asarray(traffic.reduce) / traffic.pieces
    once = np.maximum(np.asarray(traffic.reduce) - window, last if overlap else traffic.reduce)
    each = np.asarray(traffic.per_micro_batch) / m
    scattered = m * np.maximum(each - window, each / traffic.pieces if overlap else each)
    return once + scattered + traffic.weights + traffic.late
