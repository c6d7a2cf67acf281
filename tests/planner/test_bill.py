"""The bill of one plan: against traces, against the strategies run on arrays, and against sums by hand."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labkit.collectives import replay, trace
from labkit.errors import InputRefused
from labkit.planner.bill import bytes_by_strategy, step_bill
from labkit.planner.rank_parameters import rank_parameters
from labkit.planner.states import FP32, FP32_GRADIENTS, MIXED
from labkit.presets import model as load_model
from labkit.spec import Cluster, Gpu, Link, Plan, Transformer
from labkit.strategies.context import all_to_all_attention, ring_attention
from labkit.strategies.layer import random_layer
from labkit.strategies.pipeline import interleaved, one_f_one_b, sends, zb_v
from labkit.strategies.tensor import split_layer

GPU, FAST, SLOW = Gpu("A100 class", 80e9, {"bf16": 312e12}, 0.5), Link(0.0, 235e9), Link(0.0, 25e9)
GUIDE = Transformer("guide", 32, 5120, 40, 50176, 2048)
TINY = Transformer("tiny", layers=1, hidden=32, heads=8, vocabulary=64, sequence=16)
MIXTRAL = load_model("mixtral-8x7b")


def nodes(count):
    return Cluster("nodes", GPU, count, 8, FAST, SLOW, 8)


def rows_of(model, plan, count=64, **options):
    return {(r.strategy, r.collective): r for r in step_bill(model, nodes(count), plan, **options)}


def sent(rows, name):
    return sum(row.bytes_per_rank for (strategy, _), row in rows.items() if strategy.startswith(name))


def test_the_guides_plan_by_hand():
    """64 = 8 x 4 x 2, eight layers a stage, 4 sequences at a time, 32 micro-batches."""
    rows = rows_of(GUIDE, Plan(tp=8, pp=4, dp=2, micro_batch=4, global_batch=256), 8)
    tensor = rows["tensor parallel", "all_reduce"]
    # 83.9 MB, 2 x 7/8 of it sent, 4 a layer, 8 layers, 32 micro-batches: 4.70 GB a micro-batch (3.3-g)
    assert (tensor.count, tensor.payload, tensor.link) == (1024, 83_886_080, "inside")
    assert tensor.bytes_per_rank / 32 == pytest.approx(4.698e9, rel=1e-3)
    stage = rows["pipeline", "send_recv"]
    assert (stage.count, stage.payload, stage.link) == (64, 83_886_080, "across")
    assert tensor.bytes_per_rank / stage.bytes_per_rank == pytest.approx(28)
    # The ends hold 8 layers (matrices and first biases / 8) and a copy of the tied matrix: 50176 x 5120 / 8.
    h = 5120
    layer = (12 * h * h + 3 * h + 4 * h) / 8 + 2 * h + 4 * h
    data = rows["data parallel", "all_reduce"]
    # The last stage has the head and the last norm, no positions: this model has none anywhere.
    assert data.payload == 2 * (8 * layer + 50176 * h / 8 + 2 * h)
    assert (data.count, data.group, data.link, data.members) == (1, 2, "across", 1)
    ends = rows["embedding between the ends", "all_reduce"]
    assert (ends.payload, ends.group) == (2 * 50176 * h / 8, 2)


PLANS = [
    (GUIDE, Plan(tp=8, pp=4, dp=2, micro_batch=4, global_batch=256)),
    (GUIDE, Plan(tp=4, pp=2, dp=4, cp=2, micro_batch=1, global_batch=64, sequence_parallel=True, zero=1)),
    (GUIDE, Plan(tp=2, dp=8, cp=4, context="all_to_all", micro_batch=2, global_batch=64, zero=2)),
    (GUIDE, Plan(dp=8, micro_batch=1, global_batch=64, zero=3, recompute="full")),
    (MIXTRAL, Plan(tp=2, pp=2, dp=8, ep=8, micro_batch=1, global_batch=64, sequence_parallel=True)),
    (MIXTRAL, Plan(tp=4, pp=4, dp=4, ep=8, etp=1, v=2, micro_batch=1, global_batch=64, recompute="full")),
]


@pytest.mark.parametrize(("model", "plan"), PLANS)
def test_every_row_sends_what_the_busiest_rank_of_its_trace_sends(model, plan):
    for row in step_bill(model, nodes(16), plan):
        algorithm = {"all_to_all": "pairwise", "send_recv": "linear"}.get(row.collective, "ring")
        n = 2 if row.collective == "send_recv" else int(row.group)
        pieces = trace(row.collective, algorithm, n)
        # Equal shares, as the bill counts them: a size that is not whole is not cut into whole bytes.
        found = replay(pieces, 1.0 * pieces.parts, Link(0.0, 1.0)).busiest * row.payload / pieces.parts
        assert row.bytes_per_rank == pytest.approx(row.count * found, rel=1e-12), row


@pytest.mark.parametrize("sequence_parallel", [False, True])
@pytest.mark.parametrize("recompute", ["none", "selective", "full"])
@pytest.mark.parametrize("kv_heads", [8, 2])
def test_tensor_parallel_sends_what_a_layer_on_arrays_sends(sequence_parallel, recompute, kv_heads):
    t, model = 4, replace(TINY, kv_heads=kv_heads, bias=False, norm="rms")
    layer = random_layer(model.sequence, model.heads, kv_heads, model.head_dim)
    options = {"sequence_parallel": sequence_parallel, "recompute": recompute}
    calls = split_layer(*layer, t, **options).calls
    rows = rows_of(model, Plan(tp=t, micro_batch=1, accumulation=1, replicate_kv=True, **options))
    at_the_ends = ("tensor parallel, ends", "tensor parallel, loss")
    billed = sent(rows, "tensor parallel") - sum(sent(rows, name) for name in at_the_ends)
    # Beyond the layer: the last norm, and the head's input gathered again for its weight gradient.
    beyond = sequence_parallel * (2 * (2.0 * model.hidden) + 2.0 * 16 * model.hidden) * (t - 1) / t
    # Each group that copies a kv head appears among the calls; a rank is in one of them.
    own = [call for call in calls if call.ranks == t]
    own += [call for call in calls if call.ranks != t][:1]
    assert billed == pytest.approx(sum(call.sent for call in own) + beyond, rel=1e-12)
    each = {
        kind: sum(row.count for (_, op), row in rows.items() if op == kind)
        for kind in ("all_gather", "reduce_scatter")
    }
    # Two each at the ends, the embedding's sum forward and the head's backward, and the head's gather again.
    at_ends = {"all_gather": 3 * sequence_parallel, "reduce_scatter": 2 * sequence_parallel}
    for kind, count in each.items():
        assert count - at_ends[kind] == sum(call.collective == kind for call in calls)


@pytest.mark.parametrize("kv_heads", [8, 4])
@pytest.mark.parametrize("cp", [2, 4])
def test_context_parallel_sends_what_attention_on_arrays_sends(kv_heads, cp):
    draw = np.random.default_rng(0)
    q, out = draw.normal(size=(2, 8, 16, 4))
    k, v = draw.normal(size=(2, kv_heads, 16, 4))
    model = replace(TINY, kv_heads=kv_heads)
    for context, run in (("ring", ring_attention), ("all_to_all", all_to_all_attention)):
        plan = Plan(cp=cp, context=context, micro_batch=1, accumulation=1)
        calls = run(q, k, v, out, cp).calls
        rows = rows_of(model, plan)
        assert sent(rows, "context parallel") == pytest.approx(sum(call.sent for call in calls), rel=1e-12)


@pytest.mark.parametrize("p", [2, 3, 4, 8])
@pytest.mark.parametrize("v", [1, 2, 3, "zb-v"])
def test_pipeline_sends_what_the_schedule_sends(p, v):
    m, model = 2 * p, replace(GUIDE, layers=48)
    if v == "zb-v":
        order, options = zb_v(p, m), {"v": 2, "schedule": "zb-v"}
    else:
        order, options = (one_f_one_b(p, m) if v == 1 else interleaved(p, m, v)), {"v": v}
    (row,) = [
        r
        for r in step_bill(model, nodes(64), Plan(pp=p, micro_batch=1, accumulation=m, **options))
        if r.strategy == "pipeline"
    ]
    assert row.count == m * sends(order).sum(axis=1).max()


def test_data_parallel_is_deferred_and_sharding_stages_stand_in_their_known_relation():
    plan = Plan(dp=8, micro_batch=1, global_batch=128)
    plain = sent(rows_of(GUIDE, plan), "data parallel")
    assert plain == pytest.approx(2 * 7 / 8 * 2 * GUIDE.parameters, rel=1e-9)
    for stage, factor in ((1, 1), (2, 17 / 2), (3, 24)):
        assert sent(rows_of(GUIDE, replace(plan, zero=stage)), "stage") == pytest.approx(
            factor * plain, rel=1e-9
        )
    assert rows_of(GUIDE, plan, bucket=25e6)["data parallel", "all_reduce"].count > 800
    assert sent(rows_of(GUIDE, plan, recipe=FP32_GRADIENTS), "data") == pytest.approx(2 * plain)


def test_a_recipe_counts_for_gradients_and_weights_and_not_for_activations():
    plan = Plan(tp=2, dp=4, zero=3, micro_batch=1, global_batch=32)
    usual, wide, fp32 = (rows_of(GUIDE, plan, recipe=one) for one in (MIXED, FP32_GRADIENTS, FP32))
    for kind, times in (("reduce_scatter", (1, 2, 2)), ("all_gather", (1, 1, 2))):
        sizes = [rows["stage 3", kind].payload for rows in (usual, wide, fp32)]
        assert sizes == pytest.approx([sizes[0] * factor for factor in times])
    assert sent(fp32, "tensor") == sent(usual, "tensor")


def test_arrays_of_a_bill_must_fit_each_other():
    with pytest.raises(InputRefused, match=r"a bill must broadcast, not plan.dp \(2,\), .*bucket \(3,\)"):
        rows_of(GUIDE, Plan(dp=np.array([2, 4])), bucket=np.full(3, 25e6))


def test_gradients_are_reduced_over_context_parallel_ranks_too():
    row = rows_of(GUIDE, Plan(tp=4, cp=2, dp=3, micro_batch=1, accumulation=1))["data parallel", "all_reduce"]
    assert row.group == 6 and row.link == "across" and row.members == 2


def test_case_e5_the_share_of_an_all_to_all_that_leaves_the_node():
    shares = []
    for count in (1, 2, 3, 4):
        plan = Plan(dp=8 * count, ep=8 * count, micro_batch=1, accumulation=1)
        model = replace(MIXTRAL, experts=8 * count)
        row = rows_of(model, plan, count)["expert parallel", "all_to_all"]
        shares.append(row.bytes_across / (row.count * row.payload))
    assert shares == pytest.approx([0, 1 / 2, 2 / 3, 3 / 4])


def test_experts_make_four_exchanges_a_layer_and_their_gradients_go_to_their_own_group():
    plan = Plan(tp=2, pp=2, dp=8, ep=8, micro_batch=1, global_batch=64)
    rows = rows_of(MIXTRAL, plan)
    row = rows["expert parallel", "all_to_all"]
    assert row.count == 4 * 16 * 8 and row.payload == 2 * MIXTRAL.sequence * MIXTRAL.hidden * 2
    own = rows.get(("data parallel, experts", "all_reduce"))
    assert own is None  # one rank of each eight holds an expert: nobody else does in its stage
    four = rows_of(MIXTRAL, replace(plan, ep=4))["data parallel, experts", "all_reduce"]
    assert four.group == 2
    assert four.payload == 2 * 16 * MIXTRAL.layer_parts()["mlp"] / 4 / 2
    again = rows_of(MIXTRAL, replace(plan, recompute="full"))["expert parallel", "all_to_all"]
    assert again.count == 1.5 * row.count


def test_sequence_parallel_sends_the_same_bytes_and_gathers_once_more():
    plan = Plan(tp=8, pp=4, dp=2, micro_batch=1, global_batch=64)
    whole, split = rows_of(GUIDE, plan), rows_of(GUIDE, replace(plan, sequence_parallel=True))
    halves = [split["tensor parallel", half].bytes_per_rank for half in ("reduce_scatter", "all_gather")]
    assert sum(halves) == pytest.approx(whole["tensor parallel", "all_reduce"].bytes_per_rank, rel=1e-12)
    again = split["tensor parallel, gather again", "all_gather"]
    # 2 of 8 halves a layer, of 8 layers, and one gather more for the head.
    assert again.bytes_per_rank == pytest.approx(sum(halves) / 4 * 17 / 16, rel=1e-12)
    assert split["pipeline", "send_recv"].payload == whole["pipeline", "send_recv"].payload / 8


def test_a_tied_matrix_costs_one_all_reduce_between_the_ends_of_a_pipeline_only():
    name = ("embedding between the ends", "all_reduce")
    untied = replace(GUIDE, tied=False)
    plan = Plan(tp=8, pp=4, micro_batch=1, accumulation=4)
    assert name in rows_of(GUIDE, plan) and name not in rows_of(untied, plan)
    assert name not in rows_of(GUIDE, replace(plan, pp=1))
    assert name not in rows_of(GUIDE, replace(plan, v=2, schedule="zb-v"))


def test_one_rank_has_no_bill():
    assert step_bill(GUIDE, nodes(1), Plan()) == []


def test_arrays_of_plans_bill_like_single_plans():
    tp, pp, dp = (np.array(degree) for degree in ([1, 2, 8, 4, 2], [1, 2, 4, 8, 4], [64, 16, 2, 2, 8]))
    zero, split = np.array([0, 1, 0, 3, 2]), np.array([False, True, True, False, True])
    recompute = np.array(["none", "full", "selective", "none", "full"])
    m = np.array([1, 2, 4, 8, 16])
    many = {"tp": tp, "pp": pp, "dp": dp, "zero": zero, "sequence_parallel": split, "recompute": recompute}
    for model, ep in ((GUIDE, np.ones(5, int)), (MIXTRAL, np.array([8, 4, 2, 2, 1]))):
        rows = step_bill(model, nodes(8), Plan(micro_batch=1, accumulation=m, ep=ep, **many))
        totals = sum(np.asarray(row.bytes_per_rank) for row in rows)
        across = sum(np.asarray(row.bytes_across) for row in rows)
        seconds = sum(np.asarray(row.seconds(nodes(8))) for row in rows)
        for i in range(5):
            one = Plan(
                micro_batch=1,
                accumulation=int(m[i]),
                ep=int(ep[i]),
                **{name: values[i].item() for name, values in many.items()},
            )
            alone = step_bill(model, nodes(8), one)
            assert totals[i] == pytest.approx(sum(row.bytes_per_rank for row in alone), rel=1e-12)
            assert across[i] == pytest.approx(sum(row.bytes_across for row in alone), rel=1e-12)
            assert seconds[i] == pytest.approx(sum(row.seconds(nodes(8)) for row in alone), rel=1e-12)
    assert set(bytes_by_strategy(rows)) >= {"data parallel", "tensor parallel", "pipeline", "stage 3"}


def test_uneven_stages_are_billed_by_their_fullest():
    plan = Plan(pp=4, stage_layers=(7, 8, 8, 9), tp=2, micro_batch=1, accumulation=8)
    row = rows_of(GUIDE, plan)["tensor parallel", "all_reduce"]
    assert row.count == 4 * 9 * 8


def test_fewer_kv_heads_than_ranks_of_a_trade_travel_in_copies():
    """16 ranks, 8 kv heads: each rank gets one, so 16 heads of 512 positions leave each rank, not 8."""
    llama = load_model("llama3.1-8b")
    plan = Plan(cp=16, context="all_to_all", replicate_kv=True, micro_batch=1, accumulation=1)
    keys = rows_of(llama, plan)["context parallel, keys and values", "all_to_all"]
    assert keys.payload == 16 * 128 * 512 * 2 and keys.count == 4 * 32
    eight = rows_of(llama, plan.changed(cp=8))["context parallel, keys and values", "all_to_all"]
    assert eight.payload == 8 * 128 * 1024 * 2


def test_norms_of_query_and_key_are_reduced_without_sequence_parallel_too():
    """A rank has the gradients of its own heads alone: 2 x 128 elements a layer, in 16 bits."""
    qwen = Transformer("q", 36, 4096, 32, 151936, 8192, kv_heads=8, norm="rms", bias=False, qk_norm=True)
    rows = rows_of(qwen, Plan(tp=4, micro_batch=1, accumulation=1))
    assert rows["tensor parallel, norms", "all_reduce"].payload == 36 * 2 * 128 * 2
    plain = rows_of(replace(qwen, qk_norm=False), Plan(tp=4, micro_batch=1, accumulation=1))
    assert ("tensor parallel, norms", "all_reduce") not in plain


COLUMNS = {
    **{name: st.sampled_from([1, 1, 2, 3, 4, 8]) for name in ("tp", "pp", "dp", "cp", "ep", "v")},
    "micro_batch": st.sampled_from([1, 2, 3]),
    "accumulation": st.sampled_from([1, 3, 8]),
    "zero": st.sampled_from([0, 1, 2, 3]),
    "recompute": st.sampled_from(["none", "selective", "full"]),
    "schedule": st.sampled_from(["1f1b", "gpipe"]),
    "context": st.sampled_from(["ring", "all_to_all"]),
    "sequence_parallel": st.booleans(),
}


@settings(max_examples=60, deadline=None)
@given(
    several=st.lists(st.fixed_dictionaries(COLUMNS), min_size=2, max_size=4),
    order=st.permutations(["tp", "cp", "dp", "pp"]).map("-".join),
    model=st.sampled_from([GUIDE, MIXTRAL, load_model("llama3.1-8b")]),
)
def test_a_plan_among_others_is_billed_as_alone_to_the_last_bit(several, order, model):
    columns = {name: np.array([one[name] for one in several]) for name in COLUMNS}
    place, count = nodes(512), len(several)
    together = Plan(**columns, order=order)
    rows = step_bill(model, place, together)
    for i, one in enumerate(several):
        plan = Plan(**one, order=order)
        alone = {(row.strategy, row.collective): row for row in step_bill(model, place, plan)}
        for row in rows:
            own = alone.pop((row.strategy, row.collective), None)
            found = [
                np.broadcast_to(number, count)[i]
                for number in (row.bytes_per_rank, row.bytes_across, row.count, row.seconds(place))
            ]
            if own is None:
                assert found[:3] == [0, 0, 0]
            else:
                assert found == [own.bytes_per_rank, own.bytes_across, own.count, own.seconds(place)]
        assert not alone


def test_hybrid_sharding_keeps_the_weights_among_neighbours():
    """Shards of 8 on 64 ranks: gathers and scatters inside, and once a step S/8 of gradients across."""
    plan, shape = Plan(dp=64, zero=3, micro_batch=1, accumulation=4), load_model("gpt3-13b")
    rows = step_bill(shape, nodes(8), plan.changed(shard_ranks=8))
    assert [(row.collective, row.group, row.link) for row in rows] == [
        ("all_gather", 8, "inside"),
        ("reduce_scatter", 8, "inside"),
        ("all_reduce", 8, "across"),
    ]
    held = rank_parameters(shape, plan, "first").total
    assert rows[2].payload == pytest.approx(2 * held / 8)
    assert sum(row.bytes_per_rank for row in rows) == pytest.approx(held * 2 * 7 / 8 * (3 * 4 + 2 / 8))
    assert [row.link for row in step_bill(shape, nodes(8), plan)] == ["across", "across"]
