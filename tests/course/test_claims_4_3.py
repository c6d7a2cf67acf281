"""Section 4.3's claims against the guide, the claim lists and sums by hand."""

import re

import numpy as np
import pytest

from labkit.course import chapter4_overlap as overlap
from labkit.course.claims import all_claims
from labkit.presets import cluster
from labkit.strategies.tensor_streams import tensor_case
from tests.course.claim_values import figures, value

CLAIMS = {id: claim for id, claim in all_claims().items() if claim.section == "4.3"}

# Figures from the guide, from the claim lists, or from sums by hand; never copied from labkit's output.
EXPECTED = {
    # Computing 0-4, 6-9; communicating 2-5, 4-7, 10-11: 6 s in all, 2-4 and 6-7 hidden.
    "4.3-a": ["3 of 6 s = 50 %", "equal in Timeline.coverage", "added up would be 7 s"],
    "4.3-c": [
        "beside the next block: race, off by",
        "in chunks: legal, right",
        "half batches: legal, right",
        "beside weight gradients: legal, right",
    ],
    "4.3-d": ["1.1 with 1 ms hidden beside 10 ms", "2 if the collective runs 2 times as long"],
    "4.3-e": [
        "10 ms at 50 % exposes 5 ms, 4.76 % of its step of 105 ms",
        "100 ms at 90 % exposes 10 ms, 9.09 % of its step of 110 ms",
    ],
    "4.3-g": [
        "no wait for the sum: finished, rank 0 has 3, checker finds race",  # 2 x 1 + 1
        "with the wait: finished, rank 0 has 7, checker finds nothing",  # 2 x 1 + 2 x 2 + 1
        "two orders: hangs, checker finds deadlock",
        "one order: finished, rank 0 has 2, checker finds nothing",
    ],
    "4.3-h": [
        "overlap is off",
        "one all_reduce of",
        "latency: use larger buckets; 25 MiB: nothing to mend",
        "of 388 all_reduces",  # 24 layers x 16, two embeddings, the last norm's two
    ],
}


@pytest.mark.parametrize("id", EXPECTED)
def test_the_computed_value_has_the_figures_worked_out_apart(id):
    missing = [text for text in EXPECTED[id] if text not in value(id)]
    assert not missing, f"{missing} not in {value(id)!r}"


def block(name, sequences=2, t=8):
    """Seconds, forward, of half a layer of 13e9 / 32 parameters, and of an all_reduce of a share of it."""
    machine, tokens = cluster(name), 2048 * sequences
    flops = 2 * 13e9 / 32 / 2 * tokens / t
    link = machine.intra

    def all_reduce(share):
        return 2 * (t - 1) * (link.alpha + share * tokens * 5120 * 2 / t / link.bandwidth)

    return flops / (machine.gpu.peak["bf16"] * machine.gpu.reached), all_reduce


@pytest.mark.parametrize("name", ["a100", "h100"])
def test_tensor_parallel_by_hand(name):
    """Four pieces that travel longer than one is computed hide three products of pieces; of 128 half
    all_reduces, of 32 layers, one shows; backward, what 7/12 of a forward lasts."""
    compute, all_reduce = block(name)
    chunks = 3 * compute * 5 / 12 / 4 / (4 * all_reduce(1 / 4))
    assert compute * 5 / 12 / 4 < all_reduce(1 / 4)
    backward = min(1, compute * 7 / 12 / all_reduce(1))
    both = (3 * compute * 5 / 12 / 4 + backward * all_reduce(1)) / (4 * all_reduce(1 / 4) + all_reduce(1))
    ways = ("product in chunks", "half batches", "backward", "chunks and backward")
    found = [coverage(name, way)[0] for way in ways]
    halves = 100 * (1 - 1 / 128)
    assert found == pytest.approx([100 * chunks, halves, 100 * backward, 100 * both], rel=3e-3)
    # Exposed, of 64 blocks: a share of the communication, which is a share of all the time.
    communication = 64 * 4 * all_reduce(1 / 4)
    _, exposed, share = coverage(name, "product in chunks")
    assert exposed == pytest.approx((1 - chunks) * communication, rel=5e-3)
    assert share == pytest.approx(100 * exposed / (64 * compute + exposed), rel=5e-3)


def coverage(name, way):
    """Percent, exposed seconds and percent of the time of one way of tensor parallel, as 4.3-b says them."""
    found = re.search(
        rf"{name} (?:product.*?)??{way} ([\d.]+) % \(([\d.]+) (m?s|µs), ([\d.]+) %\)", value("4.3-b")
    ).groups()
    return float(found[0]), float(found[1]) * {"s": 1, "ms": 1e-3, "µs": 1e-6}[found[2]], float(found[3])


def test_sixty_to_seventy_percent_lies_between_what_the_two_presets_reach():
    both = [coverage(name, "chunks and backward")[0] for name in ("a100", "h100")]
    assert both[1] < 60 and both[0] > 70
    low, high, most = figures("4.3-b", r"at ([\d.]+) to ([\d.]+) sequences per rank, 90 % from ([\d.]+)")
    assert low < high < most < 2
    assert figures("4.3-b", r"([\d.]+) % \([^)]*\) at 8;")[0] > 90


def test_the_stale_result_is_that_of_the_summands():
    """Off by what the second block makes of each rank's own summand instead of the sum."""
    case = tensor_case("beside the next block")
    first = [np.tanh(held["x"]) @ held["w1"] for held in case.buffers]
    stale = sum(np.tanh(y) @ held["w2"] for y, held in zip(first, case.buffers, strict=True))
    right = sum(np.tanh(sum(first)) @ held["w2"] for held in case.buffers)
    assert np.allclose(case.expected["z"], right)
    (off_by,) = figures("4.3-c", r"race, off by ([\d.]+)")
    assert off_by == pytest.approx(np.abs(stale - right).max(), rel=0.05)


def test_what_contention_takes():
    """Beside h seconds of all_reduces 1 - 1/s of h is lost; the rest is saved."""
    hides, costs, saves = figures("4.3-d", r"hides ([\d.]+) ms, costs ([\d.]+) ms, saves ([\d.]+) ms")
    assert costs == pytest.approx(hides * (1 - 1 / 1.2), rel=5e-3)
    assert saves == pytest.approx(hides - costs, rel=5e-3)
    at_2, at_16 = figures("4.3-d", r"([\d.]+) at 2 and ([\d.]+) at 16 sequences")
    # The bytes stay, the backward pass is eight times as long.
    assert (at_2 - 1) / (at_16 - 1) == pytest.approx(8, rel=0.1)


def test_contention_lifts_the_coverage_and_not_the_step():
    low, high, before, after = figures(
        "4.3-e", r"from ([\d.]+) % \(.*?to ([\d.]+) % \(.*?, a step of ([\d.]+) ms becomes one of ([\d.]+) ms"
    )
    assert high > low + 5 and after >= before


def test_on_against_off():
    text = value("4.3-f")
    found = re.findall(r"([\d.]+) % to ([\d.]+) % hidden", text)
    assert len(found) == 5
    assert all(float(on) > float(off) for off, on in found)
    _, all_reduce = block("a100")
    off = re.search(r"half batches 0 % to 99.2 % hidden, ([\d.]+) ms \(.*? to ([\d.]+) µs", text).groups()
    assert float(off[0]) == pytest.approx(1e3 * 64 * all_reduce(1), rel=5e-3)  # 32 layers
    assert float(off[1]) == pytest.approx(1e6 * all_reduce(1 / 2), rel=5e-3)
    # Stage 3 on: the first gather and the last scatter, of a layer of 5,120 over 64 ranks each.
    machine = cluster("a100")
    rate = machine.nics_per_node * machine.inter.bandwidth
    gather = 63 * (machine.inter.alpha + 2 * (12 * 5120**2 + 13 * 5120) / 64 / rate)
    (exposed,) = re.search(r"prefetch .*? to ([\d.]+) ms \([\d.]+ %\) exposed$", text).groups()
    assert float(exposed) == pytest.approx(1e3 * 2 * gather, rel=5e-3)


def test_latency_is_what_makes_small_buckets_slow():
    """388 all_reduces over 16 ranks, 30 latencies each, and the bytes of 1.3 B at 8 ports."""
    machine = cluster("a100")
    (share,) = figures("4.3-h", r"([\d.]+) % of 388 all_reduces' time")
    latency = 388 * 30 * machine.inter.alpha
    parameters = 24 * (12 * 2048**2 + 13 * 2048) + (50257 + 2048 + 2) * 2048
    moved = 2 * 15 / 16 * 2 * parameters / (machine.nics_per_node * machine.inter.bandwidth)
    assert share == pytest.approx(100 * latency / (latency + moved), rel=5e-3)


def test_at_more_ranks_the_default_is_too_small():
    assert "latency: use larger buckets" in overlap.trace_findings(64)["25 MiB"][0]


def test_every_claim_of_the_section_is_looked_at():
    assert {*EXPECTED, "4.3-b", "4.3-f"} == set(CLAIMS) == {f"4.3-{letter}" for letter in "abcdefgh"}


def test_the_tables_say_exposed_time_and_share_beside_each_coverage_and_span_all_layers():
    heads = overlap.coverage_table().heads
    assert heads[1::3] == ("a100: coverage", "h100: coverage", "b200: coverage")
    assert set(heads[2::3]) == {"exposed"} and set(heads[3::3]) == {"of the time"}
    rows = {row[0]: row[1:] for row in overlap.coverage_table().rows}
    claimed = coverage("a100", "chunks and backward")
    shown = rows["TP, chunks and weight gradients"][:3]
    assert shown == (f"{claimed[0]:g} %", f"{1e3 * claimed[1]:g} ms", f"{claimed[2]:g} %")
    halves = {row[1]: row for row in overlap.overlaps_table().rows if "half batches" in row[0]}
    _, all_reduce = block("a100")
    off, step = (float(halves["off"][at].split()[0]) for at in (3, 5))
    assert off == pytest.approx(1e3 * 64 * all_reduce(1), rel=5e-3) and halves["on"][2] == "99.2 %"
    assert step == pytest.approx(1e3 * 64 * (block("a100")[0] + all_reduce(1)), rel=5e-3)
