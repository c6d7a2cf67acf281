"""The fit against published sweeps: rows it has not seen, and the figures that the guide's claims rest on."""

from pathlib import Path

import numpy as np
import pytest

from labkit.evidence.fit import fit_sweep
from labkit.evidence.sweep import read_sweep
from tests.evidence.fitted import published, sweep

SAMPLES = sorted((Path(__file__).resolve().parents[2] / "data" / "sweeps").glob("*"))
SWEEPS = published(fewest_rows=12)
# The aim is 10 % in all sweeps. Two miss it (17 % and 11 %): their own rows scatter by 10 % and more, one ran
# over sockets without its network plug-in, one has 14 rows and among them an outlier of 2.3 times.
MISSES = {"cscs_alps_2x4_GH200_NO_CXI_plugin", "gjaion_64xH100_ib_ctas24_qps2"}
# Median error of the shipped samples on left-out rows, as read off once; the sockets log scatters most.
SAMPLE_ERRORS = {"gh200-2x4-sockets": 0.20, "gh200-2x4-slingshot": 0.10}
shared = pytest.mark.skipif(not SWEEPS, reason="the published sweeps do not stand beside the checkout")


def errors_on_left_out_rows(size, time):
    """Relative errors of every row, each predicted by a fit of the two thirds without it."""
    errors = np.empty(len(size))
    for first in range(3):
        out = np.arange(len(size)) % 3 == first
        fit = fit_sweep(sweep(size[~out], time[~out]))
        errors[out] = np.abs(fit.predict(size[out]) / time[out] - 1)
    return errors


def largest_fall(time):
    """The largest share by which ``time`` falls below an earlier value."""
    return np.max(1 - time / np.maximum.accumulate(time))


@shared
def test_left_out_rows_are_predicted():
    medians = {name: np.median(errors_on_left_out_rows(*rows)) for name, rows in SWEEPS.items()}
    worst = sorted(medians.items(), key=lambda item: -item[1])[:6]
    found = np.array(list(medians.values()))
    beyond = {name for name, median in medians.items() if median > 0.10}
    assert np.mean(found <= 0.05) >= 0.90, worst
    assert beyond <= MISSES, worst


@shared
def test_every_row_is_described_within_five_percent():
    for name, (size, time) in SWEEPS.items():
        error = np.median(np.abs(fit_sweep(sweep(size, time)).predict(size) / time - 1))
        assert error <= 0.05, name


@shared
def test_the_fitted_time_falls_no_further_than_the_rows():
    for name, (size, time) in SWEEPS.items():
        curve = fit_sweep(sweep(size, time)).predict(np.geomspace(size[0], size[-1], 1000))
        assert largest_fall(curve) <= largest_fall(time) + 0.05, name


@shared
def test_published_eight_card_sweeps_reach_half_their_bandwidth_between_8_and_32_mib():
    """Claim 5.1-d: the half-power point, not alpha x bandwidth, is where the guide's knee is seen."""
    for name in (
        "mleng_8xA100_nvswitch",
        "nvidia_dgxc_8xH100_nvswitch",
        "superbench_8xA100-40GB_nvswitch_alltoall",
    ):
        fit = fit_sweep(sweep(*SWEEPS[name]))
        assert 8 * 2**20 <= fit.half_power <= 32 * 2**20, name
        assert fit.knee < fit.half_power, name


@pytest.mark.parametrize(
    "path", [path for path in SAMPLES if "gloo" in path.stem], ids=lambda path: path.stem
)
def test_processes_that_share_cores_are_fitted_loosely(path):
    """No link decides there: the fit answers, and its errors say how much of it to believe."""
    (one,) = read_sweep(path)
    fit = one.fit()
    errors = np.abs(fit.predict(one.size) / one.time - 1)
    assert np.isfinite([fit.alpha, fit.bandwidth]).all() and np.median(errors) < 0.15
    assert errors.max() > 0.25  # some row is off by more than on any GPU node above


LINKS = [path for path in SAMPLES if "gloo" not in path.stem]


@pytest.mark.parametrize("path", LINKS, ids=lambda path: path.stem)
def test_the_samples_that_ship_are_fitted(path):
    for one in read_sweep(path):
        fit = one.fit()
        assert np.isfinite([fit.alpha, fit.bandwidth, fit.half_power]).all()
        assert [region.name for region in fit.regions] == ["latency", "climb", "plateau"]
        assert np.median(np.abs(fit.predict(one.size) / one.time - 1)) <= 0.05
        curve = fit.predict(np.geomspace(one.size[0], one.size[-1], 1000))
        assert largest_fall(curve) <= largest_fall(one.time) + 0.05
        assert np.median(errors_on_left_out_rows(one.size, one.time)) <= SAMPLE_ERRORS.get(path.stem, 0.08)
        assert fit.link("ring").bandwidth > fit.bandwidth
