"""The bench: collectives timed on real processes, whose log ``read_sweep`` reads and ``fit`` fits.

    torchrun --nproc-per-node 4 -m labkit.evidence.bench all_reduce --sizes 1KiB:64MiB

gloo on CPUs, NCCL on GPUs. Over several hosts torchrun's own rendezvous finds the ranks; ``data/launch`` has
examples for Slurm and Kubernetes.
"""

import os
import platform
import sys
import time
from collections.abc import Sequence
from typing import TextIO

from labkit.errors import InputRefused
from labkit.evidence import bench_log, bench_operations
from labkit.evidence.bench_device import choose_backend
from labkit.evidence.bench_group import Group, gathered, rank_in_job, start
from labkit.evidence.bench_network import check_interface
from labkit.evidence.bench_options import BenchOptions, need_torch, parse, size_sent
from labkit.units import format_size

REFUSED, FAILED = 2, 1
# torchrun ends all ranks of a host with the first that exits: the others leave rank 0 time for its sentence.
_GRACE = 10.0


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the bench on this rank: 0 when it is through, 1 when the ranks lost each other, 2 when refused."""
    rank, local_rank = (int(os.environ.get(name, "0")) for name in ("RANK", "LOCAL_RANK"))
    speaks = rank == 0  # of what every rank finds
    try:
        options = _checked(argv)
        speaks = local_rank == 0  # of what every rank of a host finds
        check_interface(options.interface)
        choose_backend(options.backend)
    except InputRefused as refusal:
        return _refused(refusal, speaks)
    voice = _Voice(rank)
    try:
        group = start(options, voice.comment)
        if not _opened(voice, options, rank):
            return REFUSED
        for op in options.operations:
            _measure(op, options, group, voice)
    except RuntimeError as error:  # torch's own, of every backend
        _complain(f"rank {rank} on {platform.node()}, {voice.doing}: {_first_line(error)}")
        return FAILED
    except BrokenPipeError:  # rank 0's reader left, as with `| head`; nothing more can be printed
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    _end()
    return 0


def _refused(refusal: InputRefused, speaks: bool) -> int:
    """One rank says it; the others wait for it to do so."""
    if speaks:
        _complain(str(refusal))
    else:
        time.sleep(_GRACE)
    return REFUSED


def _checked(argv: Sequence[str] | None) -> BenchOptions:
    """The options, checked on every rank alike before any of them waits for another."""
    options = parse(argv)
    need_torch()
    rank_in_job()
    for op in options.operations:
        size_sent(op, options.sizes[0], int(os.environ["WORLD_SIZE"]))
    return options


class _Voice:
    """What rank 0 prints, and writes as soon as the file is open; the other ranks say nothing."""

    def __init__(self, rank: int):
        self.speaks = rank == 0
        self.said: list[str] = []
        self.file: TextIO | None = None
        self.doing = "starting"

    def line(self, text: str) -> None:
        if not self.speaks:
            return
        print(text, flush=True)
        if self.file is None:
            self.said.append(text)
        else:
            print(text, file=self.file, flush=True)

    def comment(self, text: str) -> None:
        for line in text.split("\n"):
            self.line(f"# {line}")

    def write_to(self, path: str) -> None:
        self.file = open(path, "w", encoding="utf-8")  # noqa: SIM115  (open as long as the bench runs)
        print("\n".join(self.said), file=self.file, flush=True)


def _opened(voice: _Voice, options: BenchOptions, rank: int) -> bool:
    """Opens the output on rank 0, which complains where it cannot; all ranks hear how that went."""
    well = True
    if options.output and rank == 0:
        try:
            voice.write_to(options.output)
        except OSError as error:
            _complain(f"--output {options.output} cannot be written ({error.strerror}); name another file")
            well = False
    return gathered(well)[0]


def _measure(op: str, options: BenchOptions, group: Group, voice: _Voice) -> None:
    """All sizes of one collective: warm-up, timed runs, one checked run, a row."""
    import torch

    ranks, rows = len(group.places), []
    voice.line(bench_log.head(op, group.backend, torch.__version__, group.places))
    for size in options.sizes:
        size = size_sent(op, size, ranks)
        voice.doing = f"{op} of {format_size(size)}"
        prepared = bench_operations.prepare(op, size, group.rank, ranks, group.device)
        for _ in range(options.warm_up):
            prepared.run()
        seconds = bench_operations.times(prepared, options.repeats)
        wrong = bench_operations.check(op, prepared, group.rank, ranks)
        rows.append(bench_log.slowest(size, gathered((seconds, wrong))))
        voice.line(bench_log.row(op, ranks, rows[-1]))
    voice.line(bench_log.foot(op, rows))


def _end() -> None:
    import torch.distributed as dist

    dist.destroy_process_group()


def _complain(sentence: str) -> None:
    sys.stderr.write(f"labkit bench: {sentence}\n")  # one write: several ranks may say something
    sys.stderr.flush()


def _first_line(error: Exception) -> str:
    line = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
    return line if len(line) <= 300 else f"{line[:300]}..."


if __name__ == "__main__":
    sys.exit(main())
