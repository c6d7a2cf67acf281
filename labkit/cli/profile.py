"""``labkit profile``: where the seconds of profiled steps went, and for whom ranks wait."""

import argparse
import json
import sys

from labkit.cli.arguments import size
from labkit.errors import InputRefused
from labkit.evidence.profile import GroupRow, Profile, read_profile
from labkit.evidence.profile.files import LARGEST
from labkit.spec import StepTime
from labkit.spec.step_time import TERMS
from labkit.units import format_rate, format_time

_SHOWN = 12  # groups or terms that a report lists


def add(commands) -> None:
    """The arguments of ``labkit profile``."""
    profile = commands.add_parser(
        "profile",
        help="where the seconds of profiled steps went, and for whom ranks wait",
        description="Reads traces of PyTorch's profiler (.json, .json.gz), a file for each rank of one job: "
        "communication, what of it is hidden, waiting against transferring, the straggler.",
    )
    profile.add_argument("paths", nargs="+", metavar="PATH", help="a trace, or a folder of traces")
    profile.add_argument(
        "--largest", type=size, default=LARGEST, metavar="SIZE", help="refuse larger traces, unpacked (4GB)"
    )
    profile.add_argument("--json", action="store_true", help="a JSON object")
    profile.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Answer from the readable files, refuse the others one sentence each."""
    try:
        profile = read_profile(arguments.paths, arguments.largest)
    except InputRefused as refusal:
        print(f"labkit: {refusal}", file=sys.stderr)
        return 2
    for sentence in profile.refused:
        print(f"labkit: {sentence}", file=sys.stderr)
    if arguments.json:
        print(json.dumps(_as_json(profile), indent=2, allow_nan=False))
    else:
        print(_report(profile))
    return 2 if profile.refused else 0


def _report(profile: Profile) -> str:
    lines = [repr(profile), ""]
    means = {rank: _mean(steps) for rank, steps in profile.steps.items() if steps}
    if means:
        lines.append("mean step by cause, seconds that nothing hides")
        for rank, step in list(means.items())[:_SHOWN]:
            terms = ", ".join(f"{name} {format_time(value)}" for name, value in step.items() if value)
            lines.append(f"  rank {rank}: {terms}")
    if profile.groups:
        lines.append("collectives by rank, group and operation, those that take longest first")
        lines += [f"  {_group(row)}" for row in profile.groups[:_SHOWN]]
        more = len(profile.groups) - _SHOWN
        lines += [f"  ... and {more} more; --json has all"] if more > 0 else []
    return "\n".join(lines)


def _mean(steps: list[StepTime]) -> dict[str, float]:
    return {name: sum(getattr(step, name) for step in steps) / len(steps) for name in TERMS}


def _group(row: GroupRow) -> str:
    name = f"group {row.group.name} {row.group.description}".strip() if row.group.name else "no group told"
    rate = f", busbw {format_rate(row.busbw)}" if row.busbw else ""
    return (
        f"rank {row.rank}, {name}: {row.calls} x {row.operation} ({row.cause}), {format_time(row.seconds)}, "
        f"exposed {format_time(row.exposed)}{rate}"
    )


def _as_json(profile: Profile) -> dict:
    return {
        "ranks": {
            str(rank): {
                "file": str(one.trace.path),
                "host_time": one.host_time,
                "communication_s": one.communication,
                "compute_s": one.compute,
                "overlap_s": one.overlap,
                "exposed_s": one.exposed,
                "coverage": one.coverage,
                "steps": [
                    {"number": number, **_step(step)}
                    for number, step in zip(one.numbers, one.steps, strict=True)
                ],
            }
            for rank, one in profile.ranks.items()
        },
        "groups": [
            {
                "rank": row.rank,
                "group": row.group.name,
                "description": row.group.description,
                "cause": row.cause,
                "operation": row.operation,
                "calls": row.calls,
                "seconds": row.seconds,
                "exposed_s": row.exposed,
                "size_B": row.size,
                "busbw_Bps": row.busbw,
            }
            for row in profile.groups
        ],
        "collectives": [
            {
                "op": one.op,
                "group": one.group.name,
                "step": one.step,
                "sequence": one.sequence,
                "seconds": {str(rank): seconds for rank, seconds in one.seconds.items()},
                "transfer_s": one.transfer,
                "skew_s": one.skew,
                "size_B": one.size,
                "busbw_Bps": one.busbw,
            }
            for one in profile.collectives
        ],
        "straggler": profile.straggler,
        "reason": profile.reason,
        "findings": profile.findings,
        "warnings": profile.warnings,
        "refused": profile.refused,
    }


def _step(step: StepTime) -> dict:
    return {
        **{f"{name}_s": getattr(step, name) for name in TERMS},
        "total_s": step.total,
        "exposed_s": step.exposed,
        "communication_s": step.communication,
    }
