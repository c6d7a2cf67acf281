"""Runs for the tests of the run log, and the process that is killed while it writes."""

import os
import random
import signal
import sys
import time
from pathlib import Path

from labkit.evidence.runs import RunLog
from labkit.presets import cluster, model
from labkit.spec import Plan, StepTime

CASE = (model("guide-13b"), cluster("h100", 4), Plan(tp=8, pp=2, dp=2, micro_batch=1, global_batch=64))
MOST_OF_ONE = 40  # runs that one writer writes, so that a small disk in memory has room for all
PREDICTED = StepTime(compute=0.8, tp=0.1, bubble=1 / 3, communication=0.3, tokens=131072, gpus=32)


def quick_folder() -> Path | None:
    """A folder in memory, where there is one: there a disk that is slow to synchronise slows no test."""
    memory = Path("/dev/shm")
    return memory if os.access(memory, os.W_OK) else None


def kill_writers(path: Path, kills: int) -> None:
    """Forks writers and kills each 0 to 30 ms after its first run; prints the runs they told of, then "done".

    A writer sends the number of a run through a pipe as soon as ``record`` returns it.
    """
    chance, log = random.Random(5), RunLog(path)
    for _ in range(kills):
        receive, send = os.pipe()
        writer = os.fork()
        if writer == 0:
            for _ in range(MOST_OF_ONE):
                run = log.record(*CASE, [1.0, 2.0], PREDICTED, notes="x" * chance.randrange(1000))
                os.write(send, f"{run.number} {run.key}\n".encode())
            time.sleep(60)
        os.close(send)
        with os.fdopen(receive) as told:
            sys.stdout.write(told.readline())
            time.sleep(chance.uniform(0, 0.03))
            os.kill(writer, signal.SIGKILL)
            os.waitpid(writer, 0)
            sys.stdout.write(told.read())
    print("done")


def kill_beginners(folder: Path, kills: int) -> None:
    """Forks so many processes, each of which begins a log of its own, and kills each after 0 to 5 ms."""
    chance = random.Random(6)
    for number in range(kills):
        writer = os.fork()
        if writer == 0:
            RunLog(folder / f"{number}.sqlite").record(*CASE, [1.0])
            time.sleep(60)
        time.sleep(chance.uniform(0, 0.005))
        os.kill(writer, signal.SIGKILL)
        os.waitpid(writer, 0)


if __name__ == "__main__":
    {"write": kill_writers, "begin": kill_beginners}[sys.argv[1]](Path(sys.argv[2]), int(sys.argv[3]))
