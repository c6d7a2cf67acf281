"""Across ranks: transfer and waiting, skew, the straggler; clocks play no part."""

import pytest

from labkit.evidence.profile import read_profile
from tests.evidence.profile.made import comm, compute, described, launch, row, step, write

MS = 1000


def job(tmp_path, rows, world=None):
    """A profile from the rows of each rank."""
    many = world or len(rows)
    for rank, events in enumerate(rows):
        write(tmp_path / f"rank{rank}.json", events, rank=rank, world=many)
    return read_profile(tmp_path)


def meeting(computes, sends, origins=None, **said):
    """Each rank computes, then all meet in one collective; ``origins``: of their clocks."""
    ranks = tuple(range(len(computes)))
    said = {**described(ranks=ranks), **said}
    origins = origins or [0] * len(computes)
    return [
        [
            step(1, at, (own + meets) * MS),
            compute(at, own * MS),
            comm(at + own * MS, meets * MS, **said),
        ]
        for at, own, meets in zip(origins, computes, sends, strict=True)
    ]


def test_the_slow_rank_has_the_shortest_kernel(tmp_path):
    """Planner case H3: compute 100, 100, 100, 130 ms, kernels 40, 40, 40, 10 ms: rank 3."""
    profile = job(tmp_path, meeting((100, 100, 100, 130), (40, 40, 40, 10)))
    assert profile.straggler == 3 and "rank 3 comes last in 1 of 1 collective" in profile.reason
    (one,) = profile.collectives
    assert one.transfer == pytest.approx(10e-3) and one.skew == pytest.approx(30e-3) and one.last == 3
    assert one.waiting == pytest.approx({0: 30e-3, 1: 30e-3, 2: 30e-3, 3: 0})
    assert profile.waited == pytest.approx(one.waiting)
    assert one.busbw == pytest.approx(1.5 * 4000 / 10e-3)


def test_clocks_of_ranks_are_never_compared(tmp_path):
    straight = job(tmp_path, meeting((100, 130), (40, 10)))
    shifted = job(tmp_path, meeting((100, 130), (40, 10), origins=(0, 1661203463042907)))
    for profile in (straight, shifted):
        assert profile.straggler == 1 and profile.collectives[0].skew == pytest.approx(30e-3)


@pytest.mark.parametrize(
    ("computes", "sends", "words"),
    [
        ((100, 100), (40, 40), "waiting for each other takes 0 % of their time"),
        ((100, 104), (40, 36), "waiting for each other takes 2.86 %"),
    ],
)
def test_equal_ranks_have_no_straggler(tmp_path, computes, sends, words):
    profile = job(tmp_path, meeting(computes, sends))
    assert profile.straggler is None and words in profile.reason


def test_ranks_that_come_last_in_turns_are_no_straggler(tmp_path):
    turns = [meeting((100, 150), (60, 10)), meeting((150, 100), (10, 60))]
    rows = [[], []]
    for number, turn in enumerate(turns):
        for rank, events in enumerate(turn):
            moved = [{**one, "ts": one["ts"] + 400 * MS * number} for one in events]
            rows[rank] += [{**one, "name": one["name"].replace("#1", f"#{number}")} for one in moved]
    profile = job(tmp_path, rows)
    assert profile.straggler is None and "not for the same one" in profile.reason


def test_hidden_waiting_costs_nobody_anything(tmp_path):
    rows = meeting((100, 130), (40, 10))
    rows[0].append(compute(100 * MS, 40 * MS, stream=8))
    profile = job(tmp_path, rows)
    assert profile.straggler is None and profile.collectives[0].skew == pytest.approx(30e-3)


def test_sequence_numbers_match_what_windows_of_different_steps_recorded(tmp_path):
    early = [comm(100 * n, 50, **described(seq=n)) for n in range(5)]
    late = [comm(100 * n, 10, **described(seq=n)) for n in range(2, 7)]
    profile = job(tmp_path, [early, late])
    both = [one for one in profile.collectives if len(one.seconds) == 2]
    assert [one.sequence for one in both] == [2, 3, 4]
    assert all(one.transfer == pytest.approx(10e-6) for one in both)


def test_without_numbers_and_steps_unequal_counts_are_not_compared(tmp_path):
    profile = job(tmp_path, [[comm(n * 100, 50, **described()) for n in range(3 + rank)] for rank in (0, 1)])
    assert all(len(one.seconds) == 1 for one in profile.collectives)
    assert any("unequal numbers (3 on rank 0, 4 on rank 1)" in one for one in profile.warnings)
    assert profile.straggler is None


def test_calls_match_by_the_order_of_their_launches(tmp_path):
    """On rank 1 the second call runs before the first, on another stream."""
    first, second = described(elements=10), described(elements=20)
    rows = [step(1, 0, 1000), launch(1, 10), launch(2, 20)]
    in_order = [comm(100, 10, correlation=1, **first), comm(200, 20, correlation=2, **second)]
    swapped = [comm(200, 30, correlation=1, **first), comm(100, 40, tid=21, correlation=2, **second)]
    profile = job(tmp_path, [rows + in_order, rows + swapped])
    assert [one.size for one in profile.collectives] == [40, 80]
    assert all(len(one.seconds) == 2 for one in profile.collectives)


def test_calls_that_differ_are_not_compared(tmp_path):
    rows = [
        meeting((10, 10), (5, 5), **{"In msg nelems": n, "Out msg nelems": n})[rank]
        for rank, n in enumerate((8, 16))
    ]
    profile = job(tmp_path, rows)
    assert len(profile.collectives) == 2 and any("at 1 place of a group" in one for one in profile.warnings)


def test_groups_of_one_name_and_other_ranks_are_apart(tmp_path):
    rows = [
        [comm(0, 10 * (rank + 1), **described(ranks=pair, seq=0))]
        for rank, pair in enumerate(((0, 1), (0, 1), (2, 3), (2, 3)))
    ]
    found = {tuple(one.seconds): one.transfer for one in job(tmp_path, rows).collectives}
    assert found == {(0, 1): pytest.approx(10e-6), (2, 3): pytest.approx(30e-6)}


def test_send_and_receive_in_a_larger_group_prove_nothing(tmp_path):
    rows = [[comm(0, 10 * (rank + 1), **described("send", ranks=(0, 1, 2)))] for rank in range(3)]
    profile = job(tmp_path, rows)
    assert all(one.transfer is None and one.busbw for one in profile.collectives)
    assert "no collective is on two ranks' traces" in profile.reason


def test_without_metadata_operations_match_by_their_order(tmp_path):
    rows = [
        [step(1, 0, 900), comm(0, 40 - 30 * rank), comm(100, 10, name="ncclKernel_AllGather")]
        for rank in (0, 1)
    ]
    profile = job(tmp_path, rows)
    assert [one.transfer for one in profile.collectives] == pytest.approx([10e-6, 10e-6])
    assert any("as if all ranks were in one group" in one for one in profile.warnings)


def test_gloo_on_the_host(tmp_path):
    def host(own, meets):
        return [
            step(1, 0, (own + meets) * MS),
            row("aten::mm", 0, own * MS, cat="cpu_op", tid=1),
            row("c10d::allreduce_", own * MS, 1, cat="cpu_op", tid=1),
            row(
                *("gloo:all_reduce", own * MS, meets * MS),
                **{"cat": "user_annotation", "tid": 2, "Input Dims": [[250]], "Input type": ["float"]},
            ),
        ]

    config = {"pg_config": [{"pg_name": "0", "pg_desc": "default_pg", "pg_size": 2, "ranks": [0, 1]}]}
    for rank, pair in enumerate(((10, 30), (35, 5))):
        info = {"backend": "gloo", "rank": rank, "world_size": 2, **config}
        write(tmp_path / f"r{rank}.json", host(*pair), distributedInfo=info)
    profile = read_profile(tmp_path)
    (one,) = profile.collectives
    assert (profile.straggler, one.size, one.group.ranks) == (1, 1000, (0, 1))
    assert profile.steps[0][0].compute == pytest.approx(10e-3) and profile.steps[0][0].dp == pytest.approx(
        30e-3
    )
    assert any("all is host time" in warning for warning in profile.warnings)


def test_sums_by_rank_group_and_operation(tmp_path):
    rows = [comm(0, 10, **described()), comm(20, 30, **described()), comm(60, 5, **described("broadcast"))]
    profile = job(tmp_path, [[*rows, compute(0, 20)]], world=2)
    first, second = profile.groups
    assert (first.operation, first.calls, first.size, first.cause) == ("all_reduce", 2, 8000, "dp")
    assert (first.seconds, first.exposed) == pytest.approx((40e-6, 30e-6))
    assert first.busbw == pytest.approx(8000 / 40e-6) and second.operation == "broadcast"


def test_one_file_with_processes_named_after_ranks(tmp_path):
    names = [{"ph": "M", "name": "process_name", "pid": n, "args": {"name": f"rank {n}"}} for n in (0, 1)]
    rows = [
        step(1, 0, 100),
        compute(0, 10),
        comm(50, 20, tid=20, pid=0),
        comm(40, 30, tid=20, pid=1),
        compute(0, 40, pid=1),
    ]
    profile = read_profile(write(tmp_path / "both.json", names + rows))
    assert {rank: round(1e6 * one.communication, 6) for rank, one in profile.ranks.items()} == {0: 20, 1: 30}
    said = "all ranks: 1 row left out, of processes which are not named after a rank: 99"
    assert said in profile.warnings  # the step


def test_rows_of_processes_that_are_no_rank_are_counted(tmp_path):
    names = [{"ph": "M", "name": "process_name", "pid": n, "args": {"name": f"rank {n}"}} for n in (0, 1)]
    rows = [compute(0, 10), compute(0, 20, pid=1), compute(0, 5, pid=7), compute(9, 5, pid="x\n"), comm(3, 2)]
    profile = read_profile(write(tmp_path / "t.json", [*names, *rows]))
    said = "all ranks: 2 rows left out, of processes which are not named after a rank: 7, x?"
    assert said in profile.warnings
    assert [one.compute for one in profile.ranks.values()] == pytest.approx([10e-6, 20e-6])


def test_all_processes_of_a_single_rank_are_read(tmp_path):
    """Rows of a GPU have its number as process, and those of the host and of its loaders have others."""
    loads = row("enumerate(DataLoader)#x", 0, 20, cat="user_annotation", pid=555)
    rows = [step(1, 0, 100), launch(1, 30), compute(40, 20, correlation=1, pid=3), loads]
    profile = read_profile(write(tmp_path / "t.json", rows))
    (found,) = profile.steps[0]
    assert (found.compute, found.data) == pytest.approx((20e-6, 20e-6))
    assert not any("left out" in one for one in profile.warnings)
