"""Findings on a timeline: one for each way in which gradient overlap goes wrong, none where it does not."""

import pytest

from labkit.errors import InputRefused
from labkit.strategies.overlap import Block, step_timeline
from labkit.strategies.overlap_check import NONE, OFF, TOO_LARGE, TOO_MUCH, TOO_SMALL, overlap_findings
from labkit.strategies.timeline import BACKWARD, FORWARD, TRANSFER, Timeline

BLOCKS = [Block(1, 2, (4,) * 4) for _ in range(5)]  # backward 10 s, 80 bytes


def kinds(latency, cap, blocks=BLOCKS, per_byte=0.05, **how):
    t = step_timeline(blocks, lambda size: latency + per_byte * size, cap, cap, **how)
    return [finding.kind for finding in overlap_findings(t, latency)]


def test_by_hand():
    assert kinds(0.1, 16) == []  # 5 all_reduces of 0.9 s
    assert kinds(0.1, 16, overlap=False) == [OFF]
    assert kinds(0.1, 1000) == [TOO_LARGE]  # one of 4.1 s
    assert kinds(0.3, 4) == [TOO_SMALL]  # 20 of 0.5 s, 0.3 of which is latency
    assert kinds(0.1, 16, per_byte=0.2) == [TOO_MUCH]  # 5 of 3.3 s: 16.5 s under 10
    assert kinds(1.0, 4, overlap=False) == [OFF, TOO_SMALL, TOO_MUCH]


def test_the_sentences_have_the_figures():
    t = step_timeline(BLOCKS, lambda size: 0.3 + 0.05 * size, 4, 4)
    (small,) = overlap_findings(t, 0.3)
    assert small.says == "60 % of 20 all_reduces' time is latency: use larger buckets"
    t = step_timeline(BLOCKS, lambda size: 0.1 + 0.05 * size, 16, 16, overlap=False)
    (off,) = overlap_findings(t, 0.1)
    assert off.says.startswith("all 5 all_reduces start after the last backward block, 4.5 s exposed")


def test_ranks_are_judged_one_by_one():
    """Rank 1 alone sends after its backward."""
    kind, start, stop = [FORWARD, BACKWARD, TRANSFER, TRANSFER], [0, 1, 2, 3], [1, 4, 2.5, 3.5]
    late = [0, 1, 4, 5], [1, 4, 4.5, 5.5]
    t = Timeline([0] * 4 + [1] * 4, start + late[0], stop + late[1], kind * 2, [0] * 8)
    assert overlap_findings(t, 0.1, rank=0) == []
    assert [finding.kind for finding in overlap_findings(t, 0.1, rank=1)] == [OFF]


def test_nothing_to_look_at():
    t = Timeline([0], [0], [1], [FORWARD], [0])
    assert [finding.kind for finding in overlap_findings(t, 0.1)] == [NONE]


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda t: overlap_findings([1], 0.1), "give a Timeline"),
        (lambda t: overlap_findings(t, -1), "latency of an all_reduce is -1"),
        (lambda t: overlap_findings(t, 0.1, 1), "the rank is 1"),
    ],
)
def test_refused(call, words):
    with pytest.raises(InputRefused, match=words):
        call(Timeline([0], [0], [1], [FORWARD], [0]))
