"""Section 6.3's claims on another plan against the guide, the claim lists and sums by hand."""

import pytest

from labkit.course import chapter6_resharding as tables
from labkit.course.claims import all_claims
from labkit.practice.resharding import FORMATS
from tests.course.claim_values import value

# Figures from the guide, from the claim lists, or from sums by hand; never copied from labkit's output.
EXPECTED = {
    "6.3-d": [
        "tp 16 x dp 4 splits all but query, key and value, projection",
        "nearest that work tp 8 x dp 8",
        "with tp 8 x dp 8 optimizer states are cut anew and nothing else",
    ],
    "6.3-m": [
        "13 elements from 3 shards onto 4 (4 + 4 + 4 + 1): 6 reads, restored exactly",
        "tp = 16: 40 mod 16 = 8",
    ],
    "6.3-n": [
        "all of it: rounding only",
        "400,000 are seen twice and 400,000 never",  # 40 % left after 60 %
    ],
}


@pytest.mark.parametrize("id", EXPECTED)
def test_the_computed_value_has_the_figures_worked_out_apart(id):
    missing = [text for text in EXPECTED[id] if text not in value(id)]
    assert not missing, f"{missing} not in {value(id)!r}"


def test_verdicts_are_those_of_the_claim_lists():
    claims = all_claims()
    verdicts = {id: claims[id].verdict for id in EXPECTED}
    assert verdicts == {"6.3-d": "approximately", "6.3-m": "corrected", "6.3-n": "approximately"}


def test_only_the_whole_state_goes_on():
    text = value("6.3-n")
    assert text.count("rounding only") == 1
    rows = tables.resumed_table().rows
    assert [row[0] for row in rows] == ["all of it", "no optimizer", "another batch", "no position"]
    assert [row[3] == "rounding only" for row in rows] == [True, False, False, False]
    assert rows[0][1] == rows[0][2] and float(rows[1][1]) > 1.3 * float(rows[1][2])


def test_tables():
    assert all(row[3] == "exact" for row in tables.slices_table().rows)
    cuts = {row[0]: row[1:] for row in tables.tensors_table().rows}
    assert cuts["query"] == ("as it is", "moved", "cannot be cut ✗")
    assert cuts["optimizer states"][0] == "cut anew"
    assert len(tables.reads_table().rows) == 4  # two models, two targets that work
    assert [row[0] for row in tables.forms_table().rows] == list(FORMATS)
    assert [row[4] for row in tables.reports_table().rows] == ["no", "yes, with care", "yes", "no", "yes"]
    assert tables.position_table().rows[0][1:] == ("0", "1,000,000", "0")


def test_who_reads_from_whom():
    """Old shards of tp rank 0 lie on ranks 0, 8, 16, 24: twice the replicas read half of one each."""
    rows = dict(tables.who_table().rows)
    assert rows["0"].endswith("from 0") and rows["8"] == rows["0"]
    assert "from 8" in rows["16"] and "from 24" in rows["56"]
