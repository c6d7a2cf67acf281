"""Fields of a trace that hold what they should not: the rest is read, and what they tell is not known."""

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from labkit.cli import main
from labkit.errors import InputRefused
from labkit.evidence.profile import read_profile
from tests.evidence.profile.made import CORE, NCCL, comm, compute, described, row, step, write


@pytest.mark.parametrize(
    "damaged",
    [
        {"External id": [1]},
        {"External id": {"a": 1}},
        described(elements=10**400),
        described(elements=2**64),
        {"Input Dims": [[10**400]], "Input type": ["float"], **described()},
        {"Input Dims": [[10**200, 10**200]], "Input type": ["float"], "Collective name": "allreduce"},
    ],
)
def test_a_damaged_field_of_a_collective_costs_its_own_figure_alone(tmp_path, damaged):
    path = write(tmp_path / "rank-0.json", [compute(0, 10), comm(5, 10, **damaged)])
    profile = read_profile(path)
    (rank,) = profile.ranks.values()
    assert rank.communication == pytest.approx(10e-6)
    sizes = [one.size for one in profile.collectives]
    assert all(size is None or math.isfinite(size) for size in sizes)
    assert repr(profile)


@pytest.mark.parametrize(
    ("ranks", "members"),
    [
        ("[0, 0, 0]", 3),
        ("[-1, 3]", 2),
        ([0, 10**400], 2),
        ("[0, 12345678901]", 2),
        ([0, True], 2),
        ({"a": 1}, 2),
    ],
)
def test_ranks_that_cannot_be_a_list_of_ranks(tmp_path, ranks, members):
    said = {**described(), "Process Group Ranks": ranks, "Group size": members}
    profile = read_profile(write(tmp_path / "rank-0.json", [compute(0, 10), comm(5, 10, **said)]))
    (call,) = profile.collectives
    assert call.group.ranks is None and call.group.members == members and call.size == 4000
    assert sum("1 collective whose list of the group's ranks" in one for one in profile.warnings) == 1


def test_a_cut_list_of_ranks_is_no_damage(tmp_path):
    said = {**described(), "Process Group Ranks": "[0, 1, ...]"}
    profile = read_profile(write(tmp_path / "rank-0.json", [comm(5, 10, **said)]))
    assert not any("list of the group's ranks" in one for one in profile.warnings)


@pytest.mark.parametrize(
    ("ts", "dur"),
    [(1e17, 5), (2**53, 5), (-(2**53), 5), (0, 1e17), (0, 1e12), (True, 5), (0, True), ("1", 5)],
)
def test_times_that_cannot_be_are_counted_and_not_read(tmp_path, ts, dur):
    profile = read_profile(write(tmp_path / "rank-0.json", [compute(0, 10), comm(ts, dur)]))
    assert profile.ranks[0].compute == pytest.approx(10e-6) and not profile.ranks[0].calls
    assert any("1 row without a usable name, time or duration" in one for one in profile.warnings)


def test_a_row_without_a_duration_is_not_one_of_zero_seconds(tmp_path):
    bare = compute(0, 10)
    del bare["dur"]
    profile = read_profile(write(tmp_path / "rank-0.json", [bare, compute(20, 10)]))
    assert any("1 row without a usable" in one for one in profile.warnings)
    assert profile.steps[0][0].total == pytest.approx(10e-6)


@pytest.mark.parametrize("strays", [(0,), (0, 5)])
def test_a_row_years_away_from_all_others_is_left_out_wherever_it_stands(tmp_path, strays):
    at = 1661203463042907
    rows = [compute(at, 10), comm(at + 5, 10), compute(at + 20, 10)]
    for place, ts in enumerate(strays):
        rows.insert(2 * place, compute(ts, 1))
    profile = read_profile(write(tmp_path / "rank-0.json", rows))
    assert profile.steps[0][0].total == pytest.approx(30e-6)
    (rank,) = profile.ranks.values()
    assert (rank.compute, rank.overlap) == pytest.approx((20e-6, 5e-6))
    assert any("without a usable name, time or duration" in one for one in profile.warnings)


@pytest.mark.parametrize("key", ["ts", "dur", "args", "beside"])
def test_a_number_of_thousands_of_digits_costs_its_row_alone(tmp_path, key):
    long, rows = "1" * 5000, [compute(0, 10), comm(5, 10, **described())]
    if key in ("ts", "dur"):
        rows.append({**compute(0, 1), key: "LONG"})
    elif key == "args":
        rows[1]["args"]["Seq"] = "LONG"
    text = json.dumps(
        {"distributedInfo": {"rank": 0}, "traceEvents": rows, "x": "LONG" if key == "beside" else 1}
    )
    path = tmp_path / "t.json"
    path.write_text(text.replace('"LONG"', long))
    profile = read_profile(path)
    (rank,) = profile.ranks.values()
    assert (rank.compute, rank.communication, rank.overlap) == pytest.approx((10e-6, 10e-6, 5e-6))
    lost = [one for one in profile.warnings if "1 row without a usable" in one]
    assert bool(lost) == (key in ("ts", "dur")) and profile.collectives[0].size == 4000


@pytest.mark.parametrize("seconds", [1e-320, 5e-324, 1e-300, 1e-9])
def test_a_duration_that_no_clock_measures_gives_no_rate(tmp_path, seconds):
    path = write(tmp_path / "rank-0.json", [comm(0, seconds, **described(elements=2**62)), compute(5, 1)])
    profile = read_profile(path)
    assert all(one.busbw is None for one in (*profile.collectives, *profile.groups))
    assert main(["profile", "--json", str(path)]) == 0  # refuses NaN and what has no end


def test_collectives_of_no_duration_are_not_called_none(tmp_path):
    profile = read_profile(write(tmp_path / "rank-0.json", [comm(0, 0), compute(0, 5)]))
    assert "1 collective found, of no duration" in profile.findings[0]
    assert "No communication found" not in repr(profile) and profile.ranks[0].coverage is None


def test_rows_of_other_tracers_are_named(tmp_path):
    halves = [
        {"ph": phase, "name": "k", "cat": "kernel", "pid": 0, "tid": 1, "ts": n}
        for n, phase in enumerate("BE")
    ]
    profile = read_profile(write(tmp_path / "rank-0.json", halves))
    assert any("2 rows not read, which mark the begin or the end" in one for one in profile.warnings)
    assert profile.steps == {0: []} and profile.ranks[0].communication is None
    profile = read_profile(write(tmp_path / "rank-1.json", [*halves, compute(0, 10)]))
    assert any("2 rows not read" in one for one in profile.warnings) and len(profile.steps[0]) == 1
    foreign = [{"ph": "X", "name": "k", "cat": "gpu.op", "pid": 0, "tid": 1, "ts": 0, "dur": 5}]
    profile = read_profile(write(tmp_path / "rank-2.json", foreign))
    assert any(
        "no usable row of the trace is one that torch.profiler writes" in one for one in profile.warnings
    )
    assert not profile.findings and any(
        "1 row " in one
        for one in read_profile(write(tmp_path / "rank-3.json", [{"ph": "Z"}, compute(0, 1)])).warnings
    )


def test_names_within_a_trace_cannot_write_to_the_terminal(tmp_path, capsys):
    evil = "\x1b[31m\n"
    said = described(op=evil, group=evil, desc=evil)
    rows = [comm(0, 5, **said), comm(9, 5, name=f"nccl{evil}"), row(f"x{evil}", 0, 9, pid=evil)]
    names = [{"ph": "M", "name": "process_name", "pid": n, "args": {"name": f"rank {n}"}} for n in (0, 1)]
    host = [row(f"gloo:{evil}", 0, 5, cat="user_annotation"), row("aten::mm", 0, 9, cat="cpu_op")]
    for n, events in enumerate((rows, [*names, *rows], host)):
        main(["profile", str(write(tmp_path / f"t{n}.json", events, backend=evil))])
        assert capsys.readouterr().out.replace("\n", "").isprintable()


def test_a_million_useless_rows_are_no_trace(tmp_path):
    path = tmp_path / "t.json"
    path.write_text("[" + "0," * 1_100_000 + "0]")
    with pytest.raises(InputRefused, match="more than 1,000,000 rows without a usable name"):
        read_profile(path)


NUMBERS = st.one_of(
    st.integers(-3, 50),
    st.floats(),
    st.just(10**30),
    st.just(5e-324),
    st.just(1e15),
    st.booleans(),
    st.none(),
)
FIELDS = NUMBERS | st.text(max_size=4) | st.lists(st.integers(-1, 3), max_size=3) | st.just("[0, 1]")
SAID = st.dictionaries(
    st.sampled_from([*described(), "Seq", "External id", "correlation", "Input Dims"]), FIELDS
)
ANY_ROW = st.builds(
    lambda name, ts, dur, tid, said: {**row(name, ts, dur, tid=tid), "args": said},
    st.sampled_from([NCCL, CORE, "ncclDevKernel_SendRecv(...)", "Memcpy DtoD"]),
    NUMBERS,
    NUMBERS,
    st.integers(0, 2),
    SAID | FIELDS,
)
ANY_MARK = st.builds(step, st.integers(0, 3), st.integers(0, 60), st.integers(0, 40))


@given(st.lists(ANY_ROW | ANY_MARK, max_size=12))
def test_whatever_rows_hold_no_figure_is_without_end_or_below_zero(tmp_path_factory, rows):
    path = tmp_path_factory.mktemp("t") / "rank-0.json"
    profile = read_profile(write(path, rows))
    (rank,) = profile.ranks.values()
    for steps, (start, stop) in zip(rank.steps, rank.windows, strict=True):
        assert steps.total == pytest.approx(stop - start, rel=1e-9, abs=1e-15)
    assert min(rank.exposures, default=0) >= -1e-15
    for one in (*profile.collectives, *profile.groups):
        assert one.busbw is None or (math.isfinite(one.busbw) and one.busbw > 0)
    assert main(["profile", "--json", str(path)]) == 0
