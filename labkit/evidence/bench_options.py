"""What the bench is asked to do: its options, the grammar of its sizes, and what it needs."""

import argparse
import errno
import importlib.util
import math
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from labkit.collectives.names import ALGORITHMS
from labkit.errors import InputRefused
from labkit.spec.checks import shown
from labkit.units import GB, KB, MB, GiB, KiB, MiB, format_size

OPERATIONS = tuple(op for op in ALGORITHMS if op != "barrier")  # a barrier carries no bytes
SHARED = ("all_gather", "reduce_scatter", "all_to_all", "scatter", "gather")  # a rank's share is size / ranks
BACKENDS = ("nccl", "gloo")
ELEMENT = 4  # bytes of a float, the type that is sent
LARGEST_SIZE = 2**36
MOST_REPEATS = 100_000
LONGEST = 24 * 60.0  # minutes
_UNITS = {"": 1, "b": 1, "kib": KiB, "mib": MiB, "gib": GiB, "kb": KB, "mb": MB, "gb": GB}
_SIZE = re.compile(r"(\d{1,12})\s*([a-z]{0,3})")


@dataclass(frozen=True, slots=True)
class BenchOptions:
    """What is measured and how.

    ``operations``: names of labkit's vocabulary; ``sizes``: bytes of the whole message S, rising;
    ``interface``: the network interface that sockets use, None to leave it to the backend; ``backend``: None
    for nccl where the host has GPUs, else gloo; ``timeout``: minutes that a collective may take at the start,
    ``run_timeout``: and once all ranks are there; ``warm_up`` and ``repeats``: runs of each size, not timed
    and timed; ``output``: the file that gets the result as well.
    """

    operations: tuple[str, ...]
    sizes: tuple[int, ...]
    interface: str | None
    backend: str | None
    timeout: float
    run_timeout: float
    warm_up: int
    repeats: int
    output: str | None


class _Parser(argparse.ArgumentParser):
    """A parser whose errors are labkit's: one sentence, no usage before it."""

    def error(self, message: str) -> NoReturn:
        raise InputRefused(f"{message}; {self.prog} --help lists the options")


def add_options(parser: argparse.ArgumentParser) -> None:
    """Give a parser the bench's options."""
    parser.add_argument("operations", nargs="+", metavar="OPERATION", help=", ".join(OPERATIONS))
    parser.add_argument(
        "--sizes", default="1KiB:64MiB", metavar="FIRST:LAST", help="doubling; default %(default)s"
    )
    parser.add_argument(
        "--interface", metavar="NAME", help="network interface of the sockets, as ip link lists it"
    )
    parser.add_argument("--backend", metavar="NAME", help="nccl or gloo; default: nccl where there are GPUs")
    parser.add_argument(
        "--timeout", default="30", metavar="MIN", help="limit of the start; default %(default)s"
    )
    parser.add_argument(
        "--run-timeout", default="5", metavar="MIN", help="limit afterwards; default %(default)s"
    )
    parser.add_argument(
        "--warm-up", default="10", metavar="N", help="untimed runs of a size; default %(default)s"
    )
    parser.add_argument(
        "--repeats", default="100", metavar="N", help="timed runs of a size; default %(default)s"
    )
    parser.add_argument("--output", metavar="FILE", help="write the result there as well (on rank 0's host)")


def options_of(arguments: argparse.Namespace) -> BenchOptions:
    """The options as checked values; refused in one sentence that says which is wrong."""
    for op in arguments.operations:
        if op not in OPERATIONS:
            raise InputRefused(
                f"{shown(op)} is no operation of the bench; use one of {', '.join(OPERATIONS)}"
            )
    if arguments.backend not in (None, *BACKENDS):
        raise InputRefused(f"--backend is {shown(arguments.backend)}; use nccl or gloo")
    return BenchOptions(
        operations=tuple(dict.fromkeys(arguments.operations)),
        sizes=sizes_of(arguments.sizes),
        interface=arguments.interface,
        backend=arguments.backend,
        timeout=_minutes("--timeout", arguments.timeout),
        run_timeout=_minutes("--run-timeout", arguments.run_timeout),
        warm_up=_count("--warm-up", arguments.warm_up, 0),
        repeats=_count("--repeats", arguments.repeats, 1),
        output=arguments.output,
    )


def parse(argv: Sequence[str] | None) -> BenchOptions:
    """The options of a command line; ``--help`` prints them and ends the program."""
    parser = _Parser(
        prog="torchrun --nproc-per-node N -m labkit.evidence.bench",
        description="Times collectives on real processes and writes them as nccl-tests does.",
    )
    add_options(parser)
    return options_of(parser.parse_args(argv))


def sizes_of(text: str) -> tuple[int, ...]:
    """The sizes in bytes that ``FIRST:LAST`` means, each twice the one before; or the one size given.

    >>> sizes_of("1KiB:8KiB"), sizes_of("1MB"), sizes_of("1KiB:5000")
    ((1024, 2048, 4096, 8192), (1000000,), (1024, 2048, 4096))
    """
    first, separator, last = text.partition(":")
    low, high = _bytes(first, text), _bytes(last if separator else first, text)
    if high < low:
        raise InputRefused(f"--sizes {shown(text)} falls; write the smaller size first, as in 1KiB:64MiB")
    return tuple(low << k for k in range((high // low).bit_length()))


def _bytes(word: str, text: str) -> int:
    found = _SIZE.fullmatch(word.strip().lower())
    if not found or found[2] not in _UNITS:
        raise InputRefused(
            f"--sizes {shown(text)} cannot be read; write two sizes with a colon between them, as in "
            "1KiB:64MiB, or one size (units B, KiB, MiB, GiB, kB, MB, GB)"
        )
    size = int(int(found[1]) * _UNITS[found[2]])
    if not ELEMENT <= size <= LARGEST_SIZE:
        raise InputRefused(
            f"--sizes {shown(text)}: {shown(word)} is outside {ELEMENT} B to {format_size(LARGEST_SIZE)}"
        )
    return size


def size_sent(op: str, size: int, ranks: int) -> int:
    """The bytes of S that can be sent: whole elements, and as many for each rank where it is shared out.

    As in nccl-tests a size is rounded down; refused where nothing is left of it.

    >>> size_sent("all_reduce", 1024, 3), size_sent("all_gather", 1024, 3)
    (1024, 1020)
    """
    unit = ELEMENT * (ranks if op in SHARED else 1)
    if size < unit:
        raise InputRefused(f"{format_size(size)} is too small for {op} of {ranks} ranks; start at {unit} B")
    return size - size % unit


def _count(option: str, text: str, least: int) -> int:
    if not re.fullmatch(r"\d{1,7}", text) or not least <= int(text) <= MOST_REPEATS:
        raise InputRefused(f"{option} is {shown(text)}; give a whole number from {least} to {MOST_REPEATS:,}")
    return int(text)


def _minutes(option: str, text: str) -> float:
    try:
        minutes = float(text)
    except ValueError:
        minutes = math.nan
    if not 0 < minutes <= LONGEST:
        raise InputRefused(f"{option} is {shown(text)}; give minutes, above 0 and at most {LONGEST:g}")
    return minutes


def check_output(path: str | None) -> None:
    """Refuses an ``--output`` that nothing can be written to, before anything is measured for it."""
    if path is None:
        return
    target = Path(path)
    code = 0
    if target.is_dir():
        code = errno.EISDIR
    elif not target.parent.is_dir():
        code = errno.ENOENT
    elif not os.access(target if target.exists() else target.parent, os.W_OK):
        code = errno.EACCES
    if code:
        raise InputRefused(f"--output {path} cannot be written ({os.strerror(code)}); name another file")


def need_torch() -> None:
    """Refuses where torch is not installed or cannot be loaded, and says how to get it."""
    if importlib.util.find_spec("torch") is None:
        raise InputRefused(
            "the bench needs PyTorch, which is not installed here: in a checkout, "
            "python3 tools/environment.py bench (or pip install -e '.[bench]') installs it"
        )
    try:
        importlib.import_module("torch")
    except (ImportError, OSError) as error:  # as where a library of it is missing
        said = str(error).partition("\n")[0][:150]
        raise InputRefused(f"PyTorch is installed but cannot be loaded ({said}); install it again") from None
