"""``labkit bench``: collectives timed on processes of this host, started with torchrun."""

import argparse
import os
import signal
import subprocess
import sys

from labkit.cli.arguments import ranks
from labkit.errors import InputRefused
from labkit.evidence.bench_device import choose_backend
from labkit.evidence.bench_network import check_interface
from labkit.evidence.bench_options import add_options, check_output, need_torch, options_of, size_sent
from labkit.spec.checks import whole

MOST_RANKS = 256  # on one host
_ENDS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
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
        check_output(options.output)
        need_torch()
        choose_backend(options.backend, n)
    except InputRefused as refusal:
        print(f"labkit: {refusal}", file=sys.stderr)
        return 2
    given = ((name.replace("_", "-"), getattr(arguments, name)) for name in _OPTIONS)
    command = [
        *(sys.executable, "-m", "labkit.evidence.bench_agent"),
        *("--standalone", "--local-addr", "127.0.0.1", "--nproc-per-node", str(n)),
        *("-m", "labkit.evidence.bench", *options.operations),
        *(f"--{name}={value}" for name, value in given if value is not None),
    ]
    threads = {"OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1")}
    return _through(command, {**os.environ, **threads})


def _through(command: list[str], environment: dict[str, str]) -> int:
    """Run torchrun to its end: 0, 1 when a rank failed, 128 + the signal that ended it.

    It has a process group of its own, so that Ctrl-C reaches it once, from here, and it ends its ranks.
    """
    heard: list[int] = []

    def end(number, _):
        if not heard:
            agent.terminate()
        heard.append(number)

    with subprocess.Popen(command, env=environment, start_new_session=True) as agent:
        before = {number: signal.signal(number, end) for number in _ENDS}
        try:
            status = agent.wait()
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
    return 128 + heard[0] if heard else min(1, abs(status))
