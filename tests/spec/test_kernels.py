"""Constants of kernels: inside their ranges, and usual ones where a GPU is given without any."""

from dataclasses import replace

import numpy as np
import pytest

from labkit.errors import InputRefused
from labkit.spec import Gpu
from labkit.spec.kernels import OF_PRODUCTS, RANGES, Kernels

GPU = Gpu("any", 80e9, {"bf16": 312e12}, 0.5)


def test_at_most_seven_constants_are_for_products():
    assert len(OF_PRODUCTS) == 7 and set(OF_PRODUCTS) <= set(RANGES)


def test_a_gpu_without_kernels_has_the_usual_ones_of_its_reached_share():
    assert GPU.kernels == Kernels.usual(0.5)
    assert Gpu("fast", 80e9, {"bf16": 312e12}, 0.99).kernels.product == RANGES["product"][1]
    many = Gpu("two", 80e9, {"bf16": 312e12}, np.array([0.4, 0.5]))
    assert many.kernels.product.tolist() == pytest.approx([0.44, 0.55])


def test_kernels_given_are_kept():
    own = Kernels(0.9, launch=4e-6)
    assert replace(GPU, kernels=own).kernels is own


@pytest.mark.parametrize("name", RANGES)
def test_a_constant_outside_its_range_is_refused(name):
    low, high = RANGES[name]
    replace(GPU.kernels, **{name: low}), replace(GPU.kernels, **{name: high})
    for value in (low * 0.99, high * 1.01):
        with pytest.raises(InputRefused, match=f"{name} of a GPU's kernels lies outside"):
            replace(GPU.kernels, **{name: value})
    for value in ("8", None, [1], {}, True, 0, -1, float("nan"), 1j, np.array(["8"])):
        with pytest.raises(InputRefused, match=f"{name} of a GPU's kernels"):
            replace(GPU.kernels, **{name: value})


def test_facts_that_cannot_be_are_refused():
    for name, value, says in (
        ("multiprocessors", 0, "the multiprocessors of a GPU is 0; give a whole number"),
        ("multiprocessors", "132", "the multiprocessors of a GPU is '132'"),
        ("tile", 64, "has 128 or 256 columns"),
        ("tile", np.array([128, 256]), "the tile of a GPU's kernels is an array"),
        ("cache", -1, "the cache of a GPU, in bytes, is -1"),
    ):
        with pytest.raises(InputRefused, match=says):
            replace(GPU.kernels, **{name: value})
    with pytest.raises(InputRefused, match=r"arrays of kernels must broadcast"):
        replace(GPU.kernels, wave=np.full(2, 0.5), memory=np.full(3, 0.5))
    with pytest.raises(InputRefused, match="the kernels of a GPU is 'fast'; give a Kernels"):
        replace(GPU, kernels="fast")
