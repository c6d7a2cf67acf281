"""The start of 5.3 as the guide prints it, with a gather in the topology print of rank 0: it cannot end.

    torchrun --nproc-per-node 4 -m labkit.evidence.gather_in_branch

Each rank waits until the limit has passed and says where. ``data/launch/gather_in_branch.txt`` is what a run
said; ``bench_group.start`` is the same start mended.
"""

import os
import platform
import sys
import time

from labkit.evidence.bench_group import gathered, shorten_limit

LIMIT = 5.0  # seconds; in a real job 30 minutes, of every card


def start() -> None:
    """Print where the ranks are, on rank 0, then meet at the barrier."""
    import torch.distributed as dist

    if dist.get_rank() == 0:
        print(gathered(platform.node()))  # the others are not in this branch
    dist.barrier()


def main() -> int:
    """Starts a group, tries, and says how long this rank waited for the others; 1 when in vain."""
    import torch.distributed as dist

    dist.init_process_group("gloo")
    shorten_limit(LIMIT / 60)
    rank, begun = dist.get_rank(), time.perf_counter()
    try:
        start()
    except RuntimeError as error:
        waited, said = time.perf_counter() - begun, str(error).splitlines()[0].split("] ")[-1]
        where = "barrier" if rank else "gather"
        sys.stdout.write(f"rank {rank} waited {waited:.1f} s in the {where}: {said}\n")
        sys.stdout.flush()
        os._exit(1)  # without torch's farewell, for which it would wait again
    sys.stdout.write(f"rank {rank} came through\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
