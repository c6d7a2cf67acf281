"""Attention and streaming: sums by hand, what holds for any shape, and published microbenchmarks."""

import csv
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from labkit.errors import InputRefused
from labkit.planner.kernels import attention_seconds, attention_starts, streaming_seconds
from labkit.planner.products import product_seconds
from labkit.presets import cluster
from labkit.spec import Gpu
from labkit.spec.kernels import Kernels

SHARED = Path(__file__).resolve().parents[2].parent / "shared/data/published/simumax_gemm_efficiency.csv"
USE = Kernels(0.5, attention_forward=0.5, attention_backward=0.25, launch=1e-6, multiprocessors=100)
CARD = Gpu("round", 80e9, {"bf16": 1e14}, 0.5, memory_bandwidth=1e15, kernels=replace(USE, streaming=0.5))
SHAPE = {"batch": 2, "heads": 8, "kv_heads": 8, "queries": 1024, "keys": 1024, "head_dim": 128, "gpu": CARD}


def test_streaming_by_hand():
    card = replace(CARD, memory_bandwidth=1e12)
    assert streaming_seconds(1e9, card) == pytest.approx(1e-6 + 2e-3)
    assert streaming_seconds(np.array([0, 1e9]), card).tolist() == pytest.approx([1e-6, 2.001e-3])
    assert streaming_seconds(1e9, replace(card, memory_bandwidth=None)) == 1e-6


def test_fused_attention_by_hand():
    # 2 products of 2 x 1024 x 1024 x 128 for 16 heads, half of it masked, at half of 1e14; and, on one
    # multiprocessor of 100, a last block of 128 queries over all keys.
    whole, block = 4 * 1024**2 * 128 * 16 / 2 / 0.5e14, 4 * 128 * 1024 * 128 / 0.5e12
    assert attention_seconds(**SHAPE) == pytest.approx(1e-6 + whole + block)
    assert attention_seconds(**SHAPE, causal=False) == pytest.approx(1e-6 + 2 * whole + block)
    back = 2.5 * 2 * (whole + 0.4 * block)  # five products at half the share
    assert attention_seconds(**SHAPE, backward=True) == pytest.approx(3e-6 + back)


def test_heads_of_other_sizes():
    def rate(size):
        seconds = attention_seconds(**{**SHAPE, "head_dim": size}) - 1e-6
        return size / seconds

    # Exponentials cost as much as 32 elements of a head.
    assert rate(64) / rate(128) == pytest.approx((64 / 96) / (128 / 160))
    assert rate(80) < rate(96) and rate(80) / rate(96) == pytest.approx(80 / 96)
    assert rate(256) > rate(128)


def test_attention_that_is_not_fused_by_hand():
    """Batched products and the passes over the scores; the launch of each kernel once."""
    card = cluster("a100").gpu
    size = dict(batch=4, heads=8, kv_heads=8, queries=2048, keys=2048, head_dim=96, gpu=card, fused=False)
    scores = 2 * 4 * 8 * 2048**2  # bytes
    each = [product_seconds(*shape, card, 32) for shape in ((2048, 2048, 96), (2048, 96, 2048))]
    assert attention_seconds(**size) == pytest.approx(sum(each) + streaming_seconds(2 * scores, card))
    dropped = attention_seconds(**size, dropout=True) - attention_seconds(**size)
    assert dropped == pytest.approx(streaming_seconds(2.5 * scores, card))
    back = attention_seconds(**size, backward=True)
    assert back == pytest.approx(each[0] + 3 * each[1] + streaming_seconds(3 * scores, card))
    assert attention_seconds(**size, causal=False) == attention_seconds(**size)
    odd = attention_seconds(**{**size, "head_dim": 97})
    assert odd > 1.2 * attention_seconds(**{**size, "head_dim": 104})


@pytest.mark.parametrize(
    ("fused", "backward", "dropout", "kernels"),
    [(True, False, True, 1), (True, True, False, 3), (False, False, False, 3), (False, True, True, 6)],
)
def test_starts_are_in_the_seconds_once_each(fused, backward, dropout, kernels):
    asked = {**SHAPE, "fused": fused, "backward": backward, "dropout": dropout}
    assert attention_starts(fused, backward, dropout) == kernels
    slower = replace(CARD, kernels=replace(CARD.kernels, launch=11e-6))
    more = attention_seconds(**{**asked, "gpu": slower}) - attention_seconds(**asked)
    # Where k of a product is cut, one kernel more adds up the parts: not here.
    assert more == pytest.approx(kernels * 10e-6)


SIZES = st.integers(1, 5000)


@given(st.integers(1, 8), st.integers(1, 64), SIZES, SIZES, st.integers(1, 256), st.booleans(), st.booleans())
def test_attention_never_beats_its_share_and_agrees_with_arrays(batch, heads, q, k, size, fused, backward):
    card = cluster("h100").gpu
    asked = {"gpu": card, "fused": fused, "backward": backward}
    seconds = attention_seconds(batch, heads, heads, q, k, size, **asked)
    flops = (5 if backward else 2) * 2.0 * batch * heads * q * k * size
    if not fused:
        flops *= 0.8  # four products instead of five
    assert seconds >= flops * (0.5 if fused else 1) / card.peak["bf16"]
    many = attention_seconds(np.array([batch, 1]), heads, heads, np.array([q, 7]), k, size, **asked)
    assert many[0] == seconds


def test_keys_and_values_that_heads_share_save_at_most_bytes():
    few, all_ = (attention_seconds(**{**SHAPE, "kv_heads": kv}) for kv in (1, 8))
    assert few == all_  # here multiplying limits


def rows(system, op):
    for row in csv.DictReader(SHARED.read_text("utf-8").splitlines()):
        if row["system"] != system or row["op"] != op or "qk_head_dim=128" not in row["key"]:
            continue
        size = {name: int(value) for name, value in re.findall(r"(\w+)=(\d+)", row["key"])}
        flops = (10 if op == "sdp_bwd" else 4) * size["seq_len"] ** 2 * size["head_num"] * 128
        yield size, flops / (float(row["efficiency_of_peak"]) * float(row["peak_tflops"]) * 1e12)


@pytest.mark.skipif(not SHARED.is_file(), reason="the shared rows do not stand beside this checkout")
@pytest.mark.parametrize(
    ("id", "system", "median", "most"),
    [("a100", "a100_pcie_bf16", 0.03, 0.1), ("b200", "b200_bf16_ceperm", 0.1, 0.8)],
)
def test_published_rows_of_fused_attention(id, system, median, most):
    """SimuMax: one sequence, 4 to 128 heads. On B200 other blocks run: few heads are up to 70 % off."""
    errors = []
    for op in ("sdp_fwd", "sdp_bwd"):
        for size, measured in rows(system, op):
            seconds = attention_seconds(
                size["batch"], size["head_num"], size["kv_head_num"], size["seq_len"], size["seq_len"], 128,
                cluster(id).gpu, backward=op == "sdp_bwd",
            )  # fmt: skip
            errors.append(abs(seconds / measured - 1))
    assert len(errors) >= 16
    assert np.median(errors) <= median and max(errors) <= most


def test_published_flash_attention_on_h100():
    """FlashAttention-3 (2024), figures 5 and 6: cuDNN, 16384 positions in all, 16 heads of 128, TFLOP/s."""
    card = cluster("h100").gpu
    for backward, causal, printed in (
        (False, True, {2048: 484, 4096: 518, 8192: 529, 16384: 539}),
        (True, False, {2048: 465, 4096: 499, 8192: 518, 16384: 516}),
    ):
        for positions, rate in printed.items():
            batch = 16384 // positions
            flops = (10 if backward else 4) * batch * positions**2 * 16 * 128 * (0.5 if causal else 1)
            seconds = attention_seconds(
                batch, 16, 16, positions, positions, 128, card, backward=backward, causal=causal
            )
            assert flops / seconds / 1e12 == pytest.approx(rate, rel=0.08)


def test_refusals():
    for given_, says in (
        ({"batch": 0}, "batch of attention is 0; give a number"),
        ({"head_dim": "128"}, "head_dim of attention is '128'"),
        ({"gpu": None}, "the gpu is None; give a Gpu"),
        ({"fused": "yes"}, "fused is 'yes'; use False or True"),
        ({"queries": np.ones(2), "keys": np.ones(3)}, "arrays of attention must broadcast"),
    ):
        with pytest.raises(InputRefused, match=says):
            attention_seconds(**{**SHAPE, **given_})
    with pytest.raises(InputRefused, match="the bytes of a memory-bound operation is -1"):
        streaming_seconds(-1, CARD)
