"""The collectives as torch runs them: one call each on prepared buffers, its times, its result checked.

The check knows every rank's input from its number alone: element i of rank r is (i + 31 r) mod 1021. Such
whole numbers add up without rounding in a float, up to 16,000 ranks, and ranks hold different data.
"""

from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter

import numpy as np

from labkit.evidence.bench_options import ELEMENT, SHARED

PERIOD, STRIDE = 1021, 31  # a prime, so that no cut of the message falls on the period
ROOT = 0


@dataclass(frozen=True, slots=True)
class Prepared:
    """A collective ready to run: what this rank sends and receives, one tensor where torch works in place."""

    run: Callable[[], None]
    sends: object
    receives: object


def inputs(rank: int, start: int, count: int) -> np.ndarray:
    """Elements ``start`` to ``start + count`` of what rank ``rank`` sends, float32."""
    return _stretched(_period(rank), start, count)


def results(op: str, rank: int, ranks: int, count: int) -> np.ndarray | None:
    """What ``rank`` must hold after ``op`` of ``count`` elements in all, from the numbers of the ranks alone.

    None where the rank gets no result (all but the root of a reduce or gather). Root is rank 0; send_recv
    sends round the ring, to the next rank.
    """
    share = count // ranks
    if op in ("reduce", "gather") and rank != ROOT:
        return None
    if op in ("all_reduce", "reduce", "reduce_scatter"):
        total = sum(_period(each) for each in range(ranks))
        return (
            _stretched(total, rank * share, share) if op == "reduce_scatter" else _stretched(total, 0, count)
        )
    if op == "broadcast":
        return inputs(ROOT, 0, count)
    if op == "scatter":
        return inputs(ROOT, rank * share, share)
    if op == "send_recv":
        return inputs((rank - 1) % ranks, 0, count)
    start = rank * share if op == "all_to_all" else 0
    return np.concatenate([inputs(each, start, share) for each in range(ranks)])


def count_wrong(got: np.ndarray, wanted: np.ndarray | None) -> int:
    """Elements that differ from what they must be; 0 on a rank that gets no result."""
    return 0 if wanted is None else int(np.count_nonzero(got != wanted))


def prepare(op: str, size: int, rank: int, ranks: int, device) -> Prepared:
    """Buffers and call for ``op`` of ``size`` bytes in all (the size column of nccl-tests)."""
    import torch
    import torch.distributed as dist

    count, share = size // ELEMENT, size // ELEMENT // ranks
    sends = torch.zeros(share if op in ("all_gather", "gather") else count, device=device)
    in_place = op in ("all_reduce", "reduce", "broadcast")
    receives = sends if in_place else torch.zeros(_received(op, count, share), device=device)
    at_root = rank == ROOT

    def send_recv():
        pair = [
            dist.P2POp(dist.isend, sends, (rank + 1) % ranks),
            dist.P2POp(dist.irecv, receives, (rank - 1) % ranks),
        ]
        for request in dist.batch_isend_irecv(pair):
            request.wait()

    parts = list((receives if op == "gather" else sends).split(share)) if op in SHARED else []
    calls = {
        "all_reduce": lambda: dist.all_reduce(sends),
        "reduce": lambda: dist.reduce(sends, ROOT),
        "broadcast": lambda: dist.broadcast(sends, ROOT),
        "all_gather": lambda: _named(dist, "all_gather")(receives, sends),
        "reduce_scatter": lambda: _named(dist, "reduce_scatter")(receives, sends),
        "all_to_all": lambda: dist.all_to_all_single(receives, sends),
        "scatter": lambda: dist.scatter(receives, parts if at_root else None, src=ROOT),
        "gather": lambda: dist.gather(sends, parts if at_root else None, dst=ROOT),
        "send_recv": send_recv,
    }
    return Prepared(calls[op], sends, receives)


def check(op: str, prepared: Prepared, rank: int, ranks: int) -> int:
    """Run once on known values and count the wrong elements on this rank."""
    import torch

    count = prepared.sends.numel() * (ranks if op in ("all_gather", "gather") else 1)
    prepared.receives.zero_()
    prepared.sends.copy_(torch.from_numpy(inputs(rank, 0, prepared.sends.numel())))
    prepared.run()
    return count_wrong(prepared.receives.cpu().numpy(), results(op, rank, ranks, count))


def times(prepared: Prepared, repeats: int) -> list[float]:
    """Seconds of each of ``repeats`` runs on this rank.

    On a CPU by the clock, each after a barrier. On a GPU by events on its stream, back to back as in
    nccl-tests, so that the launch of a kernel does not count.
    """
    return (_on_gpu if prepared.sends.is_cuda else _on_cpu)(prepared.run, repeats)


def _on_cpu(run, repeats: int) -> list[float]:
    import torch.distributed as dist

    seconds = []
    for _ in range(repeats):
        dist.barrier()
        start = perf_counter()
        run()
        seconds.append(perf_counter() - start)
    return seconds


def _on_gpu(run, repeats: int) -> list[float]:
    import torch

    marks = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(repeats)]
    for start, end in marks:
        start.record()
        run()
        end.record()
    torch.cuda.synchronize()
    return [start.elapsed_time(end) * 1e-3 for start, end in marks]


def _named(dist, op: str):
    """torch's call on whole tensors: it has a new name since 2.13."""
    old = {"all_gather": "all_gather_into_tensor", "reduce_scatter": "reduce_scatter_tensor"}
    return getattr(dist, f"{op}_single", None) or getattr(dist, old[op])


def _received(op: str, count: int, share: int) -> int:
    return share if op in ("reduce_scatter", "scatter") else count


def _period(rank: int) -> np.ndarray:
    return (np.arange(PERIOD) + STRIDE * rank) % PERIOD


def _stretched(period: np.ndarray, start: int, count: int) -> np.ndarray:
    return np.resize(np.roll(period, -start).astype(np.float32), count)
