"""Sends and receives on made-up evidence: each without its counterpart, and what only looks like it."""

from labkit.evidence.hang.read import hang_of
from labkit.evidence.hang.records import COMPLETED, STARTED, Wait
from tests.evidence.hang.made import call, dumps, group


def facts(hang):
    return hang.verdict, hang.absent, hang.ahead, hang.suspects


def transfers(sends, takes, begin=(0, 0), missing=()):
    """Dumps of two ranks: the states of what rank 0 sends to rank 1, and of what that takes from it."""
    of = group(2)
    evidence = dumps(2, [[], []], of=of, missing=missing)
    for rank, operation, states in ((0, "send", sends), (1, "recv", takes)):
        for k, state in enumerate(states if rank not in missing else ()):
            order = begin[rank] + k
            evidence.calls.append(call(rank, of, order, operation, 8, state, order=order, peer=1 - rank))
    return evidence


def test_sends_without_a_receiver():
    of = group(2)
    evidence = dumps(2, [[], []], of=of)
    send = call(0, of, 1, "send", 8, STARTED, order=0, peer=1)
    evidence.calls.append(send)
    hang = hang_of(evidence)
    assert facts(hang) == ("missing_rank", (1,), (0,), ())
    evidence.calls.append(call(1, of, 1, "recv", 8, STARTED, order=0, peer=0))
    assert hang_of(evidence).verdict == "stall"
    evidence.calls[1] = call(1, of, 1, "recv", 9, STARTED, order=0, peer=0)
    assert hang_of(evidence).verdict == "mismatch"


def test_a_chain_of_receives_ends_at_the_rank_that_does_not_send():
    """Rank 2 waits for rank 1, which waits for rank 0: that one stopped."""
    of = group(3)
    evidence = dumps(3, [[], [], []], of=of)
    for rank in (2, 1):
        evidence.calls.append(call(rank, of, 1, "recv", 8, STARTED, order=0, peer=rank - 1))
    hang = hang_of(evidence)
    assert (hang.verdict, hang.absent) == ("missing_rank", (0,))


def test_the_peer_of_an_open_transfer_left_no_dump():
    """Two readings are left, and its dump would decide."""
    hang = hang_of(transfers([COMPLETED, STARTED], [], missing=(1,)))
    assert (hang.verdict, hang.absent, hang.ahead) == ("undecided", (), (0,))
    assert "rank 0 sends to rank 1" in hang.reason and "either it has no such call, or" in hang.reason
    assert "rank 1" in hang.findings[0].decide
    ended = hang_of(transfers([COMPLETED, COMPLETED], [], missing=(1,)))
    assert ended.verdict == "undecided" and "sends to" not in ended.reason


def test_a_transfer_that_ended_in_the_later_of_two_dumps_is_not_open():
    """Rank 0's dump was taken before the transfer ended, rank 1's after."""
    hang = hang_of(transfers([COMPLETED, STARTED], [COMPLETED, COMPLETED]))
    assert "no such call" not in hang.reason and hang.verdict not in ("missing_rank", "stall")
    still = hang_of(transfers([COMPLETED, STARTED], [COMPLETED]))
    assert facts(still) == ("missing_rank", (1,), (0,), ())
    both = hang_of(transfers([COMPLETED, STARTED], [COMPLETED, STARTED]))
    assert both.verdict == "stall"


def test_rings_that_have_gone_round_do_not_tell_a_missing_receive_from_an_ended_one():
    """Unless a rank gave up: what ran into its limit had not ended anywhere."""
    evidence = transfers([COMPLETED, STARTED], [COMPLETED, COMPLETED], begin=(7, 9))
    hang = hang_of(evidence)
    assert hang.verdict == "undecided" and "or it had ended when its dump was taken, later" in hang.reason
    evidence.waits.append(Wait(0, evidence.groups[0], "log", waited=600.0, limit=600.0))
    assert facts(hang_of(evidence)) == ("missing_rank", (1,), (0,), ())
