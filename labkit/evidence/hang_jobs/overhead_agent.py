"""One rank of the job whose step time ``overhead`` measures: ``torchrun ... overhead_agent FOLDER STEPS``."""

import json
import signal
import sys
import time
from pathlib import Path

from labkit.evidence.hang_jobs.table import LONGEST

WARM_UP = 10
WIDTH, LAYERS = 128, 16


def run_rank(folder: str, steps: int) -> None:
    """One rank of the job; rank 0 writes the seconds of its steps."""
    import torch
    import torch.distributed as dist

    dist.init_process_group("gloo")
    torch.manual_seed(0)
    layers = [torch.nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS)]
    model = torch.nn.Sequential(*layers)
    optimizer, batch, times = torch.optim.SGD(model.parameters(), lr=1e-3), torch.ones(8, WIDTH), []
    for _ in range(WARM_UP + steps):
        begun = time.perf_counter()
        optimizer.zero_grad()
        loss = model(batch).square().mean()
        loss.backward()
        # By hand, an all_reduce for each tensor: DistributedDataParallel (2.13) crashes under DETAIL.
        works = [dist.all_reduce(one.grad, async_op=True) for one in model.parameters()]
        for work in works:
            work.wait()
        optimizer.step()
        total = loss.detach().clone()
        dist.all_reduce(total)
        times.append(time.perf_counter() - begun)
    if dist.get_rank() == 0:
        (Path(folder) / "steps.json").write_text(json.dumps(times[WARM_UP:]))
    dist.destroy_process_group()


if __name__ == "__main__":
    if hasattr(signal, "alarm"):
        signal.alarm(LONGEST)
    run_rank(sys.argv[1], int(sys.argv[2]))
