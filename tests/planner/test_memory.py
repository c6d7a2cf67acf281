"""Memory by part and stage: sums by hand, published figures, and invariants of random plans."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labkit.errors import InputRefused
from labkit.planner.activations import layer_activations
from labkit.planner.conventions import USUAL, Conventions
from labkit.planner.memory import ALLOCATED, PARTS, STATES, memory
from labkit.planner.states import FP32_GRADIENTS, MIXED, Recipe
from labkit.presets import cluster, model
from labkit.spec import Plan, Transformer

NODE = cluster("a100", nodes=8)
GUIDE = Transformer("guide", 32, 5120, 40, 50176, 2048)
BARE = Conventions(logit_bytes=4.0, workspace=0.0, communicator=0.0, slack=0.0)
UNIT = 4 * 2048 * 5120  # s b h of micro-batches of 4


def test_stages_by_hand():
    plan = Plan(tp=8, pp=4, dp=2, micro_batch=4, global_batch=256)
    found = memory(GUIDE, NODE, plan, BARE)
    assert found.stages.tolist() == [0, 1, 2, 3]
    layers = 8 * (10 + 24 / 8) * UNIT  # 8 layers of 13 s b h
    backward = (2 + 2 * 4 / 8) * UNIT  # gradients at the MLP's activation function: 2 h and 2 x 4 h / 8
    mask = UNIT  # of the dropout after the embedding
    assert found.parts["activations"][:3] == pytest.approx(
        [layers + mask + backward, *[layers + backward] * 2]
    )
    assert found.parts["in_flight"] == pytest.approx([3 * (layers + mask), 2 * layers, layers, 0])
    logits = 4 * 4 * 2048 * (5120 + 50176 / 8) + 2 * 5120 * 50176 / 8
    assert found.parts["logits"] == pytest.approx([0, 0, 0, logits])
    assert found.parts["activations"][3] == pytest.approx(layers + max(backward - logits, 0))
    per_layer = (
        12 * 5120**2 + 4 * 5120 + 3 * 5120
    ) / 8 + 6 * 5120  # matrices and their biases cut, the rest whole
    assert found.parts["parameters"] == pytest.approx([8 * 2 * per_layer] * 4)
    assert found.parts["optimizer_states"] == pytest.approx([8 * 12 * per_layer] * 4)
    ends = 16 * 5120 * 50176 / 8
    assert found.parts["embedding"] == pytest.approx([ends, 0, 0, ends + 16 * 2 * 5120])
    assert found.fullest == 0
    assert found.peak == found.total.max() == found.at_peak.total
    sharded = memory(GUIDE, NODE, plan.changed(zero=1), BARE)
    assert sharded.sum(STATES) == pytest.approx(found.sum(STATES) * 10 / 16)  # 4 + 12/2 of 16


def test_the_first_stage_keeps_all_layers_however_many_stages_there_are():
    deep = [memory(GUIDE, NODE, Plan(pp=p, accumulation=64), BARE) for p in (2, 4, 8, 16)]
    kept = [one.parts["activations"][0] + one.parts["in_flight"][0] for one in deep]
    masks = np.array([2, 4, 8, 16]) * 2048 * 5120  # one mask of the embedding for each in flight
    assert kept - masks == pytest.approx([(kept - masks)[0]] * 4)


def test_few_micro_batches_fill_few_stages():
    plan = Plan(pp=4, micro_batch=4, accumulation=64)
    many, few = (memory(GUIDE, NODE, plan.changed(accumulation=m), BARE) for m in (64, 2))
    assert few.parts["in_flight"][0] == pytest.approx(many.parts["in_flight"][0] / 3)


def test_full_recompute_by_hand():
    plan = Plan(micro_batch=4, accumulation=4, recompute="full", recompute_every=4)
    found = memory(GUIDE, NODE, plan, BARE)
    logits = found.parts["logits"][0]
    group = (
        4 * 34 * UNIT - 2 * UNIT + (2 + 8) * UNIT
    )  # one group again, and the gradients in its widest place
    kept = 8 * 2 * UNIT + UNIT + max(group - logits, 0)
    assert found.parts["activations"][0] == pytest.approx(kept)


def test_checkpoints_of_a_pipeline_are_kept_for_every_micro_batch():
    plan = Plan(pp=4, micro_batch=4, accumulation=16, recompute="full", recompute_every=3)
    found = memory(GUIDE, NODE, plan, BARE)
    assert found.parts["in_flight"] == pytest.approx(
        np.array([3, 2, 1, 0]) * 3 * 2 * UNIT + [3 * UNIT, 0, 0, 0]
    )


def test_an_array_of_plans_with_uneven_stages_looks_at_all_of_them():
    layers = (4, 4, 20, 4)
    many = memory(GUIDE, NODE, Plan(pp=4, dp=np.array([1, 2]), stage_layers=layers, accumulation=8), BARE)
    one = memory(GUIDE, NODE, Plan(pp=4, dp=1, stage_layers=layers, accumulation=8), BARE)
    assert many.fullest.tolist() == [2, 2] and many.peak[0] == one.peak


def test_of_many_alike_stages_an_array_of_plans_looks_at_the_first_of_each_kind():
    shape, layers = replace(GUIDE, layers=40), (2,) * 4 + (3,) * 8 + (2,) * 4
    steps, how = np.array([4, 64]), dict(pp=16, dp=2, stage_layers=layers, micro_batch=1)
    schedules = np.array([["1f1b"], ["gpipe"], ["zb-2p"]])
    many = memory(shape, NODE, Plan(accumulation=steps, schedule=schedules, **how), BARE)
    assert many.stages.tolist() == [0, 1, 4, 15]
    for i, j in np.ndindex(many.peak.shape):
        plan = Plan(accumulation=steps[j].item(), schedule=schedules[i, 0].item(), **how)
        one = memory(shape, NODE, plan, BARE)
        assert (many.peak[i, j], many.fullest[i, j]) == (one.peak, one.fullest)


def test_arrays_of_plans_with_unequal_chunks_are_those_of_each():
    how = dict(pp=4, v=2, stage_layers=(1, 2, 3, 6, 5, 9, 4, 2), micro_batch=1)
    for recompute in ("none", "full"):
        steps, every = np.array([4, 8, 16]), np.array([1, 2, 4])
        more = {"recompute": recompute, "recompute_every": every} if recompute == "full" else {}
        many = memory(GUIDE, NODE, Plan(accumulation=steps, **how, **more), BARE)
        for i in range(3):
            more = {"recompute": recompute, "recompute_every": every[i].item()} if more else {}
            one = memory(GUIDE, NODE, Plan(accumulation=steps[i].item(), **how, **more), BARE)
            assert many.total[i] == pytest.approx(one.total)


def test_recompute_of_unequal_chunks_has_the_group_of_the_longest():
    """Rank 0 has chunks of 2 and 18 layers: 2 inputs of a micro-batch, and a group of 18 again."""
    shape = Transformer("t", 40, 5120, 40, 50257, 2048)
    plan = Plan(pp=2, v=2, accumulation=2, recompute="full", recompute_every=18, stage_layers=(2, 10, 18, 10))
    unit = 2048 * 5120
    found = memory(shape, NODE, plan, BARE).parts["activations"][0]
    assert found == pytest.approx((2 * 2 + 18 * 34 - 2 + 10 + 1) * unit)


def test_recomputed_groups_end_with_their_chunk():
    """4 chunks of 4 layers on each of 2 ranks: an input each, and one chunk again, whatever k above 4."""
    plan = Plan(pp=2, v=4, micro_batch=4, accumulation=8, recompute="full", recompute_every=16)
    found = memory(GUIDE, NODE, plan, BARE)
    again = 4 * 34 - 2 + 10  # a chunk without its input, and gradients in its widest place
    assert found.parts["activations"][0] == pytest.approx((4 * 2 + 1 + again) * UNIT)
    ahead = (2 * 1 + 3 * 2 + 1) / 4 - 1
    assert found.parts["in_flight"][0] == pytest.approx(ahead * (4 * 2 + 1) * UNIT)


def test_scores_come_back_for_the_backward_of_one_layer():
    plan = Plan(pp=4, micro_batch=4, accumulation=8, fused_attention=False)
    scores = 40 * 2048 / 5120  # a s / h of them, in units of s b h
    kept = {
        how: memory(GUIDE, NODE, plan.changed(recompute=how), BARE).parts["activations"][1] / UNIT
        for how in ("none", "selective")
    }
    assert kept["none"] == pytest.approx(8 * (34 + 5 * scores) + 2 + 2 * scores)
    assert kept["selective"] == pytest.approx(8 * 34 + 2 + 7 * scores)


def test_gpipe_keeps_what_all_losses_need():
    plan = Plan(pp=2, accumulation=16, schedule="gpipe")
    one, all_of_them = (memory(GUIDE, NODE, plan.changed(accumulation=m), BARE) for m in (1, 16))
    loss = 4 * 2048 * (5120 + 50176)
    waiting = all_of_them.parts["in_flight"][1] - 15 * 16 * 34 * 2048 * 5120
    assert one.parts["in_flight"][1] == 0 and waiting == pytest.approx(15 * loss)


def test_a_stage_without_layers_has_no_backward_of_one():
    found = memory(GUIDE, NODE, Plan(pp=4, stage_layers=(0, 16, 16, 0), accumulation=8), BARE)
    assert found.parts["activations"][[0, 3]] == pytest.approx([2048 * 5120, 0])  # the embedding's mask


def test_a_batch_that_does_not_come_out_whole_has_no_negative_bytes():
    found = memory(GUIDE, NODE, Plan(pp=2, dp=8, global_batch=4, micro_batch=1), BARE)
    assert found.parts["in_flight"].tolist() == [0, 0]


def test_it_reads_as_a_table():
    shown = repr(memory(GUIDE, NODE, Plan(pp=4, accumulation=8)))
    lines = shown.splitlines()
    assert lines[0].split() == ["GB", "on", "a", "rank", "of", "stage", "0", "1", "2", "3"]
    assert any(line.startswith("in flight") for line in lines) and "gathered" not in shown
    assert "the fullest, stage 0, fits: " in lines[-1] and "GiB" in lines[-1]
    assert repr(memory(GUIDE, NODE, Plan(pp=16, accumulation=64))).splitlines()[0].split()[-3:] == [
        "0",
        "1",
        "15",
    ]
    assert repr(memory(GUIDE, NODE, Plan(dp=np.array([1, 2])))).startswith("memory of 2 plans or cards")


def test_zero_paper_table_1():
    """ "ZeRO" (2020), table 1: 7.5 B parameters on N ranks, GB of model states."""
    printed = {
        1: (120, 52.5, 35.6, 31.4, 30.4, 30.1),
        2: (120, 41.3, 21.6, 16.6, 15.4, 15.1),
        3: (120, 30, 7.5, 1.88, 0.47, 0.12),
    }
    shape = Transformer("7.5 B", 36, 4096, 32, 64000, 2048, norm="rms", bias=False)
    scale = 7.5e9 / shape.parameters  # the table's size is a round number
    for zero, row in printed.items():
        ranks = np.array([1, 4, 16, 64, 256, 1024])
        plan = Plan(dp=ranks, zero=zero, vocabulary_multiple=0)
        found = memory(shape, NODE, plan, BARE).sum(STATES)[..., 0] * scale / 1e9
        digits = [len(str(value).partition(".")[2]) for value in row]
        assert np.all(np.abs(found - row) <= 10.0 ** -np.array(digits))


def test_sharding_spreads_over_data_and_context_ranks_or_a_part_of_them():
    plan = Plan(dp=4, cp=2, zero=1)
    assert memory(GUIDE, NODE, plan, BARE).parts["optimizer_states"] == pytest.approx(
        memory(GUIDE, NODE, Plan(), BARE).parts["optimizer_states"] / 8
    )
    hybrid = memory(GUIDE, NODE, plan.changed(shard_ranks=2), BARE).parts["optimizer_states"]
    assert hybrid == pytest.approx(memory(GUIDE, NODE, Plan(dp=2, zero=1), BARE).parts["optimizer_states"])


def test_experts_are_sharded_over_the_ranks_that_hold_them():
    """dp x cp / ep; routed activations are not divided by ep (planner case D7)."""
    shape, plain = model("mixtral-8x7b"), Plan(dp=8, zero=1)
    spread = plain.changed(ep=8)
    experts = shape.layers * shape.layer_parts()["mlp"]
    for plan, ranks in ((plain, 8), (spread, 8)):
        found = memory(shape, NODE, plan, BARE)
        held = experts / plan.ep
        others = shape.layers * (shape.layer_parameters - shape.layer_parts()["mlp"])
        assert found.parts["optimizer_states"][0] == pytest.approx(
            12 * (others / 8 + held / (ranks / plan.ep))
        )
    kept = [memory(shape, NODE, plan, BARE).parts["activations"][0] for plan in (plain, spread)]
    assert kept[0] == kept[1]
    even, uneven = (layer_activations(shape, spread, imbalance=n).kept for n in (1, 2))
    rows = shape.sequence * shape.top_k
    assert uneven - even == pytest.approx(rows * (4 * shape.hidden + 6 * shape.ffn))  # in, out, and inside
    assert (
        memory(shape, NODE, spread, replace(BARE, imbalance=2.0)).peak
        > memory(shape, NODE, spread, BARE).peak
    )


@settings(max_examples=60, deadline=None)
@given(
    tp=st.sampled_from([1, 2, 4, 8]),
    pp=st.sampled_from([1, 2, 4]),
    dp=st.sampled_from([1, 2, 4, 8]),
    cp=st.sampled_from([1, 2]),
    zero=st.integers(0, 3),
    recipe=st.sampled_from([MIXED, FP32_GRADIENTS, Recipe(accumulation=4.0)]),
    shape=st.sampled_from(["gpt3-13b", "llama3.1-8b", "mixtral-8x7b"]),
)
def test_what_is_sharded_adds_up_to_the_whole(tp, pp, dp, cp, zero, recipe, shape):
    """Over all ranks every cut tensor is there once, times the replicas that its stage of ZeRO leaves."""
    shape = model(shape)
    shape = replace(
        shape, norm="rms", bias=False, learned_positions=0
    )  # norms alone are whole on each tp rank
    ep = 2 if shape.experts and dp > 1 else 1
    plan = Plan(tp=tp, pp=pp, dp=dp, cp=cp, ep=ep, zero=zero, vocabulary_multiple=0)
    found = memory(shape, NODE, plan, replace(BARE, recipe=recipe))
    ranks = tp * dp * cp
    norms = shape.layer_parts()["norms"] + shape.layer_parts()["router"]
    whole = shape.layers * (shape.layer_parameters + (tp - 1) * norms)
    for name, each, first in (
        ("parameters", recipe.weights, 3),
        ("gradients", recipe.all_gradients, 2),
        ("optimizer_states", recipe.optimizer, 1),
    ):
        there = found.parts[name].sum() * ranks
        copies = 1 if zero >= first else dp * cp
        experts = shape.layers * shape.layer_parts()["mlp"] if shape.experts else 0
        same = tp * dp * cp // (ep * tp) if shape.experts else 1  # ranks that hold the same experts
        expected = each * ((whole - experts) * copies + experts * (1 if zero >= first else same))
        assert there == pytest.approx(expected)


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_arrays_of_plans_agree_with_single_ones(data):
    """The peak of an array of plans, of three stages, is that of each alone, of all its stages."""
    count = data.draw(st.integers(1, 4))

    def column(values):
        return np.array([data.draw(st.sampled_from(values)) for _ in range(count)])

    columns = {
        "tp": column([1, 2, 8]), "pp": column([1, 2, 4, 8]), "dp": column([1, 4]),
        "micro_batch": column([1, 2]),
        "accumulation": column([8, 64]), "zero": column([0, 1, 2, 3]), "recompute": column(["none", "full"]),
        "schedule": column(["1f1b", "gpipe", "zb-v", "zb-2p"]), "sequence_parallel": column([False, True]),
    }  # fmt: skip
    many = memory(GUIDE, NODE, Plan(**columns))
    for i in range(count):
        one = memory(GUIDE, NODE, Plan(**{name: values[i].item() for name, values in columns.items()}))
        assert many.peak[i] == pytest.approx(one.peak, rel=1e-12)
        assert many.fits[i] == one.fits
        assert many.at_peak.states[i] == pytest.approx(one.at_peak.states)


@pytest.mark.parametrize("schedule", ["1f1b", "gpipe", "zb-h1", "zb-h2", "zb-1p", "zb-2p", "zb-v"])
def test_every_schedule_has_its_own_activations(schedule):
    found = memory(GUIDE, NODE, Plan(pp=4, accumulation=16, schedule=schedule), BARE)
    most = {"1f1b": 4, "gpipe": 16, "zb-h2": 7, "zb-2p": 8}.get(schedule, 4)
    mask = 2048 * 5120
    assert found.parts["in_flight"][0] == pytest.approx((most - 1) * (8 * 34 + 1) * mask)


def test_groups_and_slack():
    plan = Plan(tp=8, pp=4, dp=2)
    found = memory(GUIDE, NODE, plan, Conventions(slack=0.1, communicator=1e9))
    assert found.parts["communicators"].tolist() == [3e9] * 4
    assert found.parts["slack"] == pytest.approx(0.1 * found.allocated)
    assert found.total == pytest.approx(1.1 * found.allocated + 3e9)
    assert memory(GUIDE, NODE, Plan()).parts["communicators"].tolist() == [0]
    assert (
        memory(GUIDE, NODE, Plan(dp=8, zero=3, shard_ranks=4), USUAL).parts["communicators"][0] == 2 * 688e6
    )


def test_gradients_on_their_way():
    dense = memory(GUIDE, NODE, Plan(dp=2), BARE)
    assert dense.parts["buckets"].tolist() == [0]
    llama = model("llama2-7b")
    twice = memory(llama, NODE, Plan(dp=2, vocabulary_multiple=0), replace(BARE, copied_gradients=True))
    assert twice.parts["buckets"][0] == 2 * llama.parameters  # an embedding and a head of its own
    copied = memory(GUIDE, NODE, Plan(dp=2), replace(BARE, copied_gradients=True)).parts["buckets"][0]
    assert copied == pytest.approx(2 * GUIDE.parameters, rel=1e-3)  # one position embedding apart
    # Experts on one rank each are not reduced, and not copied.
    alone = memory(model("mixtral-8x7b"), NODE, Plan(dp=8, ep=8), replace(BARE, copied_gradients=True))
    assert alone.parts["buckets"][0] < 2 * 0.05 * model("mixtral-8x7b").parameters
    added = memory(GUIDE, NODE, Plan(dp=2), replace(BARE, recipe=FP32_GRADIENTS)).parts["buckets"][0]
    assert added == pytest.approx(2 * GUIDE.layer_parameters)
    second = memory(GUIDE, NODE, Plan(dp=2, zero=2), BARE).parts["buckets"][0]
    assert second == pytest.approx(2 * 2 * GUIDE.layer_parameters)  # one travels, the next is made


def test_uneven_stages_count_by_stage():
    """Planner case B5: the heaviest stage decides, not the mean."""
    shape = Transformer("small", 8, 1024, 8, 32000, 1024)
    found = memory(shape, NODE, Plan(pp=4, stage_layers=(1, 2, 2, 3), accumulation=4), BARE)
    assert found.parts["parameters"] / found.parts["parameters"][0] == pytest.approx([1, 2, 2, 3])


def test_parts_are_all_there_and_never_negative():
    found = memory(model("mixtral-8x7b"), NODE, Plan(dp=8, ep=8, pp=2, zero=3, accumulation=8))
    assert tuple(found.parts) == PARTS
    assert set(ALLOCATED) < set(PARTS)
    assert all(np.all(part >= 0) for part in found.parts.values())
    assert found.capacity == NODE.gpu.usable


def test_refusals():
    cards = replace(NODE, gpu=replace(NODE.gpu, memory=np.array([40e9, 80e9, 141e9])))
    with pytest.raises(InputRefused, match="must broadcast"):
        memory(GUIDE, cards, Plan(dp=np.array([1, 2])))
    fits = memory(GUIDE, cards, Plan(dp=8, zero=1))
    assert fits.fits.tolist() == [False, True, True]
    assert repr(fits) == "memory of 3 plans or cards; 67% fit"
    for names in ("parameters", ["nope"], (), None):
        with pytest.raises(InputRefused, match="give a tuple of some of parameters, gradients"):
            fits.sum(names)
    with pytest.raises(InputRefused, match="conventions"):
        memory(GUIDE, NODE, Plan(), "usual")
    with pytest.raises(InputRefused, match="add up to the 32"):
        memory(GUIDE, NODE, Plan(pp=2, stage_layers=(16, 15)))
