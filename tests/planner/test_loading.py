"""Host memory while a checkpoint is loaded: sums by hand, what fits, arrays, refusals."""

import numpy as np
import pytest

from labkit.errors import InputRefused
from labkit.planner.loading import loading_advice, loading_bytes
from labkit.planner.states import FP32, Recipe

SAME, OTHER = "where as many ranks load as wrote them", "where more or fewer do"


def test_by_hand():
    found = loading_bytes(12.0, 4, ranks=2)
    # Two ranks: four files; of each of three 4 of 12 bytes and one of them whole; one file.
    assert found == {"every file": 96.0, "master weights": 2 * (3 * 4 + 12), "own file": 24.0}


def test_one_file_is_the_same_whatever_is_kept():
    assert set(loading_bytes(12.0, 1).values()) == {96.0}


def test_without_a_master_apart_the_weights_are_the_master():
    """fp32: weights and two moments, a third of a file each. Without an optimizer a file is all weights."""
    found = loading_bytes(12.0, 64, recipe=FP32)
    assert found["master weights"] == pytest.approx(8 * (12 + 63 * 4))
    none = loading_bytes(12.0, 64, recipe=Recipe(master=0.0, first_moment=0.0, second_moment=0.0))
    assert none["master weights"] == none["every file"] == 8 * 64 * 12
    momentum = loading_bytes(12.0, 64, recipe=Recipe(weights=4.0, master=0.0, second_moment=0.0))
    assert momentum["master weights"] == pytest.approx(8 * (12 + 63 * 6))
    gradients_alone = Recipe(weights=0.0, master=0.0, first_moment=0.0, second_moment=0.0)
    assert loading_bytes(12.0, 64, recipe=gradients_alone)["master weights"] == 8 * 64 * 12


def test_arrays():
    found = loading_bytes(525e6, np.array([4, 256]), np.array([[1], [8]]))
    assert found["every file"].shape == found["master weights"].shape == (2, 2)
    assert found["every file"][1].tolist() == [525e6 * 32, 525e6 * 2048]


@pytest.mark.parametrize(
    ("host", "says"),
    [
        (2e12, "takes 1.08 TB, which fits 2 TB"),
        (
            1e12,
            f"of 1 TB: {SAME}, keep the master weights alone (361 GB) or read own files (4.2 GB); "
            f"{OTHER}, load one rank after the other (134 GB)",
        ),
        (
            200e9,
            f"of 200 GB: {SAME}, read own files (4.2 GB); {OTHER}, load one rank after the other (134 GB)",
        ),
        (100e9, f"of 100 GB: {SAME}, read own files (4.2 GB); {OTHER}, cut the checkpoint anew elsewhere"),
        (1e9, "of 1 GB: cut the checkpoint anew elsewhere"),
    ],
)
def test_advice(host, says):
    assert loading_advice(host, 525e6, 256).endswith(says)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: loading_bytes(0, 4), "the bytes of a file of a checkpoint is 0"),
        (lambda: loading_bytes(1e9, 0), "the files of a checkpoint is 0"),
        (lambda: loading_bytes(1e9, 4, 1.5), "the ranks that load on a node is 1.5"),
        (lambda: loading_bytes(1e9, 4, recipe="adam"), "the recipe is 'adam'"),
        (lambda: loading_advice(1e12, 1e9, np.array([4, 8])), "the files of a checkpoint"),
        (lambda: loading_advice(np.array([1e12]), 1e9, 4), "the memory of a host"),
    ],
)
def test_refusals(call, says):
    with pytest.raises(InputRefused, match=says):
        call()
