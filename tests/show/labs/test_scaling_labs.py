"""What the pictures of step times and of the loader draw, worked out apart."""

import numpy as np
import pytest
from pytest import approx

from labkit.course.chapter6_scaling import CAUSES, made_steps
from labkit.show import labs


def words(name, **setting):
    lab = getattr(labs, name)
    return "\n".join(lab.readout(lab.compute(**setting)))


# ---- step_distribution


def test_dots_lines_and_histogram(drawn):
    artists, _ = drawn("step_distribution", share=0.3, ratio=3.0, cause="all ranks")
    steps, _ = made_steps(0.3, 3.0, "all ranks")
    assert artists["dots"].get_ydata() == approx(steps)
    heights = [line.get_ydata()[0] for line in artists["lines"]]
    assert heights == approx([steps.mean(), np.median(steps), np.sort(steps)[197], steps.max()])  # of 200
    right = artists["bars"].get_path().vertices[:, 0].reshape(-1, 4).max(axis=1)
    assert right.sum() == approx(1)


def test_a_late_rank_is_drawn_late_in_its_own_row(drawn):
    artists, _ = drawn("step_distribution", share=0.5, ratio=2.0, cause="one rank")
    rows = artists["late"].get_path().vertices[:, 1].reshape(-1, 4).mean(axis=1)
    assert set(np.round(rows)) == {5}
    _, work = made_steps(0.5, 2.0, "one rank")
    assert len(rows) == (np.ptp(work[:60], axis=1) > 0.5).sum()


@pytest.mark.parametrize("cause", CAUSES)
def test_the_readout_names_the_cause_without_having_been_told(cause):
    wanted = ("one rank", "changing ranks", "all together", "the exchange", "one rank")
    assert f"cause found: {wanted[CAUSES.index(cause)]}" in words("step_distribution", cause=cause)


def test_the_guide_s_figures():
    said = words("step_distribution")
    assert "mean 1.21 s" in said and "2 kinds of steps: 50 % around 816 ms, 50 % around 1.6 s" in said
    assert "rank 5 is last most often, in 100 % of the slow steps" in said
    assert "no cause to look for" in words("step_distribution", share=0.0)
    rhythm = words("step_distribution", share=0.1, cause="rank 0, in a fixed rhythm")
    assert "slow steps come back every 10" in rhythm


# ---- loader_supply


def test_lines_dot_and_bars_by_hand(drawn):
    artists, _ = drawn("loader_supply", cards=8, workers=4, seconds=0.04, step=0.32)
    takes, prepares = artists["lines"]
    assert takes.get_ydata() == approx(25.0 * np.arange(1, 17)) and prepares.get_ydata() == approx([100, 100])
    assert artists["dot"].get_data() == ([8], [approx(200)])
    # 64 x 0.04 / 4 = 0.64 s: twice the step; with 60 % of it 1.2 times (0.384 s), with a tenth none
    ends = artists["bars"].get_path().vertices[:, 0].reshape(-1, 4).max(axis=1)
    assert ends == approx([2.0, 1.02, 1.2, 1.02], abs=0.001)
    shade = artists["shade"].get_path().vertices[:, 0]
    assert shade.min() == approx(4)  # 4 cards take what 4 workers prepare


def test_the_readout_of_the_loader():
    said = words("loader_supply", cards=8, workers=1, seconds=0.06, step=0.32)
    assert "200 samples/s taken, 16.7 prepared" in said and "3.52 s wait for input" in said
    assert "1 worker is a finding by itself; 12 are needed, of 64 cores" in said
