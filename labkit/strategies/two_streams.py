"""One rank's two streams: tasks that wait for each other, and the timeline that comes of it."""

from collections import deque
from numbers import Integral
from typing import NamedTuple

from labkit.errors import InputRefused
from labkit.spec.checks import shown
from labkit.strategies.checks import numbers, shaped
from labkit.strategies.contention import slow_down_factor
from labkit.strategies.timeline import TRANSFER, Timeline


class Task(NamedTuple):
    """Work of ``seconds`` on the stream of its kind, once the tasks with the numbers ``after`` are done."""

    kind: str
    item: int
    seconds: float
    after: tuple[int, ...] = ()


def two_streams(tasks: list[Task], slow_down: float = 1.0) -> Timeline:
    """When each task runs on one rank: transfers on one stream, all else on the other, each in list order.

    Computing takes ``slow_down`` times as long while a transfer runs. A task waits for tasks before it in
    the list only, so that some task can always run. Refused: kinds that a timeline has not.

    >>> tasks = [Task("forward", 0, 2.0), Task("transfer", 0, 3.0, (0,)), Task("forward", 1, 2.0)]
    >>> two_streams(tasks).span, two_streams(tasks, slow_down=2.0).stop.tolist()
    (5.0, [2.0, 5.0, 5.5])
    """
    slow_down = slow_down_factor(slow_down)
    _check(tasks)
    queues = {True: deque(), False: deque()}  # by whether the stream communicates
    for number, task in enumerate(tasks):
        queues[task.kind == TRANSFER].append(number)
    running: dict[bool, int] = {}
    start, stop = [0.0] * len(tasks), [float("inf")] * len(tasks)
    now, pace = 0.0, 1.0
    while running or queues[True] or queues[False]:
        for stream, queue in queues.items():
            if (
                queue
                and stream not in running
                and all(stop[before] <= now for before in tasks[queue[0]].after)
            ):
                running[stream] = number = queue.popleft()
                if not stream:
                    pace = 1.0
                start[number], stop[number] = now, now + tasks[number].seconds
        if False in running:
            slower = slow_down if True in running else 1.0
            if slower != pace:  # what is left takes longer, or less long, from now on
                computing = running[False]
                stop[computing] = now + (stop[computing] - now) / pace * slower
                pace = slower
        now = min(stop[number] for number in running.values())
        running = {stream: number for stream, number in running.items() if stop[number] > now}
    kinds, items = [task.kind for task in tasks], [task.item for task in tasks]
    return Timeline([0] * len(tasks), start, stop, kinds, items)


def _check(tasks) -> None:
    good = isinstance(tasks, list | tuple) and all(isinstance(task, Task) for task in tasks)
    if not good or not tasks:
        raise InputRefused("two streams need at least one Task, and nothing but Tasks; correct the list")
    for number, task in enumerate(tasks):
        if not isinstance(task.kind, str):
            raise InputRefused(f"the kind of task {number} is {shown(task.kind)}; give a kind of a timeline")
        if not isinstance(task.after, list | tuple):
            raise InputRefused(
                f"task {number} waits for {shown(task.after)}; give a tuple of numbers of tasks before it"
            )
        for before in task.after:
            if isinstance(before, bool) or not (isinstance(before, Integral) and 0 <= before < number):
                raise InputRefused(
                    f"task {number} waits for {shown(before)}; give numbers of tasks before it in the list"
                )
    seconds = [task.seconds for task in tasks]
    shaped(numbers(seconds, "the seconds of a task", zero=True), "the seconds of the tasks", len(tasks))
