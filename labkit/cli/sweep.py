"""``labkit sweep``: latency, bandwidth and knee of nccl-tests logs."""

import argparse
import json
import math
import sys

from labkit.cli.arguments import ranks, rate, standard_input
from labkit.errors import InputRefused
from labkit.evidence.sweep import Sweep, read_sweep
from labkit.units import format_rate, format_share, format_size, format_time


def add(commands) -> None:
    """The command and its options."""
    sweep = commands.add_parser(
        "sweep",
        help="latency, bandwidth and knee of nccl-tests logs",
        description="Reads nccl-tests or rccl-tests logs (text or JSON) and fits latency and bandwidth.",
    )
    sweep.add_argument("files", nargs="+", metavar="FILE", help="a log, - for standard input")
    sweep.add_argument("--ranks", type=ranks, metavar="N", help="ranks, where the log does not tell")
    sweep.add_argument(
        "--nominal",
        type=rate,
        metavar="GBps",
        help="rate of one direction of the link, to judge the plateau by",
    )
    sweep.add_argument("--json", action="store_true", help="a JSON list with one object for each table")
    sweep.set_defaults(run=run)


def _read(file: str, ranks: int | None) -> list[Sweep]:
    """The tables of a file, of standard input for ``-``."""
    return read_sweep(standard_input() if file == "-" else file, ranks)


def run(arguments: argparse.Namespace) -> int:
    """Answer the readable files, refuse the others one sentence each."""
    answers, refused = [], False
    for file in arguments.files:
        try:
            tables = _read(file, arguments.ranks)
        except InputRefused as refusal:
            print(f"labkit: {refusal}", file=sys.stderr)
            refused = True
            continue
        answers += [(file, number, table) for number, table in enumerate(tables, 1)]
    if arguments.json:
        tables = [_as_json(file, sweep, arguments.nominal) for file, _, sweep in answers]
        print(json.dumps(tables, indent=2, allow_nan=False))
    elif answers:
        several = {file for file, number, _ in answers if number > 1}
        named = ((f"{f}, table {n}" if f in several else f, s) for f, n, s in answers)
        titled = ((f"{name} ({sweep.part})" if sweep.part else name, sweep) for name, sweep in named)
        print("\n\n".join(_report(title, sweep, arguments.nominal) for title, sweep in titled))
    return 2 if refused else 0


def _fit(sweep: Sweep, nominal: float | None = None):
    """The fit and its warnings, or None and why there is none."""
    try:
        fit = sweep.fit(nominal)
    except InputRefused as refusal:
        return None, [str(refusal)]
    return fit, list(fit.warnings)


def _stands_out(fit) -> list[str]:
    return [finding.message for finding in fit.findings] if fit is not None else []


def _as_json(file: str, sweep: Sweep, nominal: float | None) -> dict:
    fit, said = _fit(sweep, nominal)

    def number(name: str) -> float | None:
        value = float(getattr(fit, name, math.nan))
        return value if math.isfinite(value) else None

    return {
        "file": file,
        "collective": sweep.collective,
        "n_ranks": sweep.n_ranks,
        "rows": int(sweep.size.size),
        "skipped": [list(entry) for entry in sweep.skipped],
        "alpha_s": number("alpha"),
        "bandwidth_Bps": number("bandwidth"),
        "knee_B": number("knee"),
        "plateau_busbw_Bps": number("plateau"),
        "warnings": [*sweep.warnings, *said, *_stands_out(fit)],
    }


def _with_error(value: float, error: float, form) -> str:
    if not math.isfinite(value):
        return "cannot be told from these rows"
    return form(value) + (f" ± {form(error)}" if math.isfinite(error) and error > 0 else "")


def _report(title: str, sweep: Sweep, nominal: float | None) -> str:
    """The readable report of one table."""
    fit, said = _fit(sweep, nominal)
    smallest, largest = format_size(sweep.size.min()), format_size(sweep.size.max())
    facts = [
        ("collective", sweep.collective or "not told by the log"),
        ("ranks", str(sweep.n_ranks or "not told by the log")),
        ("rows", f"{sweep.size.size}, {smallest} to {largest}" + ", in place too" * bool(sweep.in_place)),
    ]
    if fit is not None:
        share = f", {format_share(fit.plateau_share)} of nominal" if math.isfinite(fit.plateau_share) else ""
        facts += [
            ("latency", _with_error(fit.alpha, fit.alpha_error, format_time) + " (alpha)"),
            ("bandwidth", _with_error(fit.bandwidth, fit.bandwidth_error, format_rate) + " (size over time)"),
            ("knee", _with_error(fit.knee, math.nan, format_size) + " (alpha x bandwidth)"),
            (
                "plateau",
                _with_error(fit.plateau, math.nan, format_rate) + " (busbw of the largest sizes)" + share,
            ),
            ("regions", "; ".join(map(_region, fit.regions)) or "cannot be told from these rows"),
        ]
    lines: dict[str, list[str]] = {}
    for line, why in sweep.skipped:
        lines.setdefault(why, []).append(str(line))
    facts += [("skipped", f"line {', '.join(numbers)}: {why}") for why, numbers in lines.items()]
    facts += [("warning", warning) for warning in [*sweep.warnings, *said]]
    facts += [("stands out", message) for message in _stands_out(fit)]
    return "\n".join([title, *(f"  {name:<11} {value}" for name, value in facts)])


def _region(region) -> str:
    return f"{region.name} {format_size(region.smallest)} to {format_size(region.largest)}"
