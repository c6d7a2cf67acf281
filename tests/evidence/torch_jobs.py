"""Real jobs for the tests: torchrun under a time limit, on the loopback interface, on a free port."""

import importlib.util
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LIMIT = 120  # seconds for a whole job: a hang must fail a test, not stop the checks
LOOPBACK = next((name for _, name in socket.if_nameindex() if name.startswith("lo")), "lo")
needs_torch = pytest.mark.skipif(
    importlib.util.find_spec("torch") is None,
    reason="PyTorch is not installed: python3 tools/environment.py bench test",
)


def environment(**more):
    """One thread for each process, and no more output of torch than there must be."""
    return {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT), **more}


def torchrun(*arguments):
    """The command of torchrun with this Python."""
    return [sys.executable, "-m", "torch.distributed.run", *map(str, arguments)]


def start(command, **more):
    """A job, or one process of it, with its output kept."""
    return subprocess.Popen(
        [str(word) for word in command],
        cwd=ROOT,
        env=environment(**more),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(job, limit=LIMIT):
    """Exit status, standard output and standard error of a started job; ended when it takes too long."""
    try:
        out, err = job.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        pytest.fail(f"the job was still running after {limit} s")
    finally:
        end(job)
    return job.returncode, out, err


def end(job):
    """No process of the job is left behind: torchrun ends its ranks when it is asked to end."""
    if job.poll() is None:
        job.terminate()
        try:
            job.wait(timeout=40)  # torchrun gives its ranks 30 s
        except subprocess.TimeoutExpired:
            job.kill()
    job.wait()


def run(ranks, *words, limit=LIMIT, **more):
    """A job of so many ranks on this host, started by torchrun: exit status, output, errors."""
    local = ("--standalone", "--local-addr", "127.0.0.1", "--nproc-per-node", ranks)
    return finish(start(torchrun(*local, *words), **more), limit)


def start_ranks(ranks, *words):
    """As many ranks without torchrun's agent, which would end the others when one fails; started, by rank."""
    shared = dict(MASTER_ADDR="127.0.0.1", MASTER_PORT=free_port(), WORLD_SIZE=ranks, LOCAL_WORLD_SIZE=ranks)
    places = [dict(shared, RANK=rank, LOCAL_RANK=rank) for rank in range(ranks)]
    return [
        start([sys.executable, *words], **{name: str(value) for name, value in place.items()})
        for place in places
    ]


def free_port():
    """A port of the loopback interface that nobody has."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]
