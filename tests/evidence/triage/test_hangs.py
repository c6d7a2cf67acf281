"""The hang triage: where it stops on evidence whose cause is known, and that it asks no further."""

import pytest

from labkit.errors import InputRefused
from labkit.evidence.hang.records import Call, Evidence, Frame, Group, Note, Source, Wait
from labkit.evidence.hang_jobs import recorded_hang
from labkit.evidence.triage.hangs import QUESTIONS, hang_triage, triage_of
from labkit.evidence.triage.steps import CLEAR, DIFFERS, EXPLAINS, UNKNOWN

LOOP, BRANCH, END = (Frame("main", "train.py", line) for line in (10, 12, 20))
NAMES = list(QUESTIONS)


def job(*ranks, states=False, notes=(), group=None):
    """Evidence of a job: for each rank its calls as (operation, elements, frame)."""
    group = group or Group("0", tuple(range(len(ranks))))
    found = Evidence(groups=[group], calls_recorded=True, states_recorded=states, notes=list(notes))
    for rank, calls in enumerate(ranks):
        if calls is None:
            continue
        found.sources.append(Source(f"rank_{rank}", "dump", rank))
        for at, (operation, elements, frame) in enumerate(calls, 1):
            sizes, frames = ((elements,),), () if frame is None else (frame,)
            found.calls.append(
                Call(rank, group, at, operation, f"rank_{rank}", sizes, sizes, order=at, frames=frames)
            )
    return found


STEP = ("all_reduce", 4, LOOP)


def walked(evidence):
    found = triage_of(evidence)
    return {step.name: step.answer for step in found.steps}, found.cause


def test_a_line_that_one_rank_alone_reaches():
    odd = ("barrier", 1, BRANCH)
    answers, cause = walked(job([STEP, odd], [STEP, STEP], [STEP, STEP]))
    assert cause.name == "rank condition" and "train.py:12" in cause.evidence
    assert "rank 0 alone" in cause.evidence
    assert list(answers) == NAMES[:5] and answers["order"] == DIFFERS


def test_once_more_round_the_loop():
    answers, cause = walked(job([STEP, STEP], [STEP, STEP], [STEP, STEP, STEP]))
    assert cause.name == "last batch" and "rank 2 called 3 times" in cause.evidence
    assert answers["counts"] == DIFFERS and list(answers) == NAMES[:6]


def test_two_lines_of_their_own_are_not_called_a_branch():
    answers, cause = walked(job([STEP, ("broadcast", 4, END)], [STEP, ("all_gather", 4, BRANCH)]))
    assert answers["rank condition"] == DIFFERS and cause.name == "order"


def test_sizes():
    answers, cause = walked(job([STEP, STEP], [STEP, STEP], [STEP, ("all_reduce", 5, LOOP)]))
    assert cause.name == "sizes" and answers["order"] == CLEAR
    assert answers["rank condition"] == answers["last batch"] == CLEAR
    assert list(answers) == NAMES[:6]  # no question behind a difference that is not about it


def test_without_stacks_a_count_is_as_far_as_it_goes():
    bare = ("all_reduce", 4, None)
    answers, cause = walked(job([bare, bare], [bare, bare], [bare]))
    assert cause.name == "counts" and answers["rank condition"] == answers["last batch"] == UNKNOWN
    assert "up to call 2; rank 2 up to call 1" in cause.evidence


def test_a_rank_that_ended_is_found_first():
    note = Note("out of memory", "CUDA out of memory", "rank_2.log:7", rank=2)
    answers, cause = walked(job([STEP, STEP], [STEP, STEP], [STEP], notes=[note]))
    assert cause.name == "alive" and "rank_2.log:7" in cause.evidence
    assert list(answers) == ["alive"]


def test_a_rank_without_a_file_is_said_first():
    answers, _ = walked(job([STEP, STEP], [STEP, STEP], None))
    assert answers["alive"] == UNKNOWN


def test_a_stall_is_the_last_question():
    evidence = job([STEP], [STEP], states=True)
    evidence.waits = [Wait(rank, evidence.groups[0], "log", enqueued=1, completed=0) for rank in (0, 1)]
    answers, cause = walked(evidence)
    assert cause.name == "hardware" and list(answers) == NAMES


def test_a_report_fits_a_page():
    said = repr(triage_of(job([STEP, ("barrier", 1, BRANCH)], [STEP, STEP], [STEP, STEP])))
    assert max(map(len, said.splitlines())) <= 110 and "stopped at rank condition" in said


def test_nothing_read_explains_nothing():
    found = triage_of(Evidence())
    assert found.cause is None and found.steps[-1].answer == UNKNOWN and found.steps[-1].next_step


@pytest.mark.parametrize("wrong", [None, 3, [], "", "no/such/folder", {"a": 1}])
def test_refused(wrong):
    with pytest.raises(InputRefused):
        hang_triage(wrong)


def test_a_folder_is_walked(tmp_path):
    (tmp_path / "rank_0.log").write_text(
        "[rank0]: torch.distributed.DistStoreError: Timed out after 6 seconds waiting for clients. "
        "3/4 clients joined.\n"
    )
    found = hang_triage(tmp_path)
    assert found.cause.name == "interface, limit" and found.cause.answer == EXPLAINS


@pytest.mark.parametrize(
    ("name", "stop"),
    [
        ("branch", "rank condition"),
        ("walk_on", "rank condition"),
        ("silent", "rank condition"),
        ("group", "rank condition"),
        ("order", "order"),
        ("circular", "order"),
        ("shape", "sizes"),
        ("dtype", "sizes"),
        ("half_filled", "sizes"),
        ("extra_batch", "last batch"),
        ("skipped", "last batch"),
        ("missing", "counts"),
        ("ahead", "counts"),
        ("loading", "interface, limit"),
    ],
)
def test_recorded_jobs_stop_where_their_mistake_belongs(name, stop):
    assert hang_triage(recorded_hang(name)).cause.name == stop


def test_what_no_dump_holds_is_no_cause():
    """Different roots: the lines that call differ, and neither the network nor a rank is blamed."""
    found = hang_triage(recorded_hang("root"))
    assert [step.name for step in found.steps if step.answer == DIFFERS] == ["rank condition"]
    assert not [step for step in found.steps if step.answer == EXPLAINS]
