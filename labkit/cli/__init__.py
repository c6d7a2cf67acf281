"""``labkit`` in a terminal: readers and planner of the workbook, for a login node without a browser."""

import argparse
import os
import sys
from collections.abc import Sequence

from labkit.cli import bench, mapping, plan, sweep

COMMANDS = (sweep, mapping, plan, bench)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status: 0, 1 when its reader left, 2 when any input was refused."""
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
        sys.stdout.flush()
    except BrokenPipeError:  # as with `| head -1`; what is left must not be written at exit either
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    return status
