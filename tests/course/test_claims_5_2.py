"""Section 5.2's claims against the guide, the claim lists and sums by hand."""

from itertools import pairwise

import pytest
from pytest import approx

from labkit.course import chapter5_decision as decision
from labkit.course.claims import all_claims
from labkit.planner.procedure_rows import JUDGEMENTS
from labkit.presets import cluster, model
from labkit.spec.rules import allowed
from tests.course.claim_values import figures, value

CLAIMS = {id: claim for id, claim in all_claims().items() if claim.section == "5.2"}

# Figures from the guide, from the claim lists, or from sums by hand; never copied from labkit's output.
EXPECTED = {
    "5.2-a": [
        "33 pairs",  # 11 models on three clusters
        "all possible and within memory",
        "gpt3-13b DP 64, stage 1",  # 4 + 12/64 bytes a parameter: 54 GB of states fit 80
    ],
    "5.2-b": ["guide-13b on 32 a100, batch 64", "DP 32, stage 1 runs", "each with what to measure"],
    "5.2-c": [
        *(f"({number}) {judgement}: " for number, judgement in enumerate(JUDGEMENTS, 1)),
        *(f"({source})" for source in ("3.1", "4.1", "4.2, 6.3", "3.2, 3.4", "3.3, 3.4", "5.1")),
        "states 2.79 TB",  # 16 B x 174.6e9
        "4 x 8 x 2 = 64 GPUs; tp inside 8",
        "one layer asks for it in 0",
    ],
}


@pytest.mark.parametrize("id", EXPECTED)
def test_the_computed_value_has_the_figures_worked_out_apart(id):
    missing = [text for text in EXPECTED[id] if text not in value(id)]
    assert not missing, f"{missing} not in {value(id)!r}"


def test_every_claim_of_the_section_is_looked_at():
    assert set(EXPECTED) == set(CLAIMS) == {"5.2-a", "5.2-b", "5.2-c"}


def test_rows_follow_the_order_of_the_claim_list():
    """Claim 5.2-c of the list, row by row: the sections that each rests on."""
    assert list(JUDGEMENTS.values()) == [
        "3.1",
        "4.1",
        "4.2, 6.3",
        "3.2, 3.4",
        "3.3, 3.4",
        "3.4",
        "3.4",
        "4.1",
        "3.4",
        "5.1",
    ]


def test_every_plan_of_the_claim_runs():
    plans = decision.everywhere()
    (found, none) = figures("5.2-a", r": (\d+) plans, all possible and within memory, (\d+) times")
    assert found == len(plans) and found + none == decision.asked() == 33
    for machine in decision.MACHINES:
        there = cluster(machine, nodes=decision.NODES)
        for one in plans:
            if f"x {there.gpu.name}," in one.title:
                id = one.title.split()[0]
                assert allowed(model(id), there, one.plan) and one.memory.total <= there.gpu.usable


def test_no_step_makes_it_slower_and_gains_are_shares_of_the_step_before():
    steps = decision.tuned("guide-13b", nodes=4, batch=64)
    assert len(steps) == 6 and all(step.measure and step.source for step in steps)
    for before, after in pairwise(steps):
        assert after.before == before.after and after.after <= after.before
    first, last = steps[0].before, steps[-1].after
    product = 1.0
    for step in steps:
        product *= 1 - step.gain
    assert product == approx(last / first)


def test_tables():
    rows = decision.rows_table().rows
    assert [row[0] for row in rows] == [str(number) for number in range(1, 11)]
    assert decision.plans_table().rows[-1][3].startswith("llama3.1-405b does not fit 64 cards")
    counts = {row[0]: int(row[1]) for row in decision.needs_table().rows}
    assert counts["one layer, alone"] == 0 and sum(counts.values()) == sum(decision.what_asks().values()) > 5
    assert len(decision.tuning_table("guide-13b", nodes=4, batch=64).rows) == 7
    assert [row[0] for row in decision.examples_table(ids=("llama2-7b",)).rows] == ["llama2-7b"]
