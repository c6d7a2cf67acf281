"""Shrink, hide, confine (claim 1-h): each row must do what its label says and nothing else."""

from dataclasses import replace

import pytest

from labkit.collectives import collective_cost
from labkit.errors import InputRefused
from labkit.planner.levers import levers
from labkit.planner.traffic import Workload
from labkit.spec import Cluster, Gpu, Link

WORK = Workload(13e9, 40, 5120, 2048, micro_batch=1, micro_batches=16)
PLACE = Cluster("c", Gpu("card", 80e9, {"bf16": 312e12}, 0.5), 8, 8, Link(5e-6, 235e9), Link(5e-6, 25e9), 8)
TABLE = {row.technique: row for row in levers(WORK, PLACE)}


def of(kind):
    return [row for row in TABLE.values() if row.kind == kind]


def test_kinds():
    assert {row.kind for row in TABLE.values()} == {"shrink", "hide", "confine"}
    assert min(len(of(kind)) for kind in ("shrink", "hide", "confine")) >= 3


@pytest.mark.parametrize("row", of("shrink"), ids=lambda row: row.technique)
def test_shrinking_means_fewer_bytes_or_fewer_collectives_or_saying_that_it_does_not(row):
    less = row.after.bytes_per_rank < row.before.bytes_per_rank * (1 - 1e-9)
    fewer = row.after.collectives < row.before.collectives
    assert less or ("same bytes" in row.note and (fewer or "not traffic" in row.note))
    assert row.after.link == row.before.link and row.after.coverage == row.before.coverage == 0
    assert row.after.seconds <= row.before.seconds


@pytest.mark.parametrize("row", of("hide"), ids=lambda row: row.technique)
def test_hiding_means_coverage_at_equal_bytes(row):
    assert row.before.coverage == 0 < row.after.coverage < 1
    assert row.after.bytes_per_rank == pytest.approx(row.before.bytes_per_rank, rel=1e-12)
    assert row.after.exposed < row.before.exposed and row.after.link == row.before.link


@pytest.mark.parametrize("row", of("confine"), ids=lambda row: row.technique)
def test_confining_means_fewer_bytes_across(row):
    assert row.before.link == "across" and row.after.link != "across"
    assert row.after.bytes_across < row.before.bytes_across


def test_figures():
    once = TABLE["accumulate, synchronise once"]
    assert once.before.bytes_per_rank == pytest.approx(16 * 45.5e9 / 8, rel=1e-12)
    assert once.after.bytes_per_rank == pytest.approx(45.5e9 / 8, rel=1e-12)
    three = TABLE["stage 1 instead of stage 3"]
    assert three.before.bytes_per_rank / three.after.bytes_per_rank == pytest.approx(24, rel=1e-12)
    recompute = TABLE["selective instead of full recompute"]
    assert recompute.before.bytes_per_rank / recompute.after.bytes_per_rank == pytest.approx(1.5, rel=1e-12)
    hybrid = TABLE["stage 3 inside the host, replicas across"]
    assert hybrid.before.bytes_per_rank == pytest.approx(3 * 16 * 26e9 * 63 / 64, rel=1e-12)
    assert hybrid.after.bytes_across == pytest.approx(2 * 26e9 / 8 * 7 / 8, rel=1e-12)


def test_buckets_hide_behind_the_last_backward_only():
    """2/3 of one micro-batch's compute: 6 x 13e9 x 2048 / 156 TFLOP/s / 8 cards x 2/3 = 85.3 ms."""
    side = TABLE["gradient buckets under the backward pass"].after
    assert side.coverage * side.seconds == pytest.approx(6 * 13e9 * 2048 / 156e12 / 8 * 2 / 3, rel=1e-12)
    slower = replace(PLACE, gpu=replace(PLACE.gpu, peak={"bf16": 31.2e12}))
    full = next(row for row in levers(WORK, slower) if row.technique.startswith("gradient buckets")).after
    assert full.coverage == pytest.approx(1 - 1 / 130, rel=1e-12)  # all but the last of 130 buckets


def test_two_collectives_of_a_pass_stay_exposed_where_compute_is_plenty():
    """Of 8 x 40 all_reduces of two micro-batches two, of 3 x 40 collectives of stage 3 two."""
    slow = replace(PLACE, gpu=replace(PLACE.gpu, peak={"bf16": 1e9}))
    rows = {row.technique: row.after for row in levers(WORK, slow)}
    assert rows["two micro-batches in turn"].coverage == pytest.approx(1 - 2 / 320, rel=1e-12)
    assert rows["stage-3 prefetch one layer ahead"].coverage == pytest.approx(1 - 2 / 120, rel=1e-12)


def test_refusals():
    with pytest.raises(InputRefused, match="tensor parallel 16"):
        levers(WORK, PLACE, tp=16)
    with pytest.raises(InputRefused, match="domains of 8"):
        levers(WORK, PLACE, tp=4, dp=3)
    with pytest.raises(InputRefused, match=r"tensor-parallel degree is 0"):
        levers(WORK, PLACE, tp=0)
    with pytest.raises(InputRefused, match=r"data-parallel degree is 0"):
        levers(WORK, PLACE, dp=0)
    with pytest.raises(InputRefused, match="size of a bucket, in bytes, is 0"):
        levers(WORK, PLACE, bucket=0)


def test_the_composed_hierarchical_row_is_the_collectives_own():
    """Rings: reduce_scatter inside, all_reduce of shards across in eight groups, all_gather inside."""
    ours = TABLE["hierarchical all_reduce"].after
    theirs = collective_cost("all_reduce", "hierarchical", WORK.gradient_bytes, 64, PLACE)
    assert ours.seconds == pytest.approx(theirs.seconds, rel=1e-9)
    assert ours.bytes_per_rank == pytest.approx(theirs.bytes_per_rank, rel=1e-9)
