"""Records the jobs anew: ``python -m labkit.evidence.hang_jobs.record [NAME ...]``; 20 s for each.

A recording is what a run left, with paths made relative; a rank's dump is kept in one of its two forms.
"""

import json
import os
import pickle
import re
import shutil
import sys
import tempfile
from pathlib import Path

from labkit.evidence.hang.pickles import load_plain
from labkit.evidence.hang_jobs.overhead import as_csv, measure_log_overhead
from labkit.evidence.hang_jobs.run import run_hang
from labkit.evidence.hang_jobs.table import JOBS
from labkit.presets import data_path

IN_JSON = ("loading", "half_filled")  # without stacks; the others are pickles
_TREE = re.compile(r"/[^\s\"']*/(?=(?:torch|labkit)/)")


def record(name: str, target: str | os.PathLike) -> Path:
    """Runs a job and keeps what it left under ``target``/NAME, with nothing of this machine in it."""
    with tempfile.TemporaryDirectory() as folder:
        job = run_hang(name, folder)
        made = Path(target) / name
        shutil.rmtree(made, ignore_errors=True)
        made.mkdir(parents=True)
        for rank in range(job.ranks):
            form = ".json" if name in IN_JSON else ""
            dump, log = job.folder / f"trace_rank_{rank}{form}", job.folder / f"rank_{rank}.log"
            if dump.exists():
                (made / dump.name).write_bytes(_relative(dump.read_bytes(), bool(form)))
            (made / log.name).write_text(_TREE.sub("", log.read_text("utf-8")), "utf-8")
        return made


def _relative(data: bytes, is_json: bool) -> bytes:
    """A dump with relative paths, in the form that it had."""
    if is_json:
        return (json.dumps(_without_tree(json.loads(data)), indent=0, sort_keys=True) + "\n").encode()
    return pickle.dumps(_without_tree(load_plain(data)), protocol=2)


def _without_tree(value):
    if isinstance(value, str):
        return _TREE.sub("", value)
    if isinstance(value, dict):
        return {key: _without_tree(one) for key, one in value.items()}
    return type(value)(map(_without_tree, value)) if isinstance(value, list | tuple) else value


if __name__ == "__main__":
    for job_name in sys.argv[1:] or (*JOBS, "log_overhead"):
        if job_name == "log_overhead":
            text = as_csv(measure_log_overhead())
            (data_path("recorded") / "log_overhead.csv").write_text(text, "utf-8")
        else:
            record(job_name, data_path("recorded") / "hangs")
