"""Section 6.2's claims and 6.3's on step times, against the guide, the claim lists and sums by hand."""

import numpy as np
import pytest
from pytest import approx

from labkit.course import chapter6_scaling as scaling
from labkit.course.claims import all_claims
from labkit.errors import InputRefused
from labkit.evidence.triage import distribution, scaling_triage
from tests.course.claim_values import figures, value

CLAIMS = {id: claim for id, claim in all_claims().items() if claim.section == "6.2"}

# Figures from the guide, from the claim lists, or from sums by hand; never copied from labkit's output.
EXPECTED = {
    "6.2-a": [
        "data loading, mapping, coverage, volume",
        "recorded: one worker: data loading, data_loading",
        "ranks dealt round the hosts: mapping",
        "overlap off: coverage",
        "recorded: a straggler: volume, late_ranks",
        "recorded: neighbours on the network: volume, contention",
        "gradients larger than the step: volume, volume",
        "nothing of these: none",
    ],
    "6.2-b": ["limit 60 %"],
    "6.2-c": [
        "8 cards 12",  # 8 x 25 x 0.06
        "wait 3.52 s",  # 64 x 0.06 - 0.32
        "as it is 1.92 s, more workers 320 ms",  # 64 x 0.06 / 2
        "preprocessing on the card 1.15 s",  # 64 x 0.036 / 2
        "encoded data 320 ms",  # 64 x 0.006 / 2 = 0.192 is within the step
        "200 MB/s for 1 host, 1.6 GB/s for 8 hosts, 6.4 GB/s for 32 hosts",
        "one loader worker a rank",
    ],
    "6.2-d": [
        "hidden: measured 500 ms, expected 500 ms, exposed 0 s, cause none",
        "exposed: measured 500 ms, expected 500 ms, exposed 500 ms, cause coverage",
    ],
    "6.2-e": [
        "as expected: measured 500 ms, shortest 500 ms, volume",
        "too long: measured 1.5 s, shortest 1.5 s, contention",
        "one rank comes late: measured 1.5 s, shortest 562 ms, late ranks",
        "a rank's traffic / busbw 500 ms; size / algbw 500 ms",  # 26e9 x 30/16 / 97.5e9
        "size / busbw 267 ms",  # 26 / 97.5
        "all ranks' bytes / algbw 15 s",  # 16 x 26e9 x 30/16 / (97.5e9 / (30/16))
    ],
    "6.2-f": ["1 data loading: 2 min, no rerun", "3 coverage: 20 min, a rerun", "4 volume: 60 min, a rerun"],
    "6.3-e": [
        "mean 1.2 s, P99 1.6 s, max 1.6 s",
        "2 modes: 50 % at 800 ms, 50 % at 1.6 s",
        "from step times: cannot be told, from own work: one rank, rank 2",
    ],
    "6.3-p": [
        "one rank: one rank",
        "all ranks: all together",
        "in a fixed rhythm: one rank, every 10 steps",
        "recorded saving: every 10 steps, one rank",
        "alternating lengths: every 2",
    ],
}


@pytest.mark.parametrize("id", EXPECTED)
def test_the_computed_value_has_the_figures_worked_out_apart(id):
    missing = [text for text in EXPECTED[id] if text not in value(id)]
    assert not missing, f"{missing} not in {value(id)!r}"


def test_every_claim_is_looked_at():
    assert {id for id in EXPECTED if id.startswith("6.2")} == set(CLAIMS)
    assert set(CLAIMS) == {f"6.2-{letter}" for letter in "abcdef"}


def test_verdicts_are_those_of_the_claim_lists():
    assert CLAIMS["6.2-d"].verdict == "corrected" and CLAIMS["6.2-b"].verdict == "approximately"
    assert CLAIMS["6.2-a"].verdict == CLAIMS["6.2-f"].verdict == "holds"
    assert all_claims()["6.3-e"].verdict == "holds"


def test_the_counter_reads_busy_where_a_peer_starves():
    waits, counter, least, most = figures(
        "6.2-b", r"waits ([\d.]+) % of its step.*?reads ([\d.]+) %.*?is ([\d.]+) % to ([\d.]+) %"
    )
    assert waits > 40 and counter > 90 and most < 60 and most - least < 2


def test_the_recorded_straggler_has_two_lengths():
    """Rank 2 takes 0.2 s instead of 0.1 s in about half of the steps."""
    mean, share, fast, slow = figures(
        "6.3-e", r"recorded: mean ([\d.]+) ms, ([\d.]+) % around ([\d.]+) ms, [\d.]+ % around ([\d.]+) ms"
    )
    assert slow - fast == approx(100, abs=10) and share == approx(50, abs=10) and fast < mean < slow


# ---- the tables say the same


def test_tables():
    assert [row[1] for row in scaling.steps_table().rows] == ["data loading", "mapping", "coverage", "volume"]
    stops = [row[1] for row in scaling.triage_table().rows]
    assert stops == [
        "1 data loading",
        "2 mapping",
        "3 coverage",
        "4 volume",
        "4 volume",
        "4 volume",
        "-",
    ]
    assert [row[2] for row in scaling.loader_table().rows] == ["2", "3", "6", "12"]  # cards x 25 x 0.06
    assert [row[5] for row in scaling.duration_causes().rows] == ["volume", "contention", "late ranks"]
    assert [row[6] for row in scaling.distribution_table().rows] == [
        "one rank",
        "changing ranks",
        "all together",
        "the exchange",
        "one rank",
    ]
    recorded = scaling.recorded_table().rows
    assert [row[5] for row in recorded] == ["none", "every 10", "none"]
    assert [row[6].split(" in")[0] for row in recorded] == ["rank 2", "rank 0", "rank 1"]
    assert len(scaling.counter_table().rows) == 4 and len(scaling.remedies_table().rows) == 4


# ---- the made-up steps


@pytest.mark.parametrize("cause", scaling.CAUSES)
@pytest.mark.parametrize(("share", "ratio"), [(0.5, 2.0), (0.1, 4.0), (0.3, 1.5)])
def test_the_cause_that_went_in_comes_out(cause, share, ratio):
    wanted = {
        scaling.ONE: "one rank",
        scaling.CHANGING: "changing ranks",
        scaling.ALL: "all together",
        scaling.EXCHANGE: "the exchange",
        scaling.PERIODIC: "one rank",
    }
    steps, work = scaling.made_steps(share, ratio, cause)
    found = distribution(steps, work)
    assert found.cause == wanted[cause] and found.bimodal
    assert found.modes[1].seconds / found.modes[0].seconds == approx(ratio, rel=0.03)
    assert (found.period == round(1 / share)) == (cause == scaling.PERIODIC)


def test_no_slow_steps_no_cause():
    for share, ratio in ((0.0, 2.0), (1.0, 2.0), (0.5, 1.0)):
        found = distribution(*scaling.made_steps(share, ratio))
        assert not found.bimodal and found.cause is None


@pytest.mark.parametrize("wrong", [{"share": 2}, {"ratio": 0.5}, {"cause": "fate"}])
def test_refused(wrong):
    with pytest.raises(InputRefused):
        scaling.made_steps(**wrong)


def test_every_case_stops_where_only_its_own_cause_is():
    for name, evidence in scaling.triage_cases().items():
        found = scaling_triage(evidence)
        before = found.steps[:-1] if found.cause else found.steps
        assert all(step.answer in ("clear", "cannot be told") for step in before), name
    assert np.all([len(scaling_triage(e).steps) <= 4 for e in scaling.triage_cases().values()])
