"""Cells of measured rows: read in full, or a reason not to score the row; nothing is taken as usual."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from labkit.errors import InputRefused
from labkit.presets.measured import peaks_of
from labkit.spec.checks import shown
from tests.presets.measured_cases import RANKS, REDIS, SIMUMAX, golden, only

NUMBERS = ("layers", "hidden", "heads", "kv_heads", "ffn_hidden", "seq_len", "tp", "cp", "pp", "dp")
NUMBERS += ("micro_batch", "grad_accum")
WORDS = ("gated_ffn", "shard", "sequence_parallel", "recompute", "precision")


def reason(row, **changes):
    """Why the row with other texts in some columns is not scored; it must be."""
    peaks, not_scored = peaks_of([row | changes])
    assert not peaks
    (why,) = {one.why for one in not_scored}  # of all stages of a run
    assert why.isprintable() and len(why) < 1000
    return why


@pytest.mark.parametrize("row", [SIMUMAX, REDIS, golden()], ids=["simumax", "redis", "golden"])
@pytest.mark.parametrize("column", (*NUMBERS, *WORDS))
def test_a_needed_cell_that_is_blank_or_odd_is_no_usual_value(row, column):
    assert only(row).peak
    assert f"{column} is not given" in reason(row, **{column: ""})
    for odd in ("x", "-1", "yes", "True", "4.0", "7 of 8", "two\nlines", "9" * 5000, "\u0664"):
        assert f"{column} {shown(odd)} is not known" in reason(row, **{column: odd})


@pytest.mark.parametrize("column", [*NUMBERS, "vocab", "ep", "interleave_v"])
def test_a_number_is_from_1_up(column):
    assert f"{column} '0' is not known" in reason(SIMUMAX, **{column: "0"})


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"gated_ffn": "7"}, "gated_ffn '7' is not known"),
        ({"shard": "banana"}, "shard 'banana' is not known"),
        ({"shard": "zero-1"}, "shard 'zero-1' is not known"),
        ({"shard": "ZeRO-7"}, "shard 'ZeRO-7' is not known"),
        ({"shard": "DDP, sometimes"}, "shard 'DDP, sometimes' is not known"),
        ({"vocab": ""}, "the vocabulary is not known"),
        ({"vocab": "many"}, "vocab 'many' is not known"),
        ({"peak_mem_GB": "0"}, "no peak was measured"),
        ({"peak_mem_GB": "."}, "peak_mem_GB '.' is not known"),
        ({"peak_mem_GB": "much"}, "peak_mem_GB 'much' is not known"),
        ({"peak_mem_GB": "9"}, "peak_mem_GB is not that of the fullest rank in the notes"),
        ({"global_batch": "999"}, "global_batch '999' is not dp x micro_batch x grad_accum"),
        ({"global_batch": "some"}, "global_batch 'some' is not dp"),
        ({"pp": "8", "dp": "1", "tp": "1"}, "the schedule of the pipeline is not given"),
        ({"pp": "8", "pp_schedule": "1F1B", "interleave_v": ""}, "interleave_v is not given"),
        ({"pp": "5", "pp_schedule": "1F1B"}, "the layers of its stages are not known"),
        ({"interleave_v": "9" * 23}, "interleave_v '999"),
        ({"pp": "999999999", "pp_schedule": "1F1B"}, "the layers of its stages are not known"),
        ({"notes": RANKS + "0:62136 1:62136 9:62136"}, "the notes do not list every rank once"),
        ({"notes": RANKS + "0:62136"}, "the notes do not list every rank once"),
        ({"notes": RANKS}, "the notes do not list every rank once"),
        ({"notes": RANKS + "7:62136 " * 8}, "the notes do not list every rank once"),
        ({"notes": RANKS + f"0:{'9' * 5000}"}, "the notes do not list every rank once"),
    ],
)
def test_what_is_odd_in_a_simumax_row(changes, why):
    assert why in reason(SIMUMAX, **changes)


def test_blank_cells_that_say_nothing_a_row_needs():
    for column in ("ep", "interleave_v", "pp_schedule", "global_batch", "mem_kind"):
        assert only(SIMUMAX | {column: ""}) == only(SIMUMAX)
    clock = only(SIMUMAX | {"notes": "started at 12:30 and ran to 13:05"})
    assert (clock.stage, clock.peak) == (None, pytest.approx(65.155e9))
    assert only(golden(source_id="zero_bubble", precision="bf16/fp16 (not stated)")).model.vocabulary == 32000
    assert "vocab 'x' is not known" in reason(golden(source_id="zero_bubble"), vocab="x")


@pytest.mark.parametrize(
    ("option", "odd"),
    [
        ("hidden-dropout", "1.5"),
        ("hidden-dropout", ""),
        ("position-embedding-type", "relative"),
        ("normalization", "rms"),
        ("attention-backend", "unknown"),
        ("transformer-impl", "other"),
        ("untie-embeddings-and-output-weights", "yes"),
        ("disable-bias-linear", "1"),
        ("cp-comm-type", "all_gather"),
        ("moe-token-dispatcher-type", "pigeon"),
        ("moe-router-topk", "9" * 5000),
        ("num-experts", "8b"),
    ],
)
def test_an_option_that_is_not_known_is_no_default(option, odd):
    why = reason(golden(), notes=f"num-experts=8; {option}={odd}")
    assert f"{option} {shown(odd)} is not known" in why if odd else f"{option} is not given" in why


def test_options_however_they_are_written():
    assert not only(golden(notes="hidden-dropout=0.00")).model.dropout
    assert only(golden(notes="hidden-dropout=0.05")).model.dropout
    assert only(golden(notes="position-embedding-type=learned_absolute")).model.learned_positions == 1024
    assert only(golden(notes="untie-embeddings-and-output-weights=False")).model.tied


HOSTILE = st.one_of(
    st.text(max_size=40),
    st.sampled_from(
        ["", "0", "1", "4", "-1", "1e9", "nan", "9" * 23, "9" * 5000, "\u0664", "a\nb", "x" * 5000]
    ),
    st.sampled_from(["999999999", "(redis)", "1F1B (redis)", "none", "full uniform 999999999", "ZeRO-3"]),
    st.sampled_from(
        [RANKS + "0:1 1:2 9:3", RANKS + "0:1", "num-experts=4; moe-router-topk=9", "=; ==", "0:1"]
    ),
    st.none() | st.integers() | st.floats() | st.booleans() | st.lists(st.text(), max_size=2),
)


@given(
    row=st.sampled_from([SIMUMAX, REDIS, golden(), golden(row_label="moe_uneven_pipeline_multi_dist")]),
    changes=st.dictionaries(
        st.sampled_from([*SIMUMAX, "model", "source_id"]), HOSTILE, min_size=1, max_size=4
    ),
)
def test_hostile_cells_are_scored_refused_or_said_in_one_line(row, changes):
    try:
        peaks, not_scored = peaks_of([row | changes])
    except InputRefused as refusal:
        assert str(refusal).isprintable() and len(str(refusal)) < 300
        return
    assert bool(peaks) != bool(not_scored)
    assert all(peak.peak > 0 for peak in peaks)
    assert all(one.why.isprintable() and len(one.why) < 1000 for one in not_scored)
