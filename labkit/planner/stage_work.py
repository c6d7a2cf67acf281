"""What a stage does with one micro-batch, by cause, and what the busiest rank of a pipeline does."""

from dataclasses import dataclass

import numpy as np

from labkit.planner.end_times import embedding_times, head_times
from labkit.planner.layer_times import LayerTimes, layer_times
from labkit.planner.stage_kinds import LONGER, StageKinds, stage_kinds
from labkit.planner.step_traffic import BACKWARD, FORWARD, StepTraffic
from labkit.spec import Gpu, Plan, Transformer
from labkit.strategies.prefetch_closed import exposed_prefetch

CAUSES = ("compute", "launch", "tp", "cp", "ep", "dp")


@dataclass(frozen=True, slots=True)
class StageWork:
    """Seconds of one micro-batch on a stage of each kind: arrays that end in the axis of kinds.

    ``forward`` and ``backward``: by cause, nothing in them hidden. ``weight_gradient``: of the backward, what
    a zero-bubble schedule may put off.
    """

    kinds: StageKinds
    forward: dict[str, np.ndarray]
    backward: dict[str, np.ndarray]
    weight_gradient: np.ndarray

    def busiest(self, plan: Plan) -> dict[str, np.ndarray]:
        """Seconds of one micro-batch on the busiest rank, by cause: of its chunks, forward and backward."""
        ranks = {
            cause: _on_ranks(self.forward[cause] + self.backward[cause], plan, self.kinds) for cause in CAUSES
        }
        place = np.expand_dims(sum(ranks.values()).argmax(axis=-1), -1)
        return {
            cause: np.take_along_axis(np.broadcast_to(each, (*place.shape[:-1], 3)), place, -1)[..., 0]
            for cause, each in ranks.items()
        }


def _on_ranks(stages: np.ndarray, plan: Plan, kinds: StageKinds) -> np.ndarray:
    """What stages take, added up over the chunks of a rank: the first, the fullest between, the last."""
    pp, v = np.asarray(plan.pp, float), np.asarray(plan.v, float)
    first, inner, longer, last = (stages[..., kind] for kind in range(4))
    more = np.where(kinds.counts[..., LONGER] > 0, longer, inner)
    folded = np.asarray(plan.schedule) == "zb-v"
    one = pp == 1
    alone = np.where(v > 1, first + (v - 2) * inner + last, last)  # all chunks on one rank
    found = (
        np.where(one, alone, first + np.where(folded, last, (v - 1) * inner)),
        np.where(pp > 2, v * more, 0.0),
        np.where(one, 0.0, np.where(folded, v * more, (v - 1) * inner + last)),
    )
    return np.stack(np.broadcast_arrays(*found), axis=-1)


def stage_work(model: Transformer, gpu: Gpu, plan: Plan, traffic: StepTraffic) -> StageWork:
    """The work of each kind of stage, from its layers and ends, with the communication that it waits for."""
    kinds = stage_kinds(model, plan)
    layer = layer_times(model, gpu, plan)
    first, last = embedding_times(model, gpu, plan), head_times(model, gpu, plan)
    layers, embeds, predicts = kinds.layers, kinds.embeds, kinds.predicts

    def summed(of_layer, of_first=0.0, of_last=0.0):
        return layers * _wide(of_layer) + embeds * _wide(of_first) + predicts * _wide(of_last)

    again, again_starts = _recomputed(layer, plan)
    tensor, context = _tensor(layer, traffic), _context(layer, plan, traffic, again > 0)
    compute = (
        summed(layer.forward, first.forward, last.forward),
        summed(np.asarray(layer.backward) + again, first.backward, last.backward),
    )
    starts = (
        summed(layer.starts, first.starts, last.starts),
        summed(np.asarray(layer.backward_starts) + again_starts, first.starts, 2 * last.starts),
    )
    forward, backward = (
        {
            "compute": compute[way],
            "launch": gpu.kernels.launch * starts[way],
            "tp": summed(tensor[way], traffic.first_end[way], traffic.last_end[way]),
            "cp": summed(context[way]),
            "ep": summed(traffic.expert[way]),
        }
        for way in (FORWARD, BACKWARD)
    )
    for way, parts in ((FORWARD, forward), (BACKWARD, backward)):
        # The host issues kernels ahead of the GPU, which waits where they are shorter than that takes.
        waiting = np.maximum(gpu.kernels.host * starts[way] - sum(parts.values()), 0.0)
        parts["launch"] = parts["launch"] + waiting
    waits = _layers_ahead(kinds, plan, traffic, forward, backward)
    weight = summed(layer.weight_gradient, first.weight_gradient, last.weight_gradient)
    return StageWork(kinds, {**forward, "dp": 0.5 * waits}, {**backward, "dp": 0.5 * waits}, weight)


def _wide(value) -> np.ndarray:
    """With one more axis, for the kinds."""
    return np.asarray(value)[..., None]


def _recomputed(layer: LayerTimes, plan: Plan) -> tuple:
    """Seconds of a layer that the backward computes again, and the kernels that it starts for it."""
    mode = np.asarray(plan.recompute)
    seconds, starts = np.asarray(0.0), np.asarray(0.0)
    for name, again, kernels in (
        ("full", layer.forward, layer.starts),
        ("selective", layer.attention, layer.attention_starts),
    ):
        seconds, starts = np.where(mode == name, again, seconds), np.where(mode == name, kernels, starts)
    return seconds, starts


def _tensor(layer: LayerTimes, traffic: StepTraffic) -> list:
    """Of a layer's tensor-parallel collectives, what shows: those gathered again run beside the weights."""
    beside = np.maximum(np.asarray(traffic.again) - layer.weight_gradient, 0.0)
    return [traffic.tensor[FORWARD], traffic.tensor[BACKWARD] + beside]


def _context(layer: LayerTimes, plan: Plan, traffic: StepTraffic, again) -> list:
    """Of a layer's context-parallel exchange, what shows: a ring passes blocks on beside attention."""
    cp = np.asarray(plan.cp, float)
    ring = np.asarray(plan.context) == "ring"
    shows = []
    for seconds, attention in (
        (traffic.context[FORWARD], layer.attention),
        (traffic.context[BACKWARD], layer.attention_backward + again * np.asarray(layer.attention)),
    ):
        beside = np.where(ring, (cp - 1) / cp * attention, 0.0)
        shows.append(np.maximum(seconds - beside, 0.0))
    return shows


def _layers_ahead(kinds: StageKinds, plan: Plan, traffic: StepTraffic, forward, backward) -> np.ndarray:
    """What a stage waits for layers that stage 3 gathers, for one micro-batch."""
    layers = np.maximum(kinds.layers, 1e-9)
    each = [sum(one.values()) / layers for one in (forward, backward)]
    gather, scatter = _wide(traffic.gather), _wide(traffic.scatter)
    waits = exposed_prefetch(kinds.layers, *each, gather, scatter, _wide(plan.prefetch))
    return np.asarray(waits) * (_wide(plan.zero) == 3)
