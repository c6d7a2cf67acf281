"""The bill of a step in seconds, sorted by when it is due: with each layer, at an end, between stages, once.

``bill`` says what is sent; here each row gets its seconds on the cluster, by pass of one micro-batch. What of
it hides is not decided here.
"""

from dataclasses import dataclass, field

import numpy as np

from labkit.planner.bill import AGAIN
from labkit.planner.rank_parameters import most_layers
from labkit.planner.traffic import BillRow
from labkit.spec import Cluster, Plan, Transformer
from labkit.spec.rules import check_nouns

FORWARD, BACKWARD = 0, 1


def _nothing() -> list:
    return [np.asarray(0.0), np.asarray(0.0)]


@dataclass(slots=True)
class StepTraffic:
    """Seconds of collectives on the busiest rank, each one after the other; pairs are forward, backward.

    Of one layer and micro-batch: ``tensor``, ``again`` (gathered once more beside a weight gradient),
    ``context``, ``expert``, and with stage 3 ``gather`` and ``scatter``. Of one micro-batch at an end:
    ``first_end`` and ``last_end``. ``hop``: one activation to the next stage, ``hops`` a step. Once a step:
    ``reduce``, what makes gradients complete, in ``pieces``; ``per_micro_batch``, the same where stage 2
    scatters them each time; ``weights``, gathered after the update; ``late``, small ones at the end.
    ``total``: all of a step.
    """

    tensor: list = field(default_factory=_nothing)
    again: object = 0.0
    context: list = field(default_factory=_nothing)
    expert: list = field(default_factory=_nothing)
    first_end: list = field(default_factory=_nothing)
    last_end: list = field(default_factory=_nothing)
    gather: object = 0.0
    scatter: object = 0.0
    hop: object = 0.0
    hops: object = 0.0
    reduce: object = 0.0
    pieces: object = 1.0
    per_micro_batch: object = 0.0
    weights: object = 0.0
    late: object = 0.0
    total: object = 0.0


def step_traffic(model: Transformer, cluster: Cluster, plan: Plan, rows: list[BillRow]) -> StepTraffic:
    """The rows of the plan's bill, as ``step_bill`` lists them, in seconds on the cluster."""
    check_nouns(model=model, cluster=cluster, plan=plan)
    m = np.asarray(plan.accumulation, float)
    layers = np.maximum(most_layers(model, plan), 1)
    full = np.asarray(plan.recompute) == "full"
    found = StepTraffic()
    for row in rows:
        seconds = np.asarray(row.seconds(cluster))
        found.total = found.total + seconds
        _sort(found, row, seconds, plan, m, layers, full)
    return found


def _sort(found: StepTraffic, row: BillRow, seconds, plan: Plan, m, layers, full) -> None:
    name = row.strategy
    each = seconds / (m * layers)  # of one layer and micro-batch
    if name in ("tensor parallel", "tensor parallel, experts", "expert parallel"):
        # Two of four forward, and two more in the backward where it computes the forward again.
        share = 2 / (4 + 2 * full)
        _add(found.expert if name == "expert parallel" else found.tensor, each, share)
    elif name == AGAIN:
        found.again = found.again + each
    elif name.startswith("context parallel"):
        _add(found.context, each, _forward_of_context(plan, row.collective))
    elif name == "tensor parallel, ends":
        # The sum of the embedding forward, that of the head backward.
        of_one = seconds / np.maximum(row.count, 1)
        found.first_end[FORWARD] = found.first_end[FORWARD] + of_one
        found.last_end[BACKWARD] = found.last_end[BACKWARD] + of_one
    elif name == "tensor parallel, loss":
        found.last_end[FORWARD] = found.last_end[FORWARD] + seconds / m
    elif name == "pipeline":
        found.hop = found.hop + seconds / np.maximum(row.count, 1)
        found.hops = found.hops + row.count
    elif name.startswith("stage 3"):
        if row.collective == "all_gather":
            found.gather = found.gather + each / 2  # forward and backward
        else:
            found.scatter = found.scatter + each
    elif name.startswith(("tensor parallel, norms", "tensor parallel, copied", "embedding")):
        found.late = found.late + seconds
    elif row.collective == "all_gather":
        found.weights = found.weights + seconds
    elif name.startswith("stage 2"):
        found.per_micro_batch = found.per_micro_batch + seconds
        found.pieces = np.maximum(found.pieces, row.count / m)
    else:
        found.reduce = found.reduce + seconds
        found.pieces = np.maximum(found.pieces, row.count)


def _add(pair: list, seconds, share) -> None:
    pair[FORWARD] = pair[FORWARD] + seconds * share
    pair[BACKWARD] = pair[BACKWARD] + seconds * (1 - share)


def _forward_of_context(plan: Plan, collective: str):
    """Share of a context-parallel row that is the forward's."""
    again = (np.asarray(plan.recompute) != "none").astype(float)
    if collective == "all_to_all":
        return 1 / (2 + again)
    cp = np.asarray(plan.cp, float)
    return (cp - 1) / np.maximum((2 + again) * (cp - 1) + cp, 1)
