"""What each job does on a rank: a few steps of a training loop with one mistake in it.

Each takes the rank and the number of ranks and calls torch alone. ``say`` prints a line with the rank before
it, as PyTorch does. Steps are short; what waits gives up after ``LIMIT`` seconds.
"""

import sys
import time

LIMIT = 4.0  # seconds; in a real job 10 to 30 minutes
STEPS = 4

heard = [time.perf_counter()]  # when this rank said something


def say(rank: int, words: str) -> None:
    """A line on standard output, at once and whole, although ranks share it."""
    sys.stdout.write(f"[rank{rank}]: {words}\n")
    sys.stdout.flush()
    heard.append(time.perf_counter())


def train_step(rank: int, step: int, loss: float = 1.0) -> None:
    """One step: every rank has the same loss, and all take part in its sum."""
    import torch
    import torch.distributed as dist

    total = torch.full((1,), loss)
    dist.all_reduce(total)
    say(rank, f"step {step}: loss sum {total.item():g}")


def branch(rank: int, ranks: int) -> None:
    """A barrier before a checkpoint, under a condition on the rank."""
    import torch.distributed as dist

    for step in range(STEPS):
        train_step(rank, step)
        if step == 1 and rank == 0:
            dist.barrier()  # the other ranks are not in this branch


def walk_on(rank: int, ranks: int) -> None:
    """Rank 0 adds up a validation loss after training: it waits, the others walk on and are done."""
    import torch
    import torch.distributed as dist

    for step in range(STEPS):
        train_step(rank, step)
    if rank == 0:
        validation = torch.full((1,), 1000.0)
        dist.all_reduce(validation)
        say(rank, f"validation loss {validation.item():g}")
    else:
        say(rank, "done with training, on to what comes next")


def silent(rank: int, ranks: int) -> None:
    """The same sum under a condition, before training: it pairs with the others' first step, and so on."""
    import torch
    import torch.distributed as dist

    if rank == 0:
        validation = torch.full((1,), 1000.0)
        dist.all_reduce(validation)
        say(rank, f"validation loss {validation.item():g}")
    for step in range(STEPS):
        train_step(rank, step, loss=step + 1.0)


def abort(rank: int, ranks: int) -> None:
    """The same with another size: what pairs does not fit."""
    import torch
    import torch.distributed as dist

    if rank == 0:
        validation = torch.full((4096,), 1000.0)
        dist.all_reduce(validation)
        say(rank, f"validation loss {validation[0].item():g}")
    for step in range(STEPS):
        train_step(rank, step)


def shape(rank: int, ranks: int) -> None:
    """The last batch of the last rank is smaller, and so is the tensor that it gives to the sum."""
    import torch
    import torch.distributed as dist

    for step in range(STEPS):
        train_step(rank, step)
    predictions = torch.ones(8 if rank < ranks - 1 else 5)
    dist.all_reduce(predictions)


def dtype(rank: int, ranks: int) -> None:
    """One rank counts in whole numbers what the others have as fractions."""
    import torch
    import torch.distributed as dist

    train_step(rank, 0)
    counts = torch.ones(8, dtype=torch.int32 if rank == ranks - 1 else torch.float32)
    dist.all_reduce(counts)
    say(rank, f"sum of ones {counts[0].item():g}")


def order(rank: int, ranks: int) -> None:
    """The last rank issues its gather before its sum; all wait for both."""
    import torch
    import torch.distributed as dist

    train_step(rank, 0)
    total, mine, everyone = torch.ones(4), torch.ones(4), [torch.zeros(4) for _ in range(ranks)]
    if rank < ranks - 1:
        works = dist.all_reduce(total, async_op=True), dist.all_gather(everyone, mine, async_op=True)
    else:
        works = dist.all_gather(everyone, mine, async_op=True), dist.all_reduce(total, async_op=True)
    for work in works:
        work.wait()
    say(rank, f"gathered {everyone[0][0].item():g}")


def extra_batch(rank: int, ranks: int) -> None:
    """The data do not divide: the last rank has one batch more than the others."""
    for step in range(STEPS + (rank == ranks - 1)):
        train_step(rank, step)
    say(rank, "end of the data")


def root(rank: int, ranks: int) -> None:
    """Rank 0 takes the last rank for the one that has the weights; the others take them from rank 0."""
    import torch
    import torch.distributed as dist

    train_step(rank, 0)
    weights = torch.full((8,), float(rank))
    if rank == 0:
        dist.broadcast(weights, src=ranks - 1)
    else:
        dist.broadcast(weights, src=0)
    say(rank, f"weights of rank {weights[0].item():g}")


def group(rank: int, ranks: int) -> None:
    """The last rank forgets to name the group, so its sum is one of the default group."""
    import torch
    import torch.distributed as dist

    train_step(rank, 0)
    tensor_parallel = dist.new_group(timeout=_limit(), group_desc="tensor_parallel")
    partial = torch.ones(4)
    if rank < ranks - 1:
        dist.all_reduce(partial, group=tensor_parallel)
    else:
        dist.all_reduce(partial)
    say(rank, f"sum of the parts {partial[0].item():g}")


def circular(rank: int, ranks: int) -> None:
    """Two groups of the same ranks, which rank 0 uses in the other order."""
    import torch
    import torch.distributed as dist

    train_step(rank, 0)
    names = ("tensor_parallel", "data_parallel")
    made = [dist.new_group(timeout=_limit(), group_desc=name) for name in names]
    for one in reversed(made) if rank == 0 else made:
        dist.all_reduce(torch.ones(4), group=one)


def missing(rank: int, ranks: int) -> None:
    """The last rank finds no data and ends, without a word to the others."""
    for step in range(STEPS):
        if step == 2 and rank == ranks - 1:
            say(rank, "no shard of the data for this rank, exiting")
            raise SystemExit(0)
        train_step(rank, step)


def loading(rank: int, ranks: int) -> None:
    """The last rank loads for longer than the limit that the others wait."""
    if rank == ranks - 1:
        shards = 6
        for done in range(shards + 1):
            passed, left = done * LIMIT / 4, (shards - done) * LIMIT / 4
            bar = f"{100 * done // shards:3d}%|{'#' * done:{shards}}| {done}/{shards}"
            say(rank, f"Loading checkpoint shards: {bar} [{_clock(passed)}<{_clock(left)}]")
            if done < shards:
                time.sleep(LIMIT / 4)
    train_step(rank, 0)


def half_filled(rank: int, ranks: int) -> None:
    """Rank 0 sends fewer elements than the others expect: it passes, and half of what they have is old."""
    import torch
    import torch.distributed as dist

    train_step(rank, 0)
    weights = torch.full((4 if rank == 0 else 8,), 7.0 if rank == 0 else 0.0)
    dist.broadcast(weights, src=0)
    say(rank, f"weights {weights.tolist()}")
    for step in range(1, STEPS):
        train_step(rank, step)


def skipped(rank: int, ranks: int) -> None:
    """The last rank but one passes over a batch, and its sums pair with those of the others' next steps."""
    import torch
    import torch.distributed as dist

    for step in range(STEPS):
        if step == 1 and rank == ranks - 2:
            continue
        total = torch.full((1,), float(step))
        dist.all_reduce(total)
        say(rank, f"step {step}: sum of step numbers {total.item():g}")


def ahead(rank: int, ranks: int) -> None:
    """The ranks issue three sums at once and wait for them in turn; the last rank is busy elsewhere."""
    import torch
    import torch.distributed as dist

    train_step(rank, 0)
    if rank == ranks - 1:
        time.sleep(2 * LIMIT)
        return
    works = []
    for bucket in range(1, 4):
        works.append(dist.all_reduce(torch.ones(4), async_op=True))
        say(rank, f"all_reduce of bucket {bucket} issued")
    for work in works:
        work.wait()


def _clock(seconds: float) -> str:
    return f"{int(seconds) // 60:02d}:{int(seconds) % 60:02d}"


def _limit():
    from datetime import timedelta

    return timedelta(seconds=LIMIT)
