"""What a rank holds: parts that add up to the model, copies, and stages of given layers."""

import numpy as np
import pytest

from labkit.errors import InputRefused
from labkit.planner.rank_parameters import STAGES, fullest, layer_on_rank, layers_on_rank, rank_parameters
from labkit.presets import model as load_model
from labkit.spec import Plan, Transformer

GUIDE = Transformer("guide", 32, 5120, 40, 50176, 2048)


@pytest.mark.parametrize("id", ["gpt3-175b", "llama2-70b", "llama3.1-405b", "bloom-176b", "mixtral-8x7b"])
def test_what_ranks_hold_adds_up_to_the_model(id):
    model = load_model(id)
    alone = Plan(vocabulary_multiple=1)
    for stage in ("first", "last"):
        assert rank_parameters(model, alone, stage).total == model.parameters
    assert rank_parameters(model, alone, "interior").total == 0
    plan = Plan(tp=2, pp=4, ep=2 if model.experts else 1, dp=2, stage_layers=None, vocabulary_multiple=1)
    layers = model.layers / 4
    held = {stage: rank_parameters(model, plan, stage) for stage in STAGES}
    # All ranks of a tensor-parallel group together; what is whole on each counts once.
    sizes = {s: 2 * p.split + p.whole + p.positions + p.experts * 2 * plan.ep for s, p in held.items()}
    both = sizes["first"] + 2 * sizes["interior"] + sizes["last"]
    rows = plan.padded_vocabulary(model.vocabulary)
    more = (2 * rows - (1 if model.tied else 2) * model.vocabulary) * model.hidden
    assert both == pytest.approx(model.parameters + more, rel=1e-12)
    assert fullest(model, plan).total >= held["interior"].total > layers * model.layer_parameters / 4.01


def test_kv_heads_beyond_their_number_are_copied():
    model = load_model("llama3.1-8b")
    eight, sixteen = (layer_on_rank(model, Plan(tp=t, replicate_kv=True)) for t in (8, 16))
    assert eight.copied == 0 and sixteen.copied == 2 * 128 * 4096
    assert sixteen.split == (model.layer_parts()["attention"] - 2 * 1024 * 4096) / 16 + sixteen.copied + (
        model.layer_parts()["mlp"] / 16
    )


def test_the_stages_of_a_folded_pipeline():
    folded = Plan(pp=2, v=2, schedule="zb-v", stage_layers=(7, 9, 9, 7), micro_batch=1, accumulation=8)
    assert rank_parameters(GUIDE, folded, "first").split > 14 * layer_on_rank(GUIDE, folded).split
    assert rank_parameters(GUIDE, folded, "last").total == 18 * layer_on_rank(GUIDE, folded).total


def test_given_layers_are_all_of_the_models():
    """Four stages of 7 would leave 2 of 30 out; a fifth stage has no rank."""
    thirty = Transformer("thirty", 30, 5120, 40, 50176, 2048)
    assert layers_on_rank(thirty, Plan(pp=4, stage_layers=(7, 8, 8, 7)), "interior") == 8
    for layers in ((7, 7, 7, 7), (6, 6, 6, 6, 6), (30,), ()):
        with pytest.raises(InputRefused, match="give 4 numbers that add up to the 30 of thirty"):
            layers_on_rank(thirty, Plan(pp=4, stage_layers=layers), "first")
    with pytest.raises(InputRefused, match="give single pp, v and schedule"):
        layers_on_rank(thirty, Plan(pp=np.array([2, 4]), stage_layers=(15, 15)), "first")
