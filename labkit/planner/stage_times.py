"""Seconds of a pipeline's stages and boundaries from a model's shape and a cluster's figures.

``pipeline_times`` is that of a pipeline alone, stage by stage, as the simulation takes it; the other two are
of a plan, which cuts the layers of a stage further.
"""

import numpy as np

from labkit.collectives import collective_cost
from labkit.errors import InputRefused
from labkit.planner.bill import step_bill
from labkit.planner.compute import compute_time
from labkit.planner.rank_parameters import layers_on_rank
from labkit.spec import Cluster, Plan, Transformer
from labkit.spec.checks import floats, one_of, whole
from labkit.spec.rules import check_nouns
from labkit.strategies.pipeline import StageTimes
from labkit.units import plain

HEAD = ("last", "spread", "none")
_WITHOUT_WEIGHTS = ("scores", "context")
_BYTES = 2.0  # of an activation in half precision


def pipeline_times(
    model: Transformer,
    cluster: Cluster,
    p: int,
    v: int = 1,
    *,
    micro_batch: int = 1,
    layers=None,
    head: str = "last",
    precision: str | None = None,
) -> StageTimes:
    """Times of one micro-batch on ``p`` ranks of ``v`` chunks each: FLOPs over what the GPU reaches.

    ``layers``: layers of each stage, shape (p v,), the model's layers evenly unless given. A backward is
    twice the forward; its weight gradient is once the products that have weights, its input gradient the
    rest, the attention scores and context twice. The output ``head`` sits on the last stage, is ``spread``
    evenly, or is left out (``none``); the embedding is a look-up and takes no FLOPs. A boundary carries one
    activation tensor, over the fast links where both ranks share a domain, else over one network port; ranks
    fill domains one after the other, and stage s is on rank s mod p. Refused: layers that do not add up to
    the model's, and what ``compute_time`` refuses.

    >>> from labkit.spec import Gpu, Link
    >>> gpt = Transformer("gpt", 24, 2048, 16, 50257, 1024)
    >>> gpu = Gpu("A100", 80e9, {"bf16": 312e12}, 0.8)
    >>> node = Cluster("a100", gpu, 1, 8, Link(2e-6, 2e11), Link(5e-6, 2e10), 8)
    >>> times = pipeline_times(gpt, node, p=4)
    >>> times.forward.round(5).tolist(), round(1e6 * times.transfer[0])
    ([0.00268, 0.00268, 0.00268, 0.00353], 23)
    """
    check_nouns(model=model, cluster=cluster)
    one_of(HEAD, head, "where the head sits", arrays=False)
    p, v = whole(p, "the number of pipeline ranks"), whole(v, "the number of chunks of a rank")
    micro_batch = whole(micro_batch, "the micro-batch of a pipeline")
    stages = p * v
    layers = _layers(model, stages, layers)
    flops = model.forward_flops(micro_batch)
    of_head = compute_time(flops.pop("head"), cluster.gpu, precision)
    layer = compute_time(sum(flops.values()) / model.layers, cluster.gpu, precision)
    weightless = compute_time(
        sum(flops[name] for name in _WITHOUT_WEIGHTS) / model.layers, cluster.gpu, precision
    )
    vocabulary = np.zeros(stages)
    if head == "last":
        vocabulary[-1] = of_head
    elif head == "spread":
        vocabulary[:] = of_head / stages
    forward = layers * layer + vocabulary
    return StageTimes(
        forward,
        2 * forward,
        _transfers(model, cluster, p, stages, micro_batch),
        forward - layers * weightless,
    )


def _layers(model: Transformer, stages: int, layers) -> np.ndarray:
    """Layers of each stage, as floats."""
    if layers is None and model.layers % stages:
        raise InputRefused(
            f"{model.layers} layers do not divide evenly into {stages} stages; give the layers of each"
        )
    layers = np.full(stages, model.layers / stages) if layers is None else floats(layers)
    if layers.shape != (stages,) or layers.sum() != model.layers or not np.all(layers >= 0):
        raise InputRefused(
            f"{stages} stages share {model.layers} layers; give one count per stage that add up to them"
        )
    return layers


def _transfers(model: Transformer, cluster: Cluster, p: int, stages: int, micro_batch: int) -> np.ndarray:
    """Seconds of one activation tensor over each boundary."""
    size = _BYTES * micro_batch * model.sequence * model.hidden
    inside, across = (
        collective_cost("send_recv", "linear", size, 2, link).seconds
        for link in (cluster.intra, cluster.inter)
    )
    domain = np.arange(stages) % p // cluster.domain
    return np.where(domain[1:] == domain[:-1], inside, across)


def stage_forward(model: Transformer, cluster: Cluster, plan: Plan):
    """Seconds of forward compute on a rank of the first stage, per micro-batch: its layers' FLOPs / tp."""
    check_nouns(model=model, cluster=cluster, plan=plan)
    flops = model.forward_flops(plan.micro_batch)
    layers = sum(np.asarray(count) for name, count in flops.items() if name != "head") / model.layers
    share = np.asarray(layers_on_rank(model, plan, "first")) / (np.asarray(plan.tp, float) * plan.cp)
    return plain(np.asarray(compute_time(layers, cluster.gpu)) * share)


def stage_transfer(model: Transformer, cluster: Cluster, plan: Plan):
    """Seconds of one activation tensor to the next stage, on the link of the plan's slowest boundary.

    0 without a pipeline.
    """
    rows = [row for row in step_bill(model, cluster, plan) if row.strategy == "pipeline"]
    each = (np.asarray(row.seconds(cluster)) / np.maximum(row.count, 1) for row in rows)
    return plain(sum(each, start=np.asarray(0.0)))
