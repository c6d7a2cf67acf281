"""The bars of the four estimators end where the estimates do, and the marks where the tools print."""

import pytest

from labkit.course.chapter4_estimators import PARTS, PRINTED, TOOLS
from labkit.errors import InputRefused
from labkit.show import labs, still
from labkit.units import GiB


@pytest.mark.parametrize("conventions", ["their own", "one set for all"])
def test_bars_stand_end_to_end_up_to_the_total(drawn, conventions):
    artists, result = drawn("four_estimators", conventions=conventions)
    assert [one.tool for one in result["estimates"]] == [*TOOLS, "labkit"]
    for row, one in enumerate(result["estimates"]):
        end = 0.0
        for part in PARTS:
            bar = artists["bars"][part][row]
            assert bar.get_x() == pytest.approx(end)
            end += bar.get_width()
        assert end == pytest.approx(one.total / GiB)
        assert artists["totals"][row].get_text() == f"{end:.1f}"
    assert list(artists["printed"].get_xdata()) == list(PRINTED.values())


def test_the_card_is_what_it_leaves_a_job(drawn):
    artists, _ = drawn("four_estimators")
    assert artists["leaves"].get_xdata()[0] == pytest.approx(78.23, abs=0.01)  # 80 GiB less 1.9 GB


def test_with_one_set_of_conventions_the_four_agree():
    first = still(labs.four_estimators, conventions="one set for all").facts[0]
    assert first == "one set for all: cookbook 17.1, Megatron-LM 17.1, llm-analysis 16.9, Calculon 17.2 GiB"


def test_other_conventions_are_refused():
    with pytest.raises(InputRefused, match="choose 'their own' or 'one set for all'"):
        labs.four_estimators.compute("mine")
