"""What the bench writes is what the reader of sweeps reads."""

import numpy as np
import pytest

from labkit import read_sweep
from labkit.evidence import bench_log
from labkit.evidence.bench_group import Place
from labkit.evidence.bench_log import Measured
from labkit.evidence.bench_options import OPERATIONS

SIZES = [3 * 2**k for k in range(10, 27, 4)]


def places(n):
    return [Place(f"node{r // 2:02d}", r % 2, 4000 + r, "cpu", "x86_64", (), "") for r in range(n)]


def log(op, n, rows):
    lines = [bench_log.head(op, "gloo", "2.13.0", places(n)), *(bench_log.row(op, n, row) for row in rows)]
    return "\n".join([*lines, bench_log.foot(op, rows)]) + "\n"


@pytest.mark.parametrize("op", OPERATIONS)
@pytest.mark.parametrize("n", [2, 3, 16])
def test_every_operation_comes_back_with_its_ranks_and_times(op, n):
    rng = np.random.default_rng(5)
    rows = [Measured(4 * n * (size // (4 * n)), 1e-3 * rng.uniform(1, 50, 40), 0) for size in SIZES]
    (sweep,) = read_sweep(log(op, n, rows))
    assert (sweep.collective, sweep.n_ranks, sweep.warnings, sweep.skipped) == (op, n, [], [])
    assert sweep.size.tolist() == [row.size for row in rows] and sweep.in_place is None
    np.testing.assert_allclose(sweep.time, [row.median for row in rows], atol=0.006e-6)
    assert (sweep.wrong == 0).all()
    p99 = bench_log.read_p99(log(op, n, rows))
    assert list(p99) == [row.size for row in rows]
    np.testing.assert_allclose(list(p99.values()), [row.p99 for row in rows], atol=0.006e-6)


def test_several_operations_are_several_tables():
    rows = [Measured(size, np.full(5, 1e-3), 0) for size in SIZES]
    sweeps = read_sweep(log("broadcast", 4, rows) + log("scatter", 4, rows) + log("all_reduce", 4, rows))
    assert [sweep.collective for sweep in sweeps] == ["broadcast", "scatter", "all_reduce"]
    assert [sweep.n_ranks for sweep in sweeps] == [4, 4, 4]


def test_a_log_cut_off_keeps_the_rows_before_the_cut():
    rows = [Measured(size, np.full(5, 1e-3), 0) for size in SIZES]
    text = log("all_reduce", 4, rows)
    (sweep,) = read_sweep(text[: text.index(f"{SIZES[3]} ")])
    assert sweep.size.tolist() == SIZES[:3]


def test_wrong_elements_are_seen():
    rows = [Measured(size, np.full(5, 1e-3), 7 * (size == SIZES[1])) for size in SIZES]
    text = log("all_reduce", 4, rows)
    (sweep,) = read_sweep(text)
    assert sweep.wrong.tolist() == [0, 7, 0, 0, 0] and "Out of bounds values : 7 FAILED" in text
    assert any("wrong results in 1 of 5 rows" in warning for warning in sweep.warnings)


def test_median_and_p99_by_hand():
    """Of each repetition its slowest rank counts; the P99 of 100 is the 99th, of few the slowest."""
    one = [[1e-3 * k for k in range(1, 101)], [0.5e-3] * 100]
    measured = bench_log.slowest(1024, [(seconds, wrong) for seconds, wrong in zip(one, (2, 3), strict=True)])
    assert measured.median == pytest.approx(50.5e-3) and measured.wrong == 5
    assert measured.p99 == pytest.approx(99e-3)
    assert bench_log.slowest(1024, [([3.0, 1.0, 2.0], 0)]).p99 == 3
    row = bench_log.row("all_reduce", 2, measured)
    assert row.split("|")[1].split() == [f"{measured.p99 * 1e6:.2f}", "100"]


def test_busbw_of_all_reduce_is_printed_with_its_factor():
    row = bench_log.row("all_reduce", 4, Measured(2**20, np.full(9, 2**20 / 2e9), 0))
    assert row.split("|")[0].split()[6:8] == ["2.0000", "3.0000"]
