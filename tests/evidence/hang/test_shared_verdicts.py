"""The verdict on each shared log, and on pieces of it: nothing that its source line does not say."""

import random
from pathlib import Path

import pytest

from labkit.errors import InputRefused
from labkit.evidence.hang.read import hang_of, read_hang
from labkit.evidence.hang.text import read_text

LOGS = Path(__file__).resolve().parents[3].parent / "shared" / "data" / "nccl_debug"
pytestmark = pytest.mark.skipif(not LOGS.is_dir(), reason="the shared logs do not stand beside this one")

# file: verdict, number of the first call, absent, ahead, suspects
VERDICTS = {
    "fingerprint_01_shape_mismatch": ("mismatch", 0, (), (), ()),
    "fingerprint_02_numel_mismatch_bucket": ("mismatch", 3104, (), (), ()),
    "nccl_2_04_mismatched_collective_warn": ("undecided", None, (), (), ()),  # a hint only
    "nccl_2_07_8_init_64gpu_16nodes_interleaved": ("undecided", None, (), (), ()),
    "nccl_2_07plus_coll_send_recv_opcount_hex": ("undecided", None, (), (), ()),
    "nccl_2_10_3_socket_four_ranks_one_node": ("undecided", None, (), (), ()),  # cut during its start
    "nccl_2_18_5_roce_h800": ("undecided", None, (), (), ()),
    "nccl_2_19_3_init_ib_sharp_nvls": ("undecided", None, (), (8, 11, 12, 14, 15), ()),
    "nccl_2_26_2_srun_prefix_mixed_with_training": ("undecided", None, (), (), ()),
    "nccl_net_plugin_not_found": ("never_formed", None, (), (), ()),
    # Two of four ranks are in the file, one to one: the source names rank 2 from all four (next test).
    "rccl_allgather_vs_allreduce_same_opcount": ("mismatch", 0x28C, (), (), ()),
    "watchdog_01_torch_1x_no_SeqNum": ("timeout_too_short", None, (), (6,), ()),
    "watchdog_03_torch_112_SeqNum_no_Numel": ("undecided", 469508, (), (1, 2, 3, 6, 7), ()),
    "watchdog_05_torch_23_heartbeat_no_collective": ("missing_rank", None, (0,), (1, 2), (0,)),
    "watchdog_07_torch_24_PG_Rank_enqueued_completed": ("undecided", 1580, (), (0, 2, 3, 4), ()),
    "watchdog_09_torch_25_PG_GUID_desc": ("undecided", 808, (), (0, 1, 2), ()),
    "watchdog_11_torch_26_blocking_wait_pair": ("undecided", 2521, (), (1, 5, 7), ()),
    "watchdog_12_torch_28plus_work_sequence_id_with_stack": ("undecided", 190346, (), (9,), ()),
    "watchdog_15_pdsh_prefix_default_pg": ("undecided", 2070, (), (6,), ()),
    "watchdog_16_desync_report": ("missing_rank", 2, (1,), (0,), ()),  # behind is not guilty
}


def test_every_shared_log_has_its_verdict_here():
    assert {path.stem for path in LOGS.glob("*.txt")} <= set(VERDICTS)


@pytest.mark.parametrize("name", VERDICTS)
def test_the_verdict_is_what_the_source_says(name):
    hang = read_hang(LOGS / f"{name}.txt")
    verdict, number, absent, ahead, suspects = VERDICTS[name]
    assert (hang.verdict, hang.absent, hang.ahead, hang.suspects) == (verdict, absent, ahead, suspects)
    assert (hang.first.sequence if hang.first else None) == number
    if verdict == "undecided":
        assert "either" in hang.reason and " or " in hang.reason and "fetch" in hang.next_step


def test_with_the_calls_of_the_two_ranks_left_out_the_culprit_is_rank_2():
    text = (LOGS / "rccl_allgather_vs_allreduce_same_opcount.txt").read_text()
    one = [line for line in text.splitlines() if "[0]" in line]
    others = [
        line.replace(":45006:45006 [0]", f":{45000 + rank}:{45000 + rank} [{rank}]")
        for rank in (1, 3)
        for line in one
    ]
    hang = hang_of(read_text(text + "\n".join(others) + "\n", "all.log"))
    assert (hang.verdict, hang.first.sequence, hang.suspects) == ("mismatch", 652, (2,))
    assert hang.findings[0].differs[0] == "operation"


def test_the_buckets_of_one_rank_are_smaller():
    """Planner case F3: 195,812,480 against 51,123,456 elements; the message compares two ranks."""
    hang = read_hang(LOGS / "fingerprint_02_numel_mismatch_bucket.txt")
    assert hang.findings[0].differs == ("number of elements",)
    assert "[51123456]" in hang.first.calls[0] and "[195812480]" in hang.first.calls[1]


def _pieces(text, seed):
    draw = random.Random(seed)
    lines = text.splitlines(keepends=True)
    cut = text[: draw.randrange(1, len(text))]
    tail = text[draw.randrange(len(text)) :]
    few = "".join(line for line in lines if draw.random() < 0.6)
    spliced = "".join(f"step {k}: loss 1.{k}\n{line}" for k, line in enumerate(lines))
    return {"cut": cut, "tail": tail, "few": few, "between": spliced}


@pytest.mark.parametrize("name", VERDICTS)
@pytest.mark.parametrize("seed", range(6))
def test_a_piece_of_a_log_says_less_and_nothing_else(tmp_path, name, seed):
    """Every claim about a piece is one about the whole: cut, thinned out, with training lines between."""
    text = (LOGS / f"{name}.txt").read_text()
    verdict, _number, absent, ahead, suspects = VERDICTS[name]
    for how, piece in _pieces(text, seed).items():
        path = tmp_path / f"{how}.txt"
        path.write_text(piece)
        try:
            hang = read_hang(path)
        except InputRefused:
            assert not piece.strip()
            continue
        assert hang.verdict in (verdict, "undecided"), (how, piece, hang)
        assert set(hang.suspects) <= set(suspects) and hang.reason and hang.next_step
        if hang.verdict != "undecided":
            assert set(hang.absent) <= set(absent) and set(hang.ahead) <= set(ahead)


def test_all_shared_logs_at_once_are_one_sentence_not_a_traceback():
    hang = read_hang(LOGS)
    assert len(hang.sources) >= 2 * len(VERDICTS) and hang.reason
