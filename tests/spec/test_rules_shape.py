"""Rules of shape on real questions: heads, kv heads, vocabulary and layers that do not divide."""

import numpy as np
import pytest

from labkit.presets import cluster, model
from labkit.spec import Plan
from labkit.spec.rules import allowed
from tests.spec.plan_cases import broken, gpus, impossible, shape


def test_52_heads():
    wide = shape(hidden=6656, heads=52, ffn=17920)
    eight = broken(wide, gpus(8), Plan(tp=8))["heads"]
    assert eight.message == (
        "the heads do not split over tp = 8: 52 mod 8 = 4 (52 splits over 1, 2, 4, 13, 26 or 52)"
    )
    assert eight.remedy == "use tp = 4, 2 such groups in a domain of 8 GPUs"
    assert eight.options == ({"tp": 4},)
    assert "52 mod 3 = 1" in broken(wide, gpus(8), Plan(tp=3))["heads"].message
    for dp, pp in ((2, 1), (1, 2)):
        assert impossible(wide, gpus(8), Plan(tp=4, dp=dp, pp=pp)) == set()


def test_12_heads_and_2_kv_heads():
    small = shape(hidden=1536, heads=12, kv_heads=2, ffn=8960)
    found = broken(small, gpus(8), Plan(tp=8, global_batch=8))
    assert "12 mod 8 = 4" in found["heads"].message
    assert "each rank would hold 1/4 of a kv head" in found["kv heads"].message
    for rule in ("heads", "kv heads"):
        assert found[rule].options == ({"tp": 4, "replicate_kv": True}, {"tp": 2})
        assert found[rule].remedy.startswith(
            "use tp = 4 and hold each kv head on 2 ranks (replicate_kv=True), 2 such groups in a domain of 8"
        )
    idle = broken(small, gpus(8), Plan(tp=4, replicate_kv=True, global_batch=8))["ranks"]
    assert idle.message == "tp 4 = 4 ranks, which leaves 4 idle of 8 GPUs"
    assert idle.remedy == "use dp = 2"
    works = [
        (tp, copied)
        for tp in (1, 2, 4, 8)
        for copied in (False, True)
        if not impossible(small, gpus(8), Plan(tp=tp, dp=8 // tp, replicate_kv=copied))
    ]
    assert works == [(1, False), (1, True), (2, False), (2, True), (4, True)]


def test_4_kv_heads_over_8_ranks():
    found = broken(shape(kv_heads=4), gpus(8), Plan(tp=8))["kv heads"]
    assert found.message == "4 kv heads over tp = 8: each rank would hold 1/2 of a kv head"
    assert found.remedy.startswith(
        "keep tp = 8 and hold each kv head on 2 ranks (replicate_kv=True), or use tp = 4"
    )
    assert impossible(shape(kv_heads=4), gpus(8), Plan(tp=8, replicate_kv=True)) == set()


def test_one_kv_head_is_one():
    assert broken(shape(kv_heads=1), gpus(8), Plan(tp=8))["kv heads"].message.startswith(
        "1 kv head over tp = 8"
    )


def test_10_kv_heads_over_4_ranks():
    phi = shape(hidden=5120, heads=40, kv_heads=10, ffn=17920, layers=40)
    for copied in (False, True):
        found = broken(phi, gpus(8), Plan(tp=4, dp=2, replicate_kv=copied))["kv heads"]
        assert "10 mod 4 = 2 and 4 mod 10 = 4 (10 splits over 1, 2, 5 or 10)" in found.message
        assert found.remedy == "use tp = 2, 4 such groups in a domain of 8 GPUs"
    assert impossible(phi, gpus(8), Plan(tp=2, dp=4)) == set()
    assert impossible(phi, gpus(10, node=5), Plan(tp=5, dp=2)) == set()


@pytest.mark.parametrize(
    ("heads", "tp", "best"), [(20, 8, 4), (25, 8, 1), (12, 8, 4), (40, 16, 8), (14, 4, 2)]
)
def test_the_nearest_tp_fills_the_domain(heads, tp, best):
    found = broken(shape(heads=heads, hidden=128 * heads), gpus(16), Plan(tp=tp))["heads"]
    assert f"{heads} mod {tp} = {heads % tp}" in found.message
    assert found.options == ({"tp": best},)


def test_a_vocabulary_without_padding():
    glm = shape(hidden=12288, heads=96, vocabulary=151552)
    found = broken(glm, gpus(6, node=6), Plan(tp=6, vocabulary_multiple=0))
    assert "heads" not in found
    assert "151552 mod 6 = 4" in found["vocabulary"].message
    assert (
        "pad it to 151554 (vocabulary_multiple=1), or to 152064, a multiple of 128 x 6"
        in found["vocabulary"].remedy
    )
    assert impossible(glm, gpus(6, node=6), Plan(tp=6)) == set()


@pytest.mark.parametrize(
    ("vocabulary", "tp", "multiple", "says"),
    [
        (128256, 8, 64, "padded to 128512, 16064 rows a rank, 256 rows of them for no token"),
        (65535, 2, 1, "padded to 65536, 32768 rows a rank, 1 row of them for no token"),
        (50257, 8, 128, "padded to 51200, 6400 rows a rank, 943 rows of them for no token"),
    ],
)
def test_rows_of_padding_are_told(vocabulary, tp, multiple, says):
    plan = Plan(tp=tp, vocabulary_multiple=multiple)
    found = broken(shape(vocabulary=vocabulary), gpus(8), plan)["padding"]
    assert found.severity == "advice" and says in found.message
    assert "cut these rows when the checkpoint is exported" in found.remedy


def test_a_vocabulary_that_divides_is_padded_once():
    plan = Plan(tp=2, dp=4, vocabulary_multiple=64)
    assert "padding" not in broken(shape(vocabulary=151936), gpus(8), plan)
    assert plan.padded_vocabulary(151936) // plan.tp == 75968


def test_30_layers_over_4_stages_lose_none():
    found = broken(shape(layers=30), gpus(4, node=4), Plan(pp=4, accumulation=16))["layers"]
    assert found.message == "30 layers over 4 stages do not split evenly: 7 each would leave 2 out"
    assert "stage_layers=(7, 8, 8, 7), or use pp = 3" in found.remedy
    uneven = Plan(pp=4, accumulation=16, stage_layers=(7, 8, 8, 7))
    assert impossible(shape(layers=30), gpus(4, node=4), uneven) == set()


@pytest.mark.parametrize(
    ("layers", "fields", "message"),
    [
        (30, {"pp": 4, "stage_layers": (7, 7, 7, 7)}, "the stages hold 28 of 30 layers"),
        (30, {"pp": 4, "stage_layers": (10, 10, 10)}, "stage_layers has 3 numbers for 4 stages"),
        (1, {"pp": 2, "stage_layers": (2,)}, "stage_layers has 1 number for 2 stages"),
        (61, {"pp": 8}, "61 layers over 8 stages do not split evenly: 7 each would leave 5 out"),
        (46, {"pp": 4}, "46 layers over 4 stages do not split evenly: 11 each would leave 2 out"),
        (
            32,
            {"pp": 8, "v": 3},
            "32 layers over 24 virtual stages do not split evenly: 1 each would leave 8 out",
        ),
        (6, {"pp": 8}, "6 layers over 8 stages leave 2 stages empty"),
        (7, {"pp": 8}, "7 layers over 8 stages leave 1 stage empty"),
        (1, {"pp": 8, "v": 2}, "1 layer over 16 virtual stages leave 15 virtual stages empty"),
    ],
)
def test_layers_that_do_not_add_up(layers, fields, message):
    plan = Plan(**fields)
    found = broken(shape(layers=layers), gpus(plan.ranks, node=plan.ranks), plan)["layers"]
    assert found.message == message and found.options


def test_many_stages_are_counted_and_not_listed():
    found = broken(shape(layers=61), gpus(32), Plan(pp=32))["layers"]
    assert "stage_layers with 29 times 2 and 3 times 1" in found.remedy
    assert sum(found.options[0]["stage_layers"]) == 61 and len(found.options[0]["stage_layers"]) == 32


def test_the_mlp_of_an_expert_splits_over_etp():
    sparse = shape(ffn=1407, experts=64, top_k=6)
    found = broken(sparse, gpus(8), Plan(tp=8, ep=1))["ffn"]
    assert found.message == "the MLP's width does not split over etp = 8: 1407 mod 8 = 7"
    assert found.options == ({"etp": 1},)
    assert impossible(sparse, gpus(8), Plan(tp=8, ep=8, etp=1)) == set()


def test_an_mlp_that_does_not_divide():
    found = broken(shape(ffn=11009), gpus(8), Plan(tp=8))["ffn"]
    assert "over tp = 8: 11009 mod 8 = 1" in found.message and found.options == ({"tp": 1},)


def test_good_plans_have_no_problem():
    assert broken(shape(), gpus(64), Plan(tp=8, pp=4, dp=2, global_batch=512, micro_batch=1)) == {}
    everything = Plan(tp=8, pp=9, dp=7, micro_batch=1, accumulation=64)
    assert impossible(model("llama3.1-405b"), cluster("h100", nodes=63), everything) == set()


def test_masks_of_arrays():
    tp = np.array([1, 2, 4, 8])
    many = Plan(tp=tp, dp=8 // tp)
    found = allowed(shape(hidden=1536, heads=12, kv_heads=2, ffn=8960), gpus(8), many)
    assert found.tolist() == [True, True, False, False]
