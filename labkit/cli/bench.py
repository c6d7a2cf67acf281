"""``labkit bench``: collectives timed on processes of this host, started with torchrun."""

import argparse
import os
import subprocess
import sys

from labkit.cli.arguments import ranks
from labkit.errors import InputRefused
from labkit.evidence.bench_network import check_interface
from labkit.evidence.bench_options import add_options, need_torch, options_of, size_sent
from labkit.spec.checks import whole

MOST_RANKS = 256  # on one host
_OPTIONS = ("sizes", "interface", "backend", "timeout", "run_timeout", "warm_up", "repeats", "output")


def add(commands) -> None:
    """The command and its options."""
    bench = commands.add_parser(
        "bench",
        help="time collectives on processes of this host",
        description="Times collectives on processes of this host: gloo on CPUs, NCCL on GPUs. The result "
        "reads like an nccl-tests log, for labkit sweep. Over several hosts use torchrun, see data/launch.",
    )
    add_options(bench)
    bench.add_argument("--ranks", type=ranks, default=4, metavar="N", help="processes; default %(default)s")
    bench.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Check all before anything starts, then let torchrun run it: 0, 1 when a rank failed, 2 refused."""
    try:
        n = whole(arguments.ranks, "--ranks", most=MOST_RANKS)
        options = options_of(arguments)
        for op in options.operations:
            size_sent(op, options.sizes[0], n)
        check_interface(options.interface)
        need_torch()
    except InputRefused as refusal:
        print(f"labkit: {refusal}", file=sys.stderr)
        return 2
    given = ((name.replace("_", "-"), getattr(arguments, name)) for name in _OPTIONS)
    command = [
        *(sys.executable, "-m", "torch.distributed.run"),
        *("--standalone", "--local-addr", "127.0.0.1", "--nproc-per-node", str(n)),
        *("-m", "labkit.evidence.bench", *options.operations),
        *(f"--{name}={value}" for name, value in given if value is not None),
    ]
    threads = {"OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1")}
    return min(1, abs(subprocess.call(command, env={**os.environ, **threads})))
