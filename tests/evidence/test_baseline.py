"""Comparability (2.3-i), the procedure (2.3-k) and the waterfall (2.3-e)."""

import math
from dataclasses import dataclass, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from labkit.errors import InputRefused
from labkit.evidence.baseline import Run, Thresholds, compare, diagnose, differences, plateau_share, waterfall

HERE = Run("all_reduce", 25e6, 8, ("a",) * 8, 2e-3)


def test_host_names_do_not_matter_but_who_sits_with_whom_does():
    two = Run("all_reduce", 25e6, 4, ("x", "x", "y", "y"), 2e-3)
    assert compare(replace(two, layout=("p", "p", "q", "q"), seconds=3e-3), two) == pytest.approx(1.5)
    with pytest.raises(InputRefused, match="rank layout differs from rank 1 on"):
        compare(replace(two, layout=("x", "y", "x", "y")), two)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"n_ranks": 16, "layout": ("a",) * 8 + ("b",) * 8}, "16 ranks, the baseline's 8"),
        ({"layout": ("a", "b") * 4}, "layout"),
        ({"size": 14e9}, "14 GB, the baseline's 25 MB"),
        ({"collective": "all_gather"}, "all_gather"),
    ],
)
def test_each_difference_is_refused_and_named(change, named):
    with pytest.raises(InputRefused, match=named):
        compare(replace(HERE, **change), HERE)


def test_all_differences_are_named_at_once():
    other = Run("all_gather", 14e9, 2, ("a", "a"), 1.0)
    assert len(differences(other, HERE)) == 3
    assert differences(HERE, HERE) == []


def test_sizes_within_the_tolerance_are_the_same_size():
    assert compare(replace(HERE, size=25e6 * 1.05), HERE) == 1.0
    with pytest.raises(InputRefused, match="message"):
        compare(replace(HERE, size=25e6 * 1.05), HERE, Thresholds(size=0.01))


@pytest.mark.parametrize(
    ("slower", "step", "verdict"),
    [
        (1.0, 20.0, "fine"),
        (1.5, 20.0, "fine"),
        (1.6, 20.0, "implementation"),
        (1.0, 5.0, "volume"),
        (1.6, 5.0, "implementation"),
    ],
)
def test_verdicts(slower, step, verdict):
    """560 buckets of 2 ms are 1.12 s: 5.6 % of 20 s, 22 % of 5 s."""
    found = diagnose([(replace(HERE, seconds=2e-3 * slower), HERE, 560)], step)
    assert found.verdict == verdict
    assert found.expected == pytest.approx(1.12) and found.measured == pytest.approx(1.12 * slower)
    assert found.expected_share == pytest.approx(1.12 / step)
    assert found.measured_share == pytest.approx(1.12 * slower / step)


def test_thresholds_are_the_readers():
    assert diagnose([(HERE, HERE, 560)], 5.0, Thresholds(share=0.30)).verdict == "fine"


def test_no_verdict_without_a_comparable_baseline():
    with pytest.raises(InputRefused, match="not comparable"):
        diagnose([(HERE, replace(HERE, size=1e9), 560)], 5.0)
    with pytest.raises(InputRefused, match="nothing to diagnose"):
        diagnose([], 5.0)


def test_messages_add_up():
    small = Run("all_reduce", 1e6, 8, ("a",) * 8, 1e-4)
    found = diagnose([(HERE, HERE, 10), (replace(small, seconds=3e-4), small, 100)], 1.0)
    assert found.expected == pytest.approx(0.03) and found.measured == pytest.approx(0.05)


def test_waterfall_of_the_guides_example():
    """14 GB over 8 ranks at 50 GB/s: 0.28 s by algbw, 0.49 s by the ring; fp32 0.98 s; half the plateau
    doubles again.
    """
    parts = waterfall(14e9, 8, 50e9, 2.5, lambda size: 0.5, gradient_factor=2.0)
    assert [part.total for part in parts] == pytest.approx([0.28, 0.49, 0.98, 1.96, 2.5])
    assert [part.seconds for part in parts] == pytest.approx([0.28, 0.21, 0.49, 0.98, 0.54])


@given(
    measured=st.floats(0.1, 10),
    share=st.floats(0.05, 1),
    n=st.integers(2, 512),
    factor=st.sampled_from([1.0, 2.0]),
)
def test_waterfall_adds_up(measured, share, n, factor):
    parts = waterfall(14e9, n, 50e9, measured, lambda size: share, gradient_factor=factor)
    assert sum(part.seconds for part in parts) == pytest.approx(measured, rel=1e-9)
    assert parts[-1].total == measured


@dataclass
class Straight:
    """A fit as ``plateau_share`` needs it: alpha-beta."""

    alpha: float
    bandwidth: float

    def predict(self, size):
        return self.alpha + size / self.bandwidth


def test_plateau_share_is_half_at_the_knee():
    fit = Straight(1e-4, 1e11)
    assert plateau_share(fit, 1e7) == pytest.approx(0.5)
    assert plateau_share(fit, 1e15) <= 1
    parts = waterfall(14e9, 8, 50e9, 2.0, lambda size: plateau_share(fit, size), bucket=1e7)
    assert parts[2].total == pytest.approx(0.98)


def test_refusals():
    with pytest.raises(InputRefused, match="name one per rank"):
        Run("all_reduce", 25e6, 8, ("a",), 1e-3)
    with pytest.raises(InputRefused, match="above 0"):
        replace(HERE, seconds=0.0)
    with pytest.raises(InputRefused, match="plateau share"):
        waterfall(14e9, 8, 50e9, 1.0, lambda size: 0.0)


NO_NUMBERS = [math.nan, 0, 0.0, -1, math.inf, True, "1", None]


@pytest.mark.parametrize("value", NO_NUMBERS)
def test_no_step_count_seconds_or_size_but_finite_numbers_above_0(value):
    with pytest.raises(InputRefused, match="a step of"):
        diagnose([(HERE, HERE, 560)], value)
    with pytest.raises(InputRefused, match=r"a count of .* messages"):
        diagnose([(HERE, HERE, 560), (HERE, HERE, value)], 5.0)
    for changes in ({"seconds": value}, {"size": value}):
        with pytest.raises(InputRefused, match="finite and above 0"):
            replace(HERE, **changes)


@pytest.mark.parametrize("value", NO_NUMBERS)
@pytest.mark.parametrize("name", ["size", "link_rate", "measured", "bucket", "gradient_factor"])
def test_waterfall_refuses_what_is_no_number_above_0(name, value):
    given = {"size": 14e9, "link_rate": 50e9, "measured": 1.0, name: value}
    with pytest.raises(InputRefused, match=f"{name} is "):
        waterfall(n_ranks=8, share_at=lambda size: 0.5, **given)


def test_plateau_share_is_unknown_without_a_fit():
    assert math.isnan(plateau_share(Straight(math.nan, math.nan), 1e7))
