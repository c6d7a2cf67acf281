"""Measured peaks: which rows a model and a plan can say, and what a few of them say, spelled out."""

import csv
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from labkit.errors import InputRefused
from labkit.presets.measured import measured_peaks, peaks_of
from labkit.presets.measured_rows import COLUMNS, measured_facts
from labkit.presets.published import published
from tests.presets.measured_cases import golden, only

COLLECTED = Path(__file__).resolve().parents[3] / "shared" / "data" / "published"
FILES = ("simumax_b200_8gpu", "zero_bubble", "vocabulary_parallelism_a100")
FILES += ("mcore_golden_values_small_tests",)
PEAKS, NOT_SCORED = measured_peaks()


def labelled(label, stage=None):
    """The only peak with this label, of a stage where one is named."""
    found = [peak for peak in PEAKS if peak.label == label and stage in (None, peak.stage)]
    assert len(found) == 1
    return found[0]


def why_not(**changes):
    peaks, not_scored = peaks_of([golden(**changes)])
    assert not peaks
    return not_scored[0].why


def test_how_many_rows_of_each_source():
    assert Counter(peak.source for peak in PEAKS) == {
        "simumax_b200": 15,  # 12 runs of Llama, three of them with two stages
        "zero_bubble": 48,
        "vocab_parallelism": 16,
        "mcore_golden_values": 187,
    }
    assert Counter(row.source for row in NOT_SCORED) == {
        "simumax_b200": 7,  # 5 runs of DeepSeek, two of them with two stages
        "vocab_parallelism": 24,
        "mcore_golden_values": 27,
    }


def test_each_row_is_scored_or_says_why_not():
    assert len(PEAKS) + len(NOT_SCORED) == len(published("measured_memory"))
    assert all(row.why for row in NOT_SCORED)
    assert {peak.loss for peak in PEAKS} == {"fp32 copy", "compiled", "in place"}
    assert Counter(peak.kind for peak in PEAKS) == {"allocated": 202, "reserved": 16, "printed": 48}


def test_a_simumax_run_has_a_row_for_each_stage():
    first, last = (labelled("llama3_405b_l4_tp1_pp2_dp4_mbc4_cef", stage) for stage in (0, 1))
    assert (first.peak, last.peak) == (88689 * 2**20, 89173 * 2**20)
    model, plan = first.model, first.plan
    assert (model.layers, model.hidden, model.ffn, model.kv_heads, model.vocabulary) == (
        4,
        16384,
        53248,
        16,
        128256,
    )
    assert (model.gated, model.tied, model.norm, model.bias, model.dropout) == (
        True,
        False,
        "rms",
        False,
        False,
    )
    assert (plan.tp, plan.pp, plan.dp, plan.zero, plan.accumulation, plan.global_batch) == (1, 2, 4, 1, 4, 16)
    assert (first.gradient_bytes, first.loss, first.unused_gradients) == (4.0, "in place", True)
    assert plan.fused_attention
    assert not plan.sequence_parallel  # the launcher asks for it, with one tensor-parallel rank it is nothing


def test_end_stages_of_zero_bubble_have_a_layer_less():
    assert labelled("T4 1.5B 1F1B m=24").plan.stage_layers == (2, 3, 3, 3, 3, 3, 3, 2)
    interleaved = labelled("T4 1.5B 1F1B-I m=24").plan
    assert (interleaved.v, interleaved.schedule) == (3, "1f1b")
    assert interleaved.stage_layers == (0, *[1] * 22, 0)
    assert [labelled(f"T4 6.2B {name} m=64").plan.schedule for name in ("ZB-1p", "ZB-2p")] == [
        "zb-1p",
        "zb-2p",
    ]


def test_the_vocabulary_of_zero_bubble_gives_the_printed_sizes_and_no_other_tying_does():
    models = {peak.label.split()[1]: peak.model for peak in PEAKS if peak.source == "zero_bubble"}
    assert set(models) == {"1.5B", "6.2B", "14.6B", "28.3B"}
    for printed, model in models.items():
        assert f"{model.parameters / 1e9:.1f}B" == printed
    untied = [
        vocabulary
        for vocabulary in range(1000, 100_000, 1000)
        if all(
            f"{replace(model, vocabulary=vocabulary, tied=False).parameters / 1e9:.1f}B" == printed
            for printed, model in models.items()
        )
    ]
    assert all(vocabulary <= 16_000 for vocabulary in untied)


def test_vocabulary_parallelism_counts_in_thousands_and_prints_gib():
    row = labelled("2k 256k redis")
    assert row.model.vocabulary == 256_000
    assert row.peak == pytest.approx(27.63 * 2**30)
    assert row.kind == "reserved"
    assert row.plan.stage_layers == (4, 4, 4, 5, 5, 5, 5, 0)  # artifact/test_one_host.csv
    assert labelled("2k 32k redis").plan.stage_layers == (4,) * 8  # its MFU is that of the baseline
    assert labelled("2k 32k baseline").plan.stage_layers is None
    assert {row.why for row in NOT_SCORED if row.source == "vocab_parallelism"} == {
        "the vocabulary is split over the stages of the pipeline"
    }


def test_a_golden_row_at_its_defaults():
    row = only(golden())
    model, plan = row.model, row.plan
    assert (model.vocabulary, model.tied, model.learned_positions) == (50257, True, 1024)
    assert (model.norm, model.bias, model.dropout, model.experts) == ("layer", True, True, 0)
    assert (plan.zero, plan.schedule, plan.recompute, plan.fused_attention) == (0, "1f1b", "none", True)
    assert (row.stage, row.peak, row.kind) == (3, 2.5e9, "allocated")
    assert (row.gradient_bytes, row.loss, row.unused_gradients) == (4.0, "fp32 copy", True)


def test_options_in_the_notes():
    row = only(
        golden(
            notes="attention-backend=unfused; no-gradient-accumulation-fusion=True; hidden-dropout=0.0; "
            "position-embedding-type=rope; untie-embeddings-and-output-weights=True; normalization=RMSNorm; "
            "disable-bias-linear=True; cross-entropy-loss-fusion=True; cp-comm-type=a2a",
            precision="fp16",
            shard="distributed optimizer (ZeRO-1), overlap-grad-reduce",
            recompute="full uniform 2",
        )
    )
    model, plan = row.model, row.plan
    assert (model.tied, model.learned_positions, model.norm) == (False, 0, "rms")
    assert (model.bias, model.dropout) == (False, False)
    assert (plan.fused_attention, plan.zero, plan.context) == (False, 1, "all_to_all")
    assert (plan.recompute, plan.recompute_every) == ("full", 2)
    assert (row.gradient_bytes, row.loss, row.unused_gradients) == (2.0, "compiled", False)


def test_experts_in_the_notes():
    row = only(
        golden(tp="2", pp="1", pp_schedule="none", dp="4", ep="2", notes="num-experts=8; moe-router-topk=2")
    )
    assert (row.model.experts, row.model.top_k, row.model.ffn) == (8, 2, 2048)
    assert (row.plan.ep, row.plan.etp, row.dispatcher) == (2, 2, "allgather")
    more = "num-experts=8; moe-router-topk=1; moe-ffn-hidden-size=1024; expert-tensor-parallel-size=1; "
    row = only(golden(tp="2", ep="2", notes=more + "moe-token-dispatcher-type=alltoall"))
    assert (row.model.ffn, row.plan.etp, row.dispatcher) == (1024, 1, "alltoall")


@pytest.mark.parametrize(
    ("sharding", "zero"),
    [
        ("none", 0),
        ("DDP", 0),
        ("distributed optimizer (ZeRO-1)", 1),
        ("ZeRO-2", 2),
        ("FSDP (optim_grads)", 2),
        ("FSDP (optim_grads_params), overlap-grad-reduce", 3),
    ],
)
def test_sharding(sharding, zero):
    assert only(golden(shard=sharding)).plan.zero == zero


def test_uneven_pipelines():
    assert only(golden(row_label="gpt/x_uneven_pipeline_1node dev")).plan.stage_layers == (2, 4, 4, 2)
    assert only(golden(layers="6", interleave_v="2")).plan.stage_layers == (0, 1, 1, 1, 1, 1, 1, 0)
    assert only(golden(layers="12")).plan.stage_layers is None


def test_two_instances_of_the_distributed_optimizer_shard_over_half_the_ranks():
    label = "gpt/x_multi_dist_optimizer_instances dev"
    row = only(golden(row_label=label, dp="4", shard="distributed optimizer (ZeRO-1)"))
    assert row.plan.shard_ranks == 2


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"notes": "multi-latent-attention=True"}, "multi-latent attention"),
        ({"notes": "mtp-num-layers=1"}, "multi-token prediction"),
        ({"notes": "moe-shared-expert-intermediate-size=512"}, "shared experts"),
        ({"precision": "bf16+fp8(hybrid)"}, "precision 'bf16+fp8(hybrid)' is not known"),
        (
            {"recompute": "selective modules=[layernorm mlp]"},
            "recompute 'selective modules=[layernorm mlp]' is not known",
        ),
        ({"pp_schedule": "DualPipe"}, "pp_schedule 'DualPipe' is not known"),
        ({"hidden": "4096"}, "the vocabulary is not known"),
        ({"dp": ""}, "dp is not given"),
        ({"ep": "4"}, "how many experts is not known"),
        ({"peak_mem_GB": ""}, "no peak was measured"),
        ({"row_label": "moe/dist_muon dev"}, "the optimizer is not Adam"),
        ({"row_label": "moe/fine_grained_offloading dev"}, "host's memory"),
        ({"kv_heads": "3"}, "kv heads"),
    ],
)
def test_what_cannot_be_expressed_says_why(changes, why):
    assert why in why_not(**changes)


def test_what_no_row_can_be_is_refused():
    with pytest.raises(InputRefused, match=r"source_id of a measured row is 'nvidia_dgxc'; use simumax_b200"):
        peaks_of([golden(source_id="nvidia_dgxc")])
    for source in (None, 3, ["simumax_b200"], "x" * 5000, "two\nlines"):
        with pytest.raises(InputRefused, match="source_id of a measured row is"):
            peaks_of([golden(source_id=source)])
    for kind in (None, 3, ["allocated"]):
        with pytest.raises(InputRefused, match="a measured row has no text mem_kind"):
            peaks_of([golden(mem_kind=kind)])
    with pytest.raises(InputRefused, match="a measured row has no text notes"):
        peaks_of([{name: text for name, text in golden().items() if name != "notes"}])
    with pytest.raises(InputRefused, match="come in a list"):
        peaks_of("measured.csv")
    with pytest.raises(InputRefused, match="a measured row is 'row'; give a dict"):
        peaks_of(["row"])


@pytest.mark.skipif(not COLLECTED.exists(), reason="the published tables do not stand beside the checkout")
def test_our_table_is_what_the_published_rows_say():
    facts = []
    for name in FILES:
        with (COLLECTED / f"{name}.csv").open(newline="", encoding="utf-8") as lines:
            facts += [fact for row in csv.DictReader(lines) for fact in measured_facts(row)]
    ours = published("measured_memory")
    assert [list(row) for row in ours] == [list(COLUMNS)] * len(ours)
    assert [{key: str(value) for key, value in row.items()} for row in ours] == [
        {key: str(value) for key, value in fact.items()} for fact in facts
    ]
