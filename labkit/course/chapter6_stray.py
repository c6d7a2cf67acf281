"""Claim 5.3-e as a table: one stray collective of rank 0, and how three real jobs with it ended."""

from labkit.course.table import Table, table
from labkit.evidence.hang_jobs import abort_said, recorded_hang, silences, sums

RANKS = 3


def stray_table() -> Table:
    """What became of the recorded jobs ``walk_on``, ``silent`` and ``abort``."""
    waiting, late = (_waits(silences(recorded_hang(name))) for name in ("walk_on", "silent"))
    told = sums(recorded_hang("silent"))[1]
    right = [RANKS * (step + 1) for step in range(len(told))]
    died, came, room = abort_said(recorded_hang("abort"))
    return table(
        ("rank 0 alone adds up its validation loss", "the others' next call", "what happened"),
        (
            ("after training", "none", f"{waiting}; the others are done"),
            (
                "before training",
                "a sum of the same size",
                f"sums {listed(told)} instead of {listed(right)}; {late} at the end",
            ),
            (
                "before training, 4,096 numbers",
                "a sum of one number",
                f"rank {died} got {came:,} bytes where {room} fit, and was ended",
            ),
        ),
    )


def _waits(seconds: dict[int, float]) -> str:
    return ", ".join(f"rank {rank} waits {time:g} s" for rank, time in seconds.items())


def listed(numbers) -> str:
    """Numbers in one line.

    >>> listed([1002.0, 5.0])
    '1002, 5'
    """
    return ", ".join(f"{number:g}" for number in numbers)
