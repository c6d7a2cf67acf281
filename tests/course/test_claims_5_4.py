"""Section 5.4's claims against the guide, the claim lists and sums by hand."""

import pytest
from pytest import approx

from labkit.course.chapter5_health import (
    base_table,
    blame_table,
    conflict_table,
    efficiency_table,
    hidden_table,
    limits_table,
    mfu_table,
    pairs_table,
    rules_table,
    waiting_table,
)
from labkit.course.chapter5_jobs import CASES, made_job, pair_hunt, rank_seconds, repeated
from labkit.course.claims import all_claims
from labkit.evidence.health import health
from tests.course.claim_values import figures, value

CLAIMS = {id: claim for id, claim in all_claims().items() if claim.section == "5.4"}

# Figures from the guide, from the claim lists, or from sums by hand; never copied from labkit's output.
EXPECTED = {
    "5.4-a": [
        "scaling efficiency 53.1 % (at least 60 %) unhealthy",  # 16/19 x 0.7 x 0.9
        "(at most 10 %)",
        "(at most 30 %)",
        "mfu 29.2 % (at least 40 %)",  # 0.55 x 0.5305
        "(at most 5 %)",
        "at 8 cards 0.85",
    ],
    "5.4-b": [
        "40 % of a step, 100 % hidden: exposed 0 %, healthy",
        "look at the late ranks, not the network",
    ],
    "5.4-c": [
        "208 GB of states",
        "8 -> 16 cards 33.3 %",  # 10/30
        "8 -> 24 cards 16.7 %",  # 5/30
        "4 -> 8 cards 13.2 %",  # 10/38/2
        "m = 4: 67.9 %",  # (4/7) / (16/19)
    ],
    "5.4-d": ["4 processes, one with 2x the work", "cannot be told"],
    "5.4-e": [
        "bubble of 4 stages, m = 16, MFU 36 %: the pipeline bubble",
        "not measured, MFU 36 %: measure the pipeline bubble and waiting for other ranks first",
        "full recompute, MFU 33 %: recompute",
        "MFU 35 %: waiting for other ranks",
        "waits for its input, MFU 32 %: data loading",
        "none of these, MFU 32 %: the kernels",
    ],
    "5.4-f": [
        "0.6 x 55 % = MFU 33 %, under 40 %, which takes 0.727",
        "0.842 x 0.7 x 0.9 = 0.53 < 0.6",
        "as shares of one step 0.44",  # 1 - 0.158 - 0.3 - 0.1
    ],
    "5.4-g": [
        "in full: MFU 51.4 %",  # the paper prints 51.4 % for this run
        "43.5 % on 8,192 cards",  # 430 / 989; the paper prints 43, 41 and 38 %
        "40.4 % on 16,384 cards",
        "38.4 % on 16,384 cards, sequences of 131,072",
        "sparse peak 25.7 %",
    ],
    "5.4-h": [
        "how the cut lies on the topology",
        "what is not hidden",
        "data loading or kernels",
        "how the layers are divided",
        "the samples",
        "the experts",
    ],
}


@pytest.mark.parametrize("id", EXPECTED)
def test_the_computed_value_has_the_figures_worked_out_apart(id):
    missing = [text for text in EXPECTED[id] if text not in value(id)]
    assert not missing, f"{missing} not in {value(id)!r}"


def test_every_claim_of_the_section_is_looked_at():
    assert set(EXPECTED) == set(CLAIMS) == {f"5.4-{letter}" for letter in "abcdefgh"}


def test_verdicts_are_those_of_the_claim_lists():
    corrected, defined = "bcdef", "g"
    assert all(CLAIMS[f"5.4-{letter}"].verdict == "corrected" for letter in corrected)
    assert all(CLAIMS[f"5.4-{letter}"].verdict == "approximately" for letter in defined)
    assert CLAIMS["5.4-a"].verdict == CLAIMS["5.4-h"].verdict == "holds"


def test_recorded_steps_are_equal_and_work_is_doubled():
    low, high, apart, least, most, unequal, times = figures(
        "5.4-d",
        r"steps ([\d.]+) ms to ([\d.]+) ms \(([\d.]+) % apart.*?own work ([\d.]+) ms to ([\d.]+) ms "
        r"\(([\d.]+) % apart, ([\d.]+)x\)",
    )
    assert high - low < 0.01 * high and apart < 1
    assert most < low and unequal == approx(100 * (1 - least / most), abs=0.5)
    assert times == approx(2, rel=0.1)


def test_ways_to_count_one_step_by_hand():
    """6 P x 64 x 2048 tokens in 13.75 s on 64 A100, and attention's 12 l h s in full, half of it causal."""
    plain, causal, full, again = figures(
        "5.4-g", r"token ([\d.]+) %.*?causal ([\d.]+) %.*?MFU ([\d.]+) %.*?HFU ([\d.]+) %"
    )
    layers, hidden, sequence, vocabulary = 96, 12288, 2048, 51200
    tokens, done = 64 * sequence, 13.75 * 64 * 312e12
    parameters = layers * (12 * hidden**2 + 13 * hidden) + (vocabulary + sequence) * hidden + 2 * hidden
    assert plain == approx(100 * 6 * parameters * tokens / done, rel=2e-3)
    attention = 100 * 12 * layers * hidden * sequence * tokens / done
    matrices = 100 * (72 * layers * hidden**2 + 6 * hidden * vocabulary) * tokens / done
    assert full == approx(matrices + attention, abs=0.06)
    assert causal == approx(matrices + attention / 2, abs=0.06)
    assert again == approx(matrices + attention * 4 / 3, abs=0.06)  # its forward once more


# ---- the tables say the same


def test_tables():
    assert len(limits_table().rows) == 5 and "at least 85 % at 8 cards, 60 % at 64" in limits_table().rows[0]
    assert [row[2] for row in hidden_table().rows] == ["unhealthy", "unhealthy", "unhealthy", "healthy"]
    assert [row[4] for row in hidden_table().rows] == ["healthy", "unhealthy", "healthy", "healthy"]
    assert [row[3] for row in efficiency_table().rows] == ["33.3 %", "16.7 %", "13.2 %"]
    assert all(row[5].startswith("the network, before anything else") for row in efficiency_table().rows)
    assert [row[3] for row in base_table().rows] == ["m = 16: 100 %", "m = 8: 86.4 %", "m = 4: 67.9 %"]
    assert [row[1] for row in waiting_table().rows] == ["1x", "1x", "1x", "2x"]
    assert [row[1] for row in conflict_table().rows] == [
        "MFU 46.8 %",  # 0.85 x 0.55
        "MFU 33 %",
        "efficiency 53.1 %",
        "efficiency 44.2 %",
    ]
    assert len(mfu_table().rows) == 8 and len(rules_table().rows) == 7 and len(blame_table().rows) == 6


def test_pairs_convict_the_slow_node():
    rounds = pair_hunt(("n5",))
    assert rounds[-1][1].slow_nodes == ("n5",) and not rounds[-1][1].next_pairs
    assert pairs_table().rows[-1][-1] == "n5"
    assert pairs_table().rows[0][-1] == "nobody yet"


# ---- the made-up job


def test_its_causes_are_what_the_scorecard_finds():
    """One card, no cause: efficiency 1 and its own MFU; every cause is one factor."""
    alone = health(made_job(1, 1, 1, 0.0, 0.0))
    assert alone.of("scaling_efficiency").value == approx(1) and alone.of("mfu").value == approx(0.55)
    full = made_job(64, 8, 8, 0.25, 0.2, 0.5, "full", 0.5, 0.1)
    left = 1 / (1 + repeated("full")) / 1.1 * 0.75 * (8 / 15) * 0.9
    assert health(full).of("scaling_efficiency").value == approx(left)
    assert health(full).of("mfu").value == approx(0.5 * left)
    assert full.step.coverage == approx(0.1 / (0.1 + 0.1 + full.step.tp / full.step.total))
    assert full.step.hfu == approx(full.step.mfu * (1 + repeated("full")))


@pytest.mark.parametrize("case", CASES)
def test_ranks_end_together_in_every_case(case):
    step = sum(rank_seconds(case))
    assert step == approx(step.mean() * (1 + 0 * step), rel=0.01)
