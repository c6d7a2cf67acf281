"""The ring AllReduce step by step: real numbers in the cells, and who passes which chunk to whom."""

import numpy as np
from matplotlib.collections import PolyCollection
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.patches import FancyArrowPatch

from labkit.collectives import history, trace
from labkit.errors import InputRefused
from labkit.show import theme
from labkit.show.lab import Lab
from labkit.show.sense import several_ranks

MOST = 8
SHADE = LinearSegmentedColormap.from_list(
    "contributors", ["#FFFFFF", "#D6E8F5", "#7DB8DE", theme.COLOURS["ring"]]
)


def numbers(n: int) -> np.ndarray:
    """Row r is rank r's data: one digit from 1 to 9 for each of n chunks."""
    rank, chunk = np.indices((n, n))
    return (7 * rank + 3 * chunk + rank * chunk) % 9 + 1


def compute(n=4, step=0):
    """The state after ``step`` rounds: numbers, how many ranks are in each, and the next round's sends."""
    several_ranks(n, MOST)
    if step < 0:
        raise InputRefused(f"Step {step} was never taken. Choose a step from 0 up.")
    ring = trace("all_reduce", "ring", n)
    shown = min(step, ring.rounds)
    state = list(history(ring, numbers(n)))[shown][:, :, 0]
    counts = list(history(ring, np.ones((n, n))))[shown][:, :, 0]  # ones add up to the number of contributors
    sends = [send for send in ring.sends() if send.round == shown]
    return dict(
        n=n, step=shown, rounds=ring.rounds, state=state.astype(int), counts=counts.astype(int), sends=sends
    )


def build(figure):
    """Left: ranks x chunks; right: the ring with the messages of the next step."""
    grid, ring = theme.axes(
        figure, columns=2, left=0.01, right=0.99, bottom=0.02, top=0.87, wspace=0.04, width_ratios=(1.35, 1)
    )
    for ax in (grid, ring):
        ax.set_axis_off()
    grid.set(xlim=(-1.6, 8.1), ylim=(8.15, -0.75))
    ring.set(xlim=(-1.75, 1.75), ylim=(-1.45, 1.45), aspect="equal")
    cells = PolyCollection([], edgecolors=theme.COLOURS["muted"], linewidths=0.8)
    sent = PolyCollection([], facecolors="none", edgecolors=theme.COLOURS["bandwidth"], linewidths=2.6)
    for collection in (cells, sent):
        grid.add_collection(collection, autolim=False)
    arrow = dict(
        arrowstyle="-|>", mutation_scale=16, lw=2, color=theme.COLOURS["bandwidth"], shrinkA=14, shrinkB=14
    )
    arrows = [
        FancyArrowPatch((0, 0), (1, 1), connectionstyle="arc3,rad=-0.18", visible=False, **arrow)
        for _ in range(MOST)
    ]
    for patch in arrows:
        ring.add_patch(patch)
    centred = dict(ha="center", va="center")
    return dict(
        cells=cells,
        sent=sent,
        values=[grid.text(0, 0, "", fontsize=12, **centred) for _ in range(MOST * MOST)],
        rows=[grid.text(-0.15, 0, "", ha="right", va="center") for _ in range(MOST)],
        columns=[
            grid.text(0, -0.12, "", ha="center", va="bottom", color=theme.COLOURS["muted"])
            for _ in range(MOST)
        ],
        arrows=arrows,
        carried=[
            ring.text(0, 0, "", fontsize=11, color=theme.COLOURS["bandwidth"], **centred) for _ in range(MOST)
        ],
        nodes=[ring.text(0, 0, "", fontsize=13, fontweight="bold", **centred) for _ in range(MOST)],
        middle=ring.text(0, 0, "", fontsize=11, color=theme.COLOURS["muted"], **centred),
        title=figure.text(0.02, 0.93, "", fontsize=12.5),
    )


def update(artists, result):
    """Numbers and shades of the cells, frames round what is sent next, and the arrows."""
    n, side = result["n"], 8 / MOST if result["n"] > 5 else 8 / 5
    corners = np.array([(0, 0), (1, 0), (1, 1), (0, 1)])
    where = {(r, c): (np.array([c, r]) + corners * 0.94) * side for r in range(n) for c in range(n)}
    artists["cells"].set_verts(list(where.values()))
    shares = (result["counts"].ravel() - 1) / (n - 1)
    artists["cells"].set_facecolor(SHADE(shares))
    artists["sent"].set_verts([where[send.src, send.chunk] for send in result["sends"]])
    _write_cells(artists, result, side, shares)
    _write_ring(artists, result)
    return [
        *(artists[key] for key in ("cells", "sent", "middle", "title")),
        *(a for key in ("values", "rows", "columns", "arrows", "carried", "nodes") for a in artists[key]),
    ]


def _write_cells(artists, result, side, shares):
    n = result["n"]
    for i, text in enumerate(artists["values"]):
        text.set_visible(i < n * n)
        if i < n * n:
            text.set(
                text=str(result["state"].ravel()[i]),
                color="white" if shares[i] > 0.8 else theme.COLOURS["text"],
            )
            text.set_position(((i % n + 0.47) * side, (i // n + 0.47) * side))
    for i in range(MOST):
        artists["rows"][i].set(text=f"rank {i}" if i < n else "", y=(i + 0.47) * side)
        artists["columns"][i].set(text=f"chunk {i}" if i < n else "", x=(i + 0.47) * side)


def _write_ring(artists, result):
    n = result["n"]
    angle = np.pi / 2 - 2 * np.pi * np.arange(n) / n
    spots = np.stack([1.08 * np.cos(angle), 1.08 * np.sin(angle)], axis=1)
    for i, text in enumerate(artists["nodes"]):
        text.set_visible(i < n)
        if i < n:
            text.set(text=str(i), position=spots[i])
    for i in range(MOST):
        send = next((s for s in result["sends"] if s.src == i), None)
        artists["arrows"][i].set_visible(send is not None)
        artists["carried"][i].set_visible(send is not None)
        if send is not None:
            artists["arrows"][i].set_positions(spots[i], spots[send.dst])
            middle = angle[i] - np.pi / n
            out = 1.36 if n > 2 else 0.62
            artists["carried"][i].set(
                text=f"c{send.chunk}", position=(out * np.cos(middle), out * np.sin(middle))
            )
    adds = bool(result["sends"]) and result["sends"][0].reduce
    artists["middle"].set_text(
        "" if not result["sends"] else "receiver\nadds" if adds else "receiver\nstores"
    )
    phase = (
        "reduce-scatter"
        if adds
        else "all-gather"
        if result["sends"]
        else "finished: every rank holds every sum"
    )
    artists["title"].set_text(
        f"after step {result['step']} of {result['rounds']}; next: {phase}" if result["sends"] else phase
    )


def readout(result):
    """Where the sums stand, and what goes next."""
    n, full = result["n"], int((result["counts"] == result["n"]).sum())
    sends = ", ".join(f"{s.src}→{s.dst} c{s.chunk}" for s in result["sends"]) or "nothing: finished"
    rows = "; ".join(f"rank {r}: {' '.join(map(str, row))}" for r, row in enumerate(result["state"][:2]))
    return [
        f"N = {n}, after step {result['step']} of {result['rounds']}: {full} of {n * n} cells hold the "
        "complete sum",
        f"next: {sends}",
        rows,
    ]


def alt(result):
    """What a reader who cannot see the picture needs."""
    return (
        f"A grid of {result['n']} ranks by {result['n']} chunks with the numbers each rank holds after step "
        f"{result['step']}, shaded by how many ranks have been added, beside a ring with the messages of "
        "the next step."
    )


ring_walk = Lab("ring_walk", compute, build, update, readout, alt, size=(9, 4.0))
