"""What a plan's step is made of: compute, bubble, and the communication that nothing hides.

Estimates from bounds, as ``labkit.planner.levers`` makes them: a collective hides at most as long as the
computation that may legally run beside it, and the last piece never does.
"""

import numpy as np

from labkit.collectives.scaling import BACKWARD_SHARE
from labkit.errors import InputRefused
from labkit.planner.bill import AGAIN, check_rows, step_bill
from labkit.planner.compute import compute_time
from labkit.planner.traffic import BillRow
from labkit.spec import Cluster, Plan, Transformer
from labkit.spec.checks import together
from labkit.spec.plan import SCHEDULES
from labkit.spec.rules import check_nouns
from labkit.strategies.pipeline import bubble_over_ideal
from labkit.units import plain

BUCKET = 25e6  # bytes of gradients that travel together, the usual default of PyTorch's data parallel
_SPLIT = tuple(name for name in SCHEDULES if name.startswith("zb-"))  # split backward: their own bubbles


def exposed_seconds(
    model: Transformer, cluster: Cluster, plan: Plan, rows: list[BillRow] | None = None
) -> dict[str, float]:
    """Seconds of one step by part: compute, bubble, and exposed tensor, context, expert, pipeline, data.

    Compute: hardware FLOPs, split evenly over the ranks, at the reached share of peak. Bubble:
    (p - 1)/(m v) of it. Collectives inside a layer wait for their data and the layer for them: all exposed,
    but the all_gather beside a weight gradient. Transfers between stages: all exposed, as plain 1F1B leaves
    them. Gradients hide under the backward pass of the last micro-batch, but for the last bucket; stage 3
    under all compute, but for the first layer; the weights of stages 1 and 2 under nothing. ``rows``: the
    plan's bill in buckets of ``BUCKET``, where it is at hand. Refused: a zero-bubble schedule.
    """
    check_nouns(model=model, cluster=cluster, plan=plan)
    together("a step", cluster=cluster, plan=plan)
    if np.any(np.isin(plan.schedule, _SPLIT)):
        raise InputRefused(
            f"this knows the bubble of 1F1B and GPipe, not of {', '.join(_SPLIT)}; simulate those schedules"
        )
    rows = step_bill(model, cluster, plan, bucket=BUCKET) if rows is None else rows
    check_rows(rows)
    m = np.asarray(plan.accumulation)
    flops = model.hardware_flops(plan.global_batch, recompute=plan.recompute)
    compute = np.asarray(compute_time(flops, cluster.gpu)) / plan.ranks
    last_backward = BACKWARD_SHARE * compute / m
    parts = {name: np.asarray(0.0) for name in ("tensor", "context", "expert", "pipeline", "data")}
    layer_by_layer, pieces = np.asarray(0.0), np.asarray(0.0)
    for row in rows:
        seconds, part = np.asarray(row.seconds(cluster)), row.strategy.split()[0]
        if row.strategy.startswith("stage 3"):
            layer_by_layer, pieces = layer_by_layer + seconds, pieces + row.count
        elif part in ("data", "stage"):
            hides = row.collective != "all_gather"
            last = seconds / np.maximum(row.count, 1)
            parts["data"] = parts["data"] + np.maximum(seconds - hides * last_backward, last)
        elif part == "embedding":
            parts["data"] = parts["data"] + seconds
        elif row.strategy != AGAIN:
            parts[part] = parts[part] + seconds
    first = layer_by_layer / np.maximum(pieces, 1)
    parts["data"] = parts["data"] + np.maximum(layer_by_layer - compute, first)
    bubble = np.asarray(bubble_over_ideal(plan.pp, m, plan.v)) * compute
    return {name: plain(value) for name, value in {"compute": compute, "bubble": bubble, **parts}.items()}
