"""Calls that programs compared themselves: whose belong together, whose is the odd one, whose number."""

from labkit.evidence.hang.read import hang_of
from labkit.evidence.hang.records import Evidence, Group
from labkit.evidence.hang.text import read_text
from tests.evidence.hang.made import call
from tests.evidence.hang.test_text import printed


def message(one, other, label=None):
    """What rank ``one`` prints: (rank, elements, number) of both, as [rank ``label``]."""
    prints = [printed(rank, number, "ALLREDUCE", f"[{size}]") for rank, size, number in (one, other)]
    label = one[0] if label is None else label
    return f"[rank{label}]: RuntimeError: Detected mismatch. {prints[0]}, but {prints[1]}.\n"


def diagnose(text):
    return hang_of(read_text(text, "job.log"))


def test_two_ranks_blame_nobody_and_three_the_minority_where_all_left_a_log():
    calls = [call(rank, Group(""), 7, numel=5 if rank == 2 else 4, state="") for rank in range(3)]
    two = hang_of(Evidence(pairs=[(calls[1], calls[2])], ranks={1, 2}))
    assert (two.verdict, two.first.sequence, two.suspects) == ("mismatch", 7, ())
    pairs = [(calls[1], calls[2]), (calls[0], calls[2])]
    assert hang_of(Evidence(pairs=pairs, ranks={0, 1, 2})).suspects == (2,)
    assert hang_of(Evidence(pairs=pairs, ranks={0, 1})).suspects == ()  # there may be more of them
    assert hang_of(Evidence(pairs=pairs, ranks=set(range(8)))).suspects == ()


def test_pairs_without_a_common_rank_are_of_different_groups():
    text = "".join((
        message((0, 5, 7), (1, 6, 7)), message((1, 6, 7), (0, 5, 7)), message((2, 6, 7), (0, 5, 7)),
        *(message((rank, 5, 7), (7, 9, 7)) for rank in range(3, 7)), message((7, 9, 7), (3, 5, 7)),
    ))  # fmt: skip
    hang = diagnose(text)
    assert [sorted(one.first.calls) for one in hang.findings] == [[0, 1, 2], [3, 4, 5, 6, 7]]
    assert [one.suspects for one in hang.findings] == [(0,), (7,)]


def test_one_rank_of_two_numbers_is_behind():
    hang = diagnose(message((0, 5, 7), (1, 5, 8)))
    assert (hang.verdict, hang.absent, hang.ahead, hang.suspects) == ("missing_rank", (0,), (1,), ())
    assert hang.first.sequence == 8 and "rank 0 at call 7 and rank 1 at call 8" in hang.reason


def test_numbers_and_calls_that_differ_are_a_mismatch():
    hang = diagnose(message((0, 5, 7), (1, 6, 8)))
    assert (hang.verdict, hang.suspects) == ("mismatch", ())
    assert "rank 0 at call 7 and rank 1 at call 8" in hang.reason


def test_the_one_whose_number_is_ahead_is_the_minority():
    text = "".join(message((rank, 5, 7), (1, 5, 8)) for rank in (0, 2, 3)) + message((1, 5, 8), (0, 5, 7))
    hang = diagnose(text)
    assert (hang.absent, hang.ahead, hang.suspects) == ((0, 2, 3), (1,), (1,))


def test_a_rank_within_a_group_is_not_that_of_the_job():
    """Rank 4's message counts it as 0: who the other is in the job it does not say."""
    hang = diagnose(message((0, 5, 7), (1, 6, 7), label=4))
    assert hang.verdict == "mismatch" and list(hang.first.calls) == [4] and hang.suspects == ()
    assert "another rank of its group" in hang.reason
