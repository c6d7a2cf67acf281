"""The picture of the rank grid says what the grid says."""

import numpy as np
import pytest

from labkit.show import labs, still
from labkit.show.labs.rank_grid import HEIGHT, LARGEST, MOST, WIDTH, layout
from labkit.spec import Plan, RankGrid


def facts(**setting):
    return still(labs.rank_grid, **setting).facts


def words(numbers):
    """What an artist of many short texts writes."""
    return [text for text, _ in numbers._texts]


def test_the_guides_64_cards():
    lines = facts()
    assert "tp 8 × cp 1 × pp 4 × dp 2 = 64 ranks" in lines[0] and "a replica takes 32 ranks" in lines[0]
    assert "tp 0 of 8" in lines[1] and "dp 32 of 32" in lines[1] and "pp 16 of 16" in lines[1]
    assert lines[2] == "the dp group of rank 0: 0, 8, on 2 nodes of 8"


def test_the_order_decides_who_crosses():
    near = facts(tp=4, order="tp-cp-dp-pp")
    far = facts(tp=4, order="tp-cp-pp-dp")
    assert "dp 0 of 16" in near[1] and "dp 16 of 16" in far[1]
    assert "pp 8 of 8" in near[1] and "pp 8 of 8" in far[1]


def test_cells_are_numbered_coloured_and_ringed_by_group(drawn):
    artists, _ = drawn("rank_grid", tp=4, pp=2, dp=2, order="tp-cp-pp-dp", dimension="dp")
    assert words(artists["ranks"]) == [str(rank) for rank in range(16)]
    groups = words(artists["groups"])
    assert len(groups) == 16 and groups[:2] == ["g0", "g1"] and groups[8] == "g0"
    colours = artists["cells"].get_facecolor()
    assert np.array_equal(colours[0], colours[8]) and not np.array_equal(colours[0], colours[1])
    assert len(artists["rings"].get_paths()) == 16 and len(artists["first"].get_paths()) == 2
    artists, _ = drawn("rank_grid", tp=4, pp=2, dp=2, dimension="dp")
    assert len(artists["rings"].get_paths()) == 0
    assert words(artists["names"]) == ["node 0", "node 1"]


@pytest.mark.parametrize("per_node", [4, 8, 16])
@pytest.mark.parametrize("ranks", [1, 2, 8, 24, 64, MOST])
def test_every_cell_lies_in_its_node_and_in_the_picture(per_node, ranks):
    grid = RankGrid(Plan(dp=ranks), per_node)
    cell, corners, boxes = layout(grid)
    assert 0.3 < cell <= LARGEST
    for (x, y), node in zip(corners, grid.node(np.arange(ranks)), strict=True):
        left, low, width, height = boxes[node]
        assert left - 1e-9 <= x and x + cell <= left + width + 1e-9
        assert low - 1e-9 <= y and y + cell <= low + height + 1e-9
        assert 0 <= x <= WIDTH - cell and 0 <= y <= HEIGHT - cell
    assert len({tuple(np.round(corner, 6)) for corner in corners}) == ranks


def test_too_many_ranks_get_a_calm_sentence():
    assert "at 128 or below" in facts(tp=8, pp=8, dp=8)[0]
