"""Section 4.1's claims against the guide, the claim lists and sums by hand."""

import pytest
from pytest import approx

from labkit.course.chapter4_prefetch import depth_table, enough_table, idle_table, peak_table, savings_table
from labkit.course.chapter4_sharding import (
    conventions_table,
    half_table,
    moved_table,
    one_rank_table,
    stage_table,
    traffic_table,
)
from labkit.course.claims import all_claims
from labkit.presets import cluster
from tests.course.claim_values import figures, value

CLAIMS = {id: claim for id, claim in all_claims().items() if claim.section == "4.1"}

# Figures from the guide, from the claim lists, or from sums by hand; never copied from labkit's output.
EXPECTED = {
    "4.1-a": [
        "208 / 71.5 / 48.75 / 26 GB at N = 8",
        "208 / 54.44 / 28.84 / 3.25 GB at N = 64",  # the list prints 54.4 and 28.8
        "16, 4 + 12/N, 2 + 14/N, 16/N",
    ],
    "4.1-b": ["2 / 2 / 2 / 3", "1x, 1x, 1.5x of plain"],
    "4.1-d": ["2 / 2 / 17 / 48 (33", "8.5x and 24x", "m = 4: 2 / 2 / 5 / 12"],
    "4.1-e": ["gradients 1, new parameters 1", "by 0 with it"],
    "4.1-f": ["3.25 GB + 2 x 0.63 GB", "3.25 GB + 1.9 GB", "2.52 GB at d = 1"],  # 4 x 0.6293
    "4.1-g": ["forward 33 ms, gather 12.4 ms", "the network idles 62.5 % of it"],
    "4.1-h": [
        "1,920 collectives of 1,023 steps",  # 3 x 40 x 16
        "it passes at N = 648",  # 629.3 MB / (5.06 us x 192 GB/s)
        "50 GB/s: 2,517",  # 629.3 MB / 250 KB
    ],
    "4.1-j": [
        "不切 nothing 16 208 GB",
        "第一档 optimizer states 4 + 12/N 71.5 GB",
        "第二档 + gradients 2 + 14/N 48.75 GB",
        "第三档 + parameters 16/N 26 GB",
        "1x 8.5x",
        "1.5x 24x",
    ],
}


@pytest.mark.parametrize("id", EXPECTED)
def test_the_computed_value_has_the_figures_worked_out_apart(id):
    missing = [text for text in EXPECTED[id] if text not in value(id)]
    assert not missing, f"{missing} not in {value(id)!r}"


LAYER = 2 * (12 * 5120**2 + 13 * 5120)  # bytes of its weights
SECONDS = 2048 * (24 * 5120**2 + 4 * 2048 * 5120) / (312e12 * cluster("a100").gpu.reached)


def ring(name, n=64):
    """One gather by hand: n - 1 steps through as many ports as a host has."""
    m = cluster(name)
    return (n - 1) * (m.inter.alpha + LAYER / n / (m.nics_per_node * m.inter.bandwidth))


def test_what_prefetch_hides():
    without, shown, ahead, left, share, has, needs = figures(
        "4.1-c",
        r"a100 ([\d.]+) % \(([\d.]+) ms, [\d.]+ %\) without, ([\d.]+) % \(([\d.]+) ms, ([\d.]+) %\) "
        r"one layer ahead, (\d+) GB/s where (\d+) GB/s",
    )
    # Without, all but one of 40 scatters hide, and no gather; one ahead, all but 2 of 120.
    assert without == approx(100 * 39 / 120, abs=0.05)
    assert ahead == approx(100 * 118 / 120, abs=0.05)
    assert (shown, left) == approx((81e3 * ring("a100"), 2e3 * ring("a100")), rel=5e-3)
    assert share == approx(100 * 2 * ring("a100") / (120 * SECONDS + 2 * ring("a100")), rel=5e-3)
    assert has == 8 * 24
    alpha = cluster("a100").inter.alpha
    assert needs == approx(LAYER * 63 / 64 / (SECONDS - 63 * alpha) / 1e9, abs=0.5)
    slow, deep, tokens = figures(
        "4.1-c",
        r"cloud-25gbe ([\d.]+) % \(.*?four ahead ([\d.]+) % .*?, 2.94 GB/s, enough from ([\d,]+) tokens",
    )
    assert slow == deep < 3
    assert tokens == approx(2048 * ring("cloud-25gbe") / SECONDS, rel=1e-3)


def test_replicas_move_apart_by_about_a_step_of_adam_each_step():
    """A rank that never hears of the others' shards stays where it was: Adam's steps are about 0.1 long."""
    (apart,) = figures("4.1-e", r"differs between ranks by up to ([\d.]+) without")
    assert 0.5 < apart < 2
    after = [float(cell) for cell in half_table().rows[0][3:]]
    assert after == sorted(after) and after[0] == approx(0.1, abs=1e-3)


def test_idle_times_tell_good_from_bad_on_the_compute_stream_only():
    good_net, good_gpu, bad_net, bad_gpu = figures(
        "4.1-g", r"network idle ([\d.]+) %, GPU idle ([\d.]+) %, and ([\d.]+) %, ([\d.]+) % without prefetch"
    )
    assert abs(bad_net - good_net) < 10 and bad_gpu > 20 * good_gpu
    # Without prefetch 80 gathers and a scatter of 12.386 ms show beside 120 forwards of 33.038 ms.
    assert bad_gpu == approx(100 * 81 * 12.386 / (81 * 12.386 + 120 * 33.038), abs=0.05)
    slower = idle_table().rows[2]
    assert float(slower[4].split()[0]) < 1 and float(slower[3].split()[0]) > 30


def test_latency_beside_bytes_by_hand():
    """1,920 x 1,023 steps of 5.06 us; 1,920 gathers of 1,023/1,024 x 629 MB through 192 GB/s."""
    long, rest, mixed = figures("4.1-h", r"a100 ([\d.]+) s of latency beside ([\d.]+) s .* ([\d.]+) s in all")
    assert long == approx(1920 * 1023 * 5.06e-6, rel=2e-3)
    assert rest == approx(1920 * 1023 / 1024 * LAYER / 192e9, rel=2e-3)
    assert mixed < 0.5 * (long + rest)


def orders():
    return {
        line.split(": ")[0]: [part.rsplit(" ", 1) for part in line.split(": ")[1].split(", ")]
        for line in value("4.1-i").split("saved: ")[1].split("; ")
    }


def test_the_order_of_the_options():
    by = {name: [option for option, _ in line] for name, line in orders().items()}
    assert by["h100"] == ["stage 1", "selective recompute", "stage 2", "full recompute", "stage 3"]
    assert by["a100"][-2:] == ["stage 3", "full recompute"]
    assert by["cloud-25gbe"] == ["stage 1", "selective recompute", "full recompute", "stage 2", "stage 3"]
    costs = {option: float(ms) for option, ms in orders()["a100"]}
    assert costs["stage 1"] == 0
    # Full: a third of 6 P x tokens of compute, for 32 s b h x 40 layers, with the allocator's 5 %.
    compute = 16 * 40 * 2048 * 24 * 5120**2 / (312e12 * cluster("a100").gpu.reached)
    assert costs["full recompute"] == approx(1e3 * compute / (1.05 * 32 * 2048 * 5120 * 40 / 1e9), rel=0.05)


def test_every_claim_of_the_section_is_looked_at():
    assert {*EXPECTED, "4.1-c", "4.1-i"} == set(CLAIMS) == {f"4.1-{letter}" for letter in "abcdefghij"}


# ---- the tables say the same


def test_published_sums_of_estimators():
    """Cases D1 and D3 of the planner cases."""
    assert [row[2] for row in conventions_table().rows] == ["42.00 GB", "26.25 GB", "29.75 GB"]
    rows = one_rank_table().rows
    assert "shards nothing" in rows[0][1] and rows[0][2] == "55.0 GB" and "do not fit" in rows[0][4]
    assert [row[3] for row in rows[1:]] == ["28.8 GiB", "17.6 GiB"]


def test_tables():
    assert [row[3] for row in stage_table().rows] == ["208 GB", "71.5 GB", "48.75 GB", "26 GB"]
    assert [row[4] for row in traffic_table().rows] == ["2", "2", "17", "48", "33"]
    assert [row[-1] for row in moved_table().rows] == ["yes"] * 4
    assert [row[1] for row in peak_table().rows] == ["3.25 GB"] * 4
    assert [row[4] for row in depth_table().rows] == ["32.5 %", "98.3 %", "98.3 %", "98.3 %"]
    assert {row[0] for row in enough_table().rows} == {"a100", "h100", "b200", "cloud-25gbe", "l40s-pcie"}
    assert [row[5:8] for row in enough_table().rows][:1] == [("98.3 %", "7.09 ms", "1.11 %")]
    assert [row[1] for row in savings_table().rows][:2] == ["stage 1", "selective recompute"]
