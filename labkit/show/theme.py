"""One look for all figures: colours by meaning, type, axes. Nothing global is changed.

The colours are those of Okabe and Ito (2008) and of Paul Tol's schemes (2021), which stay apart for
colour-blind readers. A colour means the same in every chapter; meanings that never meet in one figure may
share one.
"""

from contextlib import contextmanager

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

COLOURS = {
    # the parts of a training step
    "compute": "#0072B2",
    "tensor": "#D55E00",
    "context": "#56B4E9",
    "expert": "#E69F00",
    "pipeline": "#009E73",
    "data": "#CC79A7",
    "optimizer": "#882255",
    "idle": "#C4C4C4",
    "bubble": "#C4C4C4",
    "launch": "#F0E442",
    "input": "#666633",
    "communication": "#D55E00",
    "communication_back": "#F0AF85",
    # the parts of one transfer
    "latency": "#E69F00",
    "bandwidth": "#D55E00",
    "contention": "#882255",
    # what fills device memory
    "parameters": "#0072B2",
    "gradients": "#D55E00",
    "optimizer_states": "#882255",
    "embedding": "#E889D4",
    "activations": "#009E73",
    "in_flight": "#58DD9C",
    "logits": "#B0CE6C",
    "gathered": "#4593F3",
    "buckets": "#F9C742",
    "workspace": "#272727",
    "communicators": "#B1B1B1",
    "slack": "#E5E5E5",
    "other": "#B4B4B4",
    # where bytes travel
    "device": "#332288",
    "intra": "#009E73",
    "inter": "#D55E00",
    # evidence beside theory
    "measured": "#222222",
    "model": "#0072B2",
    "ideal": "#8C8C8C",
    # algorithms
    "ring": "#0072B2",
    "tree": "#D55E00",
    "double_tree": "#E69F00",
    "recursive_doubling": "#CC79A7",
    "halving_doubling": "#882255",
    "linear": "#666633",
    "pairwise": "#332288",
    "hierarchical": "#009E73",
    # operations
    "all_reduce": "#0072B2",
    "reduce_scatter": "#009E73",
    "all_gather": "#56B4E9",
    "all_to_all": "#D55E00",
    "broadcast": "#E69F00",
    "reduce": "#882255",
    "scatter": "#CC79A7",
    "gather": "#666633",
    "send_recv": "#332288",
    # how far a call of a group has come: light, as its name stands on it
    "call_ended": "#CFE6D5",
    "call_mixed": "#F5CE7A",
    "call_waits": "#F2A79B",
    # the page itself
    "text": "#222222",
    "muted": "#666666",
    "grid": "#E4E4E4",
    "ghost": "#ABABAB",
    "warning": "#CC3311",
    "good": "#117733",
}

# One hue per rank or chunk, in order; beyond eight they repeat.
RANKS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#332288", "#666633")

_RC = {
    "font.family": ["DejaVu Sans"],
    "font.size": 11.0,
    "text.color": COLOURS["text"],
    "text.usetex": False,
    "axes.titlesize": 12.0,
    "axes.titlelocation": "left",
    "axes.titlepad": 8.0,
    "axes.labelsize": 11.0,
    "axes.labelcolor": COLOURS["text"],
    "axes.edgecolor": COLOURS["muted"],
    "axes.linewidth": 0.9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.facecolor": "white",
    "figure.facecolor": "white",
    "grid.color": COLOURS["grid"],
    "grid.linewidth": 0.9,
    "xtick.labelsize": 11.0,
    "ytick.labelsize": 11.0,
    "xtick.color": COLOURS["muted"],
    "ytick.color": COLOURS["muted"],
    "xtick.labelcolor": COLOURS["text"],
    "ytick.labelcolor": COLOURS["text"],
    "xtick.minor.visible": False,
    "ytick.minor.visible": False,
    "legend.frameon": False,
    "legend.fontsize": 11.0,
    "lines.linewidth": 2.2,
    "lines.markersize": 7.0,
    "patch.linewidth": 0.8,
    "path.simplify": True,
    "hatch.linewidth": 0.8,
}


@contextmanager
def style():
    """The theme, for the time of the block; Matplotlib's own settings are as before afterwards."""
    with matplotlib.rc_context(_RC):
        yield


def axes(
    figure: Figure,
    rows: int = 1,
    columns: int = 1,
    left: float = 0.09,
    right: float = 0.97,
    bottom: float = 0.16,
    top: float = 0.90,
    **spacing,
) -> Axes | list[Axes]:
    """Axes at fixed places in the figure: one, or a list row by row.

    The edges are fractions of the figure. ``spacing`` takes wspace, hspace, width_ratios and height_ratios.
    Leave ``right`` at about 0.82 where ``EndLabels`` name the lines in the margin.
    """
    grid = figure.add_gridspec(rows, columns, left=left, right=right, bottom=bottom, top=top, **spacing)
    made = [figure.add_subplot(grid[r, c]) for r in range(rows) for c in range(columns)]
    return made if len(made) > 1 else made[0]
