"""``labkit`` in a terminal: readers and planner of the workbook, for a login node without a browser."""

import argparse
import os
import sys
from collections.abc import Sequence

from labkit.cli import bench, hang, mapping, plan, profile, sweep

COMMANDS = (sweep, mapping, plan, bench, hang, profile)
_INTERRUPTED = 130  # 128 + SIGINT, as shells have it


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status: 0, 1 when nobody took its answer, 2 when any input was
    refused, 130 when it was interrupted.
    """
    parser = argparse.ArgumentParser(
        prog="labkit", description="Reads what clusters measured and logged, and plans what they run."
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for command in COMMANDS:
        command.add(commands)
    arguments = parser.parse_args(argv)
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="replace")  # a terminal without µ and ± still gets its answer
    try:
        status = arguments.run(arguments)
        if sys.stdout is not None:  # None where it is closed, as with `>&-`
            sys.stdout.flush()
    except KeyboardInterrupt:
        return _INTERRUPTED
    except OSError as error:  # of the output: what is read is opened where a refusal is a sentence
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # what is left is not written at exit
        if not isinstance(error, BrokenPipeError):  # as with `| head -1`
            print(f"labkit: the answer cannot be written ({error.strerror})", file=sys.stderr)
        return 1
    return status
