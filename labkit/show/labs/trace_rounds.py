"""Any algorithm as ranks x rounds: each line a message, dark where the receiver adds it."""

from dataclasses import replace

import numpy as np
from matplotlib.collections import LineCollection

from labkit.collectives import ALGORITHMS, prove, replay, trace
from labkit.presets import cluster
from labkit.show import theme
from labkit.show.lab import Lab
from labkit.show.sense import several_ranks
from labkit.units import format_bytes, format_size, format_time, words

SIZE = 2**20
MOST = 16
ADDS, KEEPS = theme.COLOURS["compute"], theme.COLOURS["all_gather"]


def choices() -> dict[str, str]:
    """Every (operation, algorithm) pair as words -> value."""
    return {words(f"{op}, {how}"): f"{op}/{how}" for op, names in ALGORITHMS.items() for how in names}


def compute(n=8, what="all_reduce/ring", segments=1):
    """The trace, its proof and its cost for 1 MiB; a hierarchical one runs on nodes of two GPUs."""
    several_ranks(n, MOST)
    op, how = what.split("/")
    machine = cluster("a100")
    pair = replace(machine.group(2), nodes=-(-n // 2)) if how == "hierarchical" else None
    made = trace(op, how, n, pair, segments)
    run = replay(made, SIZE, pair or machine.intra)
    return dict(n=n, op=op, how=how, trace=made, proof=prove(made), run=run)


def build(figure):
    """Ranks up, rounds across; both spread over the same room at every N."""
    ax = theme.axes(figure, left=0.075, right=0.985, bottom=0.12, top=0.86)
    ax.set(xlim=(-0.01, 1.01), ylim=(1.06, -0.06), xticks=[], yticks=[], xlabel="rounds, from left to right")
    ax.grid(False)
    ax.spines["left"].set_visible(False)
    rounds = LineCollection([], colors=theme.COLOURS["grid"], linewidths=1)
    keeps, adds = (LineCollection([], colors=colour, linewidths=1.8) for colour in (KEEPS, ADDS))
    for lines in (rounds, keeps, adds):
        ax.add_collection(lines, autolim=False)
    figure.text(0.985, 0.925, "adds", ha="right", color=ADDS, fontsize=12, fontweight="bold")
    figure.text(0.925, 0.925, "keeps", ha="right", color=KEEPS, fontsize=12, fontweight="bold")
    return dict(
        rounds=rounds,
        keeps=keeps,
        adds=adds,
        dots=ax.plot([], [], "o", ms=4, color=theme.COLOURS["muted"])[0],
        names=[ax.text(-0.02, 0, "", ha="right", va="center", clip_on=False) for _ in range(MOST)],
        title=ax.text(0, 1.05, "", transform=ax.transAxes, fontsize=12),
    )


def update(artists, result):
    """Every message from its sender's row to its receiver's."""
    made, n = result["trace"], result["n"]
    rounds = max(1, made.rounds)
    height = np.arange(n) / (n - 1)
    unique = np.unique(np.stack([made.round, made.src, made.dst, made.reduce], axis=1), axis=0)
    start = np.stack([unique[:, 0] / rounds, height[unique[:, 1]]], axis=1)
    stop = np.stack([(unique[:, 0] + 0.86) / rounds, height[unique[:, 2]]], axis=1)
    lines, reduces = np.stack([start, stop], axis=1), unique[:, 3].astype(bool)
    artists["adds"].set_segments(list(lines[reduces]))
    artists["keeps"].set_segments(list(lines[~reduces]))
    artists["rounds"].set_segments([((r / rounds, -0.04), (r / rounds, 1.04)) for r in range(rounds + 1)])
    artists["dots"].set_data(start[:, 0], start[:, 1])
    for i, text in enumerate(artists["names"]):
        text.set(text=f"rank {i}" if i < n else "", y=height[i] if i < n else 0)
    artists["title"].set_text(words(f"{result['op']}, {result['how']}, N = {n}: {made.rounds} rounds"))
    return [artists[key] for key in ("rounds", "keeps", "adds", "dots", "title")] + artists["names"]


def readout(result):
    """The three views in numbers."""
    proof, run = result["proof"], result["run"]
    return [
        f"proved: {proof.messages} messages in {proof.rounds} rounds end in what {result['op']} promises, "
        "by contributors and by real numbers",
        f"{format_size(SIZE)}: a rank sends {format_bytes(run.sent.min())} to "
        f"{format_bytes(run.sent.max())}, mean {format_bytes(run.mean)}; busiest rank "
        f"{format_bytes(run.busiest)}",
        "on preset a100, "
        f"{'two GPUs a node' if result['how'] == 'hierarchical' else 'links as inside a node'}: "
        f"{format_time(run.seconds)}; links carry data {100 * run.occupancy:.0f} % "
        "of the time",
    ]


def alt(result):
    """What a reader who cannot see the picture needs."""
    return (
        f"Ranks in rows and rounds in columns for {result['op']} by {result['how']} on {result['n']} ranks: "
        "a line for every message, dark where the receiver adds it, light where it stores it."
    )


trace_rounds = Lab("trace_rounds", compute, build, update, readout, alt, size=(9, 4.0))
