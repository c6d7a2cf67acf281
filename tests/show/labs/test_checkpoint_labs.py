"""The labs on checkpoints: the picture and the readout say what the formulas say."""

import numpy as np
from pytest import approx

from labkit.practice.failures import daly_interval, job_mtbf, lost_share
from labkit.show import labs, still
from labkit.show.labs.checkpoint_interval import INTERVALS


def test_stall_of_13b_over_16_cards():
    shown = still(labs.checkpoint_stall, cards=16, one=5.0, copy=25.0, every=60)
    one, every_card, behind, beside = shown.facts[1:5]
    assert "write 36.4 s; stands still 36.4 s" in one and "write 11.4 s; stands still 11.4 s" in every_card
    assert "copy 455 ms" in behind and "stands still 455 ms" in behind
    assert "stands still 0 s" in beside


def test_rows_of_equal_work_end_when_their_stalls_say():
    result = labs.checkpoint_stall.compute(every=40)
    for row in result["rows"]:
        line = row["line"]
        trained = line.busy[0]
        assert trained == approx(100.0)
        end = line.stop[(line.lane == 0) & np.isin(line.kind, ("forward", "backward"))].max()
        assert end - trained <= 2 * row["stall"] + 1e-6


def test_the_dot_is_the_lowest_point_of_the_curve():
    result = labs.checkpoint_interval.compute(cards=4096, failures=0.2, save=20.0, restart=5)
    assert result["best"] == daly_interval(20.0, job_mtbf(0.2, 4096))
    lowest = INTERVALS[np.argmin(result["lost"])]
    assert result["best"] == approx(lowest, rel=0.03)
    assert result["at_best"] == lost_share(result["best"], 20.0, result["mtbf"], 300.0)


def test_thirteen_elements_are_assembled():
    facts = still(labs.reshard_slices).facts
    assert "5 + 5 + 3" in facts[0] and "4 + 4 + 4 + 1" in facts[1]
    assert "rank 1: 1 from 0 + 3 from 1" in facts[3]
    assert "all equal" in still(labs.reshard_slices, length=12, source=3, target=4).facts[1]
