"""Every legal cut of a model over a cluster, and what is said where none fits."""

from dataclasses import replace

import numpy as np
import pytest

from labkit.errors import InputRefused
from labkit.planner.candidates import candidates, choose
from labkit.presets import cluster, model
from labkit.spec import Transformer

NODES = cluster("a100", nodes=8)
GUIDE = Transformer("guide", 32, 5120, 40, 50176, 2048)


def test_candidates_split_odd_layers_and_spread_experts():
    odd = candidates(replace(GUIDE, layers=30), NODES, global_batch=64, micro_batch=1)
    four = next(one for one in odd if (one.tp, one.pp) == (1, 4))
    assert four.plan.stage_layers == (7, 8, 8, 7) and four.layers == 8
    mixtral = candidates(model("mixtral-8x7b"), NODES, global_batch=64, micro_batch=1)
    assert {one.tp: one.plan.ep for one in mixtral if one.pp == 1} == {1: 8, 2: 4, 4: 2, 8: 1}


@pytest.mark.parametrize(
    ("id", "nodes", "options", "says"),
    [
        ("gpt3-175b", 1, {}, "take more GPUs$"),  # states alone are too large, and dp = 1 shards nothing
        ("llama3.1-70b", 2, {"micro_batch": 4}, "more GPUs, a smaller micro-batch or recompute='full'$"),
        ("llama3.1-70b", 2, {"recompute": "full"}, "take more GPUs$"),
    ],
)
def test_where_nothing_fits_it_names_what_can_help(id, nodes, options, says):
    place = cluster("h100", nodes=nodes)
    tried = candidates(model(id), place, **{"global_batch": 64, **options})
    with pytest.raises(InputRefused, match=says):
        choose(model(id), place, tried, 72e9)


def test_refusals():
    for options in ({"global_batch": None}, {"global_batch": 64, "micro_batch": np.array([1, 2])}):
        with pytest.raises(InputRefused, match="batch of a plan is"):
            candidates(GUIDE, NODES, **options)
    for options in ({"zero": np.array([0, 1])}, {"sequence_parallel": np.array([True, False])}):
        with pytest.raises(InputRefused, match="give no arrays"):
            candidates(GUIDE, NODES, global_batch=64, **options)
