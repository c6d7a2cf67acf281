"""Section 5.5's claims against the guide, the claim lists and sums by hand; and claim 6.3-f, computed here.

What the step model says is held by what must be true of it; its figures move with its constants.
"""

import pytest
from pytest import approx

from labkit.course import chapter5_checks as checks
from labkit.course import chapter5_gain as gain
from labkit.course import chapter5_rounds as rounds
from labkit.course import chapter5_sensitivity as sensitivity
from labkit.course.claims import all_claims
from labkit.errors import InputRefused
from labkit.planner.memory import memory
from labkit.presets import model
from labkit.spec import Plan, problems
from labkit.spec.rule import IMPOSSIBLE
from labkit.spec.rules import allowed
from labkit.spec.step_time import TERMS
from tests.course.claim_values import figures, value

CLAIMS = {id: claim for id, claim in all_claims().items() if claim.section == "5.5"}

# Figures from the guide, from the claim lists, or from sums by hand; never copied from labkit's output.
EXPECTED = {
    # 3/19; 13e9/32; 12 h^2 + 13 h; 32 x 0.3146 + 52,305 x 5120; 40 of them as the list has it
    "5.5-a": [
        "bubble 15.8 %, micro-batch 2",
        "= 0.41 B",
        "5120 0.31 B",
        "32 layers 10.3 B",
        "40 layers 12.9 B",
    ],
    "5.5-b": ["bubble 8.57 %, micro-batch 1", "micro-batch 1.33", "48 and 96", "11.1 %"],  # 3/35, 64/48, 3/27
    "5.5-c": ["4 x 24 x 2 = a global batch of 192", "x 3 if", "x 1.73 with"],
    "5.5-d": ["33.3 % less time, 50 % more throughput", "batch 64, 64 and 192"],
    "5.5-f": ["2 x 16 x 2 = 64: accumulation 16"],
    "5.5-g": [
        "batch 192, bubble 11.1 %",
        "batch 96, bubble 20 %",
        "batch 64, bubble 27.3 %",
        "batch 64: 16, 32",
    ],
    "5.5-h": ["removed: 1.52 s", "compute 800 ms", "39.8 % of it"],  # 1.8 x 16/19; 1.2/(4/3 x 27/24)
    "5.5-i": [
        "1.8 s, batch 64: 177 TFLOP/s, 57 % of 312, 18 % of 989",
        "1.2 s, batch 64: 266 TFLOP/s, 85 % of 312, 27 % of 989",
        "1.2 s, batch 192: 799 TFLOP/s, 256 % of 312, 81 % of 989",
        "at most 1.375x, 1.31 s",
    ],
    "5.5-j": [
        "states 13 GB",
        "10.7 (24.2) GB",
        "21.5 (48.3) GB",
        "at most 61 of 80 GB",
        "at a time, recompute full -> none",
    ],
    "5.5-k": [
        "1.625 GB a card: 65 buckets become 51, which saves 0.28 ms",
        "take 32.5 ms, 1.81 %",
        "the pair is inside a node, with pipeline before data across nodes",
        "save 17.6 ms",  # 14 x 126 x 10 us
    ],
    "5.5-l": ["172 to 688 µs", "54 to 217 µs", "84 / 42 / 21 MB"],
    "5.5-m": ["bubble 8.57 %, batch 64, micro-batch 2", "2.33x transfers, 1.375x in flight"],
    "5.5-o": ["x 3 (linear) or x 1.73 (square root)"],
    "5.5-p": ["812 MB of weights, 6.5 GB of states", "629 MB, 5.03 GB"],  # 16 x 314.6e6
    "5.5-q": [
        "stage 0 74.82 / 40.76 / 23.74 GB",  # the list prints 74.8, 40.8, 23.7
        "scores stored 128.5 / 67.61 / 37.16 GB",
        "alone 52 / 26 / 13 GB",
    ],
}


@pytest.mark.parametrize("id", EXPECTED)
def test_the_computed_value_has_the_figures_worked_out_apart(id):
    missing = [text for text in EXPECTED[id] if text not in value(id)]
    assert not missing, f"{missing} not in {value(id)!r}"


def test_every_claim_of_the_section_is_looked_at():
    assert {*EXPECTED, "5.5-e", "5.5-n"} == set(CLAIMS) == {f"5.5-{letter}" for letter in "abcdefghijklmnopq"}


def test_the_best_plan_is_possible_fits_and_beats_the_rounds():
    (plans, more, over) = figures(
        "5.5-e", r"of ([\d,]+) plans .*?([\d.]+) % more than round 1; .*?([\d.]+) % more"
    )
    assert plans > 10_000 and more > 0 and over > 0
    for batch in (64, 192):
        plan = gain.best(batch)
        assert plan.ranks == 32 and plan.global_batch == batch
        assert allowed(model("guide-13b"), rounds.cards(), plan)
        assert memory(model("guide-13b"), rounds.cards(), plan).fits


def test_what_the_words_say_of_the_best_plan_is_so():
    """The claims and the notebook speak of a plan without stages and without tensor parallel, but sharded."""
    for batch in (64, 192):
        plan = gain.best(batch)
        assert (plan.tp, plan.pp) == (1, 1) and plan.zero >= 1


def test_the_parts_of_the_gain_add_up_to_it():
    found = figures(
        "5.5-n",
        r"^([\d.]+) ms saved .*?any 1F1B ([\d.]+) %; .*?any schedule ([\d.]+) %; .*?any setting ([\d.]+) %; "
        r"any cut ([\d.]+) %; overlap of the gradients ([\d.]+) ms",
    )
    saved, *parts, overlap = found
    assert sum(parts) == approx(100, abs=0.2)
    first, best = (one.step(rounds.cards()).total for one in (rounds.FIRST, rounds.Round("", gain.best())))
    assert saved == approx(1e3 * (first - best), rel=5e-3)
    # As the reason says: the schedule is worth much, so is another cut, and overlap next to nothing.
    assert parts[0] + parts[1] > 25 and parts[3] > 25
    assert 0 < overlap < 0.02 * 1e3 * first


def test_more_freedom_is_never_slower():
    seconds = [rounds.Round("", plan).step(rounds.cards()).total for plan in gain.steps_up().values()]
    assert seconds == sorted(seconds, reverse=True)


def test_a_difference_adds_up_by_term_and_by_setting():
    found = gain.gain_over_round_1()
    assert sum(found.by_term.values()) == approx(found.total, abs=1e-9)
    assert sum(found.by_setting.values()) == approx(found.total, abs=1e-9)


def test_recompute_is_slower_and_holds_less():
    without, full, slower = figures(
        "5.5-j", r"holds ([\d.]+) GB without, ([\d.]+) GB with recompute, and is ([\d.]+) % slower"
    )
    assert full < without < 80
    assert 20 < slower < 40  # a third of the compute, and what goes with it


def test_a_larger_batch_takes_longer_and_does_more():
    """Round 3 without recompute: by step time one reading is best, by tokens another."""
    assert "least time: the batch stays 64, most tokens: m stays 24" in value("5.5-o")


def test_launches_double_with_twice_the_micro_batches():
    large, middle, small = figures("5.5-l", r"launches ([\d.]+) ms / ([\d.]+) ms / ([\d.]+) ms")
    assert (middle, small) == approx((2 * large, 2 * middle), rel=0.05)


# ---- the rounds


def test_rounds_are_possible_and_have_32_cards():
    every = [rounds.FIRST, rounds.SECOND, rounds.third(), rounds.interleaved()]
    every += [*rounds.compromise().values(), *rounds.readings().values()]
    for one in every:
        assert one.plan.ranks == 32
        assert not [
            p for p in problems(model("guide-13b"), rounds.cards(), one.plan) if p.severity == IMPOSSIBLE
        ]
    assert [one.plan.accumulation for one in every[:3]] == [16, 32, 24]
    assert [one.plan.global_batch for one in rounds.compromise().values()] == [48, 96]


def test_a_plan_that_works_stays_and_one_that_cannot_becomes_one_that_can():
    works, none = rounds.first_that_works(rounds.cards(), rounds.FIRST.plan)
    assert works is rounds.FIRST.plan and none is None
    plan, broken = rounds.first_that_works(rounds.cards(), Plan(tp=8, pp=16, micro_batch=1, accumulation=16))
    assert plan.ranks == 32 and broken.rule == "ranks"
    with pytest.raises(InputRefused, match="Impossible"):
        rounds.first_that_works(rounds.cards(), Plan(tp=3, pp=7, dp=1, global_batch=5, accumulation=2))


def test_savings_add_up_to_the_difference_for_the_same_sequences():
    steps = rounds.timed()
    saved = rounds.saved(steps["1"], steps["3"])
    assert set(saved) == set(TERMS)
    assert sum(saved.values()) == approx(steps["1"].total - steps["3"].total / 3, rel=1e-12)


def test_by_hand():
    assert checks.reached(1.8) == approx(6 * 13e9 * 64 * 2048 / 32 / 1.8)
    assert checks.held(2, fused=False)[1] == approx(4 * 8 * 2 * 2048 * 5120 * (10 + 24 / 2 + 80 / 2))
    assert checks.message(4) == 4 * 2048 * 5120 * 2
    assert checks.bucket_gain(8) == approx(14 * 14 * 10e-6)


# ---- the tables


def column(table, head):
    return [row[table.heads.index(head)] for row in table.rows]


def test_run_tables():
    table = rounds.run_table()
    assert column(table, "batch") == ["64", "64", "48", "96", "192", "96", "64"]
    assert column(table, "m x micro-batch") == [
        "16 x 2",
        "32 x 1",
        "24 x 1",
        "24 x 2",
        "24 x 4",
        "12 x 4",
        "8 x 4",
    ]
    bubbles = [float(text.split()[0]) for text in column(table, "bubble")]
    # Of the step, which has communication and an update as well: less than of a bare pipeline.
    closed = [100 * 3 / (m + 3) for m in (16, 32, 24, 24, 24, 12, 8)]
    assert all(0.8 * whole < found < whole for found, whole in zip(bubbles, closed, strict=True))
    speeds = [float(text.replace(",", "")) for text in column(rounds.needless_table(), "tokens/s a card")]
    first, recomputed, kept, interleaved = speeds
    assert recomputed < first < kept and interleaved > first


def test_readings_and_attribution():
    table = rounds.readings_table()
    assert column(table, "bubble") == ["11.1 %", "20 %", "27.3 %"]
    assert column(table, "learning rate, linear") == ["x 3", "x 1.5", "x 1"]
    shares = [[float(text) for text in row[1:]] for row in rounds.attribution_table().rows]
    *terms, whole = shares
    assert [sum(one) for one in zip(*terms, strict=True)] == approx(whole, abs=0.5)
    assert whole[0] + whole[1] == approx(whole[2], abs=0.15)


def test_check_tables():
    assert column(checks.fits_table(), "+ activations") == ["74.8 GB", "40.8 GB", "23.7 GB", "34.5 GB"]
    assert column(checks.fits_table(), "states of 13e9") == ["52 GB", "26 GB", "13 GB", "13 GB"]
    assert [row[3] for row in checks.layer_table().rows[:2]] == ["6.5 GB", "5.03 GB"]
    assert column(checks.bucket_table(), "32 MB saves against 25 MB")[0] == "280 µs"
    assert [row[0] for row in checks.grain_table().rows] == ["4, m = 8", "2, m = 16", "1, m = 32"]


def test_gain_tables():
    ladder = gain.ladder_table()
    speeds = [float(text.replace(",", "")) for text in column(ladder, "tokens/s a card")]
    assert speeds[:5] == sorted(speeds[:5]) and speeds[6] > speeds[5]
    assert len(gain.sources_table().rows) == 6
    counts = [int(text.replace(",", "")) for text in column(sensitivity.near_table(), "plans")]
    assert counts == sorted(counts) and counts[0] >= 1
    ahead, plans = gain.place_of(rounds.FIRST)
    assert 0 < ahead < plans


def test_a_faster_network_is_never_slower():
    speeds = [float(text.replace(",", "")) for text in column(sensitivity.network_table(), "best of all")]
    assert speeds == sorted(speeds)


def test_the_choice_is_never_better_than_the_best_where_the_model_is_wrong():
    table = sensitivity.error_table()
    assert table.rows[0][3] == "0 %"
    assert all(float(text.split()[0]) >= 0 for text in column(table, "the first choice is slower by"))


# ---- 6.3-f


def test_longer_sequences_want_recompute_and_sequence_parallel_where_scores_are_stored():
    short = sensitivity.best_by_sequence(512, fused=False, context=False)
    assert short.recompute == "none" and short.tp == 1 and short.zero >= 1
    long = sensitivity.best_by_sequence(8192, fused=False, context=False)
    assert long.recompute != "none" and long.sequence_parallel and long.tp > 1
    fused = sensitivity.best_by_sequence(8192, context=False)
    assert fused.recompute == "none" and fused.sequence_parallel
    assert sensitivity.best_by_sequence(32768).cp > 1
    assert "scores stored" in value("6.3-f")
    assert len(sensitivity.sequence_table().rows) == 4
