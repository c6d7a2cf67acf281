"""Two streams of one rank: cases by hand, and what holds for all tasks."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from labkit.errors import InputRefused
from labkit.strategies.timeline import FORWARD, TRANSFER
from labkit.strategies.two_streams import Task, two_streams


@st.composite
def task_lists(draw):
    tasks = []
    for number in range(draw(st.integers(1, 12))):
        kind = draw(st.sampled_from([FORWARD, TRANSFER]))
        after = draw(st.lists(st.integers(0, number - 1), max_size=3)) if number else []
        tasks.append(Task(kind, number, draw(st.sampled_from([0.0, 0.5, 1.0, 3.0])), tuple(after)))
    return tasks


def test_slowed_by_hand():
    """s = 2: computing 0 to 2; beside the transfer from 2 to 5 it does 1.5 of 4 s, the rest by 7.5."""
    tasks = [Task(FORWARD, 0, 2.0), Task(TRANSFER, 0, 3.0, (0,)), Task(FORWARD, 1, 4.0)]
    t = two_streams(tasks, slow_down=2.0)
    assert t.start.tolist() == [0, 2, 2] and t.stop.tolist() == [2, 5, 7.5]


def test_the_longest_times_that_are_taken_have_an_end():
    tasks = [Task(TRANSFER, 0, 1e60), Task(FORWARD, 0, 1e60), Task(TRANSFER, 1, 1e60, (1,))]
    assert two_streams(tasks, 1e60).stop.tolist() == pytest.approx([1e60, 2e60, 3e60])


def test_two_transfers_in_a_row_slow_one_kernel():
    tasks = [Task(TRANSFER, 0, 1.0), Task(TRANSFER, 1, 2.0), Task(FORWARD, 0, 4.0)]
    assert two_streams(tasks, slow_down=1.5).stop.tolist() == [1, 3, 5]  # 2 s done by 3, 2 s left


@given(task_lists(), st.sampled_from([1.0, 1.3, 2.0]))
def test_order_work_and_bounds(tasks, slow_down):
    t = two_streams(tasks, slow_down)
    for number, task in enumerate(tasks):
        assert all(t.stop[before] <= t.start[number] + 1e-9 for before in task.after)
        took = t.stop[number] - t.start[number]
        most = 1.0 if task.kind == TRANSFER else slow_down
        assert task.seconds - 1e-9 <= took <= most * task.seconds + 1e-9
    for stream in (t.kind == TRANSFER, t.kind != TRANSFER):
        times = list(zip(t.start[stream], t.stop[stream], strict=True))
        assert all(first[1] <= second[0] + 1e-9 for first, second in pairwise(times))
    alone = sum(task.seconds for task in tasks if task.kind == FORWARD)
    assert t.busy[0] - alone == pytest.approx(t.hidden[0] * (1 - 1 / slow_down), abs=1e-9)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: two_streams([]), "at least one Task"),
        (lambda: two_streams([Task(FORWARD, 0, -1.0)]), "seconds of a task"),
        (lambda: two_streams([Task(FORWARD, 0, 1.0, (1,))]), "waits for"),
        *(
            (lambda after=after: two_streams([Task(FORWARD, 0, 1.0), Task(FORWARD, 1, 1.0, after)]), words)
            for after, words in (
                (None, "task 1 waits for None"),
                (0, "task 1 waits for 0"),
                (("a",), "task 1 waits for 'a'"),
                ((0.5,), "task 1 waits for 0.5"),
                ((True,), "task 1 waits for True"),
                ((-1,), "task 1 waits for -1"),
                (([],), "task 1 waits for of type list"),
            )
        ),
        (lambda: two_streams([Task(np.array(["a", "b"]), 0, 1.0)]), "kind of task 0 is an array"),
        (lambda: two_streams([Task("nap", 0, 1.0)]), "the kinds forward, backward"),
        (lambda: two_streams([Task(FORWARD, 0, 1.0)], 0.5), "at least 1 times"),
        (lambda: two_streams([Task(FORWARD, 0, 1e300)], 1e10), r"seconds of a task .* at most 1e\+60"),
        (lambda: two_streams([Task(FORWARD, 0, 1.0)], 1e300), r"slow-down is 1e\+300"),
    ],
)
def test_refused(call, words):
    with pytest.raises(InputRefused, match=words):
        call()
