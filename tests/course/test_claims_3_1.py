"""Section 3.1's claims against the guide, the claim lists and sums by hand."""

import pytest

from labkit.course.claims import all_claims
from labkit.presets import cluster
from tests.course.claim_values import figures, value

CLAIMS = {id: claim for id, claim in all_claims().items() if claim.section == "3.1"}

# Figures from the guide, from its recomputed claims, or from sums by hand; never copied from labkit's output.
EXPECTED = {
    "3.1-a": ["26 GB + 26 GB + 156 GB = 208 GB of 80 GB"],
    "3.1-b": ["1.969x sent"],  # 2 x 63/64
    "3.1-d": ["2,052,000, 28,852,224, 15,853,824 bytes"],  # pytorch/pytorch issue 48880
    "3.1-f": ["equal to rounding", "2.5 against 3"],
    "3.1-g": ["5.0 B at 16 bytes", "4.4 B at 18", "1 B needs 16 GB"],
    "3.1-h": ["234 GB", "over 8 97.5 GB", "91 GB instead of 45.5 GB"],
    "3.1-i": ["a100 none"],
    "3.1-j": ["93 % at 8, 61 % at 64, 16 % at 512", "18, 144, 1,152 MB"],
    "3.1-k": [
        "1/16 of the bytes",
        "63.2 ms at m = 16",  # 1.8 s x 2 / (3 x 19)
        "34.3 ms at m = 32",  # 1.8 s x 2 / (3 x 35)
        "32.5 ms at 50 GB/s, 65 ms at 25 GB/s",  # 13e9 x 2 B / 16
    ],
    "3.1-l": [
        "参数 bf16 2 26 GB",
        "梯度 bf16 2 26 GB",
        "主参数 fp32 4 52 GB",
        "一阶动量 fp32 4 52 GB",
        "二阶动量 fp32 4 52 GB",
        "合计 16 208 GB",
        "激活值另计",
    ],
}


@pytest.mark.parametrize("id", EXPECTED)
def test_the_computed_value_has_the_figures_worked_out_apart(id):
    missing = [text for text in EXPECTED[id] if text not in value(id)]
    assert not missing, f"{missing} not in {value(id)!r}"


PARAMETERS = 24 * (12 * 2048**2 + 13 * 2048) + (50257 + 2048 + 2) * 2048  # a GPT of 24 layers x 2048


def seconds(name, n, tokens):
    """Compute and flat-ring all_reduce of one step by hand; ``tokens`` are those of one rank."""
    m = cluster(name)
    compute = 6 * PARAMETERS * tokens / (312e12 * m.gpu.reached)
    alpha, rate = m.inter.alpha, m.nics_per_node * m.inter.bandwidth
    return compute, 2 * (n - 1) * (alpha + 2 * PARAMETERS / n / rate)


def test_share_by_batch():
    for sequences in (1, 8):
        compute, reduced = seconds("a100", 64, sequences * 2048)
        (share,) = figures("3.1-b", rf"\b{sequences}: 1.969x sent, ([\d.]+) %")
        assert share == pytest.approx(100 * reduced / (reduced + compute), rel=5e-3)


@pytest.mark.parametrize("name", ["a100", "cloud-25gbe"])
def test_the_knee_is_where_the_two_meet(name):
    (n,) = figures("3.1-c", rf"{name} N = ([\d,]+)")
    compute, reduced = seconds(name, n, 2**19 / n)
    before, less = seconds(name, n - 8, 2**19 / (n - 8))
    assert reduced >= compute
    assert less < before or n == 16  # inside one node, at 8, the fast links carry it


def test_weak_scaling_has_a_knee_only_where_latency_makes_one():
    (n,) = figures("3.1-i", r"cloud-25gbe N = ([\d,]+)")
    compute, reduced = seconds("cloud-25gbe", n, 2**16)
    before, less = seconds("cloud-25gbe", n - 8, 2**16)
    assert less < before and reduced >= compute
    compute, reduced = seconds("a100", 65_536, 2**16)
    assert reduced < compute


def test_both_ends_of_the_bucket_sizes_are_worse():
    small, best, one = figures("3.1-d", r"([\d.]+) ms at 256 KiB, ([\d.]+) ms at .*?, ([\d.]+) ms in one")
    assert small > 1.1 * best and one > 1.1 * best


def test_the_best_bucket_grows_with_the_ranks():
    sizes = figures("3.1-j", r"a100: ([\d.]+) MiB at 8, ([\d.]+) MiB at 64, ([\d.]+) MiB at 512")
    assert sizes == sorted(sizes) and sizes[-1] > 3 * sizes[0]


def test_where_overlap_hides_sixty_to_eighty_percent():
    low, high = figures("3.1-e", r"at ([\d.]+) to ([\d.]+) sequences")
    assert low < high < 2
    at_one, at_two, at_eight = figures("3.1-e", r"([\d.]+) % at 1, ([\d.]+) % at 2, ([\d.]+) % at 8")
    # At one sequence the wire is the longer of the two: the backward pass hides at most its own length.
    compute, reduced = seconds("a100", 64, 2048)
    assert at_one < 100 * (2 / 3) * compute / reduced
    assert at_one < 60 and at_two > 90 and at_eight > 90  # 4.3-b: over 90 %
    whole, tenth, third = figures("3.1-e", r"1 / 1.1 / 1.3: ([\d.]+) % / ([\d.]+) % / ([\d.]+) %")
    assert whole == at_two
    assert whole > tenth > 80 > third > 60
    # Hidden time costs 1 - 1/s of itself.
    assert third == pytest.approx(at_two * (1 / 1.3), abs=1.5)


def test_every_claim_of_the_section_is_looked_at():
    tested = {*EXPECTED, "3.1-c", "3.1-e"}
    assert tested == set(CLAIMS) == {f"3.1-{letter}" for letter in "abcdefghijkl"}
