"""The rank grid of a plan: every rank a cell on its node, coloured by its group in one dimension."""

from dataclasses import dataclass

import numpy as np
from matplotlib.collections import PolyCollection
from matplotlib.colors import to_rgb

from labkit.errors import InputRefused
from labkit.show import theme
from labkit.show.blocks import Numbers
from labkit.show.lab import Lab
from labkit.spec import Plan, RankGrid
from labkit.spec.plan import DIMENSIONS
from labkit.spec.rule import counted

MOST = 128  # ranks whose numbers can still be read
WIDTH, HEIGHT = 9.4, 5.4  # inches, which are also the units of the axes
TOP, EDGE = 4.72, 0.12  # below the two lines of words; the free margin
LABEL, GAP, LARGEST = 0.21, 0.16, 0.8  # room for a node's name, between nodes, and a cell at most
LINE = 0.16  # from a rank's number to that of its group below
TINT = 0.45  # share of white in the hues, so that dark words stand out on all of them
HUES = np.array([to_rgb(colour) for colour in theme.RANKS]) * (1 - TINT) + TINT


@dataclass(frozen=True)
class Result:
    """The grid, the groups of the dimension shown, and which of them leave a node.

    ``seat`` of each rank: its place, counted node by node; the rank itself unless it was launched otherwise.
    """

    grid: RankGrid
    dimension: str
    groups: np.ndarray
    crossing: dict[str, tuple[int, int]]
    seat: np.ndarray

    @property
    def leaves(self) -> np.ndarray:
        """Which of the groups have ranks on more than one node."""
        nodes = self.grid.node(self.seat[self.groups])
        return nodes.min(axis=1) != nodes.max(axis=1)

    @property
    def group_of(self) -> np.ndarray:
        """The group of each rank."""
        found = np.empty(self.grid.ranks, int)
        for number, ranks in enumerate(self.groups):
            found[ranks] = number
        return found


def compute(tp=8, cp=1, pp=4, dp=2, per_node=8, order="tp-cp-dp-pp", dimension="dp") -> Result:
    """The groups of a plan on nodes of ``per_node`` GPUs; ``dimension``: tp, cp, dp or pp."""
    grid = RankGrid(Plan(tp=tp, cp=cp, pp=pp, dp=dp, order=order), per_node)
    if grid.ranks > MOST:
        raise InputRefused(
            f"{grid.ranks} ranks are too many to draw one by one; keep tp x cp x pp x dp at {MOST} or below"
        )
    counts = {name: (grid.crossing(name), len(grid.groups(name))) for name in DIMENSIONS}
    return Result(grid, dimension, grid.groups(dimension), counts, np.arange(grid.ranks))


def build(figure):
    """One field for all nodes, and artists for as many cells as there can be."""
    field = figure.add_axes((0, 0, 1, 1))
    field.set(xlim=(0, WIDTH), ylim=(0, HEIGHT))
    field.axis("off")
    across, muted = theme.COLOURS["inter"], theme.COLOURS["muted"]
    right = dict(ha="right", va="top")
    field.text(WIDTH - EDGE, HEIGHT - 0.13, "ringed: the group is across nodes", color=across, **right)
    field.text(
        WIDTH - EDGE, HEIGHT - 0.38, "framed: the group of rank 0", color=theme.COLOURS["text"], **right
    )
    return dict(
        nodes=field.add_collection(PolyCollection([], facecolor="#F4F4F4", edgecolor=muted, lw=0.8)),
        rings=field.add_collection(PolyCollection([], facecolor="none", edgecolor=across, lw=1.8)),
        cells=field.add_collection(PolyCollection([], edgecolor="none")),
        first=field.add_collection(
            PolyCollection([], facecolor="none", edgecolor=theme.COLOURS["text"], lw=1.7)
        ),
        ranks=Numbers(field, fontsize=8.7),
        groups=Numbers(field, fontsize=8.7),
        names=Numbers(field, fontsize=9),
        title=field.text(EDGE, HEIGHT - 0.13, "", ha="left", va="top", fontsize=12, weight="bold"),
        below=field.text(EDGE, HEIGHT - 0.38, "", ha="left", va="top", color=muted),
    )


def update(artists, result: Result):
    """Lays the cells out, colours and numbers them by group, and rings those of groups across nodes."""
    grid = result.grid
    cell, corners, boxes = layout(grid)
    corners, group_of = corners[result.seat], result.group_of
    artists["nodes"].set_verts([_box(x, y, w, h) for x, y, w, h in boxes])
    artists["rings"].set_verts([_square(at, cell, 0.025) for at in corners[result.leaves[group_of]]])
    artists["cells"].set_verts([_square(at, cell, 0.05) for at in corners])
    artists["cells"].set_facecolor(HUES[group_of % len(HUES)])
    artists["first"].set_verts([_square(at, cell, 0.058) for at in corners[result.groups[0]]])
    x, y = corners[:, 0], corners[:, 1] + cell / 2
    line = min(LINE, 0.36 * cell)
    artists["ranks"].set_numbers(y + line / 2, x, x + cell, range(grid.ranks))
    artists["groups"].set_numbers(y - line / 2, x, x + cell, [f"g{group}" for group in group_of])
    x, y, width, height = np.transpose(boxes)
    names = [f"node {node}" for node in range(grid.nodes)]
    artists["names"].set_numbers(y + height + LABEL / 2, x, x + width, names, theme.COLOURS["muted"])
    crossing, count = result.crossing[result.dimension]
    degree = result.groups.shape[1]
    shown = f"{result.dimension}: {counted(count, 'group')} of {degree}"
    artists["title"].set_text(f"{shown}, {crossing} of them across nodes")
    artists["below"].set_text(_product(grid.plan))
    moved = ("nodes", "rings", "cells", "first", "ranks", "groups", "names", "title", "below")
    return [artists[name] for name in moved]


def layout(grid: RankGrid):
    """Side of a cell, lower left corner of each rank's cell, and (x, y, width, height) of each node."""
    columns = 2 ** (int(grid.per_node).bit_length() // 2)
    rows = -(-int(grid.per_node) // columns)
    # Large cells, and few empty places in the last row.
    wide = max(
        range(1, grid.nodes + 1),
        key=lambda wide: (
            _cell(grid.nodes, wide, columns, rows) * grid.nodes / (wide * -(-grid.nodes // wide))
        ),
    )
    cell = _cell(grid.nodes, wide, columns, rows)
    width, height = columns * cell, rows * cell
    node = np.arange(grid.nodes)
    left = (WIDTH - wide * width - (wide - 1) * GAP) / 2
    x = left + node % wide * (width + GAP)
    high = -(-grid.nodes // wide) * (height + LABEL + GAP)
    y = TOP - (TOP - EDGE - high) / 2 - (node // wide + 1) * (height + LABEL + GAP) + GAP
    rank = np.arange(grid.ranks)
    at, seat = rank // grid.per_node, rank % grid.per_node
    corners = np.stack([x[at] + seat % columns * cell, y[at] + (rows - 1 - seat // columns) * cell], axis=-1)
    return cell, corners, [(a, b, width, height) for a, b in zip(x, y, strict=True)]


def _cell(nodes, wide, columns, rows) -> float:
    """The largest cell with ``wide`` nodes side by side."""
    high = -(-nodes // wide)
    across = (WIDTH - 2 * EDGE - (wide - 1) * GAP) / (wide * columns)
    up = (TOP - EDGE - high * (LABEL + GAP)) / (high * rows)
    return min(across, up, LARGEST)


def _square(corner, side, inset):
    return _box(*(corner + inset), side - 2 * inset, side - 2 * inset)


def _box(x, y, width, height):
    return [(x, y), (x + width, y), (x + width, y + height), (x, y + height)]


def _product(plan: Plan) -> str:
    product = " × ".join(f"{name} {plan.degree(name)}" for name in ("tp", "cp", "pp", "dp"))
    return f"{product} = {counted(plan.ranks, 'rank')}, order {plan.order}"


def readout(result: Result) -> list[str]:
    """The product, how many groups of each dimension are across nodes, and the group of rank 0."""
    grid, plan = result.grid, result.grid.plan
    first = result.groups[0].tolist()
    named = ", ".join(map(str, first[:12])) + (", ..." if len(first) > 12 else "")
    counts = ", ".join(f"{name} {a} of {b}" for name, (a, b) in result.crossing.items())
    on = len(set(grid.node(result.seat[result.groups[0]]).tolist()))
    return [
        f"{_product(plan)}; a replica takes {counted(plan.model_ranks, 'rank')}",
        f"groups across nodes of {grid.per_node} GPUs: {counts}",
        f"the {result.dimension} group of rank 0: {named}, on {counted(on, 'node')} of {grid.nodes}",
    ]


def alt(result: Result) -> str:
    """What a reader who cannot see the picture needs."""
    crossing, count = result.crossing[result.dimension]
    return (
        f"{result.grid.ranks} ranks as numbered cells on {result.grid.nodes} nodes, coloured by their "
        f"{result.dimension} group; {crossing} of {count} groups have ranks on more than one node."
    )


rank_grid = Lab("rank_grid", compute, build, update, readout, alt, size=(WIDTH, HEIGHT))
