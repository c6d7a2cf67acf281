"""``labkit hang``: what a job hangs on, from the logs and dumps that its ranks left."""

import argparse
import json
import os
import sys

from labkit.cli.arguments import standard_input
from labkit.errors import InputRefused
from labkit.evidence.hang.files import read_files
from labkit.evidence.hang.findings import Finding, First, name_of
from labkit.evidence.hang.read import Hang, hang_of
from labkit.evidence.hang.records import Evidence
from labkit.evidence.hang.text import read_text


def add(commands) -> None:
    """The arguments of ``labkit hang``."""
    hang = commands.add_parser(
        "hang",
        help="what a job hangs on: who is absent, what differs, what to run next",
        description="Reads NCCL and RCCL debug logs, PyTorch's watchdog and fingerprint messages and "
        "flight-recorder dumps (pickle or JSON) of one or many ranks. All paths together are one job.",
    )
    hang.add_argument(
        "paths",
        nargs="+",
        metavar="PATH",
        help="a file, a folder with anything in it, or - for standard input",
    )
    hang.add_argument("--json", action="store_true", help="one JSON object")
    hang.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """One answer from all readable paths; the others are refused one sentence each."""
    evidence, refused, readable = Evidence(), False, False
    for path in arguments.paths:
        try:
            evidence.add(_read(path))
            readable = True
        except InputRefused as refusal:
            print(f"labkit: {refusal}", file=sys.stderr)
            refused = True
    if readable:
        hang = hang_of(evidence)
        print(json.dumps(_as_json(hang), indent=2, allow_nan=False) if arguments.json else hang)
    return 2 if refused else 0


def _read(path: str) -> Evidence:
    if path == "-":
        return read_text(standard_input(), "standard input")
    return read_files(os.fspath(path))


def _as_json(hang: Hang) -> dict:
    return {
        "verdict": hang.verdict,
        "first": _first(hang.first),
        "absent": list(hang.absent),
        "ahead": list(hang.ahead),
        "suspects": list(hang.suspects),
        "reason": hang.reason,
        "next_step": hang.next_step,
        "findings": [_finding(one) for one in hang.findings],
        "sources": [{"path": one.path, "kind": one.kind, "rank": one.rank} for one in hang.sources],
        "warnings": list(hang.warnings),
    }


def _first(first: First | None) -> dict | None:
    if first is None:
        return None
    calls = {str(rank): words for rank, words in first.calls.items()}
    return {"group": first.group, "sequence": first.sequence, "calls": calls}


def _finding(one: Finding) -> dict:
    lists = ("absent", "ahead", "unknown", "differs", "suspects")
    return {
        "group": name_of(one.group),
        "ranks": None if one.group.ranks is None else list(one.group.ranks),
        "verdict": one.verdict,
        "first": _first(one.first),
        **{name: list(getattr(one, name)) for name in lists},
        "reason": one.reason,
        "decide": one.decide,
    }
