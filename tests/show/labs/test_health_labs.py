"""The labs of section 5.4: dots, bands and bars against sums written out here."""

import numpy as np
import pytest
from pytest import approx

from labkit.show import theme
from labkit.show.labs.rank_waiting import rank_waiting
from labkit.show.labs.scorecard import METRICS, scorecard


def spans(patch):
    """Starts and ends of the rectangles of a path."""
    corners = patch.get_path().vertices.reshape(-1, 4, 2)
    return corners[:, 0, 0], corners[:, 2, 0]


def dots(artists):
    """Value and whether it is drawn as healthy, by metric."""
    found = {}
    for name in ("good", "bad"):
        for x, row in zip(*artists[name].get_data(), strict=True):
            found[METRICS[int(row)]] = (x, name == "good")
    return found


# ---- the scorecard


def test_the_guides_shares_leave_too_little(drawn):
    """Claim 5.4-f by hand: 16/19 x 0.7 x 0.9 = 0.531, and 0.531 x 55 % = 29 %."""
    artists, _ = drawn("scorecard")
    left = 16 / 19 * 0.7 * 0.9
    assert dots(artists) == {
        "scaling_efficiency": (approx(left), False),
        "mfu": (approx(0.55 * left), False),
        "tensor_parallel_exposed": (approx(0.3 * 16 / 19 * 0.9), True),
        "data_parallel_exposed": (approx(0.1), True),
        "rank_spread": (0, True),
    }
    assert artists["conflict"].get_text().startswith("limits contradict: every share is within its own")
    assert artists["conflict"].get_color() == theme.COLOURS["warning"]
    low, high = spans(artists["bands"])
    assert low == approx([0.6, 0.4, 0, 0, 0]) and high == approx([1, 0.55, 0.3, 0.1, 0.05])


def test_the_parts_of_the_step_add_up(drawn):
    artists, result = drawn("scorecard", recompute="full", late=0.2, coverage=0.5)
    starts, stops = np.concatenate([spans(patch) for patch in artists["bar"].values()], axis=1)
    assert starts[0] == 0 and stops[-1] == approx(1) and starts[1:] == approx(stops[:-1])
    assert sum(result["parts"]) == approx(1)
    # Full recompute repeats a third of the layers' work; the late rank's mates wait 0.2 of their own.
    useful, again, *_, waiting, _ = result["parts"]
    assert 0.31 < again / useful < 1 / 3 and waiting == approx(0.2 * (useful + again))


def test_what_is_hidden_counts_in_the_ring_only(drawn):
    artists, result = drawn("scorecard", gpus=8, p=1, tensor=0.0, data=0.4, coverage=1.0)
    assert artists["total"].get_xdata() == approx([0.4])
    assert dots(artists)["data_parallel_exposed"] == (0, True)
    assert dots(artists)["scaling_efficiency"] == (approx(1), True)
    assert spans(artists["bands"])[0][0] == approx(0.85)
    assert "all collectives 40 %" in scorecard.readout(result)[1]


def test_an_efficiency_that_passes_and_an_mfu_that_does_not(drawn):
    artists, result = drawn("scorecard", tensor=0.2, data=0.05, m=32)
    left = 32 / 35 * 0.8 * 0.95
    assert dots(artists)["scaling_efficiency"] == (approx(left), True)
    assert dots(artists)["mfu"] == (approx(0.55 * left), False)
    assert artists["needed"].get_xdata() == approx([0.4 / 0.55])
    assert "implies an MFU of 33 %" in artists["conflict"].get_text()
    assert "look at: MFU, pipeline bubble" in scorecard.readout(result)[4]


def test_a_card_that_alone_has_too_little_needs_more_than_all(drawn):
    artists, result = drawn("scorecard", single=0.3)
    assert len(artists["needed"].get_xdata()) == 0
    assert "out of reach" in scorecard.readout(result)[3]


def test_a_late_rank_shows_in_the_spread_and_in_the_efficiency(drawn):
    even, late = drawn("scorecard")[0], drawn("scorecard", late=0.25)[0]
    assert dots(late)["rank_spread"] == (approx(0.2), False)
    assert dots(late)["scaling_efficiency"][0] == approx(dots(even)["scaling_efficiency"][0] / 1.25)


# ---- ranks that wait


def test_rows_end_together_and_the_slow_rank_waits_least(drawn):
    artists, result = drawn("rank_waiting", n=5, slow=3.0, transfer=0.5)
    work, waiting, exchange = artists["bars"].values()
    assert spans(exchange)[1] == approx(np.ones(5))
    assert spans(work)[1] == approx(np.array([100, 100, 100, 100, 300]) / 350)
    assert np.diff(spans(waiting), axis=0)[0] == approx(np.array([200, 200, 200, 200, 0]) / 350)
    assert [text for column in artists["numbers"] for text in column.texts[-1:]] == [
        "300 ms",
        "50 ms",
        "350 ms",
    ]
    lines = rank_waiting.readout(result)
    assert "every step 350 ms, 0 % apart" in lines[0] and "66.7 % apart" in lines[1]
    assert "shortest on rank 4" in lines[2] and "from the steps alone: cannot be told" in lines[3]


def test_the_reported_case(drawn):
    """Case H3: compute 100, 100, 100, 130 ms; collective 40, 40, 40, 10 ms: rank 3, not the others."""
    artists, result = drawn("rank_waiting", case="reported")
    assert artists["numbers"][1].texts == ["40 ms", "40 ms", "40 ms", "10 ms"]
    assert "shortest on rank 3" in rank_waiting.readout(result)[2]
    assert result["by_work"].value == approx(30 / 130)


def test_the_recording(drawn):
    _, result = drawn("rank_waiting", case="recorded here")
    assert np.ptp(result["step"]) / result["step"].max() < 0.01
    assert result["by_work"].value == approx(0.5, abs=0.1)


@pytest.mark.parametrize("n", [2, 16])
def test_equal_ranks_wait_for_nobody(drawn, n):
    artists, result = drawn("rank_waiting", n=n, slow=1.0)
    assert result["by_work"].verdict == "healthy"
    assert np.diff(spans(artists["bars"]["waiting for the last rank"]), axis=0)[0] == approx(np.zeros(n))
    assert "nobody waits" in rank_waiting.readout(result)[2]
