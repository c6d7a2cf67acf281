"""Section 6.3 on the sequence: what fills a card at 512 and at 8,192 tokens, and the best plan for each."""

from functools import cache

import numpy as np

from labkit.course.chapter3_data import GUIDE_PARAMETERS
from labkit.course.chapter5_sensitivity import TOKENS, longer
from labkit.course.table import Table, table
from labkit.planner.activations import layer_activation_bytes
from labkit.planner.search import plan_of, search
from labkit.planner.states import state_bytes
from labkit.presets import cluster, model
from labkit.spec import Plan
from labkit.units import format_bytes, format_share

MODEL, CARDS = "gpt3-13b", 8  # 40 layers of hidden 5120; the guide's 13e9 parameters in the states
# What a slider has time for: equal stages in 1F1B, no context parallel.
FEWER = {"schedule": "1f1b", "stage_layers": None, "v": 1, "cp": 1}


def activation_bytes(sequence, micro_batch=1, fused=True):
    """Bytes that all 40 layers keep of one micro-batch on a card that is not cut; arrays broadcast."""
    of = model(MODEL)
    recompute = "selective" if fused else "none"  # a fused attention drops what selective drops
    layer = layer_activation_bytes(sequence, micro_batch, of.hidden, of.heads, recompute=recompute)
    return of.layers * np.asarray(layer)


def states_of(stage: int) -> float:
    """Bytes of the model states of 13e9 parameters on one of eight cards at a stage of sharding."""
    return state_bytes(GUIDE_PARAMETERS, CARDS, stage)


def activation_share(sequence, micro_batch=1, stage=1, fused=True):
    """Share of states and activations that is activations."""
    kept = activation_bytes(sequence, micro_batch, fused)
    return kept / (kept + states_of(stage))


def share_table(sequences=(512, 2048, 8192, 32768)) -> Table:
    """Claim 6.3-q: activations beside the states, by sequence, micro-batch and stage."""
    rows = []
    for s in sequences:
        shares = [
            format_share(float(activation_share(s, b, stage).round(2)))
            for b, stage in ((1, 1), (2, 1), (1, 3))
        ]
        rows.append((f"{s:,}", format_bytes(float(activation_bytes(s))), *shares))
    heads = ("sequence", "activations, b = 1", "share beside stage 1", "the same, b = 2", "b = 1, stage 3")
    return table(heads, rows)


@cache
def best_plan(sequence: int, fused: bool) -> Plan:
    """The fastest plan of ``FEWER`` for one node of eight A100, 262,144 tokens a step."""
    fixed = FEWER | {"fused_attention": fused}
    return plan_of(search(longer(sequence, MODEL), cluster("a100"), TOKENS // sequence, fixed).iloc[0])
