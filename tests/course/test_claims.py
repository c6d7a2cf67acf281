"""Every claim of the guide: computed again, held against figures from outside labkit and the stored table."""

import csv
import re
from pathlib import Path

import pytest

from labkit.course.claims import COLUMNS, all_claims, as_csv, guide_claims
from labkit.errors import InputRefused
from labkit.presets import data_path

ROOT = Path(__file__).resolve().parents[2]
GUIDE = ROOT.parent / "shared" / "guide"
CLAIMS = all_claims()

# Figures from the guide, from its recomputed claims, or from sums by hand; never copied from labkit's output.
EXPECTED = {
    "1-b": ["16: latency 152 µs, bandwidth 839 ms"],  # 30 x 5.06 µs; 40 GB x 15/16 / 44.68 GB/s
    "1-e": ["1.00 / 0.86 / 1.04 / 1.17", "0.31x (2 s compute)", "0.44x (0.5 s)"],
    "1-f": ["160 GB of 80 GB"],
    "1-g": ["16 bandwidth", "64 contention"],
    "1-i": ["data parallel 45.5 GB", "tensor parallel 94 GB", "interior stage 671 MB", "stage 3 1.09 TB"],
    "1-j": ["83.9 MB", "1.68 ms"],
    "1-k": ["78.7 %", "21.3 %"],  # 235 ms of compute beside 868 ms of reduction
    "2.1-a": ["tree 6 S in 6 steps", "linear 63 S in 63 steps", "ring 1 S in 63 steps"],
    "2.1-c": ["equal sums", "7,000 and 7,000"],
    "2.1-d": ["equals", "0 extra bytes"],
    "2.1-e": ["10 operations"],
    "2.1-f": ["10 kB 31.2 µs / 326 µs", "1 GB 120 ms / 25.3 ms / 39.7 ms"],
    "2.1-g": ["ring yes (1.75 S in 14 steps)", "recursive_doubling no (3 S in 3 steps)"],
    "2.1-h": ["equal to the unsharded", "0.75 S"],
    "2.1-i": ["by tokens 2.5", "mean of means 3"],
    "2.1-j": ["reduce tree: 8 MB / 11 MB / 24 MB"],  # root 24, rank 4 16, six others 8 each
    "2.2-a": ["5.02 µs", "20 ms"],
    "2.2-b": ["difference of total bytes and steps 0"],
    "2.2-c": ["1.99988"],
    "2.2-d": [
        "N = 8: tree 471 kB, recursive doubling 2.2 MB",
        "N = 64: tree 2.84 MB, recursive doubling 7.44 MB",
    ],
    "2.2-e": ["all_gather 0.875 S", "all_to_all 0.875 S", "broadcast 1 S"],
    "2.2-f": ["70 µs", "140 µs"],
    "2.2-g": ["together 3.5 S"],
    "2.2-h": ["total 60", "12 to 13 (total 98)"],
    "2.2-i": [
        "recursive doubling 8.8, 29.8, 145",
        "tree 1.88, 11.4, 62.7",
    ],  # 62.7: (1022 - 18) / (18 - 2 x 511/512)
    "2.2-j": ["140 µs", "1.26 ms"],
    "2.2-l": ["50 % of S leaves", "87.5 % of S leaves"],
    "2.3-a": ["24.5 GB", "490 ms"],
    "2.3-b": ["all_reduce 1.75", "all_gather 0.875", "broadcast 1"],
    "2.3-c": ["100 % of the time", "0.5 of the time"],
    "2.3-e": ["28.6 GB/s = 57.1 %", "busbw 50 GB/s", "fp32: 980 ms"],
    "2.3-f": ["50 GB/s each way", "450 GB/s each way"],
    "2.3-g": ["12.5 % whole"],
    "2.3-h": ["480 GB/s = 107 % of 450 GB/s"],
    "2.3-i": ["16 ranks, the baseline's 8", "14 GB, the baseline's 25 MB"],
    "2.3-j": ["plain 112 GB", "stage 1 38.5 GB", "of 80 GB"],
    "2.3-k": ["fine", "volume", "implementation", "refused"],
    "2.3-l": ["(9x)", "400 GB/s (1.1x)"],
    "2.4-d": ["560 collectives", "8,960 at m = 16", "stage 3: 1,536"],
    "2.4-e": [
        "6.3x with 1 x 12.5, 3.6x with 1 x 25, 2.3x with 1 x 50, 1.3x with 8 x 25",
        "8.3x with 1 x 25, 1.5x with 8 x 50",
    ],
    "2.4-f": ["4 per host, domain 72"],
    # Compute 16 x 6 x 13e9 x 8192 / (312e12 x 0.839 x 8) = 4.88 s, of AllReduces 16 x 32 layers; gradients of
    # 3.25 GB through 1/8 of the ports (1.04 s, or 0.13). A layer has half of one 25 GB/s port:
    # 4 (14 x 5.06 µs + 1.75 S / 12.5).
    "2.4-b": [
        "1 x 25 GB/s: 7.25 s and 29.1 s, 4.0x",
        "8 x 25 GB/s: 6.34 s and 8.05 s, 1.3x",
        "inside a node 2.59 ms, over two 47.3 ms, 18.3x",
    ],
    "2.4-g": ["2.7 µs (4.5x)", "14 µs (4.1x)", "5 µs (8.3x)"],
    "2.4-h": ["28c at m = 16, 52c at 32", "6c with 7 in flight instead of 4", "GPipe 6c", "1.68 ms"],
    "5.1-a": ["107 %"],
}


@pytest.mark.parametrize("id", EXPECTED)
def test_the_computed_value_has_the_figures_worked_out_apart(id):
    value = CLAIMS[id].row()["labkit_value"]
    missing = [text for text in EXPECTED[id] if text not in value]
    assert not missing, f"{missing} not in {value!r}"


def figure(id, pattern):
    """The number that ``pattern`` finds in the claim's computed value."""
    return float(re.search(pattern, CLAIMS[id].row()["labkit_value"])[1].replace(",", ""))


def test_the_strict_reading_of_the_story_holds():
    assert figure("1-d", r"= ([\d.]+), eff") < 1.5
    assert figure("1-d", r"efficiency ([\d.]+) %") < 37.5


def test_the_story_is_true_for_batches_larger_than_the_one_shown():
    assert figure("1-a", r"up to ([\d,]+) tokens") > 64 * 512


def test_the_link_is_busy_while_the_gpu_waits():
    assert figure("1-c", r"link busy ([\d.]+) %") > 75 > 25 > figure("1-c", r"computing ([\d.]+) %")


def test_published_buckets_reach_the_shares_that_were_read_off_the_sweep():
    """The sweep's own rows give 31, 47, 45 and 59 % of 235 GB/s; the fit smooths them."""
    shares = [figure("2.3-e", rf"([\d.]+) % at {size} MiB") for size in (4, 8, 16, 32)]
    assert shares == pytest.approx([31, 47, 45, 59], abs=3)


def test_a_whole_message_takes_about_n_times_longer():
    assert 7 < figure("2.3-g", r"takes ([\d.]+)x") < 8


def test_a_late_sweep_overstates_the_latency():
    assert figure("5.1-a", r"gives alpha ([\d.]+) µs") > 3 * figure("5.1-a", r": alpha ([\d.]+) µs")


def test_the_stored_table_is_what_is_computed_now():
    assert data_path("guide_claims.csv").read_text("utf-8") == as_csv()


def test_rows_are_complete():
    rows = list(csv.DictReader(as_csv().splitlines()))
    assert tuple(rows[0]) == COLUMNS
    for row in rows:
        assert row["labkit_value"] and row["guide_value"], row["id"]
        assert row["why"] or row["verdict"] == "holds", row["id"]


@pytest.mark.skipif(not GUIDE.is_dir(), reason="the guide's claim lists do not stand beside this checkout")
def test_no_claim_of_a_started_section_is_missing():
    text = "".join((GUIDE / name).read_text("utf-8") for name in ("claims.md", "claims_more.md"))
    listed = set(re.findall(r"^\| ([1-6](?:\.\d)?-[a-z]+) \|", text, re.M))
    assert listed <= set(CLAIMS)


def test_an_unknown_section_is_refused_with_those_there_are():
    with pytest.raises(InputRefused, match=r"2\.4"):
        guide_claims("7.9")
