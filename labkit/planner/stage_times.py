"""What a stage of a plan computes forward against what it passes on, per micro-batch."""

import numpy as np

from labkit.planner.bill import step_bill
from labkit.planner.compute import compute_time
from labkit.planner.rank_parameters import layers_on_rank
from labkit.spec import Cluster, Plan, Transformer
from labkit.units import plain


def stage_forward(model: Transformer, cluster: Cluster, plan: Plan):
    """Seconds of forward compute on a rank of the first stage, per micro-batch: its layers' FLOPs / tp."""
    flops = model.forward_flops(plan.micro_batch)
    layers = sum(np.asarray(count) for name, count in flops.items() if name != "head") / model.layers
    share = np.asarray(layers_on_rank(model, plan, "first")) / (np.asarray(plan.tp, float) * plan.cp)
    return plain(np.asarray(compute_time(layers, cluster.gpu)) * share)


def stage_transfer(model: Transformer, cluster: Cluster, plan: Plan):
    """Seconds of one activation tensor to the next stage, on the link of the plan's slowest boundary."""
    rows = [row for row in step_bill(model, cluster, plan) if row.strategy == "pipeline"]
    return plain(sum((np.asarray(row.seconds(cluster)) / row.count for row in rows), start=np.asarray(0.0)))
