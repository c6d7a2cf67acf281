"""Timeline: what is busy, what is idle, and what is refused."""

import numpy as np
import pytest

from labkit.errors import InputRefused
from labkit.strategies.timeline import BACKWARD, FORWARD, TRANSFER, Timeline


def test_transfers_lengthen_the_span_but_are_not_busy():
    t = Timeline([0, 0, 2], [1, 2, 5], [2, 5, 7], [FORWARD, TRANSFER, FORWARD], [0, 0, 0])
    assert t.span == 6
    assert t.lanes == 3
    assert t.busy.tolist() == [1, 0, 2]
    assert t.idle.tolist() == [5, 6, 4]
    assert t.bubble == 15 / 18


def test_blocks_may_come_in_any_order():
    rng = np.random.default_rng(0)
    lane, start = np.repeat([0, 1], 4), np.tile(np.arange(4.0), 2)
    kind, item = np.tile([FORWARD, BACKWARD], 4), np.arange(8)
    whole = Timeline(lane, start, start + 0.5, kind, item)
    mixed = rng.permutation(8)
    shuffled = Timeline(lane[mixed], start[mixed], start[mixed] + 0.5, kind[mixed], item[mixed])
    assert shuffled.span == whole.span == 3.5
    assert shuffled.busy.tolist() == whole.busy.tolist() == [2.0, 2.0]


def test_coverage_counts_overlapping_communication_once():
    # Lane 0 computes from 0 to 4 and communicates from 1 to 3 and 2 to 6: 5 s, 3 of them under computing.
    kind = [FORWARD, TRANSFER, TRANSFER, BACKWARD]
    t = Timeline([0, 0, 0, 1], [0, 1, 2, 0], [4, 3, 6, 1], kind, [0, 0, 1, 0])
    assert t.communication.tolist() == [5, 0]
    assert t.hidden.tolist() == [3, 0]
    assert t.exposed.tolist() == [2, 0]
    assert t.coverage == 3 / 5


def test_coverage_of_no_communication_is_not_a_number():
    assert np.isnan(Timeline([0], [0], [1], [FORWARD], [0]).coverage)


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        (([0], [0, 1], [1, 2], [FORWARD, FORWARD], [0, 1]), "one value per block"),
        (([], [], [], [], []), "at least one block"),
        (([0, 0], [0, 2], [1, 1.5], [FORWARD, BACKWARD], [0, 0]), "block 1 .* from 2.0 to 1.5 s"),
        (([0], [0], [np.nan], [FORWARD], [0]), "block 0 "),
    ],
)
def test_refused(columns, words):
    with pytest.raises(InputRefused, match=words):
        Timeline(*columns)
