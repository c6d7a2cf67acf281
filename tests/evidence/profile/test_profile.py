"""What one rank's trace tells: the figures of public samples, and what users of other readers found wrong."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from labkit.errors import InputRefused
from labkit.evidence.profile import beside, read_profile
from labkit.spec import StepTime
from tests.evidence.profile.made import comm, compute, described, launch, row, step, write

SAMPLES = Path(__file__).resolve().parents[4] / "shared" / "data" / "traces"
# Microseconds, from the table in section 5 of shared/data/trace_format.md: rank, collectives, communication,
# compute, overlap. None where communication is none.
EXPECTED = {
    "nccl_data.json.gz": (0, 21, 46876.492, 115655.843, 7317.026),
    "control.json.gz": (3, 60, 163535, 281336, 75614),
    "timeline_rank-0.json.gz": (0, 10, 396199, 210320, 59216),
    "timeline_rank-1.json.gz": (1, 10, 379053, 271973, 75530),
    "mi250_minitoy_train_ROCm6_2_kineto.json.gz": (0, 0, 0, 110.881, 0),
}
samples = pytest.mark.skipif(
    not SAMPLES.exists(), reason="the sample traces do not stand beside the checkout"
)


def read(tmp_path, events, **more):
    return read_profile(write(tmp_path / "t.json", events, **more))


def only(profile):
    (one,) = profile.ranks.values()
    return one


def micro(seconds):
    return pytest.approx(seconds * 1e6, rel=1e-9)


@samples
@pytest.mark.parametrize("name", EXPECTED)
def test_overlap_of_the_samples(name):
    rank, calls, communication, computes, overlap = EXPECTED[name]
    profile = read_profile(SAMPLES / name)
    one = only(profile)
    assert (one.rank, len(one.calls)) == (rank, calls)
    found = [1e6 * value for value in (one.communication, one.compute, one.overlap)]
    assert found == pytest.approx([communication, computes, overlap], rel=1e-6)
    if communication:
        assert one.coverage == pytest.approx(overlap / communication, rel=1e-3)
    else:
        assert one.coverage is None and "No communication found" in profile.findings[0]
    for steps, (start, stop) in zip(one.steps, one.windows, strict=True):
        assert steps.total == pytest.approx(stop - start, rel=1e-12)


@samples
def test_facts_of_the_sample_with_metadata():
    profile = read_profile(SAMPLES / "nccl_data.json.gz")
    assert [len(steps) for steps in profile.steps.values()] == [3]
    assert only(profile).numbers == (4, 5, 6)
    reduced = [one for one in profile.collectives if one.op == "all_reduce"]
    assert len(reduced) == 15 and {one.group.ranks for one in reduced} == {(0, 1)}
    assert reduced[0].size == 2049000 * 4
    assert reduced[0].busbw == pytest.approx(8196000 / 3306.963e-6)  # 2(n-1)/n is 1 for two ranks


@samples
@pytest.mark.parametrize(
    ("name", "rank", "words"),
    [
        ("rank-34.Jul_15_10_52_41.1074.pt.trace.json.gz", 34, "host time"),
        ("rank_not_found.json.gz", 0, "nothing of the communication"),
        ("distributed_info_not_found.json.gz", 0, "does not tell its rank"),
    ],
)
def test_samples_without_a_gpu(name, rank, words):
    profile = read_profile(SAMPLES / name)
    assert list(profile.ranks) == [rank] and any(words in one for one in profile.warnings)
    assert "nan" not in repr(profile)


@samples
def test_the_whole_folder_of_samples_is_of_many_jobs():
    profile = read_profile(SAMPLES)
    assert any("jobs of 2, 8, 128, 300 ranks" in one for one in profile.warnings)
    assert any("left out" in one for one in profile.warnings) and profile.straggler is None


def test_no_communication_is_a_sentence_and_no_number(tmp_path):
    profile = read(tmp_path, [compute(0, 10)])
    assert only(profile).coverage is None and only(profile).communication == 0
    assert "No communication found" in repr(profile) and "nan" not in repr(profile)


def test_annotations_alone_say_nothing_of_the_gpu(tmp_path):
    said = [row("nccl:all_reduce", 0, 50, cat="user_annotation"), step(1, 0, 100)]
    profile = read(tmp_path, said)
    assert only(profile).communication is None and profile.steps == {0: []}
    assert any("annotations such as nccl:all_reduce are host time" in one for one in profile.warnings)


def test_lower_case_names_of_another_exporter(tmp_path):
    profile = read(tmp_path, [comm(0, 10, name="nccldevkernel_allreduce_sum_f32"), compute(5, 10)])
    assert micro(only(profile).overlap) == 5


def test_waiting_rows_raise_no_overlap(tmp_path):
    waits = [
        row(f"{what} Sync", 0, 100, cat=cat)
        for what in ("Stream", "Event", "Context", "Device")
        for cat in ("cuda_sync", "kernel")
    ]
    one = only(read(tmp_path, [comm(0, 100), compute(90, 20), *waits]))
    assert (micro(one.overlap), micro(one.compute)) == (10, 20)


def test_syncbatchnorm_computes(tmp_path):
    one = only(read(tmp_path, [row("SyncBatchNorm_forward_kernel", 0, 30), comm(20, 20)]))
    assert (micro(one.compute), micro(one.overlap)) == (30, 10)


def test_annotations_of_the_gpu_do_not_double_communication(tmp_path):
    over = row("nccl:all_reduce", 0, 60, cat="gpu_user_annotation", tid=20)
    one = only(read(tmp_path, [over, comm(20, 40), compute(0, 30)]))
    assert (micro(one.communication), micro(one.overlap), len(one.calls)) == (40, 10, 1)


def test_kernels_below_a_microsecond_are_kept(tmp_path):
    rows = [compute(0.125 + n, 0.25) for n in range(4)] + [comm(0.25, 0.5), comm(2.25, 0.0625)]
    one = only(read(tmp_path, rows, baseTimeNanoseconds=1711964646000000000))
    assert (micro(one.compute), micro(one.communication), micro(one.overlap)) == (1.0, 0.5625, 0.1875)


def test_microseconds_since_1970_as_whole_numbers(tmp_path):
    origin = 1661203463042907
    one = only(read(tmp_path, [compute(origin, 7), comm(origin + 3, 8)]))
    assert (micro(one.overlap), micro(one.exposed)) == (4, 4)


def test_amd_memory_operations_do_not_communicate(tmp_path):
    rows = [
        row("hipMemcpyWithStream", 0, 10, cat="cuda_runtime"),
        row("hipMemcpyAsync", 0, 10),
        compute(0, 5),
    ]
    assert only(read(tmp_path, rows)).communication == 0


def test_copies_are_neither_and_are_said_apart(tmp_path):
    rows = [row("Memcpy PtoP (Device -> Device)", 0, 40, cat="gpu_memcpy"), comm(0, 10), compute(50, 50)]
    one = only(read(tmp_path, rows))
    assert (micro(one.communication), micro(one.compute), micro(one.copies)) == (10, 50, 40)
    assert (micro(one.steps[0].idle), micro(one.steps[0].dp)) == (40, 10)


def test_collectives_beside_each_other_keep_their_own_times(tmp_path):
    rows = [
        comm(0, 30, **described(seq=1)),
        comm(10, 30, tid=21, **described(group="1", desc="mesh_tp", seq=1)),
    ]
    profile = read(tmp_path, [*rows, compute(50, 10)])
    one = only(profile)
    assert micro(one.communication) == 40
    assert sorted(round(1e6 * sum(c.seconds.values()), 6) for c in profile.collectives) == [30, 30]
    assert (micro(one.steps[0].tp), micro(one.steps[0].dp)) == (30, 10)  # tensor parallel first, once


def test_unknown_kernels_compute(tmp_path):
    one = only(read(tmp_path, [row("my_new_kernel", 0, 10), comm(5, 10)]))
    assert micro(one.overlap) == 5


def test_one_stream_for_both_explains_a_true_zero(tmp_path):
    profile = read(tmp_path, [compute(0, 10), comm(10, 10, tid=7), compute(20, 5)])
    assert only(profile).coverage == 0
    assert "never overlap" in profile.findings[0] and "on the stream that computes" in profile.findings[0]


def test_a_zero_with_all_collectives_at_the_end(tmp_path):
    profile = read(tmp_path, [compute(0, 10), compute(10, 10), comm(20, 10)])
    assert "start after the last computing" in profile.findings[0]


def test_a_zero_of_blocking_calls(tmp_path):
    profile = read(tmp_path, [compute(0, 10), comm(10, 10), compute(20, 10)])
    assert "its calls block" in profile.findings[0]


def test_exposed_time_is_said_at_any_share(tmp_path):
    for n, cover in enumerate((5, 40, 95)):
        profile = read(tmp_path, [compute(0, cover), comm(0, 100), compute(200, 1000 * n)])
        assert "are exposed" in profile.findings[0]


def test_exposed_gradients_are_the_time_in_backward(tmp_path):
    """Planner case H5: multi-node time sits in backward()."""
    profile = read(tmp_path, [compute(0, 100), comm(90, 60, **described())])
    assert any("exposed data-parallel communication takes 33.3 %" in one for one in profile.findings)
    assert any("inside backward()" in one for one in profile.findings)


@pytest.mark.parametrize(
    "events", [[], [{"ph": "M", "name": "process_name", "pid": 1, "args": {"name": "python"}}]]
)
def test_metadata_alone(tmp_path, events):
    profile = read(tmp_path, events)
    assert profile.steps == {0: []} and "metadata only" in repr(profile)


def test_rows_without_a_time_are_counted(tmp_path):
    bad = [row("k", "soon", 1), row("k", 0, -5), row("k", None, 1), row(None, 0, 1), {"ph": "X"}, 3, None]
    profile = read(tmp_path, [*bad, compute(0, 10)])
    assert micro(only(profile).compute) == 10 and any("7 rows without" in one for one in profile.warnings)


@pytest.mark.parametrize(
    ("names", "told", "ranks", "words"),
    [
        (("rank3.json", "rank_7.json"), (None, None), [3, 7], ""),
        (("a.json", "b.json"), (None, None), [0, 1], "taken as rank 1, by its order"),
        (("a.json", "b.json"), (None, 0), [0, 1], "a.json does not tell its rank; it is taken as rank 1"),
        (("rank5.json", "b.json"), (2, 1), [1, 2], "rank5.json is of rank 2, whatever its name says"),
        (("a.json", "b.json"), (1, 1), [1], "b.json is left out"),
    ],
)
def test_ranks(tmp_path, names, told, ranks, words):
    paths = [
        write(tmp_path / name, [compute(0, 1)], rank=rank) for name, rank in zip(names, told, strict=True)
    ]
    profile = read_profile(paths)
    assert list(profile.ranks) == ranks and words in " ".join(profile.warnings)


def test_a_step_lasts_until_its_work_on_the_gpu_ends(tmp_path):
    """Steps of 100 us on the host; each one's kernel of 150 us was launched within it and runs later."""
    rows = [step(n, 100 * n, 100) for n in range(3)]
    for n in range(3):
        rows += [launch(n, 100 * n + 10), compute(100 + 150 * n, 150, correlation=n)]
    profile = read(tmp_path, rows)
    one = only(profile)
    assert [tuple(round(1e6 * t, 6) for t in pair) for pair in one.windows] == [
        (0, 250),
        (250, 400),
        (400, 550),
    ]
    assert [micro(found.compute) for found in one.steps] == [150, 150, 150]
    assert [micro(found.total) for found in one.steps] == [250, 150, 150]


def test_without_correlations_work_goes_by_its_time(tmp_path):
    profile = read(tmp_path, [step(7, 0, 100), step(8, 100, 100), compute(50, 40), comm(120, 40)])
    one = only(profile)
    assert one.numbers == (7, 8)
    assert (micro(one.steps[0].compute), micro(one.steps[0].idle)) == (40, 60)
    assert (micro(one.steps[1].dp), micro(one.steps[1].idle)) == (40, 60)
    assert not any("ProfilerStep" in warning for warning in profile.warnings)


def test_without_steps_all_is_one_and_it_says_so(tmp_path):
    profile = read(tmp_path, [compute(0, 10), compute(90, 10)])
    assert len(profile.steps[0]) == 1 and micro(profile.steps[0][0].total) == 100
    assert any("no ProfilerStep" in warning for warning in profile.warnings)


def test_gaps_by_cause(tmp_path):
    """A step of 100 us: loading, launching, one kernel of the optimizer, and nothing."""
    rows = [
        step(1, 0, 100),
        row("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 0, 20, cat="user_annotation"),
        row("aten::mm", 20, 15, cat="cpu_op", pid=99, tid=99),
        row("Optimizer.step#SGD.step", 40, 10, cat="user_annotation"),
        launch(1, 30),
        compute(40, 20, correlation=1),
        launch(2, 45),
        compute(60, 10, correlation=2),
    ]
    found = only(read(tmp_path, rows)).steps[0]
    parts = {
        name: round(1e6 * getattr(found, name), 6)
        for name in ("data", "launch", "compute", "optimizer", "idle")
    }
    assert parts == {"data": 20, "launch": 15, "compute": 20, "optimizer": 10, "idle": 35}


def test_coalesced_calls_without_metadata_are_counted(tmp_path):
    rows = [comm(0, 10, **described()), comm(20, 10, name="ncclDevKernel_SendRecv(...)"), compute(0, 5)]
    profile = read(tmp_path, rows)
    assert any("1 of 2 collectives have no metadata (as coalesced calls)" in one for one in profile.warnings)
    assert any("1 operation told by kernel names alone" in one for one in profile.warnings)


def test_metadata_of_the_host_stands_for_that_of_the_kernel(tmp_path):
    params = {**described("all_to_allv", 500, ranks=(0, 1, 2, 3)), "External id": 7}
    rows = [row("record_param_comms", 0, 5, cat="cpu_op", **params), comm(0, 10, **{"External id": 7})]
    (call,) = read(tmp_path, rows).collectives
    assert (call.op, call.size, call.group.ranks, call.cause) == ("all_to_all", 2000, (0, 1, 2, 3), "ep")


@pytest.mark.parametrize("tid", [20, 99])
def test_annotations_tell_an_all_to_all_from_send_and_receive(tmp_path, tid):
    where = "gpu_user_annotation" if tid == 20 else "user_annotation"
    pid = 0 if tid == 20 else 99
    rows = [row("nccl:all_to_all", 0, 20, cat=where, pid=pid, tid=tid), launch(5, 5)]
    rows.append(comm(10, 5, name="ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclWorkElem)", correlation=5))
    (call,) = read(tmp_path, rows).collectives
    assert (call.op, call.told_by, call.cause) == ("all_to_all", "annotation", "ep")


@pytest.mark.parametrize(
    ("op", "sent", "received", "size", "factor"),
    [
        ("allreduce", 100, 100, 400, 1.5),
        ("_allgather_base", 100, 400, 1600, 0.75),
        ("_reduce_scatter_base", 400, 100, 1600, 0.75),
        ("all_to_allv", 400, 400, 1600, 0.75),
        ("broadcast", 100, 100, 400, 1.0),
        ("gather", 100, 400, 1600, 0.75),
        ("scatter", 400, 100, 1600, 0.75),
        ("send", 100, 100, 400, 1.0),
    ],
)
def test_sizes_and_busbw_as_nccl_tests_counts_them(tmp_path, op, sent, received, size, factor):
    said = described(op, ranks=(0, 1, 2, 3), **{"In msg nelems": sent, "Out msg nelems": received})
    (call,) = read(tmp_path, [comm(0, 10, **said)]).collectives
    assert call.size == size and call.busbw == pytest.approx(factor * size / 10e-6)


def test_ranks_of_a_group_that_are_cut_come_from_elsewhere(tmp_path):
    cut = {**described(ranks=(0, 2, 4, 6)), "Process Group Ranks": "[0, 2, ...]"}
    config = {"pg_config": [{"pg_name": "0", "pg_desc": "mesh_tp", "pg_size": 4, "ranks": [0, 2, 4, 6]}]}
    info = {"rank": 0, "world_size": 8, **config}
    (call,) = read(tmp_path, [comm(0, 10, **cut)], distributedInfo=info).collectives
    assert call.group.ranks == (0, 2, 4, 6)
    strided = {**cut, "Global rank start": 0, "Global rank stride": 2}
    (call,) = read(tmp_path, [comm(0, 10, **strided)]).collectives
    assert call.group.ranks == (0, 2, 4, 6)
    (call,) = read(tmp_path, [comm(0, 10, **cut)]).collectives
    assert call.group.ranks is None and call.group.members == 4


def test_causes_by_the_names_of_groups(tmp_path):
    said = [described(group=str(n), desc=desc) for n, desc in enumerate(("mesh_tp", "mesh_pp", "mesh_dp"))]
    rows = [comm(10 * n, 10, tid=20 + n, **one) for n, one in enumerate(said)]
    profile = read(tmp_path, [*rows, compute(40, 5)])
    found = profile.steps[0][0]
    assert [micro(getattr(found, name)) for name in ("tp", "pp", "dp")] == [10, 10, 10]
    assert not any("parallelism" in warning for warning in profile.warnings)


ROWS = st.lists(st.tuples(st.integers(0, 200), st.integers(0, 60), st.booleans()), min_size=1, max_size=20)


@given(ROWS, st.randoms())
def test_overlap_is_what_both_have_beyond_their_union_in_any_order(tmp_path_factory, rows, random):
    events = [(comm if talks else compute)(ts, dur) for ts, dur, talks in rows]
    random.shuffle(events)
    profile = read(tmp_path_factory.mktemp("t"), events)
    one = only(profile)
    busy = [
        {t for ts, dur, talks in rows if talks == which for t in range(ts, ts + dur)}
        for which in (False, True)
    ]
    found = [round(1e6 * value, 6) for value in (one.compute, one.communication, one.overlap)]
    assert found == [len(busy[0]), len(busy[1]), len(busy[0] & busy[1])]
    assert one.overlap == pytest.approx(one.compute + one.communication - len(busy[0] | busy[1]) * 1e-6)
    for found, (start, stop) in zip(one.steps, one.windows, strict=True):
        assert found.total == pytest.approx(stop - start, abs=1e-15)
        assert found.exposed == pytest.approx(one.exposed, abs=1e-15)


def test_beside():
    with pytest.raises(InputRefused, match="no measured step"):
        beside(StepTime(compute=1.0), [])
    with pytest.raises(InputRefused, match="give a StepTime"):
        beside(1.0, StepTime(compute=1.0))
