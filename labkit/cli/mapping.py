"""``labkit mapping``: which rank runs where, which groups cross hosts, what it costs and how to reorder."""

import argparse
import json
import sys
from itertools import pairwise

from labkit.cli.arguments import settings, standard_input
from labkit.errors import InputRefused
from labkit.evidence.mapping import Mapping, read_mapping
from labkit.evidence.mapping_judge import LAUNCHERS, crossings, groups, mapping_cost
from labkit.presets import cluster, model
from labkit.spec import Plan
from labkit.spec.rule import counted
from labkit.units import format_time

_SHOWN = 8  # hosts or ranks listed in a line


def add(commands) -> None:
    """The arguments of ``labkit mapping``."""
    mapping = commands.add_parser(
        "mapping",
        help="which rank runs where, and which groups cross hosts",
        description="Reads rank to host listings: labkit bench, nccl-tests, srun -l hostname, "
        "mpirun --display-map, or a table of rank, host and device.",
    )
    mapping.add_argument("files", nargs="+", metavar="FILE", help="a listing, - for standard input")
    mapping.add_argument("--plan", type=_plan, metavar="tp=8,dp=2", help="the plan of this launch")
    mapping.add_argument("--model", metavar="M", help="with --cluster: what a wrong order costs a step")
    mapping.add_argument("--cluster", metavar="C", help="a preset or a file, as for --model")
    mapping.add_argument("--json", action="store_true", help="a JSON list with one object for each file")
    mapping.set_defaults(run=run)


def _plan(text: str) -> Plan:
    """A plan from tp=8,pp=2: any field of ``labkit.Plan``."""
    try:
        return Plan().changed(**settings(text))
    except InputRefused as refusal:
        raise argparse.ArgumentTypeError(str(refusal)) from None


def run(arguments: argparse.Namespace) -> int:
    """Answer the readable files, refuse the others one sentence each."""
    answers, refused = [], False
    for file in arguments.files:
        try:
            answers.append(_answer(file, arguments))
        except InputRefused as refusal:
            print(f"labkit: {refusal}", file=sys.stderr)
            refused = True
    if arguments.json:
        print(json.dumps([_as_json(*answer) for answer in answers], indent=2, allow_nan=False))
    elif answers:
        print("\n\n".join(_report(*answer) for answer in answers))
    return 2 if refused else 0


def _answer(file: str, arguments: argparse.Namespace) -> tuple:
    """The file, its mapping, the plan, which of its groups cross, and what that costs."""
    plan, names = arguments.plan, (arguments.model, arguments.cluster)
    if any(names) and not (all(names) and plan):
        raise InputRefused("what an order costs takes --plan, --model and --cluster; give all three")
    mapping = read_mapping(standard_input() if file == "-" else file)
    found = crossings(mapping, plan) if plan else {}
    costs = []
    if all(names):
        machine = cluster(arguments.cluster, nodes=len(mapping.ranks_on))
        costs = mapping_cost(model(arguments.model), machine, plan, mapping)
    return file, mapping, plan, found, costs


def _as_json(file, mapping, plan, found, costs) -> dict:
    return {
        "file": file,
        "source": mapping.source,
        "ranks": mapping.ranks,
        "order": mapping.order,
        "consecutive": mapping.consecutive,
        "hosts": list(mapping.hosts),
        "devices": list(mapping.devices),
        "crossings": {
            name: {"groups": one.groups, "across": one.across, "in_order": one.in_order}
            for name, one in found.items()
        },
        "costs": [
            {"strategy": row.strategy, "mapped_s": row.mapped, "in_order_s": row.in_order} for row in costs
        ],
        "block_order": mapping.block_order,
        "warnings": list(mapping.warnings),
    }


def _report(file: str, mapping: Mapping, plan: Plan | None, found, costs) -> str:
    by_host = list(mapping.ranks_on.items())
    facts = [
        ("ranks", f"{mapping.ranks} on {counted(len(by_host), 'host')}, from {mapping.source}"),
        ("order", mapping.order + ("" if mapping.consecutive else ": not consecutive")),
    ]
    facts += [("host", f"{host}: ranks {_ranks(ranks)}") for host, ranks in by_host[:_SHOWN]]
    if len(by_host) > _SHOWN:
        facts.append(("host", f"... and {len(by_host) - _SHOWN} more"))
    for name, one in found.items():
        says = f"{one.across} of {one.groups} cross hosts, {one.in_order} in block order"
        if one.across > one.in_order:
            first = next(group for group in groups(mapping, plan, name) if group.crosses)
            hosts = ", ".join(first.hosts[:_SHOWN]) + " ..." * (len(first.hosts) > _SHOWN)
            says += f"; the first: ranks {_ranks(list(first.ranks))} on {hosts}"
        facts.append((f"{name} groups", says))
    facts += [
        ("cost", _cost(row.strategy, row.mapped, row.in_order)) for row in costs if row.mapped != row.in_order
    ]
    if costs:
        totals = sum(row.mapped for row in costs), sum(row.in_order for row in costs)
        facts.append(("cost", _cost("all collectives, nothing hidden", *totals)))
    if not mapping.consecutive:
        facts += [("in order", f"{launcher}: {setting}") for launcher, setting in LAUNCHERS.items()]
    facts += [("warning", warning) for warning in mapping.warnings]
    return "\n".join([file, *(f"  {name:<10} {value}" for name, value in facts)])


def _cost(what: str, mapped: float, in_order: float) -> str:
    times = f", {mapped / in_order:.2f} times" if in_order else ""
    return f"{what}: {format_time(mapped)} a step, {format_time(in_order)} in block order{times}"


def _ranks(ranks: list[int]) -> str:
    """Ranks in few words: those in equal steps by their ends.

    >>> _ranks([0, 1, 2, 3]), _ranks([0, 2, 4, 6]), _ranks([0, 1, 5])
    ('0 to 3', '0, 2 ... 6', '0, 1, 5')
    """
    steps = {after - before for before, after in pairwise(ranks)}
    if len(ranks) > 3 and len(steps) == 1:
        return f"{ranks[0]} to {ranks[-1]}" if steps == {1} else f"{ranks[0]}, {ranks[1]} ... {ranks[-1]}"
    return ", ".join(map(str, ranks[:_SHOWN])) + " ..." * (len(ranks) > _SHOWN)
