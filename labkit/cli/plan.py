"""``labkit plan``: every plan of a model on a cluster, the best with reasons; or a review of a launch."""

import argparse
import json
import sys
import textwrap
from dataclasses import replace

from labkit.cli.arguments import count, settings, size, standard_input
from labkit.cli.plan_json import review_as_json, search_as_json
from labkit.course.your_cluster import HEADS, census_rows, link_rows, plan_row
from labkit.errors import InputRefused
from labkit.evidence.best_plans import best_plans, lead_of
from labkit.evidence.launchers import read_launcher
from labkit.evidence.review import review
from labkit.evidence.written import Written, write_first
from labkit.evidence.your_cluster import fitted_cluster
from labkit.planner.ranking import NOT_MODELLED
from labkit.planner.search import search
from labkit.presets import cluster, model
from labkit.spec import Cluster
from labkit.spec.checks import whole
from labkit.spec.plan_words import said
from labkit.spec.rule import counted

LAUNCHERS = {"megatron": "megatron-lm", "deepspeed": "deepspeed", "torchtitan": "torchtitan"}
_WIDTH = 118


def add(commands) -> None:
    """The command and its options."""
    plan = commands.add_parser(
        "plan",
        help="the best plans of a model on a cluster, with reasons",
        description="Tries every plan of a model on a cluster and ranks those that run and fit. With "
        "--launch it reviews what you already run. M and C: a preset, or a config.json or TOML file.",
    )
    plan.add_argument("--model", metavar="M", help="llama2-70b, config.json, my_model.toml ...")
    plan.add_argument("--cluster", metavar="C", required=True, help="h100, my_cluster.toml ...")
    plan.add_argument("--batch", type=count, metavar="B", help="sequences of a step, all replicas together")
    plan.add_argument("--nodes", type=count, metavar="N", help="hosts; default 1, or as many as --launch has")
    plan.add_argument("--intra", metavar="LOG", help="a sweep inside one host: its link is fitted")
    plan.add_argument("--inter", metavar="LOG", help="a sweep over several hosts: the port is fitted")
    plan.add_argument(
        "--fix", type=settings, action="append", metavar="tp=4,pp=2", help="settings that all plans keep"
    )
    plan.add_argument("--max-memory", type=size, metavar="75GiB", help="of a card, less than it has")
    plan.add_argument("--launcher", choices=LAUNCHERS, help="write the best plan that it can run")
    plan.add_argument(
        "--launch", metavar="FILE", help="review this script, DeepSpeed JSON or torchtitan TOML"
    )
    plan.add_argument(
        "--top", type=count, default=5, metavar="K", help="plans that are shown; default %(default)s"
    )
    plan.add_argument("--json", action="store_true", help="the same as data")
    plan.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Answer, or refuse in one sentence."""
    arguments.fix = {name: value for one in arguments.fix or () for name, value in one.items()}
    try:
        print(_reviewed(arguments) if arguments.launch else _searched(arguments))
    except InputRefused as refusal:
        print(f"labkit: {refusal}", file=sys.stderr)
        return 2
    return 0


def _machine(arguments: argparse.Namespace, nodes: int) -> tuple[Cluster, Cluster]:
    """The cluster as its preset or file says, and with the links of the sweeps."""
    before = cluster(arguments.cluster, nodes=nodes)
    return before, fitted_cluster(before, intra=arguments.intra, inter=arguments.inter)


def _searched(arguments: argparse.Namespace) -> str:
    """The report, or the JSON, of a search."""
    for name in ("model", "batch"):
        if getattr(arguments, name) is None:
            raise InputRefused(
                f"a search takes --model, --cluster and --batch; give --{name} (or --launch FILE)"
            )
    shape = model(arguments.model)
    before, machine = _machine(arguments, arguments.nodes or 1)
    found = search(shape, machine, arguments.batch, arguments.fix, arguments.max_memory)
    best = best_plans(found, arguments.top)
    written = _written(arguments, shape, machine, [one.plan for one in best])
    if arguments.json:
        return json.dumps(search_as_json(found, best, written), indent=2, allow_nan=False)
    lines = [_title(shape, machine, arguments.batch), *_links(before, machine), *_census(found)]
    lines += _best(best) if best else ["", f"no plan fits: {_more_room(arguments)}"]
    if lead := lead_of(found):
        lines += ["", *_wrapped("runner-up", str(lead).removeprefix("the runner-up "))]
    lines += _wrapped("left out", "; ".join(NOT_MODELLED))
    if written:
        for place, why in written.cannot:
            lines += _wrapped("launcher", f"plan {place}: {why}")
        if written.text:
            lines += ["", f"plan {written.place}:", written.text.rstrip("\n")]
    return "\n".join(lines)


def _more_room(arguments: argparse.Namespace) -> str:
    """What makes room where no plan fits."""
    larger = "a larger --max-memory, " if arguments.max_memory else ""
    fewer = ", or fewer settings in --fix" if arguments.fix else ""
    return f"take {larger}more nodes, or a smaller --batch{fewer}"


def _written(arguments: argparse.Namespace, shape, machine: Cluster, plans) -> Written | None:
    """What ``--launcher`` asks for; None without it."""
    if arguments.launcher is None:
        return None
    return write_first(LAUNCHERS[arguments.launcher], shape, machine, plans)


def _title(shape, machine: Cluster, batch: int) -> str:
    on = f"{shape.name} on {counted(machine.n_gpus, 'GPU')} of {machine.name}"
    return f"{on}, {counted(batch, 'sequence')} of {shape.sequence:,} tokens a step"


def _links(before: Cluster, after: Cluster) -> list[str]:
    """What the sweeps say of each figure; nothing of a link without a sweep."""
    lines = []
    for link, figure, was, now, source in link_rows(before, after):
        if source not in before.sources.values():
            changed = f"{was} -> {now}" if was != now else now
            lines += _wrapped(link, f"{figure} {changed} ({source})")
    return lines


def _census(found) -> list[str]:
    tried, left = found.attrs["tried"], len(found)
    lines = _wrapped("plans", f"{tried:,} tried, {left:,} run and fit")
    return lines + [
        f"  {'refused':<10} {number:>11}  {name}: {why}" for name, number, why in census_rows(found)
    ]


def _best(best) -> list[str]:
    rows = [HEADS, *map(plan_row, best)]
    widths = [max(len(row[i]) for row in rows) for i in range(len(HEADS))]
    texts = [
        "  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
    lines = ["", texts[0]]
    for text, one in zip(texts[1:], best, strict=True):
        lines.append(text)
        for reason in one.reasons:
            lines += textwrap.wrap(
                reason, _WIDTH, initial_indent=" " * (widths[0] + 4), subsequent_indent=" " * (widths[0] + 6)
            )
    return lines


def _wrapped(name: str, text: str) -> list[str]:
    return textwrap.wrap(
        text, _WIDTH, initial_indent=f"  {name:<10} ", subsequent_indent=" " * 13, break_on_hyphens=False
    )


def _reviewed(arguments: argparse.Namespace) -> str:
    """The report, or the JSON, of a review."""
    given = dict(arguments.fix)
    shape = None if arguments.model is None else model(arguments.model)
    given |= {} if shape is None else {"model": shape}
    given |= {} if arguments.batch is None else {"global_batch": arguments.batch}
    each = cluster(arguments.cluster).gpus_per_node
    given |= {} if arguments.nodes is None else {"gpus": arguments.nodes * each}
    source = arguments.launch
    if source == "-":
        source = standard_input()
    launch = read_launcher(source, **given)
    nodes = arguments.nodes or -(-(launch.gpus or launch.plan.ranks) // each)
    before, machine = _machine(arguments, whole(nodes, "the number of nodes"))
    if (launch.gpus or launch.plan.ranks) < each:  # a part of one host
        machine = replace(machine, gpus_per_node=launch.gpus or launch.plan.ranks, domain=0)
    found = review(launch, shape, machine, max_memory=arguments.max_memory)
    text = found.arguments
    written = _written(arguments, found.launch.model, machine, [found.better] if text else [])
    if written:  # for another framework than that of the launch
        text = written.text or "\n".join(why for _, why in written.cannot)
    if arguments.json:
        return json.dumps(review_as_json(found, text), indent=2, allow_nan=False)
    lines = [str(found), *_links(before, machine)]
    if found.launch.missing:
        lines.append("what is missing can be given with --model, --nodes, --batch and --fix name=value")
    if found.better is not None:
        lines += ["", f"for {said(found.better)}:", text.rstrip("\n")]
    return "\n".join(lines)
