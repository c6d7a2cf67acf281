"""Section 3.2's claims against figures from the guide, its recomputed claims, and sums by hand."""

import re

import numpy as np
import pytest

from labkit.course import chapter3_tensor as tensor
from labkit.course import chapter3_tensor_degree as degree
from labkit.course.claims import all_claims
from labkit.presets import model

CLAIMS = all_claims()

EXPECTED = {
    "3.2-a": ["t = 8: 1 forward and 1 backward per pair", "off by less than 1e-11"],
    "3.2-b": ["83.9 MB", "x 64 = 5.37 GB"],
    "3.2-c": ["with 1,", "with 8"],
    "3.2-d": ["1: 21 MB x 128, 2: 41.9 MB x 128, 4: 83.9 MB x 128"],
    "3.2-e": ["2 forward, 4 with backward, 6 with full recompute", "64, 128, 192"],
    "3.2-f": ["payload 5.37 GB", "9.4 GB, 18.8 GB, 28.2 GB"],
    "3.2-g": [
        "ring 12.5 %",
        "recursive doubling 25 %",
        "hierarchical 6.67 %",
        "near first 6.67 %",
        "far first 53.3 %",
        "all_to_all 53.3 %",
    ],
    "3.2-h": ["1, 2, 4, 5, 8, 10, 20, 40 are legal, 16 is not", "in 80 GB: 4"],
    "3.2-i": ["8,192 or 2,048 collectives"],
    "3.2-j": [
        "columns first: 1 AllReduce, error less than 1e-11",
        "summed between: 2 AllReduce, error less than 1e-11",
        "not summed: 1 AllReduce, error 0.",
    ],
    "3.2-k": ["629 MB of weights, 5.03 GB", "34 to 13 s b h", "layer alone t = 1", "states alone t = 4"],
    "3.2-l": ["saved 13 s b h without, 7.75 at 1x", "4.25 at 1.25x", "(3.06x less)"],
}


@pytest.mark.parametrize("id", EXPECTED)
def test_the_computed_value_has_the_figures_worked_out_apart(id):
    value = CLAIMS[id].row()["labkit_value"]
    missing = [text for text in EXPECTED[id] if text not in value]
    assert not missing, f"{missing} not in {value!r}"


def test_every_claim_of_the_section_has_its_figures():
    assert set(EXPECTED) == {id for id in CLAIMS if id.startswith("3.2-")}


def test_the_corrected_ones_are_corrected():
    corrected = {id for id in EXPECTED if CLAIMS[id].verdict == "corrected"}
    assert corrected == {"3.2-d", "3.2-e", "3.2-g", "3.2-h"}


def test_the_latency_of_small_micro_batches():
    """Preset a100: t alpha B = 8 x 1.54 µs x 234.9 GB/s; the share from 6 P per token, 32 x 4 AllReduces."""
    value = CLAIMS["3.2-i"].row()["labkit_value"]
    meets = float(re.search(r"bandwidth at ([\d.]+) MB", value)[1])
    assert meets == pytest.approx(8 * 1.54e-6 * 234.9e9 / 1e6, abs=0.005)
    shares = [float(share) for share in re.search(r"step ([\d.]+) % or ([\d.]+) %", value).groups()]
    for micro, share in zip((1, 4), shares, strict=True):
        compute = 6 * 13e9 * 2048 * micro / (312e12 * 0.839) / 8
        send = 128 * (14 * 1.54e-6 + 1.75 * micro * 2048 * 5120 * 2 / 234.9e9)
        assert share == pytest.approx(100 * send / (compute + send), abs=0.1)


def test_what_leaving_the_node_costs():
    value = CLAIMS["3.2-c"].row()["labkit_value"]
    compute = 6 * 13e9 * 8192 / (312e12 * 0.839)
    inside = compute / 8 + 128 * (14 * 1.54e-6 + 1.75 * 83.886e6 / 234.9e9)
    for ports in (1, 2, 4, 8):
        across = compute / 16 + 128 * (30 * 5.06e-6 + 1.875 * 83.886e6 / (ports * 24e9))
        assert float(re.search(rf"([\d.]+)x with {ports}", value)[1]) == pytest.approx(
            2 * across / inside, abs=0.06
        )


@pytest.mark.parametrize(
    ("name", "degrees"),
    [
        ("guide-13b", [1, 2, 4, 5, 8, 10, 20, 40]),
        ("llama2-70b", [1, 2, 4, 8, 16, 32]),  # 8 kv heads, copied beyond 8
        ("gpt3-175b", [1, 2, 3, 4, 6, 8, 12, 16, 24, 32]),
    ],
)
def test_legal_degrees(name, degrees):
    assert degree.legal_degrees(model(name)) == degrees


def test_chunks_and_halves_hide_what_the_timelines_say():
    """Blocks of a layer on preset a100, t = 8: a sixth of 19.1 ms, and AllReduces of 0.647 ms."""
    block, product, all_reduce = tensor.block_times()
    assert block == pytest.approx(6 * 13e9 / 32 * 8192 / (312e12 * 0.839) / 8 / 6)
    assert product == pytest.approx(block * 5 / 12)
    latency, whole = 14 * 1.54e-6, 1.75 * 83.88608e6 / 234.9e9
    assert [all_reduce(share) for share in (1, 0.5)] == pytest.approx([latency + whole, latency + whole / 2])


def test_context_bytes_follow_from_the_shapes():
    """Ring: (3 cp - 2) blocks of keys and values; all_to_all: q, k, v and output, twice, (cp - 1) / cp."""
    of, cp, s = model("llama3.1-8b"), 4, 131072
    sent = tensor.context_bytes(of, s, cp)
    assert sent["ring"] == pytest.approx((3 * cp - 2) * 2 * of.kv_heads * of.head_dim * s / cp * 2)
    held = (2 * of.heads + 2 * of.kv_heads) * of.head_dim * s / cp * 2
    assert sent["all_to_all"] == pytest.approx(2 * held * (cp - 1) / cp)


@pytest.mark.parametrize(
    ("chapter", "name"),
    [
        (tensor, "split_table"),
        (tensor, "bill_table"),
        (degree, "crossing_table"),
        (degree, "reasons_table"),
        (degree, "degrees_table"),
        (tensor, "micro_batch_table"),
        (degree, "step_degree_table"),
        (tensor, "overlap_table"),
        (tensor, "context_table"),
        (tensor, "balance_table"),
        (tensor, "activations_table"),
    ],
)
def test_tables_are_filled_and_the_same_twice(chapter, name):
    make = getattr(chapter, name)
    once = make()
    assert repr(once) == repr(make())
    assert len(once.rows) > 2 and all(len(row) == len(once.heads) for row in once.rows)
    assert all(np.char.str_len(np.array(row)).min() > 0 for row in once.rows)
