"""A real job under PyTorch's profiler: what recorded the traces in ``data/traces``.

A few processes train a small model on CPUs over gloo. Each step fetches a batch from a DataLoader, computes,
reduces the gradients of each layer beside the backward pass, and updates the weights. One rank may have more
work than the others, so that they wait for it. Needs torch:

    python -m labkit.evidence.profile.job FOLDER --ranks 4 --slow 2
"""

import argparse
import gzip
import json
import sys
from collections.abc import Sequence
from pathlib import Path

STEPS, LAYERS, WIDTH, BATCH = 3, 4, 384, 256
PATIENCE = 120  # seconds until ranks that wait for each other give up
# What is of this machine or of the recording, not of the job.
_LOCAL = ("deviceProperties", "traceName", "username", "host_name", "trace_id", "INFO", "ERROR", "WARNING")
_LOCAL_ARGS = ("Trace name", "Call stack", "Ev Idx", "Record function id", "Concrete Inputs", "Input Strides")


def train(rank: int, ranks: int, slow: int | None, folder: str) -> None:
    """One process of the job: ``STEPS`` recorded steps after one to warm up, written to ``rank-N.json.gz``.

    The rank ``slow`` does three times the work outside of the collectives.
    """
    from datetime import timedelta

    import torch
    from torch import distributed
    from torch.profiler import ProfilerActivity, profile, schedule

    torch.set_num_threads(1)
    torch.manual_seed(rank)
    store = distributed.FileStore(str(Path(folder) / "store"), ranks)
    distributed.init_process_group(
        "gloo", store=store, rank=rank, world_size=ranks, timeout=timedelta(seconds=PATIENCE)
    )
    layers = [torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH), torch.nn.GELU()) for _ in range(LAYERS)]
    model = torch.nn.Sequential(*layers)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    data = torch.randn(STEPS + 2, BATCH, WIDTH)
    batches = iter(torch.utils.data.DataLoader(data, batch_size=None))
    reductions = []

    def reduce_gradient(parameter):
        reductions.append(distributed.all_reduce(parameter.grad, async_op=True))

    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(reduce_gradient)
    raw = Path(folder) / f"raw-{rank}.json"
    with profile(
        activities=[ProfilerActivity.CPU],
        record_shapes=True,
        schedule=schedule(wait=0, warmup=1, active=STEPS),
        on_trace_ready=lambda done: done.export_chrome_trace(str(raw)),
    ) as recorder:
        for _ in range(1 + STEPS):
            batch = next(batches)
            for _ in range(3 if rank == slow else 1):
                loss = model(batch).square().mean()
            loss.backward()
            for reduction in reductions:
                reduction.wait()
            reductions.clear()
            optimizer.step()
            optimizer.zero_grad()
            recorder.step()
    distributed.destroy_process_group()
    write_cleaned(raw, Path(folder) / f"rank-{rank}.json.gz")
    raw.unlink()


def write_cleaned(raw: Path, path: Path) -> None:
    """A trace without what tells the machine it was recorded on, packed the same way each time."""
    trace = json.loads(raw.read_text("utf-8"))
    kept = {key: value for key, value in trace.items() if key not in _LOCAL}
    pids = {event.get("pid") for event in trace["traceEvents"]} | {
        event.get("tid") for event in trace["traceEvents"]
    }
    number = {pid: place for place, pid in enumerate(sorted(one for one in pids if isinstance(one, int)), 1)}
    kept["traceEvents"] = [
        {
            **event,
            "pid": number.get(event.get("pid"), event.get("pid")),
            "tid": number.get(event.get("tid"), event.get("tid")),
            "args": {key: value for key, value in event.get("args", {}).items() if key not in _LOCAL_ARGS},
        }
        for event in trace["traceEvents"]
        if event.get("ph") == "X"
    ]
    path.write_bytes(gzip.compress(json.dumps(kept, separators=(",", ":")).encode(), mtime=0))


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the job; the traces of its ranks lie in the folder afterwards."""
    parser = argparse.ArgumentParser(prog="python -m labkit.evidence.profile.job", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--ranks", type=int, default=2, choices=range(2, 9))
    parser.add_argument("--slow", type=int, help="a rank with three times the work")
    arguments = parser.parse_args(argv)
    import torch.multiprocessing

    arguments.folder.mkdir(parents=True, exist_ok=True)
    torch.multiprocessing.spawn(
        train, (arguments.ranks, arguments.slow, str(arguments.folder)), nprocs=arguments.ranks
    )
    (arguments.folder / "store").unlink(missing_ok=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
