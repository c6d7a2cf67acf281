"""Rules of tokens on real questions: experts over ranks, pieces of the sequence, heads for all_to_all."""

import pytest

from labkit.spec import Plan
from tests.spec.plan_cases import broken, gpus, impossible, shape


def sparse(experts, **more):
    return shape(experts=experts, top_k=min(8, experts), ffn=2048, **more)


def test_256_experts_on_3_ranks_and_every_other_fault_at_once():
    found = broken(sparse(256, heads=64), gpus(3, node=3), Plan(tp=3, ep=3, etp=1))
    assert "256 mod 3 = 1" in found["experts"].message
    assert found["experts"].remedy == "use ep = 2 or 4, or add 2 redundant experts (258 = 3 x 86)"
    assert "64 mod 3 = 1" in found["heads"].message


def test_160_experts_on_64_ranks():
    found = broken(sparse(160), gpus(64), Plan(dp=64, ep=64))["experts"]
    assert "160 mod 64 = 32" in found.message
    assert found.remedy == "use ep = 40 or 80, or add 32 redundant experts (192 = 64 x 3)"


def test_one_redundant_expert_is_one():
    assert (
        "add 1 redundant expert (8 = 4 x 2)"
        in broken(sparse(7), gpus(4, node=4), Plan(dp=4, ep=4))["experts"].remedy
    )


def test_a_dense_model_has_no_experts():
    found = broken(shape(), gpus(8), Plan(dp=8, ep=8))
    assert found["experts"].message == "case has no experts to spread over ep = 8"
    assert found["experts"].options == ({"ep": 1},) and "expert ranks" not in found


def test_46_layers_and_experts_that_need_twice_the_ranks():
    moe = sparse(128, layers=46, hidden=4096, heads=96, head_dim=128, kv_heads=8)
    plan = Plan(tp=8, pp=4, ep=16, etp=1, micro_batch=2, global_batch=16, sequence_parallel=True)
    found = broken(moe, gpus(32), plan)
    assert "46 layers over 4 stages do not split evenly: 11 each would leave 2 out" in found["layers"].message
    assert "stage_layers=(11, 12, 12, 11)" in found["layers"].remedy
    assert found["expert ranks"].message == (
        "experts take ep 16 x etp 1 = 16 ranks, but a stage has 8 (tp 8 x cp 1 x dp 1)"
    )
    assert "use dp = 2 (16 ranks a stage, 64 GPUs in all)" in found["expert ranks"].remedy
    assert {"ep": 8} in found["expert ranks"].options
    assert found.keys() >= {"layers", "expert ranks", "micro-batches"}


def test_expert_ranks_offer_the_nearest_dp_on_both_sides():
    found = broken(sparse(64), gpus(12, node=4), Plan(tp=4, dp=3, ep=8, etp=1))["expert ranks"]
    assert found.options == ({"ep": 4}, {"dp": 2}, {"dp": 4})


def test_experts_do_not_add_to_the_ranks():
    assert impossible(sparse(64), gpus(8), Plan(tp=1, dp=8, ep=8, global_batch=64)) == set()


@pytest.mark.parametrize(
    ("fields", "sequence", "message", "options"),
    [
        (
            {"cp": 3},
            8192,
            "the sequence does not cut into 2 x cp = 6 pieces: 8192 mod 6 = 2",
            ({"cp": 2}, {"cp": 4}, {"sequence": 8196}),
        ),
        (
            {"cp": 3, "balanced": False},
            8192,
            "the sequence does not cut into cp = 3 pieces: 8192 mod 3 = 2",
            ({"cp": 2}, {"cp": 4}, {"sequence": 8193}),
        ),
        (
            {"cp": 2},
            4095,
            "the sequence does not cut into 2 x cp = 4 pieces: 4095 mod 4 = 3",
            ({"cp": 1}, {"sequence": 4096}),
        ),
        (
            {"cp": 2},
            4098,
            "the sequence does not cut into 2 x cp = 4 pieces: 4098 mod 4 = 2",
            ({"cp": 1}, {"cp": 3}, {"sequence": 4100}),
        ),
    ],
)
def test_sequences_that_do_not_cut(fields, sequence, message, options):
    plan = Plan(**fields)
    found = broken(shape(sequence=sequence), gpus(plan.cp, node=plan.cp), plan)["sequence"]
    assert (found.message, found.options) == (message, options)


def test_a_balanced_ring_needs_twice_the_pieces():
    for balanced, faults in ((True, {"sequence"}), (False, set())):
        plan = Plan(cp=4, balanced=balanced)
        assert impossible(shape(sequence=4100), gpus(4, node=4), plan) == faults


def test_sequence_parallel_cuts_once_more():
    plan = Plan(tp=8, cp=2, sequence_parallel=True)
    found = broken(shape(sequence=4100), gpus(16), plan)
    assert found["sequence parallel"].message == (
        "sequence parallel cannot cut the sequence into cp x tp = 16 pieces: 4100 mod 16 = 4"
    )
    assert found["sequence parallel"].options == ({"sequence": 4112}, {"sequence_parallel": False})
    assert "sequence" not in found  # 4 pieces of 1025
    assert impossible(shape(sequence=4112), gpus(16), plan) == set()
    alone = Plan(tp=1, dp=16, sequence_parallel=True)
    assert impossible(shape(sequence=4097), gpus(16), alone) == set()


def test_all_to_all_spreads_heads():
    grouped = shape(kv_heads=8)
    plan = Plan(tp=4, cp=8, context="all_to_all")
    found = broken(grouped, gpus(32), plan)["all_to_all"]
    assert "32 mod 32 = 0, 8 mod 32 = 8 for the kv heads" in found.message
    assert found.options == ({"replicate_kv": True}, {"cp": 2}, {"context": "ring"})
    assert impossible(grouped, gpus(32), plan.changed(replicate_kv=True)) == set()
    assert impossible(grouped, gpus(32), plan.changed(context="ring")) == set()
    few = broken(shape(heads=20, hidden=2560), gpus(32), Plan(tp=4, cp=8, context="all_to_all"))["all_to_all"]
    assert few.message == "all_to_all spreads the heads over tp x cp = 32 ranks: 20 mod 32 = 20"
    assert few.options == ({"cp": 5}, {"context": "ring"})


def test_a_sequence_and_heads_that_do_not_cut_are_both_told():
    plan = Plan(cp=3, context="all_to_all")
    assert impossible(shape(), gpus(3, node=3), plan) == {"sequence", "all_to_all"}
