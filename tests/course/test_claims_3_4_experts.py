"""The claims of 3.4 on experts, against figures from the claim lists and sums by hand."""

import re

import numpy as np
import pytest

from labkit.course import chapter3_experts as experts
from labkit.course.claims import all_claims

CLAIMS = all_claims()
EXPECTED = {
    # 2T on half of the ranks is twice the mean T; 1 - 1/nodes of an even load leaves the node
    "3.4-e": ["half of 64 ranks idle: imbalance 2, AllToAll 2x", "1 to 4 nodes 0 %, 50 %, 66.7 %, 75 %"],
    # dispatch and combine, forward and backward; 2 x 4096 x 4096 x 2 = 67,108,864 and 1.25 times that
    "3.4-i": [
        "4 AllToAlls",
        "equal to the unsplit layer",
        "payload 67.1 MB",
        "83.9 MB at capacity 1.25",
        " and 0 % dropped",
    ],
}


@pytest.mark.parametrize("id", EXPECTED)
def test_the_computed_value_has_the_figures_worked_out_apart(id):
    value = CLAIMS[id].row()["labkit_value"]
    assert [text for text in EXPECTED[id] if text not in value] == []


def test_verdicts_are_those_of_the_claim_lists():
    assert CLAIMS["3.4-e"].verdict == "holds"
    assert CLAIMS["3.4-i"].verdict == "approximately" and "dated" in CLAIMS["3.4-i"].why


def test_a_capacity_of_five_quarters_pads_a_fifth_where_hardly_anything_is_dropped():
    padding = re.search(r"of which ([\d.]+) % padding", CLAIMS["3.4-i"].row()["labkit_value"])[1]
    assert float(padding) == pytest.approx(100 * (1 - 1 / 1.25), abs=0.5)


def test_what_waits_grows_with_the_skew_and_stays_below_the_imbalance_of_the_ranks():
    value = CLAIMS["3.4-e"].row()["labkit_value"]
    rows = re.findall(r"skew [\d.]+: fullest rank ([\d.]+)x, AllToAll ([\d.]+)x, experts ([\d.]+)x", value)
    load, exchange, products = np.array(rows, float).T
    assert len(rows) == 3 and np.all(np.diff(load) > 1) and np.all(np.diff(exchange) > 1)
    assert products == pytest.approx(load) and np.all(exchange <= 1.01 * load)


def test_a_capacity_bounds_the_exchange_by_its_factor():
    case = experts.experts_case(ranks=16, experts=32, skew=1.5, factor=1.25, tokens=512)
    assert case.exchange_ratio[1] <= 1.25 < case.exchange_ratio[0]
    assert case.compute_ratio[1] == pytest.approx(1.25) and case.kept.sum() < case.demand.sum()


def test_an_expert_hotter_than_a_ranks_share_cannot_be_placed_away():
    case = experts.experts_case(ranks=16, experts=32, skew=1.5, placement="balanced", tokens=512)
    assert case.demand.max() >= case.free.demand.max() > 2 * case.mean
    scattered = experts.experts_case(ranks=16, experts=32, skew=1.5, tokens=512)
    assert case.demand.max() <= scattered.demand.max()


def test_tables_have_a_row_for_each_setting():
    assert len(experts.nodes_table().rows) == 4 and experts.nodes_table().rows[0][3] == "0 %"
    assert [row[-1] for row in experts.moved_table().rows[:5]] == ["yes"] * 5
    assert len(experts.skew_table((0, 1), ranks=8).rows) == 2
    assert len(experts.remedies_table(ranks=8).rows) == len(experts.REMEDIES)
