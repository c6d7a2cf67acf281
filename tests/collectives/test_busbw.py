"""The factors of nccl-tests, both ways."""

import numpy as np
import pytest

from labkit.collectives import ALGORITHMS, algbw, busbw, busbw_factor
from labkit.errors import InputRefused


@pytest.mark.parametrize(
    ("op", "factor"),
    [
        ("all_reduce", 1.75),
        *[(op, 0.875) for op in ("reduce_scatter", "all_gather", "all_to_all", "gather", "scatter")],
        *[(op, 1.0) for op in ("broadcast", "reduce", "send_recv")],
    ],
)
def test_factor_of_eight_ranks(op, factor):
    assert busbw_factor(op, 8) == factor
    assert algbw(op, 8, busbw(op, 8, 28e9)) == pytest.approx(28e9)


def test_the_7b_example():
    assert busbw("all_reduce", 8, 14e9 / 0.49) == pytest.approx(50e9)


def test_arrays_and_one_rank():
    assert busbw_factor("all_gather", np.array([1, 2, 4])).tolist() == [0, 0.5, 0.75]
    assert np.isnan(algbw("all_reduce", 1, 0.0))


def test_refusals():
    with pytest.raises(InputRefused, match="barrier"):
        busbw_factor("barrier", 8)
    with pytest.raises(InputRefused, match=next(iter(ALGORITHMS))):
        busbw_factor("allreduce", 8)
    with pytest.raises(InputRefused, match="whole number"):
        busbw_factor("all_reduce", 0)
