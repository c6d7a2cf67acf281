"""The four-step choice: cases whose answer follows from sums by hand, and what must hold for any model."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labkit.errors import InputRefused
from labkit.planner.decide import bubbles, decide
from labkit.planner.memory import memory
from labkit.presets import cluster, model, model_ids
from labkit.spec import Cluster, Gpu, Link, Plan, Transformer, problems
from labkit.units import COLUMNS

NODES = cluster("a100", nodes=8)
GUIDE = Transformer("guide", 32, 5120, 40, 50176, 2048)
HALF = Cluster(
    "half of peak", Gpu("c", 80e9, {"bf16": 312e12}, 0.5), 8, 8, Link(0.0, 235e9), Link(0.0, 50e9), 8
)


def cut(decision):
    return decision.plan.tp, decision.plan.pp, decision.plan.dp


def test_a_model_that_fits_one_card_gets_data_parallel_alone():
    small = Transformer("1.3B", 24, 2048, 16, 50257, 2048)  # 21 GB of states, 24 x 143 MB of activations
    found = decide(small, NODES, 512)
    assert cut(found) == (1, 1, 64) and found.needs == "nothing"
    assert "no tensor parallel is needed" in found.steps[0].outcome and "no bubble" in found.steps[1].outcome


def test_13b_needs_a_pipeline_and_no_tensor_parallel():
    """40 x 34 s b h = 14.3 GB of activations; 208 GB / 4 + 14.3 GB fit in 80 GB, 208 / 2 do not."""
    found = decide(model("gpt3-13b"), NODES, 512)
    assert cut(found) == (1, 4, 16)
    assert "pp 2" in found.steps[1].answer and "10 layers a stage" in found.steps[1].outcome


@pytest.mark.parametrize(
    ("room", "needs"),
    [
        # The first of 8 stages: 4 layers and the embedding, 24.2 GB of states; 32 x 0.357 GB of
        # activations, and 3 GB besides.
        (24.0e9, "states"),
        (30.0e9, "states and activations"),
        (40.0e9, "nothing"),
    ],
)
def test_it_says_which_of_the_needs_made_it_choose_tp(room, needs):
    many = replace(NODES, nodes=64)
    assert decide(GUIDE, many, 4096, max_memory=room).needs == needs


def test_activations_alone_ask_for_tp_where_the_micro_batch_is_large():
    found = decide(GUIDE, NODES, 512, micro_batch=8)  # 32 x 2.85 GB of activations at tp 1
    assert found.needs == "activations" and found.plan.tp == 2
    assert "only tp divides" in found.steps[0].outcome


def test_one_layer_asks_for_tp_only_where_a_stage_is_one_layer():
    """12 h^2 = 29 B parameters: 464 GB of states a layer, 58 GB over 8 ranks, 116 GB over 4."""
    wide = Transformer("wide", 8, 49152, 384, 1024, 256)
    found = decide(wide, NODES, 64)
    assert found.needs == "layer" and cut(found) == (8, 8, 1)


def test_states_alone_ask_for_tp_where_the_pipeline_is_as_deep_as_it_may_be():
    wide = Transformer("wide", 16, 12288, 96, 51200, 2048)  # 29 B in 16 layers: 116 GB at 4 layers a stage
    found = decide(wide, NODES, 512)
    assert found.needs == "states" and cut(found) == (2, 4, 8)


def test_a_small_batch_asks_for_tp():
    small = Transformer("1.3B", 24, 2048, 16, 50257, 2048)
    found = decide(small, NODES, 4)  # 64 / tp = pp x dp, and 24 layers make at most 6 stages of 4: 4 x 4 x 4
    assert found.needs == "global batch" and found.plan.dp <= 4 and cut(found) == (4, 4, 4)
    assert "short" in found.steps[3].outcome


def test_thin_stages_are_warned_of_and_not_refused():
    deep = replace(GUIDE, layers=16)
    tight = decide(deep, NODES, 256, max_memory=34e9)
    assert cut(tight) == (1, 4, 16) and tight.steps[1].outcome.startswith("pp = 4: 4 layers a stage, tight")
    assert any("4 layers a stage are tight" in warning for warning in tight.warnings)
    # 103 B: 103 GB in stages of 4 layers at tp 8; the smallest tp that fits at all has one layer a stage.
    wide = Transformer("wide", 8, 32768, 256, 1024, 2048)
    thin = decide(wide, replace(NODES, nodes=4), 64)
    assert cut(thin) == (4, 8, 1) and any("thin" in warning for warning in thin.warnings)


def test_bubbles_of_the_guides_example():
    """m = 32: 7/39 at 8 stages, 15/47 at 16; 16 stages want m = 64."""
    assert bubbles(Plan(pp=8, micro_batch=1, accumulation=32)) == "8.57 % at 4, 17.9 % at 8, 31.9 % at 16"


def test_the_ceiling_is_what_bounds_the_degree():
    """405 B on a rack of 72: 128 heads split over 8 of a rack's divisors at most, far below the rack."""
    racks = decide(model("llama3.1-405b"), cluster("gb200-nvl72", nodes=18), 1536, zero=1)
    assert racks.plan.tp == 8 and "heads and cards allow no more in a domain of 72" in racks.steps[0].outcome
    host = decide(model("llama3.1-8b"), cluster("h100", nodes=1), 1)
    assert host.plan.tp == 8 and host.steps[0].outcome.endswith("That is the ceiling: the domain.")
    assert "1 sequence a replica" in host.steps[3].answer and "m = 1 micro-batch." in host.steps[3].answer
    assert "-\n" not in repr(host)


def test_answers_are_words_that_fit_the_page():
    for id in ("guide-13b", "llama2-70b", "mixtral-8x7b", "llama3.1-70b"):
        found = decide(model(id), NODES, 512)
        lines = repr(found).splitlines()
        assert max(map(len, lines)) <= COLUMNS
        assert [line[0] for line in lines if line[0].isdigit() and line[1:3] == "  "] == list("1234")
        assert f"TP {found.plan.tp} x PP {found.plan.pp}" in " ".join(lines)


@pytest.mark.parametrize("id", model_ids())
@pytest.mark.parametrize("zero", [0, 1])
def test_every_preset_gets_a_legal_plan_or_a_reason(id, zero):
    for nodes in (1, 8, 32):
        where = replace(NODES, nodes=nodes)
        try:
            found = decide(model(id), where, 1024, zero=zero)
        except InputRefused as refusal:
            assert "does not fit" in str(refusal)
            continue
        assert [p for p in problems(model(id), where, found.plan) if p.severity == "impossible"] == []
        assert found.memory.total <= where.gpu.usable and found.plan.ranks == where.n_gpus
        assert found.plan.tp <= where.domain and found.memory == memory(model(id), where, found.plan).at_peak


@settings(max_examples=40, deadline=None)
@given(
    layers=st.sampled_from([8, 24, 30, 32, 46, 80]),
    heads=st.sampled_from([12, 32, 52, 64]),
    nodes=st.sampled_from([1, 2, 3, 8]),
    micro_batch=st.sampled_from([1, 2, 4]),
    room=st.sampled_from([16e9, 40e9, 80e9]),
)
def test_no_smaller_cut_would_have_fitted(layers, heads, nodes, micro_batch, room):
    made = Transformer("made", layers, 128 * heads, heads, 50257, 2048)
    where = replace(NODES, nodes=nodes)
    try:
        found = decide(made, where, 96, micro_batch, max_memory=room)
    except InputRefused:
        return
    chosen = found.plan
    assert [p for p in problems(made, where, chosen) if p.severity == "impossible"] == []
    for one in found.tried:
        smaller = (one.tp, one.pp) < (chosen.tp, chosen.pp) and not one.thin and not one.starved
        assert not (smaller and one.whole_batch and one.memory.total <= room)
        assert np.isclose(one.memory.total, memory(made, where, one.plan).peak)


def test_refusals():
    with pytest.raises(InputRefused, match=r"does not fit 8 cards of 84 GB: tp 8 x pp 1 x dp 1 still"):
        decide(model("gpt3-175b"), replace(NODES, nodes=1), 512)
    with pytest.raises(InputRefused, match=r"global batch of 7 .* cannot be shared"):
        decide(GUIDE, replace(NODES, nodes=64), 7)
    for room in (0, "80GB"):
        with pytest.raises(InputRefused, match="above 0"):
            decide(GUIDE, NODES, 512, max_memory=room)
    with pytest.raises(InputRefused, match="give a Transformer"):
        decide("llama2-70b", NODES, 512)
    with pytest.raises(InputRefused, match="give a Cluster"):
        decide(GUIDE, "a100", 512)
    for batch in (0, "512", 1.5):
        with pytest.raises(InputRefused, match="global_batch of a plan"):
            decide(GUIDE, NODES, batch)
