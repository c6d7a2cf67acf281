"""Rules of the run on real questions: batches, micro-batches for a pipeline, ranks and their nodes."""

import pytest

from labkit.presets import cluster
from labkit.spec import Plan
from tests.spec.plan_cases import broken, gpus, impossible, shape


def test_256_sequences_over_7_ranks():
    found = broken(shape(), gpus(7, node=7), Plan(dp=7, global_batch=256, micro_batch=2))["batch"]
    assert found.message.startswith(
        "a global batch of 256 sequences does not divide into micro-batches of 2 on dp = 7: 256 mod 14 = 4 "
        "(accumulation 18.29)"
    )
    assert (
        "use a global batch of 252 (accumulation 18) or 266 (accumulation 19), or use dp = 4 or 8"
        in found.remedy
    )
    plan = Plan(dp=7, global_batch=256, micro_batch=2)
    assert [plan.changed(**option).accumulation for option in found.options[:2]] == [18, 19]
    assert plan.changed(dp=8).accumulation == 16


def test_8_sequences_in_3_micro_batches():
    found = broken(shape(layers=30), gpus(3, node=3), Plan(pp=3, global_batch=8, accumulation=3))["batch"]
    assert "8 sequences does not divide into 3 micro-batches on dp = 1: 8 mod 3 = 2" in found.message
    assert "use accumulation = 2, 4 or 8" in found.remedy
    assert "use a global batch of 6 (micro-batch 2) or 9 (micro-batch 3)" in found.remedy


def test_1024_sequences_over_12_ranks():
    found = broken(shape(), gpus(96), Plan(tp=8, dp=12, micro_batch=1, global_batch=1024))["batch"]
    assert "1024 mod 12 = 4 (accumulation 85.33)" in found.message
    assert (
        "use a global batch of 1020 (accumulation 85) or 1032 (accumulation 86), or use dp = 8 or 16"
        in found.remedy
    )
    assert "sequences of 1 " not in str(found)


def test_a_global_batch_alone_that_does_not_divide():
    found = broken(shape(), gpus(8), Plan(dp=8, global_batch=12))["batch"]
    assert "into 1 micro-batch on dp = 8: 12 mod 8 = 4 (micro-batch 1.5)" in found.message
    assert "8 (micro-batch 1) or 16 (micro-batch 2), or use dp = 6 or 12" in found.remedy


def test_a_batch_smaller_than_the_ranks():
    found = broken(shape(), gpus(8), Plan(dp=8, global_batch=1, micro_batch=1))["batch"]
    assert "a global batch of 1 sequence does" in found.message and "accumulation 0.125" in found.message
    assert {"global_batch": 8, "micro_batch": 1} in found.options and {"global_batch": 0} not in found.options


def test_three_numbers_that_disagree():
    plan = Plan(dp=8, micro_batch=2, accumulation=4, global_batch=128)
    found = broken(shape(), gpus(8), plan)["batch"]
    assert found.message == "micro-batch 2 x accumulation 4 x dp 8 = 64 is not the global batch 128"
    assert found.options == ({"global_batch": 64}, {"accumulation": 8})


@pytest.mark.parametrize(
    ("m", "says"),
    [
        (1, "1 micro-batch over pp = 4: 75 % of a 1F1B step is idle"),
        (8, "8 micro-batches over pp = 4: 27.3 % of a 1F1B step is idle"),
    ],
)
def test_too_few_micro_batches(m, says):
    plan = Plan(pp=4, tp=2, dp=16, micro_batch=1, accumulation=m)
    found = broken(shape(layers=44), gpus(128), plan)["micro-batches"]
    assert found.message == says and found.severity == "advice"
    assert found.remedy == (
        "use accumulation = 16 (15.8 %, global batch 256) or better 32 (8.57 %, global batch 512)"
    )
    assert "micro-batches" not in broken(shape(layers=44), gpus(128), plan.changed(accumulation=16))


def test_smaller_micro_batches_where_the_global_batch_allows_it():
    found = broken(shape(), gpus(4, node=4), Plan(pp=4, global_batch=64, accumulation=2))["micro-batches"]
    assert (
        found.remedy == "use accumulation = 16 (15.8 %, micro-batch 4) or better 32 (8.57 %, micro-batch 2)"
    )
    assert found.options == (
        {"accumulation": 16, "global_batch": 64},
        {"accumulation": 32, "global_batch": 64},
    )


def test_interleaving_hands_out_p_at_a_time():
    plan = Plan(tp=8, pp=4, v=2, micro_batch=2, accumulation=6)
    found = broken(shape(), gpus(32), plan)["interleaving"]
    assert found.message == "interleaving over pp = 4 needs micro-batches in multiples of 4, not 6"
    assert found.remedy == "use accumulation = 4 (global batch 8) or 8 (global batch 16), or use v = 1"
    assert "interleaving" not in broken(shape(), gpus(32), plan.changed(accumulation=8))
    alone = broken(shape(), gpus(8), Plan(dp=8, v=2))["interleaving"]
    assert alone.message == "v = 2 virtual stages need a pipeline, but pp = 1"


def test_schedules_and_their_virtual_stages():
    for fields, says in (
        ({"schedule": "zb-v"}, "zb-v has two virtual stages a rank, not v = 1"),
        ({"schedule": "gpipe", "v": 2}, "gpipe has no virtual stages, but v = 2"),
        ({"schedule": "zb-h1", "v": 4}, "zb-h1 has no virtual stages, but v = 4"),
    ):
        assert broken(shape(), gpus(4, node=4), Plan(pp=4, **fields))["schedule"].message == says
    for fields in ({"schedule": "zb-v", "v": 2}, {"schedule": "1f1b", "v": 2}, {"schedule": "zb-2p"}):
        assert impossible(shape(), gpus(4, node=4), Plan(pp=4, accumulation=16, **fields)) == set()


@pytest.mark.parametrize(
    ("fields", "count", "message", "remedy"),
    [
        (
            {"tp": 4, "pp": 7},
            32,
            "tp 4 x pp 7 = 28 ranks, which leaves 4 idle of 32 GPUs",
            "use pp = 4 with dp = 2 or pp = 8 with dp = 1",
        ),
        (
            {"tp": 8, "pp": 4, "dp": 2},
            32,
            "tp 8 x pp 4 x dp 2 = 64 ranks, but the cluster has 32 GPUs",
            "use dp = 1, or take 8 nodes (64 GPUs)",
        ),
        ({"tp": 4}, 8, "tp 4 = 4 ranks, which leaves 4 idle of 8 GPUs", "use dp = 2"),
        ({"tp": 8, "cp": 2, "dp": 3}, 64, "tp 8 x cp 2 x dp 3 = 48 ranks, which leaves 16 idle of 64 GPUs",
         "use dp = 4, or take 6 nodes (48 GPUs)"),
        ({}, 8, "no parallel degree = 1 rank, which leaves 7 idle of 8 GPUs", "use dp = 8"),
        ({"dp": 2}, 1, "dp 2 = 2 ranks, but the cluster has 1 GPU", "use dp = 1, or take 2 nodes (2 GPUs)"),
        (
            {"tp": 3, "pp": 5},
            16,
            "tp 3 x pp 5 = 15 ranks, which leaves 1 idle of 16 GPUs",
            "choose degrees whose product is 16",
        ),
    ],
)  # fmt: skip
def test_ranks_that_are_not_the_gpus(fields, count, message, remedy):
    found = broken(shape(), gpus(count, node=min(8, count)), Plan(**fields))["ranks"]
    assert (found.message, found.remedy) == (message, remedy)


@pytest.mark.parametrize(("tp", "best"), [(16, 8), (6, 4), (12, 8), (3, 2)])
def test_tp_that_leaves_its_node(tp, best):
    wide = shape(hidden=12288, heads=96)
    found = broken(wide, gpus(48), Plan(tp=tp, dp=48 // tp))["tensor parallel inside the domain"]
    assert f"tensor-parallel groups of {tp} leave their domain of 8 GPUs" in found.message
    assert found.severity == "advice" and found.options == ({"tp": best},)


def test_tp_that_leaves_its_node_by_the_order():
    plan = Plan(tp=8, pp=2, order="pp-tp-cp-dp", accumulation=8)
    found = broken(shape(), gpus(16), plan)["tensor parallel inside the domain"]
    assert found.remedy == "let the order begin with tp" and found.options == ({"order": "tp-pp-cp-dp"},)
    both = broken(shape(), gpus(32), Plan(tp=16, pp=2, order="pp-tp-cp-dp"))[
        "tensor parallel inside the domain"
    ]
    assert both.options == ({"tp": 8, "order": "tp-pp-cp-dp"},)


def test_a_rack_is_one_domain():
    rack = cluster("gb200-nvl72", nodes=36)  # two racks of 72
    name = "tensor parallel inside the domain"
    assert name not in broken(shape(), rack, Plan(tp=8, dp=18, global_batch=72))
    found = broken(shape(), rack, Plan(tp=16, dp=9, global_batch=72))[name]
    assert "leave their domain of 72 GPUs" in found.message
    assert found.remedy == "use tp = 8, 9 such groups in a domain of 72 GPUs"


def test_samples_per_rank():
    found = broken(shape(), gpus(64), Plan(dp=64, global_batch=64))["samples per rank"]
    assert found.severity == "advice"
    assert "64 sequences over dp = 64 leaves a rank 1 sequence:" in found.message
    assert found.options == ({"dp": 16}, {"global_batch": 256})
    assert (
        "a rank 1.5 sequences"
        in broken(shape(), gpus(8), Plan(dp=8, global_batch=12))["samples per rank"].message
    )
    assert "samples per rank" not in broken(shape(), gpus(8), Plan(dp=8, global_batch=32))


def test_the_larger_batch_fits_the_micro_batch():
    found = broken(shape(), gpus(8), Plan(dp=8, global_batch=24, micro_batch=3))["samples per rank"]
    assert {"global_batch": 48} in found.options  # 32 would not divide into threes
