"""alpha and bandwidth come back from sweeps made of them, and hostile rows are answered calmly."""

import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labkit.collectives import collective_cost
from labkit.errors import InputRefused
from labkit.evidence.fit import fit_sweep
from tests.evidence.fitted import doubling, line, sweep


def noisy(time, level, seed=0):
    return time * np.exp(level * np.random.default_rng(seed).standard_normal(len(time)))


def three_regimes(size):
    """A latency regime, a middle protocol and a bandwidth regime."""
    small = 20e-6 + size / 1e9
    middle = 36e-6 + size / 50e9
    large = 380e-6 + size / 240e9
    return np.where(size <= 2**14, small, np.where(size <= 2**24, middle, large))


def test_one_regime_is_recovered_exactly():
    size = doubling()
    fit = fit_sweep(sweep(size, line(size)))
    assert len(fit.regimes) == 1 and fit.warnings == () and fit.findings == ()
    assert fit.alpha == pytest.approx(20e-6, rel=1e-9)
    assert fit.bandwidth == pytest.approx(200e9, rel=1e-9)
    assert fit.knee == pytest.approx(4e6, rel=1e-9)
    assert fit.half_power == pytest.approx(4e6, rel=1e-2)
    assert fit.range == (8, 2**34) and fit.rows == 32
    assert fit.predict(size) == pytest.approx(line(size), rel=1e-9)
    assert fit.plateau == pytest.approx(350e9, rel=0.01)
    assert fit.share_of(450e9) == pytest.approx(fit.plateau / 450e9)


def test_the_three_regions_of_one_line_lie_about_the_knee():
    size = doubling()
    latency, climb, plateau = fit_sweep(sweep(size, line(size))).regions
    assert (latency.name, climb.name, plateau.name) == ("latency", "climb", "plateau")
    assert latency.largest == climb.smallest == pytest.approx(1e6, rel=0.02)  # a quarter of the knee
    assert climb.largest == plateau.smallest == pytest.approx(16e6, rel=0.02)  # four times the knee
    assert latency.smallest == 8 and plateau.largest == 2**34


@pytest.mark.parametrize("level", [0.005, 0.02, 0.05])
def test_noise_leaves_alpha_and_bandwidth_within_their_errors(level):
    size = doubling()
    off = []
    for seed in range(20):
        fit = fit_sweep(sweep(size, noisy(line(size), level, seed)))
        off.append(((fit.alpha - 20e-6) / fit.alpha_error, (fit.bandwidth - 200e9) / fit.bandwidth_error))
        assert fit.alpha == pytest.approx(20e-6, rel=3 * level)
        assert fit.bandwidth == pytest.approx(200e9, rel=3 * level)
    # A standard error covers two thirds; the choice of cuts makes it a little small, so ask for twice of it.
    assert np.mean(np.abs(off) <= 2) >= 0.8


def test_one_line_with_noise_is_rarely_cut():
    size = doubling()
    counts = [len(fit_sweep(sweep(size, noisy(line(size), 0.02, seed))).regimes) for seed in range(20)]
    assert np.mean(np.array(counts) == 1) >= 0.75


def test_two_regimes_with_a_protocol_switch():
    size = doubling()
    time = np.where(size < 2**18, 12e-6 + size / 5e9, 90e-6 + size / 220e9)
    fit = fit_sweep(sweep(size, noisy(time, 0.01)))
    assert any(regime.smallest == 2**18 for regime in fit.regimes)
    assert fit.alpha == pytest.approx(12e-6, rel=0.05)
    assert fit.bandwidth == pytest.approx(220e9, rel=0.05)


def test_three_regimes():
    size = doubling()
    fit = fit_sweep(sweep(size, noisy(three_regimes(size), 0.005)))
    assert [regime.smallest for regime in fit.regimes] == [8, 2**15, 2**25]
    assert [regime.largest for regime in fit.regimes] == [2**14, 2**24, 2**34]
    assert fit.alpha == pytest.approx(20e-6, rel=0.02)
    assert fit.bandwidth == pytest.approx(240e9, rel=0.02)
    assert np.median(np.abs(fit.predict(size) / three_regimes(size) - 1)) < 0.01


def test_rows_beside_a_cut_are_no_outliers_and_the_fitted_time_does_not_peak():
    """Three rows of one time after a steep stretch, before a line that does not reach back to them."""
    size = doubling(3, 27)
    time = np.where(size <= 2**11, 18e-6 + size / 0.5e9, 32e-6 + size / 2.7e9)
    time = np.where(size > 2**21, 240e-6 + size / 78e9, time)
    time[(size >= 2**19) & (size <= 2**21)] = 170e-6
    fit = fit_sweep(sweep(size, noisy(time, 0.01)))
    assert fit.predict(2**20) == pytest.approx(170e-6, rel=0.15)
    assert (np.diff(fit.predict(np.geomspace(8, 2**27, 500))) >= 0).all()


def test_it_shows_its_figures_in_one_line():
    size = doubling()
    fit = fit_sweep(sweep(size, line(size)))
    assert repr(fit) == "LinkFit(alpha 20 µs, bandwidth 200 GB/s, knee 4 MB, from 8 B to 16 GiB)"
    tiny = repr(fit_sweep(sweep(size[-3:], line(size[-3:]))))
    assert tiny == "LinkFit(alpha unknown, bandwidth unknown, knee unknown, from 4 GiB to 16 GiB)"


@pytest.mark.parametrize("rows", [[0], [5], [11], [20], [31], [0, 17]])
@pytest.mark.parametrize("factor", [3.0, 10.0])
def test_outliers_neither_sway_the_fit_nor_form_a_regime(rows, factor):
    size = doubling()
    time = noisy(line(size), 0.01)
    time[rows] *= factor
    fit = fit_sweep(sweep(size, time))
    assert fit.alpha == pytest.approx(20e-6, rel=0.05)
    assert fit.bandwidth == pytest.approx(200e9, rel=0.05)
    assert np.max(np.abs(fit.predict(size) / line(size) - 1)) < 0.1
    assert all(regime.rows >= 4 for regime in fit.regimes)


@pytest.mark.parametrize("times", [1 / 8, 3.0, 1024.0])
def test_bytes_times_k_leave_alpha_and_multiply_the_bandwidth(times):
    size = doubling(3, 20)
    time = noisy(three_regimes(size * 2**14), 0.02)
    one, other = fit_sweep(sweep(size, time)), fit_sweep(sweep(size * times, time))
    assert other.alpha == pytest.approx(one.alpha, rel=1e-6)
    assert other.bandwidth == pytest.approx(one.bandwidth * times, rel=1e-6)
    assert len(other.regimes) == len(one.regimes)


def test_slower_rows_give_a_slower_fit():
    size = doubling()
    time = noisy(three_regimes(size), 0.01)
    fast, slow = fit_sweep(sweep(size, time)), fit_sweep(sweep(size, 1.3 * time))
    assert slow.alpha == pytest.approx(1.3 * fast.alpha)
    assert slow.bandwidth == pytest.approx(fast.bandwidth / 1.3)
    grid = np.geomspace(1, 2**36, 500)
    assert (np.diff(fast.predict(grid)) >= 0).all()


def test_a_dense_linear_sweep_is_fitted_by_groups_of_its_rows():
    size = np.arange(1, 1025) * 2.0**20
    fit = fit_sweep(sweep(size, noisy(line(size, 60e-6), 0.01)))
    assert fit.rows == 1024 and sum(regime.rows for regime in fit.regimes) == 1024
    assert fit.bandwidth == pytest.approx(200e9, rel=0.02)
    assert fit.alpha == pytest.approx(60e-6, rel=0.1)


def test_rows_from_512_mib_show_no_latency():
    size = doubling(29, 34)
    fit = fit_sweep(sweep(size, line(size, 300e-6)))
    assert np.isnan(fit.alpha) and np.isnan(fit.knee) and fit.bandwidth == pytest.approx(200e9)
    assert "latency cannot be told" in fit.warnings[0] and "512 MiB" in fit.warnings[0]
    assert [finding.kind for finding in fit.findings] == ["late_start"]
    with pytest.raises(InputRefused, match="latency cannot be told"):
        fit.link("ring")


def test_a_sweep_that_starts_early_is_not_told_to_start_early():
    size = doubling(3, 27)
    (said,) = fit_sweep(sweep(size, size / 100e9)).warnings
    assert "less than 0.1 % of the time" in said and "iterations (-n)" in said
    assert "start the sweep" not in said
    size = doubling(3, 7)
    scattered = (20e-6 + size / 1e6) * np.exp(np.random.default_rng(58).normal(0, 1, len(size)))
    said = fit_sweep(sweep(size, scattered)).warnings[0]
    assert "the rows scatter" in said and "iterations (-n)" in said


def test_one_rank_gives_no_link_figures():
    size = doubling(3, 27)
    fit = fit_sweep(sweep(size, line(size), n_ranks=1))
    assert np.isnan([fit.alpha, fit.bandwidth, fit.knee, fit.half_power, fit.predict(2**20)]).all()
    assert fit.regimes == fit.regions == fit.findings == ()
    assert len(fit.warnings) == 1 and "no communication was measured" in fit.warnings[0]


def test_tiny_rows_show_no_bandwidth():
    size = doubling(3, 14)
    fit = fit_sweep(sweep(size, noisy(line(size), 0.01)))
    assert np.isnan(fit.bandwidth) and np.isnan(fit.knee) and fit.alpha == pytest.approx(20e-6, rel=0.02)
    assert "bandwidth cannot be told" in fit.warnings[0]
    assert [finding.kind for finding in fit.findings] == ["early_end"]


def test_a_sweep_from_1_mib_is_said_to_miss_the_latency_region():
    size = doubling(20, 30)
    fit = fit_sweep(sweep(size, line(size, 50e-6)))
    assert fit.alpha == pytest.approx(50e-6)
    assert "late_start" in [finding.kind for finding in fit.findings]


def test_outside_the_sizes_it_warns_and_still_predicts():
    size = doubling(10, 30)
    fit = fit_sweep(sweep(size, line(size)))
    assert fit.warn_outside(2**10) == fit.warn_outside(2**30) == fit.warn_outside(size) == ""
    assert "8 B is outside 1 KiB to 1 GiB" in fit.warn_outside(8)
    assert "4 GiB is outside" in fit.warn_outside([2**20, 2**32])
    assert fit.predict(2**32) == pytest.approx(line(2**32)) and isinstance(fit.predict(2**32), float)
    assert fit.predict(np.full((2, 3), 2.0**20)).shape == (2, 3)
    with pytest.raises(InputRefused, match="negative"):
        fit.predict(-1)


@pytest.mark.parametrize(
    ("collective", "algorithm", "segments"),
    [
        ("all_reduce", "ring", 1),
        ("all_reduce", "tree", 1),
        ("all_reduce", "recursive_doubling", 1),
        ("all_gather", "ring", 1),
        ("reduce_scatter", "pairwise", 1),
        ("all_to_all", "linear", 1),
        ("broadcast", "ring", 4),
    ],
)
@pytest.mark.parametrize("ranks", [2, 8, 12])
def test_the_link_reproduces_the_line(collective, algorithm, segments, ranks):
    size = doubling(10, 32)
    fit = fit_sweep(sweep(size, line(size), ranks, collective))
    link = fit.link(algorithm, segments)
    cost = collective_cost(collective, algorithm, size, ranks, link, segments).seconds
    assert cost == pytest.approx(line(size), rel=1e-6)


def test_a_ring_all_reduce_divides_alpha_by_its_steps():
    size = doubling(10, 32)
    link = fit_sweep(sweep(size, line(size), 8)).link("ring")
    assert link.alpha == pytest.approx(20e-6 / 14) and link.bandwidth == pytest.approx(200e9 * 14 / 8)


def test_a_link_is_refused_where_the_log_is_silent():
    size = doubling()
    with pytest.raises(InputRefused, match="collective"):
        fit_sweep(sweep(size, line(size), collective=None)).link("ring")
    with pytest.raises(InputRefused, match="number of ranks"):
        fit_sweep(sweep(size, line(size), n_ranks=None)).link("ring")
    with pytest.raises(InputRefused, match="one rank only"):
        fit_sweep(sweep(size, line(size), n_ranks=1)).link("ring")
    with pytest.raises(InputRefused, match="segments"):
        fit_sweep(sweep(size, line(size))).link("ring", segments=None)


@pytest.mark.parametrize("rows", [1, 2, 3])
def test_too_few_sizes_give_no_fit_but_a_plateau(rows):
    size = doubling(28, 27 + rows)
    fit = fit_sweep(sweep(size, line(size)))
    assert np.isnan([fit.alpha, fit.bandwidth, fit.knee, fit.predict(2**28)]).all()
    assert fit.regimes == fit.regions == ()
    assert f"{rows} size{' is' if rows == 1 else 's are'} too few" in fit.warnings[0]
    assert fit.plateau > 0


def test_wrong_and_empty_rows_are_left_out():
    size = np.concatenate([[0, 0], doubling(10, 30)])
    time = line(size)
    time[5] *= 50
    wrong = np.zeros_like(size)
    wrong[5] = 12
    fit = fit_sweep(sweep(size, time, wrong=wrong))
    assert fit.rows == 20 and fit.alpha == pytest.approx(20e-6)
    assert [finding.kind for finding in fit.findings] == ["wrong"] and fit.findings[0].size == size[5]


def test_order_and_repeats_do_not_matter():
    size = doubling(10, 30)
    time = noisy(line(size), 0.02)
    shuffled = np.random.default_rng(1).permutation(np.repeat(np.arange(len(size)), 3))
    assert fit_sweep(sweep(size[shuffled], time[shuffled])) == fit_sweep(sweep(size, time))


@pytest.mark.parametrize("size, time", [([], []), ([0.0], [1.0]), ([8.0], [0.0]), ([8.0], [np.nan])])
def test_no_usable_row_is_refused(size, time):
    with pytest.raises(InputRefused, match="nothing to fit"):
        fit_sweep(sweep(size, time))


def test_a_senseless_nominal_rate_is_refused():
    size = doubling()
    for nominal in (0, -1.0, np.nan):
        with pytest.raises(InputRefused, match="nominal"):
            fit_sweep(sweep(size, line(size)), nominal)
        with pytest.raises(InputRefused, match="nominal"):
            fit_sweep(sweep(size, line(size))).share_of(nominal)


VALUES = st.one_of(
    st.floats(min_value=1e-12, max_value=1e18),
    st.floats(min_value=1e-300, max_value=1e300),
    st.sampled_from([0.0, -1.0, np.nan, np.inf, -np.inf, 8.0, 1e-6, 1024.0, 5e-324]),
)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(VALUES, VALUES, st.sampled_from([0.0, np.nan, 3.0])), min_size=1, max_size=14))
def test_hostile_rows_raise_nothing_but_a_refusal_and_print_nothing(rows):
    size, time, wrong = (np.array(column) for column in zip(*rows, strict=True))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            fit = fit_sweep(sweep(size, time, wrong=wrong, in_place_time=time[::-1]), nominal=1e9)
        except InputRefused:
            return
        fit.predict(fit.range[0]), fit.warn_outside(0.0)
    assert all(regime.alpha >= 0 and regime.bandwidth > 0 for regime in fit.regimes)
