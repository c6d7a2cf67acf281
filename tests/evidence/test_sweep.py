"""The sweep reader on every layout of the tests, and on what launchers and NCCL put around the rows."""

import json

import numpy as np
import pytest

from labkit import InputRefused, read_sweep
from tests.evidence.nccl_log import (
    CELLS,
    FIRST,
    LINES,
    SIZES,
    check,
    log,
    one,
    row,
    straight,
)


@pytest.mark.parametrize("generation", ["old", "middle", "new"])
@pytest.mark.parametrize("op", CELLS)
@pytest.mark.parametrize("n", [2, 8, 12])
def test_every_collective_in_every_generation(op, generation, n):
    rows = straight(n, sizes=[size * 3 for size in SIZES]) if n == 12 else None
    checked = "0e+00" if generation == "old" else "0"
    unchecked = "N/A" if generation != "old" and op in ("all_to_all", "send_recv") else None
    sweep = one(log(op, n, rows, generation, wrong=checked, in_place_wrong=unchecked))
    if generation != "new" and op in ("gather", "scatter"):  # they print alike and nothing names them
        assert sweep.collective is None and "gather or scatter" in sweep.warnings[0]
        assert sweep.busbw[-1] == pytest.approx(sweep.algbw[-1] * (n - 1) / n, rel=1e-3)
    else:
        check(sweep, op, n, rows)
        assert sweep.warnings == []
    assert sweep.skipped == [] and (sweep.wrong == 0).all()


@pytest.mark.parametrize("op", ["all_reduce", "all_gather", "reduce_scatter"])
@pytest.mark.parametrize("n", [3, 4, 8, 96])
def test_without_any_head_ranks_come_from_the_numbers(op, n):
    rows = straight(n, rate=400e3, sizes=[size * n for size in SIZES[:-4]])
    text = "\n".join(line for line in log(op, n, rows).split("\n") if line[:1] == " ") + "\n"
    check(one(text), op, n, rows)


def test_ranks_that_the_ratio_cannot_tell_apart_stay_open():
    rows = straight(1440, sizes=SIZES[10:])
    sweep = one("\n".join(row("all_reduce", 1440, *entry) for entry in rows) + "\n")
    assert sweep.n_ranks is None and "ratio allows 1" in sweep.warnings[-1]
    assert sweep.busbw[-1] == pytest.approx(2 * sweep.algbw[-1], rel=1e-3)
    check(one("\n".join(row("all_reduce", 1440, *entry) for entry in rows) + "\n", 1440), n=1440, rows=rows)


def test_the_only_multiple_of_eight_that_the_ratio_allows_is_used_and_said():
    rows = straight(96, sizes=[96 * size for size in SIZES[:-4]])
    sweep = one("\n".join(row("all_reduce", 96, *entry) for entry in rows) + "\n")
    assert sweep.n_ranks == 96 and "ratio allows 96 to 97 ranks: 96" in sweep.warnings[0]


def test_broadcast_without_device_list_has_no_ranks_but_busbw():
    sweep = one(row("broadcast", 8, 2**24, 355.5, 356.6) + "\n")
    assert sweep.n_ranks is None and "number of ranks is unknown" in sweep.warnings[0]
    assert sweep.busbw[0] == pytest.approx(sweep.algbw[0], rel=1e-3)


@pytest.mark.parametrize(
    "data_type, width", [("half", 2), ("bfloat16", 2), ("double", 8), ("f8e4m3", 1), ("uint8", 1)]
)
def test_data_types(data_type, width):
    check(one(log(data_type=data_type, width=width)))
    check(one(log("all_gather", data_type=data_type, width=width)), "all_gather")


def test_unchecked_results_are_nan():
    assert np.isnan(one(log(wrong="N/A")).wrong).all()


def test_old_error_column_is_an_error_not_a_count():
    assert one(log(generation="old", wrong="1e-07")).wrong.tolist() == [0] * len(SIZES)
    bad = one(log(generation="old", wrong="1e+00"))
    assert (bad.wrong == 1).all() and "wrong results in 21 of 21 rows, first at 1024 B" in bad.warnings[0]


def test_the_asterisk_of_old_rccl_tests_is_no_part_of_the_error():
    lines = log(generation="old", wrong="0e+00").split("\n")
    at = next(at for at, line in enumerate(lines) if line.split()[:1] == ["1048576"])
    lines[at] = lines[at].replace("0e+00", "2e+00*")
    sweep = one("\n".join(lines))
    check(sweep)
    assert sweep.wrong[sweep.size == 2**20] == 2 and (sweep.wrong > 0).sum() == 1
    assert f"wrong results in 1 of 21 rows, first at 1048576 B (line {at + 1})" in sweep.warnings[0]


@pytest.mark.parametrize("behind", ["  N/A  N/A  N/A", "  RING  SIMPLE  24", "  24", "  1  2  24"])
@pytest.mark.parametrize("wrong", ["0", "N/A"])
def test_columns_behind_the_row_are_no_results(behind, wrong):
    lines = log(wrong=wrong).split("\n")
    check(one("\n".join(line + behind if line[:1] == " " else line for line in lines)))
    no_root = [line.replace("      -1", " " * 8) + behind if line[:1] == " " else line for line in lines]
    check(one("\n".join(no_root)))


def test_rows_glued_together_are_not_taken_for_columns_behind_a_row():
    glued = LINES[FIRST + 3] + LINES[FIRST + 4]
    sweep = one("\n".join([*LINES[: FIRST + 3], glued, *LINES[FIRST + 5 :]]))
    assert sweep.size.size == len(SIZES) - 2 and sweep.skipped == [(FIRST + 4, "it is not whole")]


@pytest.mark.parametrize("behind", ["", "  N/A  N/A  N/A"])
def test_one_half_under_the_head_of_two(behind):
    lines = [line[:-33] + behind if line[:1] == " " else line for line in LINES]
    sweep = one("\n".join(lines))
    np.testing.assert_allclose(sweep.time, [entry[1] * 1e-6 for entry in straight(8)], rtol=6e-4)
    assert (sweep.collective, sweep.n_ranks, sweep.in_place) == ("all_reduce", 8, None)
    assert len(sweep.warnings) == 1 and "which one is unknown" in sweep.warnings[0]


def test_steps_in_bytes():
    rows = straight(8, sizes=range(1048576, 8 * 1048576, 524288))
    check(one(log(rows=rows)), rows=rows)


def test_columns_of_the_per_iteration_report_and_time_stamps_are_no_results():
    text = log()
    for side in ("#wrong",):
        text = text.replace(side, side + "   i_min   i_max   i_p99   i_cv%")
    lines = text.split("\n")
    for at, line in enumerate(lines):
        if line[:1] == " ":
            more = "    19.00    22.00    21.90     1.50"
            half = len(line) - 33
            lines[at] = line[:half] + more + line[half:] + more + "  2026-01-10 10:00:00"
    check(one("\n".join(lines)))


def test_only_in_place():
    blank = [
        line[: line.index("-1") + 2] + " " * 33 + line[line.index("-1") + 35 :]
        for line in LINES
        if line[:1] == " "
    ]
    sweep = one("\n".join([*LINES[:FIRST], *blank, ""]))
    np.testing.assert_allclose(sweep.time, [entry[2] * 1e-6 for entry in straight(8)], rtol=6e-4)
    assert sweep.in_place.time.tolist() == sweep.time.tolist() and "only in-place" in sweep.warnings[0]


def test_milliseconds_of_the_first_tests():
    text = (
        "#  bytes     N    type  op   time  algbw  busbw    res   time  algbw  busbw    res\n"
        " 10000000  10000000  char  sum  1.600   6.25   9.38  0e+00  2.000   5.00   7.50  0e+00\n"
        " 20000000  20000000  char  sum  3.200   6.25   9.38  0e+00  4.000   5.00   7.50  0e+00\n"
    )
    sweep = one(text)
    assert sweep.time.tolist() == pytest.approx([1.6e-3, 3.2e-3]) and sweep.n_ranks == 4


def test_early_all_gather_and_hypercube_print_busbw_as_algbw():
    rows = [(2**k, 20 + 2**k / 50e3, 21 + 2**k / 50e3) for k in range(5, 28)]
    lines = log("all_gather", 8, rows).replace("all_gather_perf", "hypercube_perf").split("\n")
    for at, line in enumerate(lines):
        if line[:1] == " ":
            cells = line.split()
            cells[6], cells[10] = cells[7], cells[11]
            lines[at] = " ".join(cells)
    sweep = one("\n".join(lines))
    check(sweep, "all_gather", 8, rows)
    assert "0.875 x size / time" in sweep.warnings[0]


@pytest.mark.parametrize(
    "label",
    ["0: ", "[0] ", "[1,0]<stdout>:", "   [1,0]<stdout>: ", "node-01.cluster: ", "10: node01: ", "> ", "\t",
     "Mon Jan  5 10:00:00 2026[1,0]<stdout>:",
     "2026-01-05T10:00:00.123456789Z stdout F ", "[2026-01-05 10:00:00] "],
)  # fmt: skip
def test_labels_before_every_line(label):
    check(one("\n".join(label + line for line in LINES)))


@pytest.mark.parametrize(
    "change",
    [lambda t: t.replace("\n", "\r\n"), lambda t: t.replace("\n", "\r"), lambda t: "\ufeff" + t,
     lambda t: t.replace("  ", "\t"), lambda t: "```\n" + t + "```\n", lambda t: t.rstrip("\n"),
     lambda t: t.replace("float", "\x1b[1;32mfloat\x1b[0m"),
     lambda t: "\n".join(" ".join(line.split()) for line in t.split("\n")),
     lambda t: "\n".join(json.dumps({"log": line + "\n", "stream": "out"}) for line in t.split("\n")) + "\n"],
)  # fmt: skip
def test_line_ends_tabs_colours_fences_and_container_json(change):
    check(one(change(log())))


def test_bytes_that_are_no_text_and_utf16(tmp_path):
    path = tmp_path / "log.txt"
    path.write_bytes(b"\xff\x00\xfe caf\xe9\n" + log().encode())
    check(one(path))
    path.write_bytes(log().encode("utf-16"))
    check(one(str(path)))


def test_debug_lines_between_rows_and_glued_behind_them():
    noise = "node01:497888:497888 [0] NCCL INFO 8192 Bytes -> Algo 0 proto 0 time 26.549810"
    lines = [x for line in LINES for x in (line, noise, "...", "")]
    check(one("\n".join(lines)))
    check(one("\n".join(line + noise if line[:1] == " " else line for line in LINES)))
    check(one("\n".join(line + "[0] " + noise if line[:1] == " " else line for line in LINES)))


def broken(pieces_of):
    """The log with one row printed in pieces by ``pieces_of(head, out of place, in place)``."""
    at = FIRST + 9
    line = LINES[at]
    cut = line.index("-1") + 2
    pieces = pieces_of(line[:cut], line[cut : cut + 33], line[cut + 33 :])
    return "\n".join(LINES[:at] + pieces + LINES[at + 1 :]), at + 1


def test_rows_far_in_a_line_and_behind_progress_bars():
    for before in ("p" * 2100 + " ", " 40%|###\r 60%|####\r", "x" * 5000 + "\r"):
        check(one("\n".join(before + line if line[:1] == " " else line for line in LINES)))
    long = " ".join(line for line in LINES if line[:1] == " ")
    check(one("\n".join([*LINES[:FIRST], long, ""])))
    cut = one("\n".join([*LINES[:FIRST], long[:-10] + " and so on", ""]))
    assert cut.size.size == len(SIZES) - 1 and [line for line, _ in cut.skipped] == [FIRST + 1]


def test_a_row_behind_a_message_of_nccl_is_said_to_be_left_out():
    lines = [*LINES[: FIRST + 4], NOISE + LINES[FIRST + 4], *LINES[FIRST + 5 :]]
    sweep = one("\n".join(lines))
    assert sweep.size.size == len(SIZES) - 1
    assert sweep.skipped == [(FIRST + 5, "a message of NCCL stands before it in its line")]


NOISE = "node01:4:5 [0] NCCL INFO 8192 Bytes -> Algo 0 proto 0 time 26.5"


@pytest.mark.parametrize("label", ["", "[0] ", "0: "])
def test_a_row_in_pieces_is_put_together_when_that_is_certain(label):
    text, at = broken(lambda row, out, inp: [row + NOISE, NOISE, out + NOISE, NOISE, inp])
    sweep = one("\n".join(label + line for line in text.split("\n")))
    check(sweep)
    assert f"line {at} was put together again" in sweep.warnings[0] and sweep.skipped == []


@pytest.mark.parametrize(
    "pieces",
    [lambda row, out, inp: [row + NOISE, inp],
     lambda row, out, inp: [row + NOISE, "something else printed this", out, inp],
     lambda row, out, inp: [row + NOISE, out[:-8], inp],
     lambda row, out, inp: [row[:20] + NOISE, out, inp]],
)  # fmt: skip
def test_other_rows_in_pieces_are_left_out_with_their_line(pieces):
    text, at = broken(pieces)
    sweep = one(text)
    assert sweep.size.size == len(SIZES) - 1
    assert sweep.skipped and {line for line, _ in sweep.skipped} <= set(range(at, at + 4))


def test_trouble_in_the_log_is_reported():
    lines = [
        *LINES[: FIRST + 5],
        "node01: Test NCCL failure common.cu:958 'unhandled system error'",
        "MPI_ABORT was invoked",
    ]
    sweep = one("\n".join(lines) + "\n")
    assert sweep.size.size == 5
    assert ["Test NCCL failure" in sweep.warnings[0], "MPI_ABORT" in sweep.warnings[1]] == [True, True]
    with pytest.raises(InputRefused, match=r"no row of numbers under it; .*Test CUDA failure"):
        read_sweep("\n".join([*LINES[:FIRST], "node01: Test CUDA failure common.cu:9 'out of memory'"]))
    failed = one(log().replace(": 0 OK", ": 3 FAILED"))
    assert "FAILED" in failed.warnings[0]
