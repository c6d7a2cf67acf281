"""Texts cut, shuffled, glued, binary or empty: evidence or one sentence, never another error."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labkit.errors import InputRefused
from labkit.evidence.hang.joined import join
from labkit.evidence.hang.records import NOTES, Evidence
from labkit.evidence.hang.text import read_text
from labkit.evidence.hang.topology import Topology, read_topology
from tests.evidence.hang.test_text import CAUGHT, RAN, WORK, init, made_call, nccl, printed, report
from tests.evidence.hang.told import told

LINES = [
    *(init(rank, pid=rank) for rank in range(2)),
    *(made_call(number=f"{number:x}", pid=rank) for number in range(3) for rank in range(2)),
    nccl("Channel 00/02 :    0   1"),
    nccl("Trees [0] 1/-1/-1->0->-1 [1] -1/-1/-1->0->1"),
    nccl("Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM"),
    nccl("NET/IB : Using [0]mlx5_0:1/IB [RO]; OOB eth0:10.0.0.1<0>"),
    nccl("Mismatched collective detected at and around rank 1", level="WARN", place="init.cc:1 "),
    f"[rank1]:[E1] [PG ID 0 PG GUID 0(default_pg) Rank 1] [Rank 1] {CAUGHT} {WORK} {RAN}\n",
    "[rank1]:[E1] [PG ID 0 PG GUID 0(default_pg) Rank 1] last enqueued work: 14, last completed work: 11\n",
    "[rank1]:[E1] Stack trace of the failed collective: \n#0 train from /x/train.py:12\n",
    f"{printed(1, 5, 'ALLREDUCE', '[2, 3]')}, but {printed(0, 5, 'BROADCAST')}.\n",
    " 35%|##   | 7/20 [30:01<1:57:14, 39.1MB/s]\r 40%|##   | 8/20 [31:00<1:50:00, 39.1MB/s]\n",
    "[rank0]: Traceback (most recent call last):\n",
    "[rank0]: ValueError: bad\n",
    report(1, -9),
    "step 3 loss 2.5\n",
    "\n",
]
WHOLE = "".join(LINES)


def check(text):
    """Nothing but evidence comes out, and numbers in it are of the text."""
    evidence = read_text(text, "job.log")
    join(evidence)
    assert isinstance(evidence, Evidence) and len(evidence.sources) == 1
    told(evidence)
    assert {note.kind for note in evidence.notes} <= set(NOTES)
    try:
        topology = read_topology(text if "\n" in text else text + "\n")
    except InputRefused as error:
        assert "\n" not in str(error) and len(str(error)) < 400
    else:
        assert isinstance(topology, Topology) and repr(topology)
    return evidence


@given(st.integers(0, len(WHOLE)), st.integers(0, len(WHOLE)))
@settings(max_examples=150, deadline=None)
def test_any_cut(start, end):
    check(WHOLE[min(start, end) : max(start, end)])


@given(st.permutations(LINES))
@settings(max_examples=60, deadline=None)
def test_any_order_tells_the_same_calls(lines):
    evidence = check("".join(lines))
    assert {(call.rank, call.sequence, call.operation) for call in evidence.calls} == {
        (rank, number, "all_reduce") for number in range(3) for rank in range(2)
    }
    assert len(evidence.pairs) == 1


@given(st.text(max_size=400) | st.binary(max_size=400).map(lambda data: data.decode("utf-8", "replace")))
@settings(max_examples=150, deadline=None)
def test_any_text(text):
    check(text)


@given(st.randoms(use_true_random=False))
@settings(max_examples=60, deadline=None)
def test_marks_changed_anywhere(chance):
    marks = list(WHOLE)
    for _ in range(20):
        marks[chance.randrange(len(marks))] = chance.choice("\x00\n\r [](){}:#9-x\ufffd")
    check("".join(marks))


@given(st.randoms(use_true_random=False))
@settings(max_examples=40, deadline=None)
def test_lines_printed_into_each_other(chance):
    lines = [line.rstrip("\n") for line in LINES]
    pieces = []
    for line in lines:
        at = chance.randrange(len(line) + 1)
        pieces += [line[:at], line[at:]]
    chance.shuffle(pieces)
    check("".join(piece + chance.choice(("", "\n")) for piece in pieces))


@pytest.mark.parametrize("line", LINES)
def test_huge_numbers_and_endless_lines(line):
    check("".join("9" * 40 if mark.isdigit() else mark for mark in line))
    check(line.rstrip("\n") * 300)
    check(line.rstrip("\n") + "(" * 5000)


def test_no_pattern_takes_forever():
    random.seed(1)
    for piece in (
        "Rank 1 ",
        "[PG ID 0 ",
        "WorkNCCL(",
        "a:1:1 [0] NCCL INFO ",
        "1, ",
        "[0] 1/-1/-1->",
        "a.",
        "%|",
    ):
        check(piece * 5000 + "\n" + piece)


@pytest.mark.parametrize(
    "source", ["", "\n", "\x00\x01\x02\n" * 50, 3, None, b"x\n", [], [3], "/nowhere.log"]
)
def test_a_topology_is_refused_in_one_sentence(source):
    with pytest.raises(InputRefused) as refused:
        read_topology(source)
    assert "\n" not in str(refused.value)
