"""Findings on a timeline: one for each way in which gradient overlap goes wrong, none where it does not."""

import pytest

from labkit.errors import InputRefused
from labkit.strategies.overlap import Block, step_timeline
from labkit.strategies.overlap_check import (
    LITTLE,
    NONE,
    OFF,
    TOO_LARGE,
    TOO_MUCH,
    TOO_SMALL,
    overlap_findings,
)
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


def rank(*blocks):
    """One rank's timeline from (kind, start, stop)."""
    kind, start, stop = zip(*blocks, strict=True)
    return Timeline([0] * len(kind), start, stop, kind, [0] * len(kind))


def found(timeline, latency=0.1):
    return [(finding.kind, finding.says) for finding in overlap_findings(timeline, latency)]


def test_calls_that_block_between_the_blocks():
    t = rank((BACKWARD, 0, 1), (TRANSFER, 1, 2), (BACKWARD, 2, 3), (TRANSFER, 3, 4))
    ((kind, says),) = found(t)
    assert kind == OFF and "nothing of 2 all_reduces is hidden, 2 s exposed" in says
    assert "although 1 s of computing follow" in says


def test_a_large_bucket_behind_a_small_first_one():
    """The first of 1 s hides, the second of 24 s cannot: 96 % of 25 s."""
    t = rank((BACKWARD, 0, 2), (TRANSFER, 2, 3), (BACKWARD, 2, 30), (TRANSFER, 30, 54))
    ((kind, says),) = found(t)
    assert kind == TOO_LARGE
    assert says.startswith("one all_reduce of 24 s has 96 % of the time of all 2, 24 s of it exposed")
    off = rank((BACKWARD, 0, 30), (TRANSFER, 30, 31), (TRANSFER, 31, 55))
    assert [kind for kind, _ in found(off)] == [OFF, TOO_LARGE]


@pytest.mark.parametrize("early", [0.0, 1e-12, 1e-3])
def test_rounding_hides_nothing(early):
    sends = [(TRANSFER, 4 - early + k, 5 - early + k) for k in range(3)]
    assert [kind for kind, _ in found(rank((BACKWARD, 0, 4), *sends))] == [OFF]


def test_steps_are_judged_one_by_one():
    """Overlap is off in the second and the third of three steps."""

    def step(at, first):
        return [
            (FORWARD, at, at + 1),
            (BACKWARD, at + 1, at + 3),
            (BACKWARD, at + 3, at + 5),
            (TRANSFER, at + first, at + first + 1),
            (TRANSFER, at + 5, at + 6),
        ]

    off = [step(at, 6) for at in (10, 20)]
    ((kind, says),) = found(rank(*step(0, 3), *off[0], *off[1]))
    assert kind == OFF and says.startswith("in 2 of 3 steps, first in step 2: all 2 all_reduces start after")
    assert found(rank(*step(0, 3), *step(10, 3))) == []


def test_micro_batches_of_one_step_are_not_taken_for_steps():
    """The first two accumulate: their backward passes are under no all_reduce."""
    one = [(FORWARD, 0, 1), (BACKWARD, 1, 3), (FORWARD, 3, 4), (BACKWARD, 4, 6), (BACKWARD, 6, 8)]
    assert found(rank(*one, (TRANSFER, 6, 8), (TRANSFER, 8, 8.5))) == []


def test_little_is_hidden_without_a_bucket_to_blame():
    sends = [(TRANSFER, 8 + 2 * k, 10 + 2 * k) for k in range(4)]
    ((kind, says),) = found(rank((BACKWARD, 0, 10), *sends))
    assert kind == LITTLE
    assert says == "2 s of the all_reduces' 8 s are hidden, and 8 s could be: start them earlier"


def test_all_reduces_at_once_have_their_latency_each():
    """Three of 2 s side by side: 0.5 of 2 s each; 1.2 of 2 s is more than half."""
    t = rank((BACKWARD, 0, 4), *[(TRANSFER, 1, 3)] * 3)
    assert found(t, 0.5) == []
    assert found(t, 1.2) == [(TOO_SMALL, "60 % of 3 all_reduces' time is latency: use larger buckets")]


def test_all_reduces_of_no_length_count_for_nothing():
    assert found(rank((BACKWARD, 0, 4), (TRANSFER, 4, 4), (TRANSFER, 4, 4))) == []
    assert found(rank((BACKWARD, 0, 4), (TRANSFER, 1, 1), (TRANSFER, 2, 3)), 0.4) == []


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
