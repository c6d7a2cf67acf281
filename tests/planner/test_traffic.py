"""The communication bill: claim 1-i, the counts of 2.4-d, and what must hold for any workload."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from labkit.collectives import collective_cost
from labkit.errors import InputRefused
from labkit.planner.traffic import (
    Workload,
    bill,
    bucket_count,
    data_parallel,
    expert_parallel,
    link_of,
    pipeline_stage,
    sharded,
    share_of_ports,
    tensor_parallel,
)
from labkit.spec import Cluster, Gpu, Link

GUIDE = Workload(13e9, 40, 5120, 2048, micro_batch=1, micro_batches=16)
NODE = Cluster(
    "node",
    Gpu("A100 class", 80e9, {"bf16": 312e12}, 0.5),
    nodes=1,
    gpus_per_node=8,
    intra=Link(5e-6, 235e9),
    inter=Link(5e-6, 25e9),
    nics_per_node=8,
)


def sent(rows):
    return sum(row.bytes_per_rank for row in rows)


def test_the_bill_of_claim_1_i():
    # bytes sent per rank and step: 2 x 26 GB x 7/8; 4 x 40 x 16 x 20.97 MB x 2 x 7/8; 2 x 16 x 20.97 MB; 3 x
    # 16 x 26 GB x 7/8
    assert sent(data_parallel(GUIDE, 8)) == pytest.approx(45.5e9, rel=1e-12)
    assert sent(tensor_parallel(GUIDE, 8)) == pytest.approx(93_952_409_600, rel=1e-12)
    assert sent(pipeline_stage(GUIDE, 8)) == pytest.approx(671_088_640, rel=1e-12)
    assert sent(sharded(GUIDE, 8, 3)) == pytest.approx(1092e9, rel=1e-12)
    assert sent(sharded(replace(GUIDE, micro_batches=1), 8, 3)) == pytest.approx(68.25e9, rel=1e-12)
    # top-2 of 20.97 MB, 7/8 of it leaves the rank, four times per layer and micro-batch
    assert sent(expert_parallel(GUIDE, 8, top_k=2)) == pytest.approx(
        4 * 40 * 16 * 2 * 20_971_520 * 7 / 8, rel=1e-12
    )


def test_the_whole_bill_lists_every_strategy_once_on_one_link():
    rows = bill(GUIDE, 8)
    names = list(dict.fromkeys(row.strategy for row in rows))
    assert names == [
        "data parallel",
        "tensor parallel",
        "pipeline, interior stage",
        "stage 1",
        "stage 2",
        "stage 3",
        "expert parallel",
    ]
    assert {row.link for row in rows} == {"inside"} and {row.link for row in bill(GUIDE, 16)} == {"across"}


@pytest.mark.parametrize(
    ("stage", "keep", "units"), [(1, False, 2), (2, False, 17), (3, False, 48), (3, True, 33)]
)
def test_sharding_stages_under_accumulation(stage, keep, units):
    """Claim 4.1-d at m = 16, in units of S(N-1)/N."""
    options = {"keep_gradients": keep} if stage == 3 else {}
    assert sent(sharded(GUIDE, 8, stage, **options)) == pytest.approx(units * 26e9 * 7 / 8, rel=1e-12)


def test_counts_of_claim_2_4_d():
    seven = Workload(7e9, 32, 4096, 2048, micro_batches=16)
    (once,) = data_parallel(seven, 8)
    (bucketed,) = data_parallel(seven, 8, bucket=25e6)
    (every_time,) = data_parallel(seven, 8, bucket=25e6, deferred=False)
    assert (once.count, bucketed.count, every_time.count) == (1, 560, 560 * 16)
    assert bucketed.bytes_per_rank == pytest.approx(once.bytes_per_rank, rel=1e-12)
    assert sum(row.count for row in sharded(seven, 8, 3)) == 3 * 32 * 16
    assert tensor_parallel(seven, 8)[0].count == 4 * 32 * 16


def test_a_last_bucket_may_be_smaller():
    assert [bucket_count(*case) for case in ((101.0, 25.0), (100.0, 25.0), (0.3, 0.1))] == [5, 4, 3]
    assert bucket_count(np.array([0.0, 26.0]), 25.0).tolist() == [1, 2]


@given(
    n=st.integers(1, 512),
    m=st.integers(1, 64),
    parameters=st.floats(1e6, 1e12),
    layers=st.integers(1, 128),
)
def test_stages_and_plain_data_parallel_agree(n, m, parameters, layers):
    work = Workload(parameters, layers, 1024, 2048, micro_batches=m)
    plain = sent(data_parallel(work, n))
    assert sent(sharded(work, n, 1)) == pytest.approx(plain, rel=1e-9)
    assert sent(sharded(work, n, 2)) == pytest.approx(plain * (m + 1) / 2, rel=1e-9)
    assert sent(sharded(work, n, 3)) == pytest.approx(plain * 3 * m / 2, rel=1e-9)
    assert sent(data_parallel(work, n, deferred=False)) == pytest.approx(m * plain, rel=1e-9)
    assert plain < 2 * work.gradient_bytes


def test_arrays_broadcast_and_equal_the_single_calls():
    n, m = np.array([2, 8, 64])[:, None], np.array([1, 16])
    for build in (data_parallel, tensor_parallel, lambda w, n: sharded(w, n, 3), expert_parallel):
        table = sum(row.bytes_per_rank for row in build(replace(GUIDE, micro_batches=m), n))
        for i, j in np.ndindex(3, 2):
            one = sent(build(replace(GUIDE, micro_batches=int(m[j])), int(n[i, 0])))
            assert isinstance(one, float)
            assert np.broadcast_to(table, (3, 2))[i, j] == one
    assert link_of(np.array([8, 16])).tolist() == ["inside", "across"]


def test_seconds_follow_the_link_of_the_row():
    (row,) = tensor_parallel(GUIDE, 8)
    one = collective_cost("all_reduce", "ring", GUIDE.activation_bytes, 8, NODE.intra).seconds
    assert row.seconds(NODE) == pytest.approx(2560 * one, rel=1e-12)
    # 13B (12.85e9) under tensor parallel 8, data parallel across 4 hosts: each group has one 25 GB/s port.
    shard = replace(GUIDE, parameters=12.85e9 / 8)
    (data,) = data_parallel(shard, 4, stride=8)
    free = replace(NODE, inter=Link(0.0, 25e9))
    assert data.link == "across" and data.seconds(free) == pytest.approx(0.19275, rel=1e-9)
    assert data.seconds(free) == pytest.approx(data.seconds_on(share_of_ports(free)), rel=1e-9)


def test_a_group_with_many_members_per_host_uses_all_its_ports():
    """Data parallel over 16 neighbours on two hosts: rings through eight ports reach 200 GB/s, not 25."""
    (row,) = data_parallel(GUIDE, 16)
    free = replace(NODE, intra=Link(0.0, 235e9), inter=Link(0.0, 25e9))
    assert row.seconds(free) == pytest.approx(row.bytes_per_rank / 200e9, rel=1e-6)
    assert row.bytes_across == pytest.approx(row.bytes_per_rank / 8, rel=1e-12)


def test_bytes_across():
    assert tensor_parallel(GUIDE, 8)[0].bytes_across == 0
    spread = tensor_parallel(GUIDE, 8, stride=8)[0]
    assert spread.bytes_across == spread.bytes_per_rank
    experts = expert_parallel(GUIDE, 16)[0]
    assert experts.bytes_across == pytest.approx(
        experts.bytes_per_rank * 8 / 15, rel=1e-12
    )  # 53 %, claim 3.2-g
    stage = pipeline_stage(GUIDE, 4, stride=8)[0]
    assert stage.link == "across" and stage.bytes_across == stage.bytes_per_rank


def test_refusals():
    with pytest.raises(InputRefused, match="hidden"):
        Workload(13e9, 40, 0, 2048)
    for stage in (4, np.array([1, 2])):
        with pytest.raises(InputRefused, match="the sharding stage is"):
            sharded(GUIDE, 8, stage)
    with pytest.raises(InputRefused, match="size of a bucket, in bytes, is 0"):
        data_parallel(GUIDE, 8, bucket=0)
    with pytest.raises(InputRefused, match=r"fast-link domain .* not 0"):
        bill(GUIDE, 8, domain=0)
    with pytest.raises(InputRefused, match=r"stride .* not 0"):
        data_parallel(GUIDE, 8, stride=0)
    with pytest.raises(InputRefused, match=r"number of ranks .* not 0"):
        pipeline_stage(GUIDE, 0)
