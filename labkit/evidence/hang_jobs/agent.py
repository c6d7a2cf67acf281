"""One rank of a job that hangs: ``torchrun ... -m labkit.evidence.hang_jobs.agent NAME FOLDER``.

It runs the job's script, waits in vain, says what PyTorch says, and leaves a dump of the flight recorder in
both of its forms. The system's alarm ends a rank whatever happens to torchrun.
"""

import os
import signal
import sys
import time
from pathlib import Path

from labkit.evidence.bench_group import shorten_limit
from labkit.evidence.hang_jobs.scripts import LIMIT, heard, say
from labkit.evidence.hang_jobs.table import JOBS, LONGEST, PATIENCE


def main() -> int:
    """Runs this rank of the job; 1 where a call failed."""
    name, folder = sys.argv[1:]
    if hasattr(signal, "alarm"):
        signal.alarm(LONGEST)
    import torch.distributed as dist

    dist.init_process_group("gloo")
    dist.barrier()  # all are connected: only now a short limit will do
    if not JOBS[name].checked:  # PyTorch has no way to set that of a group that checks
        shorten_limit(LIMIT / 60)
    rank, ranks, failed = dist.get_rank(), dist.get_world_size(), False
    heard.append(time.perf_counter())
    try:
        JOBS[name].run(rank, ranks)
    except RuntimeError:
        failed = True
        say(rank, f"silent for {time.perf_counter() - heard[-1]:.0f} s, then an error")
        sys.excepthook(*sys.exc_info())  # PyTorch's own, which names the rank
    except SystemExit:
        dump(Path(folder), rank, ended=True)
        raise
    dump(Path(folder), rank)
    meet(Path(folder), ranks)
    os._exit(int(failed))  # without torch's farewell, for which it would wait again


def dump(folder: Path, rank: int, ended: bool = False) -> None:
    """Write both forms of this rank's record; of a rank that ``ended`` by itself, only that it did."""
    from torch._C import _distributed_c10d as recorder

    if not ended:
        _write(folder / f"trace_rank_{rank}", recorder._dump_fr_trace())
        _write(folder / f"trace_rank_{rank}.json", recorder._dump_fr_trace_json())
    _write(folder / "met" / str(rank), b"")


def _write(path: Path, content: bytes | str) -> None:
    """The file at once or not at all, since others wait for it."""
    path.parent.mkdir(exist_ok=True)
    data = content if isinstance(content, bytes) else content.encode()
    part = path.with_name(f".{path.name}.part")
    part.write_bytes(data)
    part.replace(path)


def meet(folder: Path, ranks: int) -> None:
    """Wait until all have dumped: torchrun ends the others as soon as one has failed."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end and len(list((folder / "met").glob("[0-9]*"))) < ranks:
        time.sleep(0.05)


if __name__ == "__main__":
    sys.exit(main())
