"""Blocks drawn as one path per kind: their corners, their transfers, and the numbers on them."""

import numpy as np
import pytest
from matplotlib.figure import Figure

from labkit.show import blocks, theme
from labkit.show.words import Canvas
from labkit.strategies.pipeline import interleaved, one_f_one_b, simulate, zb_v


def lines(run, transfer):
    return blocks.slants(run, np.full(run.stages - 1, transfer), 0.6).vertices.reshape(-1, 2, 2)


def test_a_rectangle_stands_in_the_middle_of_its_row():
    path = blocks.rectangles(np.array([2]), np.array([1.0]), np.array([3.0]), 0.5)
    assert path.vertices.tolist() == [[1, 1.75], [1, 2.25], [3, 2.25], [3, 1.75]]


@pytest.mark.parametrize(("order", "v"), [(one_f_one_b(3, 5), 1), (interleaved(3, 6, 2), 2), (zb_v(3, 5), 2)])
def test_a_line_for_each_transfer_from_row_to_row(order, v):
    run = simulate(order, 1 / v, 2 / v, 0.25)
    drawn = lines(run, 0.25)
    sent = run.kind == "transfer"
    assert sorted(drawn[:, 0, 0]) == pytest.approx(sorted(run.start[sent]))
    assert sorted(drawn[:, 1, 0]) == pytest.approx(sorted(run.stop[sent]))
    # Each begins at an edge of the sender's block and ends at the facing edge of another row's.
    assert sorted(np.round(drawn[:, 0, 1]).astype(int)) == sorted(run.lane[sent])
    assert np.all(np.round(drawn[:, 0, 1]) != np.round(drawn[:, 1, 1]))
    assert np.allclose(abs(drawn[:, :, 1] - np.round(drawn[:, :, 1])), 0.3)


def test_the_grid_goes_from_0_to_the_ends():
    path = blocks.grid([1, 2], [5], (10, 20))
    assert path.vertices.reshape(-1, 2, 2).tolist() == [
        [[1, 0], [1, 20]],
        [[2, 0], [2, 20]],
        [[0, 5], [10, 5]],
    ]


def ink(place="inside", stop=(4.0, 4.5), height=None, **more):
    """Columns and rows of an empty axes that two texts colour, blocks from 0 and from 4, in row 0."""
    with theme.style():
        figure = Figure((4, 1), dpi=100)
        canvas = Canvas(figure)
        ax = figure.add_axes((0, 0, 1, 1), xlim=(-2, 8), ylim=(-1, 1))
        ax.set_axis_off()
        numbers = blocks.Numbers(ax, place, **more)
        texts = {"texts": [7, 8], "height": height}
        numbers.set_numbers(np.zeros(2), np.array([0.0, 4.0]), np.array(stop), **texts)
        canvas.draw()
    dark = np.asarray(canvas.buffer_rgba())[:, :, 0] < 128
    return np.flatnonzero(dark.any(axis=0)), np.flatnonzero(dark.any(axis=1))


def test_numbers_stand_in_the_middle_of_wide_blocks_and_not_on_narrow_ones():
    columns, rows = ink()  # the first block is columns 80 to 240, the second 240 to 260
    assert {abs(column - 160) < 6 for column in columns if column < 240} == {True}
    assert any(abs(column - 250) < 6 for column in columns)
    assert abs(rows.mean() - 50) < 2
    columns, _ = ink(stop=(4.0, 4.1))
    assert columns.max() < 200


@pytest.mark.parametrize(("place", "low", "high"), [("left", 60, 80), ("right", 240, 260)])
def test_numbers_left_and_right_of_a_block(place, low, high):
    columns, _ = ink(place, stop=(4.0, 14.0))
    assert low < columns.min() < high


def test_numbers_below_hang_under_their_point():
    columns, rows = ink("below", stop=(0.0, 4.0))
    assert rows.min() > 50
    assert abs(columns[columns < 160].mean() - 80) < 3


def test_letters_shrink_in_low_rows():
    _, tall = ink(fontsize=20)
    _, low = ink(fontsize=20, height=0.2)
    assert np.ptp(low) < np.ptp(tall) / 1.5
