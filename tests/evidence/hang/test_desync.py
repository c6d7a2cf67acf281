"""Reports of TORCH_NCCL_DESYNC_DEBUG: every rank that one names counts, in the watchdog's numbers."""

import pytest

from labkit.evidence.hang.read import hang_of
from labkit.evidence.hang.text import read_text
from tests.evidence.hang.told import read, told

RAN = "ran for 8097 milliseconds before timing out."
LAGS = " - To our best knowledge, the lagging/dead/mismatched ranks that caused the desync are:"
LIST = " - Snapshot of ranks' latest states:"


def report(*lines, sequence=11, number=12, before="", label=""):
    """The message of rank 0, which waits in its call ``sequence``; the report has ``number`` for it."""
    work = f"WorkNCCL(SeqNum={sequence}, OpType=ALLREDUCE, NumelIn=4, NumelOut=4, Timeout(ms)=8000)"
    whole = [
        f"[Rank 0] Watchdog caught collective operation timeout: {work} {RAN}",
        *([before] if before else []),
        f" - [0] Timeout at collective: ALLREDUCE, #{number}",
        *lines,
    ]
    return "".join(f"{label}{line}\n" for line in whole)


def verdict(text):
    hang = hang_of(read_text(text, "job.log"))
    number = None if hang.first is None else hang.first.sequence
    return hang.verdict, number, hang.absent, hang.ahead, hang.suspects


@pytest.mark.parametrize("label", ["", "3: ", "2025-06-01T00:00:00.0Z stderr F "])
def test_the_list_tells_the_last_call_of_every_rank(label):
    text = report(
        LAGS,
        "     [2] finished collective #8, but didn't join collective #9 (count from 1)",
        LIST,
        "   #8 finished ranks:",
        "     [2] finished ALLREDUCE",
        "   #12 started ranks:",
        "     [0, 1, 3, 4, 5, 6, 7] started ALLREDUCE",
        label=label,
    )
    assert verdict(text) == ("missing_rank", 8, (2,), (0, 1, 3, 4, 5, 6, 7), (2,))


def test_a_rank_that_joined_another_call_before():
    text = report(
        LAGS,
        "   - [2] joined but didn't finish collective #11 (count from 1)",
        LIST,
        "   #11 started ranks:",
        "     [2] started BROADCAST",
        "   #12 started ranks:",
        "     [0, 1, 3] started ALLREDUCE",
    )
    assert verdict(text) == ("missing_rank", 11, (2,), (0, 1, 3), (2,))
    assert "call 10, broadcast" in hang_of(read_text(text, "job.log")).reason


def test_ranks_that_never_joined_are_absent_and_nobody_is_blamed():
    """The others are not listed: whether they came, and how many there are, nothing tells."""
    text = report(
        " - To our best knowledge, ranks [5, 6] are the lagging ranks that caused this timeout. "
        "They never joined any collectives"
    )
    assert verdict(text) == ("missing_rank", 11, (5, 6), (0,), ())
    assert "ranks 1 to 4" in hang_of(read_text(text, "job.log")).reason


def test_behind_is_not_guilty():
    one = "     [1] finished collective #2, but didn't join collective #3 (count from 1)"
    assert verdict(report(LAGS, one, sequence=2, number=3)) == ("missing_rank", 2, (1,), (0,), ())


def test_all_ranks_in_one_call_are_a_stall():
    text = report(LAGS, "   - [0, 1] joined but didn't finish collective #12 (count from 1)", LIST,
                  "   #12 started ranks:", "     [0, 1] started ALLREDUCE")  # fmt: skip
    assert verdict(text)[0] == "stall"


def test_numbers_are_those_of_the_watchdog_where_it_counts_from_1_too():
    """A status that names the report's number as enqueued shows that a second call stands in the queue."""
    status = (
        "[rank0]:[E1] [PG ID 0 PG GUID 0(default_pg) Rank 0] failure detected by watchdog at work sequence "
        "id: 11 PG status: last enqueued work: 12, last completed work: 10"
    )
    lags = "     [1] finished collective #10, but didn't join collective #11 (count from 1)"
    assert (
        "1 in 0(default_pg): enqueued 10 completed 10"
        in told(read(report(LAGS, lags, before=status)))["waits"]
    )
    assert "1 in ?: enqueued 9 completed 9" in told(read(report(LAGS, lags)))["waits"]


def test_ranks_of_another_group_are_not_those_of_the_job():
    head = "[rank9]:[E1] [PG ID 4 PG GUID 22(TENSOR) Rank 1]"
    text = report(LAGS, "     [2] finished collective #8, but didn't join collective #9", before=head)
    evidence = read(text)
    assert {wait.rank for wait in evidence.waits} <= {0, 9}
    assert any("counts ranks within the group" in warning for warning in evidence.warnings)
