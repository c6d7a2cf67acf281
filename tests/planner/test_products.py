"""Seconds of a product: sums by hand where one limit decides, and what holds for any shape."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from labkit.errors import InputRefused
from labkit.planner.products import product_seconds
from labkit.presets import cluster, cluster_ids
from labkit.spec import Gpu
from labkit.spec.kernels import Kernels

USE = Kernels(0.5, edge=0.5, prologue=100, wave=0.5, memory=0.5, throttle=0.1, launch=1e-6, tile=128)
# One multiprocessor: tiles follow each other, so the largest is the cheapest and cutting k gains nothing.
SLOW = Gpu("one", 1e9, {"bf16": 1e12}, 0.5, kernels=replace(USE, multiprocessors=1))
# So quick that only the memory counts.
WIDE = Gpu("wide", 1e9, {"bf16": 1e40, "fp8": 1e40}, 0.5, memory_bandwidth=1e9, kernels=USE)
SIDES = st.integers(1, 20_000)


def throttled(seconds):
    return seconds * (1 + 0.1 * np.log(1 + max(seconds, 50e-3) / 1e-3))


def test_a_single_tile_by_hand():
    # 2 x 256 x 128 FLOPs for each of 1000 + 100 steps at half of 1 TFLOP/s
    tile = 2 * 256 * 128 * 1100 / 0.5e12
    assert product_seconds(256, 128, 1000, SLOW) == pytest.approx(1e-6 + throttled(tile))
    # A row more: three tiles of 128 x 128, each half for its area (1/2) and half for its edges (2/3), are
    # cheaper than two of 256 x 128.
    more = tile * 3 * (0.5 / 2 + 0.5 * 2 / 3)
    assert product_seconds(257, 128, 1000, SLOW) == pytest.approx(1e-6 + throttled(more))


def test_independent_products_are_more_tiles_of_one_kernel():
    one, four = (product_seconds(256, 128, 1000, SLOW, count) - 1e-6 for count in (1, 4))
    bare = 2 * 256 * 128 * 1100 / 0.5e12
    assert (one, four) == pytest.approx((throttled(bare), throttled(4 * bare)))


def test_the_memory_by_hand():
    # (1000 x 2000 + 2000 x 3000 + 1000 x 3000) elements at half of 1 GB/s
    elements = 2e6 + 6e6 + 3e6
    assert product_seconds(1000, 3000, 2000, WIDE) == pytest.approx(1e-6 + 2 * elements / 0.5e9)
    assert product_seconds(1000, 3000, 2000, WIDE, precision="fp8") == pytest.approx(1e-6 + elements / 0.5e9)
    assert product_seconds(1000, 3000, 2000, WIDE, count=5) == pytest.approx(1e-6 + 10 * elements / 0.5e9)


def test_repeated_operands_come_from_the_cache():
    def seconds(cache):
        card = replace(WIDE, kernels=replace(USE, cache=cache))
        return product_seconds(1000, 3000, 2000, card, repeated=True) - 1e-6

    # 16 MB of operands at 0.3 of the cost, 6 MB of result at the full cost
    assert seconds(1e9) == pytest.approx((0.3 * 16e6 + 6e6) / 0.5e9)
    assert seconds(0) == seconds(22e6) == pytest.approx(22e6 / 0.5e9)
    assert seconds(22e6) > seconds(25e6) > seconds(40e6) == seconds(1e9)


def test_without_a_bandwidth_only_multiplying_counts():
    assert product_seconds(4096, 8, 8, replace(cluster("h100").gpu, memory_bandwidth=None)) < 5e-6


def test_the_last_wave_costs_unless_it_is_full():
    card = cluster("a100").gpu
    low, high = (replace(card, kernels=replace(card.kernels, wave=wave)) for wave in (0.05, 1.0))
    full, beyond = 256 * 108, 256 * 109  # so many multiprocessors, and one tile more
    assert product_seconds(full, 128, 4096, low) == product_seconds(full, 128, 4096, high)
    assert product_seconds(beyond, 128, 4096, low) < 0.9 * product_seconds(beyond, 128, 4096, high)


def test_few_tiles_cut_k():
    card = cluster("a100").gpu
    seconds = product_seconds(256, 128, 65536, card)
    assert 2 * 256 * 128 * 65536 / seconds > 5 * card.peak["bf16"] / card.kernels.multiprocessors


@pytest.mark.parametrize("id", cluster_ids())
def test_large_products_reach_about_the_reached_share(id):
    """The share of the preset is the median of products with all sides from 4096; these are three of them."""
    card = cluster(id).gpu
    precision = "bf16" if "bf16" in card.peak else "fp16"
    sides = np.array([4096, 8192, 16384])
    seconds = product_seconds(sides, sides, sides, card, repeated=True)
    shares = 2.0 * sides**3 / seconds / card.peak[precision]
    assert np.median(shares) == pytest.approx(card.reached, rel=0.06)


def test_in_training_the_clock_is_that_of_a_long_load():
    card = cluster("h100").gpu
    cool, hot = (product_seconds(4096, 4096, 65536, card, repeated=repeated) for repeated in (True, False))
    # Some 3 ms: the benchmark's clock has fallen by a part of what it falls by in 50 ms.
    assert 1.05 < hot / cool < 1.2
    long = (product_seconds(65536, 65536, 65536, card, repeated=repeated) for repeated in (True, False))
    assert next(long) == next(long)


@given(SIDES, SIDES, SIDES, st.integers(1, 64), st.sampled_from(cluster_ids()))
def test_never_quicker_than_the_roofline(m, n, k, count, id):
    card = cluster(id).gpu
    precision = "bf16" if "bf16" in card.peak else "fp16"
    seconds = product_seconds(m, n, k, card, count) - card.kernels.launch
    assert seconds >= 2.0 * m * n * k * count / card.peak[precision] * 0.999
    assert seconds >= 2.0 * count * (m * k + k * n + m * n) / card.memory_bandwidth * 0.999
    assert product_seconds(m, n, k, card, count, repeated=True) - card.kernels.launch <= seconds * 1.0001


@given(SIDES, SIDES, SIDES)
def test_a_transposed_product_takes_as_long(m, n, k):
    card = cluster("h200").gpu
    assert product_seconds(m, n, k, card) == pytest.approx(product_seconds(n, m, k, card), rel=1e-12)


@given(st.lists(st.tuples(SIDES, SIDES, SIDES, st.integers(1, 9)), min_size=1, max_size=40))
def test_arrays_and_numbers_agree_to_the_last_bit(shapes):
    card = cluster("b200").gpu
    m, n, k, count = np.array(shapes).T
    together = product_seconds(m, n, k, card, count)
    assert together.tolist() == [product_seconds(*shape[:3], card, shape[3]) for shape in shapes]


def test_sides_and_cards_broadcast():
    card = cluster("a100").gpu
    assert product_seconds(np.ones((3, 1)) * 512, np.ones(2) * 512, 64, card).shape == (3, 2)
    two = replace(card, kernels=replace(card.kernels, product=np.array([0.4, 0.8])))
    slow, quick = product_seconds(8192, 8192, 8192, two)
    assert slow > 1.9 * quick


def test_refusals():
    card = cluster("a100").gpu
    for given_, says in (
        ({"m": 0}, "m of a product is 0; give a number"),
        ({"k": "8"}, "k of a product is '8'"),
        ({"gpu": "a100"}, "the gpu is 'a100'; give a Gpu"),
        ({"precision": "fp8"}, "A100-SXM4-80GB has no peak for 'fp8'; use one of bf16"),
        ({"repeated": 1}, "repeated is 1; use False or True"),
        ({"m": np.ones(2), "n": np.ones(3)}, "arrays of a product must broadcast"),
    ):
        with pytest.raises(InputRefused, match=says):
            product_seconds(**{"m": 8, "n": 8, "k": 8, "gpu": card, **given_})
