"""What every rank must hold, from the numbers of the ranks alone; and that the check sees what is wrong."""

import numpy as np
import pytest

from labkit.evidence.bench_operations import PERIOD, count_wrong, inputs, results
from labkit.evidence.bench_options import OPERATIONS


def by_hand(op, n, count):
    """All ranks' results, with arrays that are cut and added as the operation says."""
    share = count // n
    whole = [inputs(r, 0, count) for r in range(n)]
    parts = [inputs(r, 0, share) for r in range(n)]
    total = sum(whole)
    cut = [slice(r * share, (r + 1) * share) for r in range(n)]
    return {
        "all_reduce": [total] * n,
        "reduce": [total] + [None] * (n - 1),
        "reduce_scatter": [total[cut[r]] for r in range(n)],
        "broadcast": [whole[0]] * n,
        "all_gather": [np.concatenate(parts)] * n,
        "gather": [np.concatenate(parts)] + [None] * (n - 1),
        "scatter": [whole[0][cut[r]] for r in range(n)],
        "all_to_all": [np.concatenate([whole[s][cut[r]] for s in range(n)]) for r in range(n)],
        "send_recv": [whole[r - 1] for r in range(n)],
    }[op]


@pytest.mark.parametrize("op", OPERATIONS)
@pytest.mark.parametrize(("n", "count"), [(2, 10), (3, 3000), (4, 4 * PERIOD + 4)])
def test_results(op, n, count):
    for rank, wanted in enumerate(by_hand(op, n, count)):
        got = results(op, rank, n, count)
        assert (got is None) == (wanted is None)
        if wanted is not None:
            np.testing.assert_array_equal(got, wanted)
            assert got.dtype == np.float32


def test_element_i_of_rank_r():
    assert inputs(0, 0, 3).tolist() == [0, 1, 2]
    assert inputs(2, 1020, 2).tolist() == [(1020 + 62) % 1021, (1021 + 62) % 1021]


def test_no_two_ranks_send_the_same_and_no_sum_is_rounded():
    firsts = {tuple(inputs(r, 0, 4)) for r in range(PERIOD)}
    assert len(firsts) == PERIOD
    assert 16_000 * (PERIOD - 1) < 2**24  # the whole numbers that a float holds


def test_the_check_counts_every_element_that_is_off():
    wanted = results("all_reduce", 1, 4, 100)
    got = wanted.copy()
    assert count_wrong(got, wanted) == 0
    got[7], got[50] = np.nan, got[50] + 1
    assert count_wrong(got, wanted) == 2
    assert count_wrong(results("all_gather", 0, 4, 100)[::-1], results("all_gather", 0, 4, 100)) > 90
    assert count_wrong(got, None) == 0


def test_what_a_neighbour_should_have_is_wrong_here():
    for op in ("reduce_scatter", "scatter", "all_to_all", "send_recv"):
        assert count_wrong(results(op, 0, 4, 400), results(op, 1, 4, 400)) > 90
