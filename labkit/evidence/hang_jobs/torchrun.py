"""torchrun on this machine under a time limit, with each rank's output in a file, and nothing left behind."""

import importlib.util
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from labkit.errors import InputRefused
from labkit.evidence.hang_jobs.table import LONGEST, PATIENCE

LIMIT = LONGEST + 40  # seconds of a whole job; its ranks have ended by themselves before
_ROOT = Path(__file__).resolve().parents[3]


def need_torch() -> None:
    """Refuses where PyTorch is not installed, and says how to get it."""
    if importlib.util.find_spec("torch") is None:
        raise InputRefused(
            "this job needs PyTorch, which is not installed here (in a checkout, python3 "
            "tools/environment.py bench installs it); its recording needs none"
        )


def run_torchrun(ranks: int, folder: Path, words: Sequence[str], settings: dict[str, str]) -> str:
    """Runs the program ``words`` on so many ranks to its end and returns what torchrun itself said.

    The ranks' output comes to lie in ``folder``/torchrun. Refused: a job that is not over after 100 s.
    """
    local = ("--standalone", "--local-addr", "127.0.0.1", "--nproc-per-node", str(ranks))
    kept = ("--redirects", "3", "--log-dir", str(folder / "torchrun"))
    path = os.pathsep.join([str(_ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    with subprocess.Popen(
        [sys.executable, "-m", "torch.distributed.run", *local, *kept, *words],
        env={**os.environ, "OMP_NUM_THREADS": "1", **settings, "PYTHONPATH": path},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        start_new_session=True,
    ) as agent:
        try:
            return agent.communicate(timeout=LIMIT)[1].decode("utf-8", errors="replace")
        except subprocess.TimeoutExpired:
            raise InputRefused(f"the job was not over after {LIMIT} s; run it on a quieter machine") from None
        finally:
            if agent.poll() is None:
                agent.terminate()  # torchrun ends its ranks
                try:
                    agent.wait(PATIENCE)
                except subprocess.TimeoutExpired:
                    agent.kill()  # the ranks that it can no longer end have an alarm
