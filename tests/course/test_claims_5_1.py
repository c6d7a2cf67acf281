"""Section 5.1's claims against the guide, the claim lists, published sweeps and sums by hand."""

import pytest
from pytest import approx

from labkit.course import chapter5_baseline as baseline
from labkit.course import chapter5_mapping as mapping
from labkit.course.claims import all_claims
from labkit.planner.step import step_time
from labkit.presets import cluster, model
from labkit.spec import Plan
from tests.course.claim_values import figures, value

CLAIMS = {id: claim for id, claim in all_claims().items() if claim.section == "5.1"}

# Figures from the guide, from the claim lists, from published sweeps, or from sums by hand.
EXPECTED = {
    "5.1-b": [
        "groups across hosts tp 2 of 2 (0 in order), dp 0 of 8 (8 in order)",
        "times as long as in block order",
    ],
    "5.1-c": [
        "inside 480 GB/s",  # the last rows of the published H100 sweeps
        "across 468 GB/s",
        "N = 16, tree, ",
        "the small AllReduce took 29.4 µs",
        "2(N-1) = 30 steps of a ring 981 ns",  # 29.44 / 30
        "2 log2 N = 8 of a tree 3.68 µs",
    ],
    "5.1-d": [
        "αB = 250 kB: knee 2 MB at N = 8, 16 MB at N = 64, 128 MB at N = 512",
        "between 16 MiB and 32 MiB",  # within the 8 to 32 MiB of the claim list
        "misses, by the guide's places: latency, knee",
    ],
    "5.1-e": [
        "43.8 µs at 32 KiB, 46.8 µs at 64 KiB, 80.4 µs at 512 KiB",
        "64 x 64 KiB merged save 63 latencies",
        "3 ms become 102 µs",  # 64 x 46.80 us; 101.5 us at 4 MiB
    ],
    "5.1-f": [
        "from 9 x N αB",
        "a100-8gpu-nvswitch (ring) 78.2 %: healthy",
        "in-switch reduction off (ring) 81.",  # the list's 82 %: 368 of 450
        "h100-8gpu-nvswitch (in switch) 107 %: healthy",
        "at 1 GiB alone (ring) 76.3 %: healthy",
        "at 4 MiB alone (ring) 24.1 %: too small",
        "gh200-2x4-sockets (ring) 5.43 %: slow",
        "h100-2x8-infiniband (ring) 117 %: impossible",
    ],
}


@pytest.mark.parametrize("id", EXPECTED)
def test_the_computed_value_has_the_figures_worked_out_apart(id):
    missing = [text for text in EXPECTED[id] if text not in value(id)]
    assert not missing, f"{missing} not in {value(id)!r}"


def test_every_claim_of_the_section_is_looked_at():
    """5.1-a stands in chapter 2 and is tested with it."""
    assert {*EXPECTED, "5.1-a"} == set(CLAIMS) == {f"5.1-{letter}" for letter in "abcdef"}


VERDICTS = {"a": "corrected", "b": "approximately", "c": "approximately", "d": "corrected"}
VERDICTS |= {"e": "approximately", "f": "approximately"}


def test_verdicts_are_those_of_the_list():
    assert {id[-1]: claim.verdict for id, claim in CLAIMS.items()} == VERDICTS


# ---- what a wrong order costs


def ring(n, size, alpha, rate):
    return 2 * (n - 1) * (alpha + size / n / rate)


@pytest.mark.parametrize("name", ["a100", "h100", "b200"])
def test_a_wrong_order_by_hand(name):
    """guide-13b, 32 layers x 4 AllReduces x 16 micro-batches of 2 x 2048 x 5120 bf16; 4 + 4 ranks a group."""
    machine, found = cluster(name, nodes=2), mapping.wrong_order(name)
    size, layers = 2 * 2 * 2048 * 5120, 32 * 4 * 16
    ends = 2 * 16  # embedding forward, head backward
    count = layers + ends
    near = count * ring(8, size, machine.intra.alpha, machine.intra.bandwidth)
    # A group of four in each node has half of its ports, each of which carries one of as many rings.
    far = count * ring(8, size, machine.inter.alpha, machine.node_bandwidth / 2)
    assert found.tensor_in_order == approx(near, rel=0.02)  # and the small ones of the loss
    assert found.tensor_mapped == approx(far, rel=0.05)
    assert found.in_order == step_time(model("guide-13b"), machine, mapping.PLAN).total
    assert found.mapped - found.in_order == approx(found.tensor_mapped - found.tensor_in_order)


def test_half_is_what_few_ports_or_a_fast_gpu_make_of_it():
    slower = {name: mapping.wrong_order(name).slower for name in mapping.CLUSTERS}
    assert 1.2 < slower["a100"] < slower["a100-40"] < 2.5  # 8 and 4 ports
    assert slower["h100"] < slower["b200"] < 2.5 and slower["cloud-25gbe"] > 5
    shown = figures("5.1-b", r"a100 ([\d.]+)x, a100-40 ([\d.]+)x, b200 ([\d.]+)x")
    assert shown == approx([slower["a100"], slower["a100-40"], slower["b200"]], abs=0.005)


def test_an_order_without_tensor_parallel_costs_little():
    found = mapping.wrong_order("a100", Plan(tp=1, dp=16, global_batch=64))
    assert found.slower == 1.0


# ---- the tables say the same


@pytest.mark.parametrize("n", [2, 8, 64, 512])
def test_at_the_knee_half_of_the_time_is_latency_and_half_of_the_bandwidth_reached(n):
    alpha, rate = 5e-6, 50e9
    size = baseline.half_power(n)
    assert size == approx(n * 250e3)
    time = ring(n, size, alpha, rate)
    assert 2 * (n - 1) * alpha == approx(time / 2)
    assert 2 * (n - 1) / n * size / time == approx(rate / 2)


def test_tables():
    rows = baseline.knee_table().rows
    assert [row[2] for row in rows] == ["500 kB", "2 MB", "16 MB", "128 MB"]
    assert {row[1] for row in rows} == {"250 kB"} and {row[3] for row in rows} == {"50 %"}
    assert rows[1][4] == "18 MB"  # 9 x 2 MB
    published = {row[0]: row for row in baseline.published_knee_table().rows}
    assert published["a100-8gpu-nvswitch"][4] == "16 MiB to 32 MiB"
    flat = baseline.flat_table().rows
    assert [row[1] for row in flat][:2] == ["43.8 µs", "46.8 µs"] and flat[3][1] == "80.4 µs"
    assert float(flat[1][2][:-1]) < 1.1 and float(flat[1][4][:-1]) > 1.8
    verdicts = {row[0]: row[3:] for row in baseline.verdict_table().rows}
    assert verdicts["a100-8gpu-nvswitch"][0] == "a problem" and verdicts["a100-8gpu-nvswitch"][2] == "healthy"
    crossing = {row[0]: row[1:] for row in mapping.crossing_table().rows}
    assert crossing == {"tp": ("2", "2", "0"), "dp": ("8", "0", "8")}
    assert len(mapping.order_table().rows) == len(mapping.CLUSTERS)
    assert baseline.latency_table().rows[1][1] == "2(N-1) = 30"


@pytest.mark.parametrize("k", [2, 8, 64])
def test_merging_saves_all_latencies_but_one(k):
    apart, one = baseline.merged(k)
    assert apart - one == approx((k - 1) * 14 * 5e-6)
    rows = {row[0].split(" x ")[0]: row for row in baseline.merge_table().rows}
    assert rows[str(k)][3] == str(k - 1)


def test_what_a_sweep_from_1_mb_shows():
    assert baseline.guides_own_regions() == ["latency", "knee"]
    assert baseline.unseen(1e6, 1e9, 8) == ["latency"]
    assert baseline.unseen(1e3, 1e9, 8) == []
    assert baseline.unseen(1e6, 1e9, 1024) == ["plateau"]  # 80 % of B from 1.02 GB only
