"""Section 6.3's claims on memory, learning rate, sequence, scaling and runs, against sums by hand."""

import pytest
from pytest import approx

from labkit.course import chapter6_practice as tables
from labkit.course import chapter6_sequence as sequence
from labkit.course.claims import all_claims
from labkit.evidence.runs_table import run_rows
from tests.course.claim_values import figures, value

LETTERS = "aciloqghr"
CLAIMS = {id: claim for id, claim in all_claims().items() if claim.section == "6.3"}

# Figures from the guide, from the claim lists, or from sums by hand; never copied from labkit's output.
EXPECTED = {
    "6.3-a": ["(fragmentation)", "with expandable segments all 80 run"],
    "6.3-i": ["fragmentation: ", "leak: ", "long batch: ", "held + 0 B"],
    "6.3-c": ["64 to 512: x 8 linear or x 2.83 square root"],  # 8 and sqrt(8)
    "6.3-l": [
        "2,000 of 100,000 steps become 16,000 of 12,500, 64 x the samples",
        "kept in samples 250",
        "2.4 x fewer at 128",  # (1 + 128/64) / (1 + 128/512)
        "5.67 x fewer at 1,024",  # 17 / 3
    ],
    "6.3-q": [
        "3.57 GB and 57 GB",  # 34 x 512 x 5120 x 40, and 16 times that
        "(71.5 GB)",  # 13e9 x (4 + 12/8)
        "512 5 %, 8,192 44 %, b = 2 61 %, stage 3 69 %",
    ],
    "6.3-g": ["strong, 128 cards: batch 64", "weak, 128 cards: batch 1,024"],
    "6.3-o": ["strong 1.00 / 0.", "2.95 x fewer steps"],  # (1 + 1024/512) / (1 + 1024/65536)
    "6.3-h": ["5 runs", "nearest to tp 4 on 32 cards: run 4"],
    "6.3-r": [
        "关键参数",
        "单步时间",
        "每卡吞吐",
        "通信占比",
        "扩展效率",
        "step_times",
        "predicted",
        "profiled",
    ],
}


@pytest.mark.parametrize("id", EXPECTED)
def test_the_computed_value_has_the_figures_worked_out_apart(id):
    missing = [text for text in EXPECTED[id] if text not in value(id)]
    assert not missing, f"{missing} not in {value(id)!r}"


def test_every_claim_of_this_part_is_looked_at():
    assert set(EXPECTED) == {f"6.3-{letter}" for letter in LETTERS} <= set(CLAIMS)


def test_verdicts_are_those_of_the_claim_lists():
    verdicts = {letter: CLAIMS[f"6.3-{letter}"].verdict for letter in LETTERS}
    assert verdicts["c"] == verdicts["l"] == "corrected"
    assert (
        verdicts["g"] == verdicts["o"] == verdicts["a"] == verdicts["i"] == verdicts["q"] == "approximately"
    )
    assert verdicts["h"] == verdicts["r"] == "holds"


def test_memory_in_pieces():
    varying, padded, pages = figures(
        "6.3-a", r"reserved ([\d.]+) x .*?padded ([\d.]+) x; expandable segments ([\d.]+) x"
    )
    assert varying > 1.3 > 1.15 > padded > pages > 1  # one shape helps, pages help more
    come, fixed, buckets, packed = figures(
        "6.3-i", r"come ([\d.]+) %, padded ([\d.]+) %, buckets ([\d.]+) %, packed ([\d.]+) %"
    )
    assert packed < come < buckets < fixed
    lengths = tables.lengths()
    assert fixed == approx(100 * (1 - lengths.sum() / (160 * 8192)), abs=0.06)


def test_a_restart_cures_all_three_causes():
    for verdict, (history, again) in zip(
        ("fragmentation", "leak", "long batch"), tables.causes().values(), strict=True
    ):
        assert history.failed is not None and again.failed is None and verdict in value("6.3-i")
    assert [row[6] for row in tables.causes_table().rows] == ["fragmentation", "leak", "long batch"]


def test_the_toy_agrees_with_each_rule_in_its_own_case():
    best = figures("6.3-c", r"gradient descent x ([\d.]+), sign descent x ([\d.]+)")
    assert best == approx([8, 8**0.5], rel=0.15)
    gradient, sign = tables.toy_table().rows
    losses = [[float(cell.removeprefix("x ")) for cell in row[1:4]] for row in (gradient, sign)]
    assert losses[0][1] == min(losses[0]) and losses[1][2] == min(losses[1])


def test_chapter_1_is_a_strong_curve():
    strong, weak = tables.story()["strong"], tables.story()["weak"]
    assert strong[1] < 1 < weak[1] and all(weak[1:] > weak[:-1]) and strong[-1] < 1.3
    lost = figures("6.3-g", r"efficiency ([\d.]+) %, lost across nodes ([\d.]+) %")
    assert lost[1] < 100 - lost[0] + 0.1 and len(tables.scaling_table().rows) == 5
    for row in tables.lost_table().rows:
        assert sum(float(cell.split()[0]) for cell in row[1:]) == approx(100, abs=0.1)


def test_warm_up_by_hand():
    assert [row[1:] for row in tables.warm_up_table().rows] == [
        ("16,000", "12,500", "x 64", "128 %"),
        ("2,000", "12,500", "x 8", "16 %"),
        ("250", "12,500", "x 1", "2 %"),
    ]


def test_shares_by_hand():
    assert [row[2:] for row in sequence.share_table().rows][::2] == [
        ("5 %", "9 %", "12 %"),  # 3.57 / 75.07, 7.13 / 78.6, 3.57 / 29.6
        ("44 %", "61 %", "69 %"),
    ]
    stored, fused = (float(sequence.activation_bytes(512, fused=fused)) for fused in (False, True))
    assert stored / fused == approx((34 + 5 * 40 * 512 / 5120) / 34)


def test_the_best_plan_turns_with_the_sequence():
    short, long = (sequence.best_plan(s, True) for s in (512, 32768))
    assert short.tp == 1 and short.zero >= 1 and long.tp > 1 and long.sequence_parallel
    assert sequence.best_plan(32768, False).recompute == "full"


def test_the_table_of_runs():
    rows = run_rows(list(tables.example_runs()))
    assert [row.scaling for row in rows] == ["base", "weak", "weak", "strong", "base"]
    # Invented times: the efficiency is that of the model, times what the base is above it.
    assert rows[1].efficiency == approx(0.994 * 1.08 / 1.07, rel=2e-3)
    assert tables.run_table().rows[3][-1].endswith("of run 1, strong")
    assert tables.new_case().run.number == 4
