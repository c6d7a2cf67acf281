"""Tables, ranks and collectives: everything that tells is compared."""

from itertools import zip_longest

import pytest

from labkit import InputRefused, read_sweep
from tests.evidence.nccl_log import (
    BARE,
    FIRST,
    LINES,
    SIZES,
    check,
    devices,
    head,
    log,
    one,
    row,
    straight,
)


def test_several_tables_in_one_file():
    for generation in ("middle", "new"):
        text = (
            log(generation=generation)
            + "$ ./all_gather_perf -b 1K\n"
            + log("all_gather", 4, generation=generation)
        )
        first, second = read_sweep(text)
        check(first)
        check(second, "all_gather", 4)


def test_runs_without_a_new_head_are_split_where_the_sizes_start_again():
    text = "\n".join([*LINES[:-1], *BARE.split("\n"), "# Avg bus bandwidth    : 42.5"])
    first, second = read_sweep(text)
    check(first)
    check(second)


def test_data_types_of_one_table_become_sweeps():
    half = [row("all_reduce", 8, *entry, data_type="half", width=2) for entry in straight(8)]
    floats, halves = read_sweep("\n".join(LINES[: FIRST + len(SIZES)] + half + LINES[FIRST + len(SIZES) :]))
    check(floats)
    check(halves)

    assert (floats.part, halves.part) == ("float, sum", "half, sum")
    assert "one of 2 tables" in floats.warnings[0] and "half, sum" in halves.warnings[0]


def test_roots_and_reductions_of_one_table_are_told_apart():
    rows = [
        row("reduce", 8, *entry).replace("      0", f"      {root}", 1).replace("sum", redop)
        for redop in ("sum", "max")
        for root in range(3)
        for entry in straight(8)
    ]
    lines = log("reduce").split("\n")
    sweeps = read_sweep("\n".join([*lines[:FIRST], *rows]) + "\n")
    names = [f"float, {redop}, root {root}" for redop in ("sum", "max") for root in range(3)]
    assert [sweep.part for sweep in sweeps] == names
    assert one(log("reduce")).part == ""


@pytest.mark.parametrize("late", [1, 2, 4])
def test_device_lists_among_rows_are_refused(late):
    other = log(n=16, rows=straight(16, alpha=60)).split("\n")
    pairs = zip_longest(LINES, [""] * late + other, fillvalue="")
    with pytest.raises(InputRefused, match="separate runs are mixed in this log: line"):
        read_sweep("\n".join(line for pair in pairs for line in pair))


def test_ranks_listed_twice_are_told_and_no_number_is_made_of_two_lists():
    def twice(n):
        both = [line for pair in zip_longest(devices(8), devices(n)) for line in pair if line]
        first = next(at for at, line in enumerate(LINES) if "Rank" in line)
        return "\n".join([*LINES[:first], *both, *LINES[first + 8 :]])

    same, other = one(twice(8)), one(twice(16))
    assert same.n_ranks == 8 and "separate runs are mixed" in same.warnings[0]
    assert other.n_ranks is None and "separate runs are mixed" in other.warnings[0]
    assert one(twice(16), 8).n_ranks == 8


def test_sizes_measured_again_and_again_are_kept():
    sweep = one("\n".join(LINES[:FIRST]) + "\n" + BARE + BARE)
    assert sweep.size.size == 2 * len(SIZES) and "more than once" in sweep.warnings[0]


def test_size_zero_is_no_latency():
    zero = (
        row("all_reduce", 8, 1, 5.5, 5.5)
        .replace("  1   ", "  0   ", 1)
        .replace("           1 ", "           0 ", 1)
    )
    sweep = one("\n".join([*LINES[:FIRST], zero, *LINES[FIRST:]]))
    check(sweep)
    assert sweep.skipped == [(FIRST + 1, "size 0: nothing was sent, so its time is no latency")]
    with pytest.raises(InputRefused, match="size above 0"):
        read_sweep(zero + "\n")


def test_conflicting_ranks_are_reported_and_the_order_holds():
    sweep = one(log(), 32)
    assert sweep.n_ranks == 32
    assert (
        "the caller says 32, the device list says 8, the busbw/algbw ratio says 8; 32 is used"
        in sweep.warnings[0]
    )
    assert "printed busbw differs" in sweep.warnings[1]
    lines = [line.replace("Rank  7", "Rank 15") for line in LINES]
    sweep = one("\n".join(lines))
    assert sweep.n_ranks == 16 and "device list is cut" in sweep.warnings[0]
    assert "the device list says 16, the busbw/algbw ratio says 8; 16 is used" in sweep.warnings[1]


def test_a_device_list_that_lost_its_end_gives_way_to_the_ratio():
    lines = [line for line in LINES if "Rank  6" not in line and "Rank  7" not in line]
    lines.insert(lines.index(head("all_reduce")[0]) - 1, "...")
    sweep = one("\n".join(lines))
    assert sweep.n_ranks == 8 and "ratio says 8, the device list says 6; 8 is used" in sweep.warnings[-1]


def test_groups_of_a_split_run():
    n4 = log(n=4, rows=straight(4)).split("\n")
    at = next(at for at, line in enumerate(n4) if "Rank  3" in line)
    second = [
        line.replace("Group  0", "Group  1").replace("Rank  ", "Rank 1") for line in n4[at - 3 : at + 1]
    ]
    sweep = one("\n".join(n4[: at + 1] + second + n4[at + 1 :]))
    check(sweep, n=4)
    assert "split into 2 groups" in sweep.warnings[0]


def test_one_process_with_all_gpus_and_no_device_list():
    sweep = one("\n".join(line for line in log("broadcast", gpus=8).split("\n") if "Rank" not in line))
    assert sweep.n_ranks == 8 and "single process" in sweep.warnings[0]


def test_one_rank_measures_nothing():
    nameless = one("\n".join(line for line in log(n=1).split("\n") if line[:1] == " ") + "\n")
    assert nameless.n_ranks == 1 and (nameless.busbw == 0).all()
    assert "no communication" in one(log(n=1)).warnings[0]
    other = log(n=1).replace("node01", "node02")
    with pytest.raises(InputRefused, match="2 separate runs of one rank each"):
        read_sweep(log(n=1) + other)


def test_columns_overrule_a_name_that_cannot_be():
    sweep = one(log("all_gather").replace("all_gather_perf", "broadcast_perf"))
    assert sweep.collective == "all_gather" and "the log names broadcast" in sweep.warnings[0]


@pytest.mark.parametrize("cell", ["     sum", "      -1", "     sum      -1"])
def test_missing_redop_and_root_cells(cell):
    rows = [line.replace(cell, " " * len(cell)) if line[:1] == " " else line for line in LINES]
    check(one("\n".join(rows)))
    nameless = one("\n".join(line for line in rows if line[:1] == " ") + "\n")
    check(nameless)
    scattered = log("reduce_scatter").replace(cell, " " * len(cell))
    check(one(scattered), "reduce_scatter")


def test_file_name_tells_what_the_columns_leave_open(tmp_path):
    text = log("all_to_all", generation="middle", wrong="N/A")
    assert one(text).collective is None
    path = tmp_path / "03_alltoall_run.txt"
    path.write_text(text)
    sweep = one(path)
    assert sweep.collective == "all_to_all" and "name of the file" in sweep.warnings[0]


def test_command_line_names_the_collective():
    text = "mpirun -np 8 /opt/nccl-tests/build/scatter_perf -b 1K -e 1G -f 2\n" + log(
        "scatter", generation="middle"
    )
    check(one(text), "scatter")


def test_a_damaged_busbw_is_said_and_not_used():
    cell = LINES[FIRST + 20].split()[7]
    sweep = one("\n".join(LINES).replace(cell, cell.replace(cell[0], "3"), 1))
    check(sweep)
    assert "printed busbw differs" in sweep.warnings[0] and f"line {FIRST + 21}" in sweep.warnings[0]
