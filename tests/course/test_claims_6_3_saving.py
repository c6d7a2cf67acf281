"""Section 6.3's claims on saving against the guide, the claim lists and sums by hand."""

import pytest

from labkit.course.chapter6_saving import copies_table, format_clock, interval_table, saves_table
from labkit.course.claims import all_claims
from tests.course.claim_values import value

# Figures from the guide, from the claim lists, or from sums by hand; never copied from labkit's output.
EXPECTED = {
    "6.3-b": [
        "write 11.4 s",  # 182 GB / 16 at 1 GB/s
        "11.4 s synchronous",
        "455 ms asynchronous",  # 11.375 GB at 25 GB/s
        "0 s with the copy beside a step",
        "saved every 5 s 6.83 s",  # 0.455 + 11.375 - 5
    ],
    "6.3-j": ["14 B each = 182 GB", "one writer at 5 GB/s 36.4 s", "32 writers at 1 GB/s each 5.69 s"],
    "6.3-k": [
        "11.4 GB a card",
        "0.455 s at 25 GB/s pinned",
        "2.27 s at 5 pageable",  # 2.275, which digits() rounds to even
        "a step of 1 s hides all but 1.27 s",
        "host memory 91 GB per 8 cards",
    ],
}


@pytest.mark.parametrize("id", EXPECTED)
def test_the_computed_value_has_the_figures_worked_out_apart(id):
    missing = [text for text in EXPECTED[id] if text not in value(id)]
    assert not missing, f"{missing} not in {value(id)!r}"


def test_verdicts_are_those_of_the_claim_lists():
    """6.3-j holds for one writer and is dated; the other two hold."""
    claims = all_claims()
    assert claims["6.3-b"].verdict == claims["6.3-k"].verdict == "holds"
    assert claims["6.3-j"].verdict == "approximately" and "one writer" in claims["6.3-j"].why


def test_tables():
    assert [row[3] for row in saves_table().rows] == ["36.4 s", "5.69 s", "228 ms", "0 s"]
    assert [row[3] for row in copies_table().rows] == ["455 ms", "2.27 s"]
    rows = interval_table().rows
    assert [row[1] for row in rows[::2]] == ["33 days", "2.06 days", "3.09 h"]  # 54 x 24 h / 419 on 16,384
    lost = [float(row[-1].rstrip(" %")) for row in rows]
    assert all(waits > behind for waits, behind in zip(lost[::2], lost[1::2], strict=True))


def test_clock():
    assert [format_clock(s) for s in (0.5, 59, 60, 7200, 172800)] == [
        "500 ms",
        "59 s",
        "1 min",
        "2 h",
        "2 days",
    ]
