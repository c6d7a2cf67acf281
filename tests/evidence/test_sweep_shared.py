"""The shared logs, each with the facts its source line gives; they stay outside the project."""

from pathlib import Path

import pytest

from labkit import InputRefused, read_sweep

LOGS = Path(__file__).resolve().parents[2].parent / "shared" / "data" / "nccl_tests"
pytestmark = pytest.mark.skipif(not LOGS.is_dir(), reason="the shared logs do not stand beside this checkout")

ZERO = "size 0"
# file: collective, ranks, rows, lines skipped, words that the warnings contain (none: no warning at all)
READ = {
    "01_allreduce_c0_NA_inforow": ("all_reduce", 8, 32, [17, 18], []),
    "02_allgather_noredop_noroot": ("all_gather", 8, 29, [17, 18, 19, 20, 21], []),
    "04_broadcast_root_col": ("broadcast", 8, 32, [17, 18], []),
    "06_reducescatter_c0": ("reduce_scatter", 8, 29, [17, 18, 19, 20, 21], []),
    "07_allreduce_srun_label_prefix_p4de": ("all_reduce", 16, 29, [], []),
    "09_allreduce_mpirun_tag_indented_ellipsis": ("all_reduce", 16, 6, [4], []),
    "11_allreduce_ellipsis_first_row_cold": ("all_reduce", 128, 3, [], []),
    "13_allreduce_coreweave_large_sizes": ("all_reduce", 96, 5, [], []),
    "17_allreduce_2171_gh200_good": ("all_reduce", 8, 25, [], []),
    "18_allreduce_2171_gh200_socket_fallback": ("all_reduce", 8, 25, [], []),
    "20_oci_nccl_2293": ("all_reduce", 16, 4, [], ["device list is cut"]),
    "22_allreduce_hash_stripped_header": ("all_reduce", 16, 31, [], []),
    "30_allgather_4GiB_int_overflow_FAILED": (
        "all_gather", 8, 1, [],
        ["FAILED", "0.875 x size / time", "wrong results in 1 of 1", "wrong results in place"],
    ),
    "35_nonzero_wrong_heterogeneous_nodes": (
        "all_reduce", 2, 3, [], ["wrong results in 1 of 3 rows, first at 524288 B", "in place in 1 of 3"],
    ),
    "37_reducescatter_size0_rows_repeated": ("reduce_scatter", 8, 2, [4, 5, 6, 7, 8, 11], []),
    "41a_json_J_v3_CONSTRUCTED": ("all_reduce", 2, 8, [], []),
    "46_header_version_220_hash": ("all_reduce", 2, 4, [], []),
    "48_old_npkit_1e-07_rows": ("all_reduce", 4, 3, [], []),
    "50_broadcast_warn_between_devices_and_header": ("broadcast", 2, 1, [], ["line 7", "line 10"]),
}  # fmt: skip
REFUSED = {
    "12_NEGATIVE_neuron_nccom_test": "AWS Neuron nccom-test",
    "34_two_processes_both_rank0_interleaved": "2 separate runs of one rank each .* no communication",
    "39_row_split_by_NCCL_INFO_lines": "line 1 .*piece of a row",
}


def test_every_shared_log_has_its_facts_here():
    assert {path.stem for path in LOGS.glob("*.txt")} == READ.keys() | REFUSED.keys()


@pytest.mark.parametrize("name", READ)
def test_facts(name):
    collective, ranks, rows, skipped, words = READ[name]
    (sweep,) = read_sweep(LOGS / f"{name}.txt")
    assert (sweep.collective, sweep.n_ranks, sweep.size.size) == (collective, ranks, rows)
    assert sweep.in_place.size.tolist() == sweep.size.tolist()
    assert [line for line, _ in sweep.skipped] == skipped
    assert len(sweep.warnings) == len(words)
    for word, warning in zip(words, sweep.warnings, strict=True):
        assert word in warning


@pytest.mark.parametrize("name", REFUSED)
def test_refusals(name):
    with pytest.raises(InputRefused, match=REFUSED[name]):
        read_sweep(LOGS / f"{name}.txt")


def test_text_and_path_give_the_same():
    for name in READ:
        path = LOGS / f"{name}.txt"
        ours, theirs = read_sweep(path.read_text(encoding="utf-8")), read_sweep(path)
        assert [s.time.tolist() for s in ours] == [s.time.tolist() for s in theirs]
        assert [(s.collective, s.n_ranks) for s in ours] == [(s.collective, s.n_ranks) for s in theirs]


def test_single_numbers():
    def one(name):
        return read_sweep(LOGS / f"{name}.txt")[0]

    cold = one("11_allreduce_ellipsis_first_row_cold")
    assert cold.time[0] == pytest.approx(983.2e-6) and cold.in_place.time[0] == pytest.approx(166.1e-6)
    overflow = one("30_allgather_4GiB_int_overflow_FAILED")
    assert overflow.algbw[0] == pytest.approx(147.48e9, rel=1e-4)
    assert overflow.busbw[0] == pytest.approx(129.05e9, rel=1e-4) and overflow.wrong[0] == 1
    assert one("35_nonzero_wrong_heterogeneous_nodes").wrong.tolist() == [0, 0, 237858]
    assert one("48_old_npkit_1e-07_rows").wrong.tolist() == [0, 0, 0]
    assert one("37_reducescatter_size0_rows_repeated").time[0] == pytest.approx(32.31e-6)
    assert one("09_allreduce_mpirun_tag_indented_ellipsis").size[0] == 67108864
    skipped = one("37_reducescatter_size0_rows_repeated").skipped
    assert [ZERO in why for _, why in skipped] == [True] * 5 + [False]


def test_environment_of_a_json_report_is_never_shown():
    (sweep,) = read_sweep(LOGS / "41a_json_J_v3_CONSTRUCTED.txt")
    assert "redacted" not in repr(vars(sweep)) and "API_TOKEN" not in repr(vars(sweep))
