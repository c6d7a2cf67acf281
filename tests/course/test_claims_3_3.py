"""Section 3.3's claims against figures from the guide, the claim lists, or sums by hand."""

import re

import pytest

from labkit.course.claims import all_claims

CLAIMS = {id: claim for id, claim in all_claims().items() if claim.section == "3.3"}

# Figures from the guide, from its recomputed claims, or from sums by hand; never copied from labkit's output.
EXPECTED = {
    "3.3-a": ["p 4, m 4: 42.9 %, off the formula by 0", "p 4, m 32: 8.57 %, off the formula by 0"],
    "3.3-b": ["p 2 11.1 %", "p 4 15.8 %", "always under 20 %"],  # 1/9, 3/19
    "3.3-c": ["m 8: GPipe 8, 1F1B 4, 3, 2, 1", "m 64: GPipe 64, 1F1B 4, 3, 2, 1"],
    "3.3-d": [
        "v 2: simulated 8.57 %, formula 8.57 %",  # 3/35
        "v 4: simulated 4.48 %, formula 4.48 %",  # 3/67
    ],
    "3.3-e": ["8, 8, 8, 10.1", "instead of 15.8 %"],
    "3.3-f": ["224", "256", "drop or pad"],  # whole multiples of 32 beside 250
    "3.3-g": ["2 x 83.9 MB", "4.7 GB in 32 all_reduces: 28x"],
    "3.3-h": [
        "head 0.52 layers, 8/8/8/8 wastes 4.58 %, one layer off the last 9.66 % (worse)",  # 4.6 and 9.7
        "head 2.09 layers, 8/8/8/8 wastes 15.5 %, one layer off the last 6.22 % (better)",
    ],
    "3.3-i": ["7 at v 2 (2.33x)", "15 at v 4 (5x)", "1.375x"],
    "3.3-j": ["3/7, 3/19, 3/27, 3/35, 7/39", "15.8 % of the step, 18.75 % over the ideal"],
    "3.3-l": [
        "stopped by the watchdog",
        "rank 0 waits for the gradient of micro-batch 4 from rank 1",
        "exchanged first: finished",
    ],
    "3.3-m": ["p 4, DP 2: at least 32", "p 16, DP 2: at least 128"],
}


@pytest.mark.parametrize("id", EXPECTED)
def test_the_computed_value_has_the_figures_worked_out_apart(id):
    value = CLAIMS[id].row()["labkit_value"]
    missing = [text for text in EXPECTED[id] if text not in value]
    assert not missing, f"{missing} not in {value!r}"


def test_gpipe_memory_is_states_and_what_is_kept():
    """By hand: 8 layers of 12 h^2 + 13 h, embedding and positions, 16 bytes each; 34 s b h kept per layer."""
    value = CLAIMS["3.3-k"].row()["labkit_value"]
    s, b, h = 2048, 2, 5120
    states = 16 * (8 * (12 * h**2 + 13 * h) + (50257 + 2048) * h)
    micro_batch, boundary = 8 * 34 * s * b * h, 2 * s * b * h
    plain, again = (
        float(re.search(rf"([\d.]+) GB {word}", value)[1]) for word in ("without", "with recompute")
    )
    assert plain == pytest.approx((states + 64 * micro_batch) / 1e9, rel=5e-3)
    assert again == pytest.approx((states + micro_batch + 64 * boundary) / 1e9, rel=5e-3)
    most = re.search(r"full at m = (\d+) and (\d+)", value)
    assert int(most[1]) == (80e9 - states) // micro_batch
    assert int(most[2]) == (80e9 - states - micro_batch) // boundary


def test_every_row_of_the_section_is_there():
    assert set(CLAIMS) == {f"3.3-{letter}" for letter in "abcdefghijklm"}
    assert set(EXPECTED) | {"3.3-k"} == set(CLAIMS)
