"""The overlaps of section 4.3, each off and on, as timelines of one rank."""

import numpy as np

from labkit.course.chapter2_topology import layer
from labkit.course.chapter3_buckets import blocks_of, ring_on
from labkit.course.chapter3_data import SMALL
from labkit.course.chapter3_tensor import block_times
from labkit.planner.sharding import sharded_layer
from labkit.presets import model
from labkit.spec import Cluster, Plan
from labkit.strategies.buckets import CAP, FIRST_CAP
from labkit.strategies.overlap import step_timeline
from labkit.strategies.prefetch import Prefetched, prefetch_timeline, prefetched
from labkit.strategies.tensor_overlap import beside_weight_gradients, half_batches, in_chunks, in_turn
from labkit.strategies.timeline import Timeline

CHUNKS = 4
DRAWN, ALL = 2, int(layer().layers)  # layers of the guide's 13 B: those a lab draws, and all


def gradient_buckets(machine: Cluster, n, sequences, bucket, slow_down) -> tuple[Timeline, Timeline]:
    """Off and on: one step of the 1.3 B model of section 3.1 on ``n`` ranks."""
    blocks = blocks_of(SMALL, machine.gpu, sequences)
    first = min(FIRST_CAP, bucket)
    return tuple(
        step_timeline(blocks, ring_on(machine, n), bucket, first, slow_down, overlap=on)
        for on in (False, True)
    )


def tensor_parallel(
    way: str, machine: Cluster, sequences, slow_down, layers=DRAWN
) -> tuple[Timeline, Timeline]:
    """Off and on: some or all ``layers`` of the guide's 13 B, tensor parallel inside a node.

    ``way``: in chunks or half batches, forward; beside weight gradients, backward, which computes twice as
    much. A block of ``chapter3_tensor.block_times`` is half a layer.
    """
    block, product, all_reduce = block_times(min(8, machine.domain), machine, sequences)
    rest, blocks = block - product, 2 * layers
    if way == "in chunks":
        on = in_chunks(rest, product, all_reduce, CHUNKS, blocks, slow_down)
    elif way == "half batches":
        on = half_batches(block, all_reduce, blocks, slow_down)
    else:
        off = beside_weight_gradients(2 * block, 0.0, all_reduce, blocks)  # nothing is left to run beside
        return off, beside_weight_gradients(block + product, rest, all_reduce, blocks, slow_down)
    return in_turn(block, all_reduce, blocks), on


def stage_3(machine: Cluster, n, sequences, slow_down) -> tuple[Timeline, Timeline]:
    """Off and on: a micro-batch of gpt3-13b under stage 3, its layers gathered when needed or one ahead."""
    layers, times = _stage_3_layer(machine, n, sequences)
    return tuple(prefetch_timeline(layers, *times, depth, slow_down=slow_down) for depth in (0, 1))


def _stage_3_layer(machine: Cluster, n, sequences) -> tuple:
    """Layers of gpt3-13b, and the seconds that one takes: forward, backward, gather, reduce_scatter."""
    one = model("gpt3-13b")
    layer = sharded_layer(one, machine, Plan(dp=n, zero=3, micro_batch=sequences))
    return one.layers, (layer.forward, layer.backward, layer.gather, layer.scatter)


# Each overlap, and what its timeline is the time of.
TIMED = {
    "gradient buckets": "step",
    "tensor parallel, in chunks": "forward, 13 B",
    "tensor parallel, half batches": "forward, 13 B",
    "tensor parallel, beside weight gradients": "backward, 13 B",
    "stage-3 prefetch": "micro-batch",
}
OVERLAPS = tuple(TIMED)


def off_and_on(
    overlap: str, machine: Cluster, n=64, sequences=2, bucket=CAP, slow_down=1.0, layers=DRAWN
) -> tuple[Timeline, Timeline]:
    """One of ``OVERLAPS``, off and on: ``n`` ranks, ``sequences`` of 2,048 tokens on each.

    ``layers``: of tensor parallel; the others show all of their model.
    """
    if overlap == "gradient buckets":
        return gradient_buckets(machine, n, sequences, bucket, slow_down)
    if overlap == "stage-3 prefetch":
        return stage_3(machine, n, sequences, slow_down)
    return tensor_parallel(overlap.split(", ")[1], machine, sequences, slow_down, layers)


def measures(t: Timeline | Prefetched) -> tuple:
    """Coverage, exposed seconds of a rank, exposed share of the time."""
    exposed = t.exposed if isinstance(t, Prefetched) else t.exposed[0]
    return t.coverage, exposed, exposed / t.span


def measures_by_sequences(
    overlap: str, machine: Cluster, n, sequences, bucket=CAP, slow_down=1.0
) -> tuple[np.ndarray, np.ndarray]:
    """Off and on: ``measures`` at each number of ``sequences`` per rank, shape (3, numbers)."""
    if overlap == "stage-3 prefetch":  # hundreds of events, and a recurrence that takes all numbers at once
        layers, times = _stage_3_layer(machine, n, np.asarray(sequences))
        found = [measures(prefetched(layers, *times, depth, slow_down=slow_down)) for depth in (0, 1)]
        return tuple(map(np.array, found))
    pairs = [off_and_on(overlap, machine, n, each, bucket, slow_down) for each in sequences]
    return tuple(np.array([measures(t) for t in ways]).T for ways in zip(*pairs, strict=True))
