"""What stands out in a sweep, each case made on purpose."""

import numpy as np

from labkit.evidence.findings import line_rate_finding
from labkit.evidence.fit import fit_sweep
from tests.evidence.fitted import doubling, line, sweep


def kinds(fit):
    return [finding.kind for finding in fit.findings]


def test_a_sound_sweep_shows_nothing():
    size = doubling()
    assert fit_sweep(sweep(size, line(size), in_place_time=1.02 * line(size)), nominal=450e9).findings == ()


def test_a_cold_first_row():
    size = doubling()
    time = line(size)
    time[0] = 90e-6
    fit = fit_sweep(sweep(size, time))
    assert kinds(fit) == ["cold_first_row"]
    assert "8 B, took 90 µs" in fit.findings[0].message and fit.findings[0].size == 8


def test_a_single_outlier():
    size = doubling()
    time = line(size)
    time[12] *= 2
    fit = fit_sweep(sweep(size, time))
    assert kinds(fit) == ["outlier"] and fit.findings[0].size == size[12]


def test_a_protocol_switch_is_a_dip_and_not_an_outlier():
    size = doubling(10, 32)
    time = np.where(size < 2**20, 20e-6 + size / 4e9, 60e-6 + size / 200e9)
    fit = fit_sweep(sweep(size, time))
    assert kinds(fit) == ["dip"] and fit.findings[0].size == 2**20


def test_rows_scattered_by_twice_are_noisy():
    size = doubling()
    time = line(size) * np.where(np.random.default_rng(3).random(len(size)) < 0.5, 1, 2)
    assert "noisy" in kinds(fit_sweep(sweep(size, time)))


def test_in_place_and_out_of_place_that_differ():
    size = doubling()
    other = line(size)
    other[10] *= 3
    fit = fit_sweep(sweep(size, line(size), in_place_time=other))
    assert kinds(fit) == ["in_place_differs"] and fit.findings[0].size == size[10]
    assert "1 of 32 sizes" in fit.findings[0].message


def test_wrong_results_in_place_are_told_and_do_not_cost_the_row():
    size = doubling()
    rows = sweep(size, line(size), in_place_time=line(size))
    rows.in_place.wrong[4] = 1
    fit = fit_sweep(rows)
    assert kinds(fit) == ["wrong"] and fit.rows == len(size)
    assert "1 row has wrong results in place" in fit.findings[0].message


def test_busbw_above_the_line_rate_names_the_sound_reasons():
    size = doubling()
    fit = fit_sweep(sweep(size, line(size)), nominal=300e9)
    assert kinds(fit) == ["above_line_rate"]
    assert "NVLS" in fit.findings[0].message and "tree over two nodes" in fit.findings[0].message
    assert fit.plateau_share == fit.share_of(300e9) > 1


def test_more_than_the_line_rate_is_a_tree_on_two_nodes_and_no_measuring_error():
    """Planner case E7 (NVIDIA/nccl-tests issue 22): 125 Gbit/s on a 100 Gbit/s network, 60 with the ring."""
    tree, ring, line_rate = 125e9 / 8, 60e9 / 8, 100e9 / 8
    (finding,) = line_rate_finding(tree, line_rate, 2**30)
    assert finding.kind == "above_line_rate" and finding.message.startswith("busbw 15.6 GB/s is 1.25 times")
    assert "a tree over two nodes sends fewer bytes over that link" in finding.message
    assert line_rate_finding(ring, line_rate, 2**30) == []
