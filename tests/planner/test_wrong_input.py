"""Every argument of the planner given what it is not: used, or refused in one sentence.

Python's own errors and warnings (errors here), and sentences of more than one line, fail.
"""

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest

from labkit.errors import InputRefused
from labkit.planner import (
    activations,
    bill,
    candidates,
    conventions,
    decide,
    factors,
    feasible,
    in_flight,
    kernels,
    layer_times,
    levers,
    loading,
    memory,
    placement,
    plan_seats,
    plan_space,
    procedure,
    products,
    rank_parameters,
    ranking,
    recompute,
    savings,
    search,
    sharding,
    stage_kinds,
    stage_times,
    states,
    step,
    traffic,
    tuning,
    why,
    why_not,
)
from labkit.planner.compute import compute_time
from labkit.presets import cluster, model
from labkit.spec import Cluster, Gpu, Link, Plan, replicas
from labkit.spec.kernels import Kernels

WRONG = ["8", "", None, [8], [], [8, 16], {}, True, 0, -1, 1.5, np.nan, np.inf, 10**30, 10**400, 1j, object()]
WRONG += [np.array([]), np.array([8, 0]), np.array(["a"]), np.array([np.nan, 1]), np.array([[1, 2], [3, 4]])]
WRONG += [np.array([None]), b"x", "x" * 5000, "a\nb"]

MODEL, NODES, PLAN = model("llama2-7b"), cluster("a100", 4), Plan(tp=8, dp=4, global_batch=64)
WORK, AT, NOUNS = traffic.Workload(13e9, 40, 5120, 2048), traffic.seats(8), {"model": MODEL, "cluster": NODES}
ROWS = bill.step_bill(MODEL, NODES, PLAN)
TRIED = candidates.candidates(MODEL, NODES, global_batch=64)
TABLE = search.search(MODEL, NODES, 64, {"tp": 8, "pp": 1})
RUNS = PLAN.changed(micro_batch=1, global_batch=64)
TUNED = tuning.Tuned("overlap", "on", RUNS, 2.0, 1.0, "the step", "3.1")
ON_PLAN, HELD = {**NOUNS, "plan": PLAN}, {"model": MODEL, "plan": PLAN}
PLACE, PORTS = {"stride": 1, "domain": 8}, {"ports": None, "port_rate": None}
OPTIONS = {
    "global_batch": 64,
    "micro_batch": 1,
    "zero": 0,
    "recompute": "none",
    "fused_attention": True,
    "sequence_parallel": True,
}
STATES = {"n": 8, "stage": 1, "recipe": states.MIXED}
LAYER = {"sequence": 2048, "micro_batch": 1, "hidden": 64, "heads": 4, "tp": 1}
LAYER |= {"sequence_parallel": False, "recompute": "none"}
CHECKPOINTED = {"layers": 32, "boundary": 2.0, "layer": 34.0}
WORKLOAD = dict.fromkeys(
    ("parameters", "layers", "hidden", "sequence", "micro_batch", "micro_batches", "bytes_per_element"), 2
)
LOADED = {"file": 525e6, "files": 256, "ranks": 8, "recipe": states.MIXED}
CONVENTIONS = {
    "recipe": states.MIXED,
    "packed_qkv": True,
    "copied_gradients": False,
    "slack": 0.05,
    "imbalance": 1.0,
}
CONVENTIONS |= dict.fromkeys(("logit_bytes", "workspace", "communicator"), 6.0)
RECIPE = dict.fromkeys(
    ("weights", "gradients", "accumulation", "master", "first_moment", "second_moment"), 2.0
)
SIDES = dict.fromkeys("mnk", 512)
HEADS = dict.fromkeys(("batch", "heads", "kv_heads", "queries", "keys", "head_dim"), 8) | {"gpu": NODES.gpu}
ATTENTION = {"fused": False, "causal": True, "backward": True, "dropout": True}
KERNELS = {name: getattr(NODES.gpu.kernels, name) for name in Kernels.__dataclass_fields__}
CALLS = [
    (bill.step_bill, {**ON_PLAN, "recipe": states.MIXED, "bucket": 25e6}),
    (bill.bytes_by_strategy, {"rows": ROWS}),
    (candidates.candidates, {**NOUNS, **OPTIONS}),
    (candidates.choose, {**NOUNS, "tried": TRIED, "capacity": 80e9}),
    (compute_time, {"flops": 1e12, "gpu": NODES.gpu, "precision": "bf16"}),
    (decide.decide, {**NOUNS, **OPTIONS, "max_memory": None}),
    (
        step.step_time,
        {**ON_PLAN, "bucket": 25e6, "overlap": True, "slow_down": 1.2, "conventions": conventions.USUAL},
    ),
    (layer_times.layer_times, {"model": MODEL, "gpu": NODES.gpu, "plan": PLAN}),
    (stage_kinds.stage_kinds, HELD),
    (factors.factor_two, ON_PLAN),
    (levers.levers, {"work": WORK, "cluster": NODES, "tp": 8, "dp": 8, "bucket": 25e6}),
    (states.Recipe, RECIPE),
    (states.bytes_by_state, STATES),
    (states.state_bytes, {"parameters": 1e9, **STATES}),
    (states.largest_model, {"memory": 8e10, **STATES}),
    (states.smallest_ranks, {"parameters": 1e9, "memory": 8e10, "stage": 1, "recipe": states.MIXED}),
    (activations.layer_activation_bytes, LAYER),
    (placement.placement, {"work": WORK, "cluster": NODES, "tp": 8, "dp": 8, "pp": 4, "budget": 0.1}),
    (placement.tensor_layer, {"work": WORK, "degree": 8, "link": NODES.intra}),
    (placement.host_link, {"cluster": NODES, "members": 8, **PORTS}),
    (placement.tensor_time, {"work": WORK, "cluster": NODES, "degree": 8, **PORTS, "members": None}),
    (placement.crossing_cost, {"work": WORK, "cluster": NODES, "degree": 8, "hosts": 2, **PORTS}),
    (placement.rate_for_crossing_cost, {"work": WORK, "cluster": NODES, "cost": 2, "degree": 8, "hosts": 2}),
    (placement.step_on_side, {"work": WORK, "cluster": NODES, "tp": 8, "dp": 2, "tensor_inside": True}),
    (
        procedure.procedure,
        {**NOUNS, "global_batch": 64, "micro_batch": 1, "fused_attention": True, "max_memory": None},
    ),
    (procedure.named, {"plan": PLAN}),
    (tuning.tuning, {**NOUNS, "plan": RUNS, "max_memory": None}),
    (tuning.freed_in_turn, {"first": TUNED, **NOUNS, "max_memory": None}),
    (tuning.sentence, {"step": TUNED}),
    (plan_seats.plan_seats, {"plan": PLAN, "domain": 8}),
    (replicas.replica_counts, {"plan": PLAN}),
    (replicas.shard_counts, {"plan": PLAN}),
    (plan_seats.shard_seats, {"everyone": AT, "shards": 4}),
    (rank_parameters.layer_on_rank, HELD),
    (rank_parameters.rank_parameters, {**HELD, "stage": "first"}),
    (rank_parameters.fullest, HELD),
    (rank_parameters.most_layers, HELD),
    (recompute.checkpointed_bytes, {**CHECKPOINTED, "every": 4, "in_flight": 2}),
    (recompute.recomputed_bytes, {**CHECKPOINTED, "every": 4}),
    (recompute.checkpoints, {"layers": 32, "every": 4}),
    (recompute.best_every, {**CHECKPOINTED, "in_flight": 2}),
    (recompute.closed_form_every, {**CHECKPOINTED, "in_flight": 2}),
    (recompute.extra_compute, {"model": MODEL, "recompute": "full", "sequence": 2048}),
    (recompute.break_even_share, {"extra": 0.3, "growth": 4}),
    (recompute.recursive_recompute, {"layers": 32, "parts": 2}),
    (recompute.recursive_recompute(8).held, {"boundary": 2.0, "layer": 34.0}),
    (activations.layer_on_plan, HELD),
    (conventions.Conventions, CONVENTIONS),
    (in_flight.in_flight, {"plan": PLAN, "rank": 0}),
    (activations.layer_activations, {**HELD, "packed_qkv": True, "imbalance": 1.0}),
    (rank_parameters.end_parameters, {**HELD, "embeds": True, "predicts": False}),
    (memory.memory, {**ON_PLAN, "conventions": conventions.USUAL}),
    (loading.loading_bytes, LOADED),
    (loading.loading_advice, {**LOADED, "host": 1e12}),
    (stage_times.pipeline_times, {**NOUNS, "p": 4, "v": 1, "micro_batch": 1, "layers": None, "head": "last"}),
    (stage_times.stage_forward, ON_PLAN),
    (stage_times.stage_transfer, ON_PLAN),
    (savings.savings, {**ON_PLAN, "conventions": conventions.USUAL}),
    (sharding.hybrid, {"work": WORK, "shards": 8, "replicas": 8, "stage": 3, **PLACE}),
    (sharding.sharded_layer, {**ON_PLAN, "recipe": states.MIXED}),
    (sharding.stage_three, {**ON_PLAN, "recipe": states.MIXED, "keep_last": False}),
    (sharding.break_even, {**ON_PLAN, "recipe": states.MIXED}),
    (sharding.latency_passes, {"weights": 1e9, "link": NODES.intra}),
    (traffic.Workload, {**WORKLOAD, "gradient_bytes_per_element": 2.0, "precision": None}),
    (traffic.seats, {"ranks": 8, **PLACE}),
    (traffic.share_of_ports, {"cluster": NODES}),
    (traffic.bill_row, {"strategy": "x", "collective": "all_reduce", "payload": 1e6, "count": 1, "at": AT}),
    (traffic.data_parallel, {"work": WORK, "n": 8, "bucket": None, "deferred": True, **PLACE}),
    (traffic.tensor_parallel, {"work": WORK, "n": 8, "per_layer": 4, **PLACE}),
    (traffic.pipeline_stage, {"work": WORK, "stages": 8, **PLACE}),
    (traffic.sharded, {"work": WORK, "n": 8, "stage": 3, "keep_gradients": False, **PLACE}),
    (traffic.expert_parallel, {"work": WORK, "n": 8, "top_k": 2, "capacity": 1.0, **PLACE}),
    (traffic.bill, {"work": WORK, "n": 8, "top_k": 2, "bucket": None, "domain": 8}),
    (
        products.product_seconds,
        {**SIDES, "gpu": NODES.gpu, "count": 1, "precision": "bf16", "repeated": True},
    ),
    (kernels.attention_seconds, {**HEADS, **ATTENTION, "precision": "bf16"}),
    (kernels.attention_starts, {"fused": True, "backward": False, "dropout": False}),
    (kernels.streaming_seconds, {"size": 1e9, "gpu": NODES.gpu}),
    (Kernels, KERNELS),
    (Kernels.usual, {"reached": 0.5}),
    (search.search, {**NOUNS, "global_batch": 64, "fixed": {"tp": 8, "pp": 1}, "max_memory": 7e10}),
    (search.plan_of, {"row": TABLE.iloc[0]}),
    (search.carried, {"table": TABLE}),
    (feasible.capacity_of, {"cluster": NODES, "max_memory": 7e10}),
    (plan_space.checked_fields, {"fixed": {"tp": 8}}),
    (ranking.front, {"table": TABLE}),
    (ranking.tokens_per_day, {"plans": TABLE}),
    (ranking.gpu_hours, {"plans": TABLE, "tokens": 3e11}),
    (ranking.runner_up, {"table": TABLE, "error": 0.1}),
    (why.why, {"a": TABLE.iloc[0], "b": TABLE.iloc[1]}),
    (why.difference, {**NOUNS, "a": PLAN, "b": PLAN.changed(recompute="full")}),
    (why_not.why_not, {**ON_PLAN, "max_memory": 7e10}),
    (ROWS[0].seconds, {"cluster": NODES}),
    (ROWS[0].seconds_on, {"link": NODES.intra}),
]


def refusals(call, given):
    """How many wrong arguments are refused, each in one sentence; every other error goes through."""
    call(**given)
    refused = 0
    for name in given:
        for value in WRONG:
            try:
                call(**{**given, name: value})
            except InputRefused as refusal:
                text = str(refusal)
                assert "\n" not in text and len(text) < 320 and "object at" not in text, text
                refused += 1
    return refused


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(("call", "given"), CALLS, ids=lambda part: getattr(part, "__name__", ""))
def test_every_argument_of_every_kind(call, given):
    assert refusals(call, given) >= len(given) * 10


# Of each noun a number that may be an array.
MANY = {Plan: "dp", Cluster: "gpu", Gpu: "reached", Link: "alpha", traffic.Workload: "parameters"}
MANY |= {traffic.Seats: "ranks"}


def many(value, size: int):
    """The value ``size`` times, as an array; a noun with such an array in it; None of what can be neither."""
    if isinstance(value, bool | int | float | str):
        return np.full(size, value)
    if type(value) not in MANY:
        return None
    field = MANY[type(value)]
    numbers = many(getattr(value, field), size)
    return value.changed(dp=numbers) if isinstance(value, Plan) else replace(value, **{field: numbers})


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(("call", "given"), CALLS, ids=lambda part: getattr(part, "__name__", ""))
def test_arrays_that_do_not_broadcast(call, given):
    for one, other in combinations(given, 2):
        for sizes in ((2, 3), (3, 2), (2, 2)):
            values = [many(given[name], size) for name, size in zip((one, other), sizes, strict=True)]
            if any(value is None for value in values):
                continue
            try:
                call(**{**given, one: values[0], other: values[1]})
            except InputRefused as refusal:
                assert "\n" not in str(refusal) and len(str(refusal)) < 320, str(refusal)
