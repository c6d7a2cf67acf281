"""Ranks as a launcher puts them on nodes, node by node or in turn: which groups cross, and at what price."""

from dataclasses import dataclass
from functools import cache

import numpy as np

from labkit.errors import InputRefused
from labkit.evidence.mapping import Mapping
from labkit.evidence.mapping_judge import crossings, mapping_cost
from labkit.presets import cluster as load_cluster
from labkit.presets import model
from labkit.show import theme
from labkit.show.lab import Lab
from labkit.show.labs import rank_grid as grid_lab
from labkit.spec import Plan, RankGrid
from labkit.units import format_time

MODEL = "guide-13b"
LAUNCHES = ("block", "cyclic")


@dataclass(frozen=True)
class Result(grid_lab.Result):
    """The grid as launched, and seconds of collectives a step: as launched and in block order."""

    cluster: str
    launch: str
    seconds: tuple[float, float]
    tensor: tuple[float, float]


def compute(cluster="a100", nodes=2, tp=8, pp=1, launch="cyclic", dimension="tp") -> Result:
    """A plan of tp x pp, and dp of what is left, on all GPUs of the nodes; ``launch``: block or cyclic."""
    machine = load_cluster(cluster, nodes=nodes)
    ranks, per_node = machine.n_gpus, machine.gpus_per_node
    if ranks % (tp * pp):
        raise InputRefused(
            f"tp {tp} x pp {pp} does not divide the {ranks} GPUs of {nodes} nodes; choose smaller ones"
        )
    if ranks > grid_lab.MOST:
        raise InputRefused(f"{ranks} ranks are too many to draw one by one; choose fewer nodes")
    dp = ranks // (tp * pp)
    plan = Plan(tp=tp, pp=pp, dp=dp, micro_batch=2, accumulation=16)
    seat = np.arange(ranks)
    if launch == "cyclic":
        seat = seat % nodes * per_node + seat // nodes
    mapping = Mapping(tuple(f"node {node}" for node in seat // per_node))
    found, grid = crossings(mapping, plan), RankGrid(plan, per_node)
    everything, tensor = _seconds(cluster, nodes, plan, mapping)
    return Result(
        grid=grid,
        dimension=dimension,
        groups=grid.groups(dimension),
        crossing={
            name: (found[name].across if name in found else 0, ranks // plan.degree(name))
            for name in ("tp", "pp", "dp")
        },
        seat=seat,
        cluster=machine.name,
        launch=launch,
        seconds=everything,
        tensor=tensor,
    )


@cache
def _seconds(cluster: str, nodes: int, plan: Plan, mapping: Mapping) -> list[tuple[float, float]]:
    """Seconds of all collectives and of tensor parallel's, both as launched and in block order."""
    rows = mapping_cost(model(MODEL), load_cluster(cluster, nodes=nodes), plan, mapping)
    tensor = [row for row in rows if row.strategy.startswith("tensor")]
    return [(sum(row.mapped for row in each), sum(row.in_order for row in each)) for each in (rows, tensor)]


def build(figure):
    """The grid of ranks, and a line for what the order costs."""
    artists = grid_lab.build(figure)
    (field,) = figure.axes
    at = dict(ha="left", va="top", fontsize=11)
    return artists | {"price": field.text(grid_lab.EDGE, grid_lab.HEIGHT - 0.63, "", **at)}


def update(artists, result: Result):
    """Lays the cells out, and says what tensor parallel takes as launched and in block order."""
    dearer = result.tensor[0] > 1.005 * result.tensor[1]
    artists["price"].set_text(f"tensor parallel: {_both(*result.tensor)}" if result.tensor[1] else "")
    artists["price"].set_color(theme.COLOURS["warning" if dearer else "text"])
    return [*grid_lab.update(artists, result), artists["price"]]


def readout(result: Result) -> list[str]:
    """Where the ranks sit, which groups cross, and what the order costs."""
    first = result.groups[0].tolist()
    named = ", ".join(map(str, first[:12])) + (", ..." if len(first) > 12 else "")
    counts = ", ".join(f"{name} {a} of {b}" for name, (a, b) in result.crossing.items())
    seated = np.argsort(result.seat)[:5].tolist()
    return [
        f"{result.cluster}, {result.launch} order: node 0 has ranks {', '.join(map(str, seated))}, ...",
        f"groups across nodes: {counts}; the {result.dimension} group of rank 0: {named}",
        f"tensor parallel of {MODEL}: {_both(*result.tensor)}",
        f"all collectives of a step, nothing hidden: {_both(*result.seconds)}",
    ]


def _both(mapped: float, in_order: float) -> str:
    times = f", {mapped / in_order:.2f}x" if in_order else ""
    return f"{format_time(mapped)} as launched, {format_time(in_order)} in block order{times}"


def alt(result: Result) -> str:
    """What a reader who cannot see the picture needs."""
    return f"{grid_lab.alt(result)} The ranks were launched in {result.launch} order."


launch_order = Lab(
    "launch_order",
    compute,
    build,
    update,
    readout,
    alt,
    size=(grid_lab.WIDTH, grid_lab.HEIGHT),
)
