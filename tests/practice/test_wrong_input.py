"""Every argument of the practice wing given what it is not: used, or refused in one sentence."""

import numpy as np
import pytest

from labkit.errors import InputRefused
from labkit.practice import failures, learning_rate, noisy_quadratic, resuming, save_timeline, saving, scaling
from labkit.practice.allocator import (
    CachingAllocator,
    ExpandableAllocator,
    Job,
    batches,
    cause_of_failure,
    draw_lengths,
    run_steps,
)
from labkit.practice.resharding import change, formats, reading, slices, tensors
from labkit.practice.resharding.layout import stage_of_layers
from labkit.presets import cluster
from labkit.spec import Plan, Transformer
from tests.planner.test_wrong_input import refusals

MODEL = Transformer("small", 4, 16, 4, 100, 32)
NODE, PLAN = cluster("a100"), Plan(tp=2, dp=2, zero=1)
ROUTINE = {"way": "asynchronous", "step": 1.0, "every": 4, "copy": 0.5, "write": 2.0}
LOST = {"interval": 100.0, "save": 1.0, "mtbf": 1e4, "restart": 10.0, "late": 1.0}
ON_PLANS = {"model": MODEL, "source": PLAN, "target": PLAN}
TOY = {"samples": 512, "batch": 64, "method": "gradient descent", "noise": 8.0}
REPLICA = Plan(tp=2, micro_batch=1, global_batch=4)
ALLOCATED = {"shapes": [(1, 64)], "capacity": 10**9, "job": Job(layers=1, hidden=64), "allocator": "segments"}
CURVE = {"model": MODEL, "cluster": NODE, "plan": REPLICA, "cards": [2, 4]}
CALLS = [
    (saving.checkpoint_bytes, {"parameters": 1e9, "recipe": saving.MIXED}),
    (saving.write_seconds, {"size": 1e9, "rate": 1e9, "writers": 2, "shared": 1e10}),
    (saving.copy_seconds, {"size": 1e9, "cards": 2, "rate": 1e9}),
    (saving.host_bytes, {"size": 1e9, "cards": 16, "per_host": 8}),
    (saving.stall_seconds, ROUTINE),
    (saving.stall_share, ROUTINE),
    (save_timeline.save_timeline, {**ROUTINE, "steps": 9}),
    (failures.job_mtbf, {"failures": 0.2, "cards": 8}),
    (failures.young_interval, {"save": 1.0, "mtbf": 1e4}),
    (failures.daly_interval, {"save": 1.0, "mtbf": 1e4, "restart": 1.0, "order": 2}),
    (failures.lost_share, LOST),
    (failures.parts_lost, LOST),
    (slices.cuts, {"length": 12, "parts": 4, "unit": 1}),
    (slices.overlaps, {"source": slices.cuts(12, 4), "target": slices.cuts(12, 3)}),
    (slices.assemble, {"shards": [np.arange(4), np.arange(3)], "parts": 3, "unit": 1}),
    (tensors.tensors, {"model": MODEL}),
    (stage_of_layers, {"model": MODEL, "plan": Plan(pp=2)}),
    (formats.changes, {"source": PLAN, "target": PLAN, "model": MODEL}),
    (formats.survives, {"form": "dcp", "source": PLAN, "target": PLAN, "model": MODEL}),
    (change.reshard, {**ON_PLANS, "cluster": NODE, "form": "dcp"}),
    (change.nearest_layouts, {"model": MODEL, "cluster": NODE, "wanted": PLAN, "most": 2}),
    (reading.reads, {**ON_PLANS, "recipe": saving.MIXED}),
    (resuming.start, {"ranks": 4}),
    (resuming.resharded, {"saved": resuming.start(4), "ranks": 2}),
    (resuming.train, {"saved": resuming.start(4), "steps": 1, "batch": 8, "rate": 0.1}),
    (resuming.resumed, {"way": "all of it", "ranks": (1, 2), "steps": (1, 1), "batch": 8}),
    (resuming.repeats, {"total": 10, "read": 5, "again": 5}),
    (CachingAllocator, {"capacity": 10**9}),
    (CachingAllocator(10**9).allocate, {"size": 512}),
    (ExpandableAllocator(10**9).allocate, {"size": 512}),
    (Job, {"layers": 1, "hidden": 64, "vocabulary": 10, "accumulation": 1, "leak": 8}),
    (run_steps, ALLOCATED),
    (
        cause_of_failure,
        {"capacity": 8e10, "allocated": 6e10, "reserved": 7e10, "asked": 1e9, "grown": 0.0},
    ),
    (draw_lengths, {"count": 9, "median": 100.0, "longest": 512, "spread": 0.5, "seed": 1}),
    (batches, {"lengths": [5, 9], "rows": 1, "longest": 16, "way": "buckets", "buckets": 2}),
    (learning_rate.rate_factor, {"batch": 64, "new_batch": 512, "rule": "linear"}),
    (learning_rate.warm_ups, {"steps": 20, "total_steps": 1000, "batch": 64, "new_batch": 512}),
    (learning_rate.steps_needed, {"batch": 64, "critical": 512}),
    (learning_rate.samples_needed, {"batch": 64, "critical": 512}),
    (learning_rate.rate_for_noise, {"batch": 64, "critical": 512}),
    (noisy_quadratic.loss_after, {**TOY, "rate": 0.1}),
    (noisy_quadratic.best_rate, TOY),
    (scaling.scaling_curve, {**CURVE, "mode": "weak"}),
    (scaling.scaling_curves, CURVE),
    (scaling.crossing, {"plan": REPLICA, "domain": 8}),
]


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(("call", "given"), CALLS, ids=lambda part: getattr(part, "__name__", ""))
def test_every_argument_of_every_kind(call, given):
    assert refusals(call, given) >= len(given) * 8


@pytest.mark.parametrize(("call", "given"), CALLS[:12], ids=lambda part: getattr(part, "__name__", ""))
def test_arrays_that_do_not_broadcast(call, given):
    names = [name for name, value in given.items() if isinstance(value, float | int)]
    if len(names) < 2 or call is save_timeline.save_timeline:
        return
    with pytest.raises(InputRefused):
        call(**{**given, names[0]: np.full(2, given[names[0]]), names[1]: np.full(3, given[names[1]])})
