"""5.3-b, -c and -e: figures from the guide's lists, sums by hand, and the recorded jobs themselves."""

import pytest

from labkit.course.chapter6_stray import stray_table
from labkit.course.claims import all_claims
from labkit.evidence.hang_jobs import abort_said, recorded_hang, silences, sums, weights_received
from tests.course.claim_values import value

CLAIMS = {id: claim for id, claim in all_claims().items() if claim.section == "5.3"}
EXPECTED = {
    "5.3-b": [
        "4 ranks, silent for 4 s",
        "mismatch at call 4",
        "rank 0 barrier",
        "rank 1 all_reduce",
        "suspect: rank 0",
    ],
    "5.3-c": ["mismatch at call", "suspect rank 3", "broadcast of 4 into 8 elements", "leaves 4 of them old"],
    # Three ranks with the losses 1, 2, 3, 4. Rank 0 is one call late: 1000 + 1 + 1, then 1 + 2 + 2 and so on.
    "5.3-e": [
        "rank 0 alone waits, 4 s",
        "sums 1002, 5, 8, 11 instead of 3, 6, 9, 12",
        "then rank 0 hangs",
        "bytes where 4 fit",
    ],
}
VERDICTS = {"5.3-c": "corrected", "5.3-e": "corrected"}


@pytest.mark.parametrize("id", EXPECTED)
def test_values(id):
    found = value(id)
    assert [text for text in EXPECTED[id] if text not in found] == []
    assert CLAIMS[id].verdict == VERDICTS.get(id, "holds")


def test_the_stray_sum_pairs_with_the_others_next_step():
    """Rank 0 gets each sum one step late, and is told 1002 as its validation loss."""
    told = sums(recorded_hang("silent"))
    assert told == {0: [5, 8, 11], 1: [1002, 5, 8, 11], 2: [1002, 5, 8, 11]}
    assert silences(recorded_hang("silent")) == {0: 4}


def test_rank_0_waits_and_the_others_walk_on():
    assert silences(recorded_hang("walk_on")) == {0: 4}
    for rank in (1, 2):
        assert "done with training" in (recorded_hang("walk_on") / f"rank_{rank}.log").read_text("utf-8")


def test_another_size_ends_a_process():
    rank, came, room = abort_said(recorded_hang("abort"))
    assert rank != 0 and room == 4 and came > 1000


def test_half_of_what_was_received_is_old():
    assert weights_received(recorded_hang("half_filled")) == {
        0: [7] * 4,
        1: [7] * 4 + [0] * 4,
        2: [7] * 4 + [0] * 4,
    }


def test_the_table_of_three_endings():
    waits, wrong, ended = (row[2] for row in stray_table().rows)
    assert waits == "rank 0 waits 4 s; the others are done"
    assert wrong == "sums 1002, 5, 8, 11 instead of 3, 6, 9, 12; rank 0 waits 4 s at the end"
    assert "bytes where 4 fit" in ended
