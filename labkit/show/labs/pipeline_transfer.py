"""Which pipeline schedule hides its transfers: three timelines on one time axis (claim 2.4-h).

Time is counted in forwards: one stage takes 1 for a micro-batch forward and 2 backward.
"""

from dataclasses import dataclass
from functools import cache

import numpy as np
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from labkit.errors import InputRefused
from labkit.show import blocks, theme
from labkit.show.blocks import COLOURS, END_LINE, TRANSFER_LINE
from labkit.show.lab import Lab
from labkit.strategies import pipeline
from labkit.strategies.pipeline import gpipe, one_f_one_b, peak_in_flight, simulate
from labkit.strategies.timeline import BACKWARD, FORWARD
from labkit.units import digits

FORWARD_TIME, BACKWARD_TIME = 1.0, 2.0
SCHEDULES = {
    "plain 1F1B": one_f_one_b,
    "1F1B, doubled warm-up": lambda p, m: one_f_one_b(p, m, warmup=2),
    "GPipe": gpipe,
}
KINDS = (FORWARD, BACKWARD)
END_WITHOUT = {"color": theme.COLOURS["text"], "linewidth": 1.2, "linestyle": (0, (3, 2))}


@dataclass(frozen=True)
class Run:
    """One schedule: its timeline, its step without transfers, its most micro-batches in flight on a stage."""

    timeline: pipeline.Run
    without: float
    peak: int


@dataclass(frozen=True)
class Result:
    """All schedules at one setting; ``longest``, the slowest step that c can reach, ends the time axis."""

    p: int
    m: int
    c: float
    runs: dict[str, Run]
    longest: float

    def longer(self, name: str) -> float:
        """By how many transfer times c the transfers lengthen the step (c > 0)."""
        run = self.runs[name]
        return (run.timeline.span - run.without) / self.c


def compute(p: int = 4, m: int = 16, c: float = 0.5) -> Result:
    """Timelines of ``p`` equal stages and ``m`` micro-batches, a transfer taking ``c`` of one forward."""
    if p < 2:
        raise InputRefused(f"{p} stage has no neighbour to pass to. Choose at least 2 stages.")
    if p != int(p) or m != int(m) or p * m > 4096:
        raise InputRefused(
            f"{p} stages and {m} micro-batches do not fit this picture. Choose whole, smaller numbers."
        )
    runs = {
        name: Run(_simulate(name, p, m, c), _span(name, p, m, 0.0), int(peak_in_flight(schedule(p, m)).max()))
        for name, schedule in SCHEDULES.items()
    }
    return Result(p, m, c, runs, _span("plain 1F1B", p, m, 1.0))


def _simulate(name: str, p: int, m: int, c: float) -> pipeline.Run:
    return simulate(SCHEDULES[name](p, m), FORWARD_TIME, BACKWARD_TIME, c)


@cache
def _span(name: str, p: int, m: int, c: float) -> float:
    """The step at one of the ends of c, kept because it stays the same while c is dragged."""
    return _simulate(name, p, m, c).span


def build(figure) -> list[dict]:
    """Three axes one above the other, and in each the artists that a setting fills."""
    panels = []
    made = theme.axes(figure, rows=3, left=0.09, right=0.97, bottom=0.1, top=0.87, hspace=0.36)
    for name, ax in zip(SCHEDULES, made, strict=True):
        ax.grid(False)
        ax.spines[["left", "bottom"]].set_visible(False)
        ax.tick_params(length=0)
        ax.xaxis.set_visible(ax is made[-1])
        ax.xaxis.get_major_locator().set_params(integer=True)
        lines = [ax.plot([], [], zorder=4, **END_LINE)[0], ax.plot([], [], zorder=4, **END_WITHOUT)[0]]
        panels.append(
            {
                "name": name,
                "axes": ax,
                "limits": None,
                # Few letters: drawing text costs more than drawing all blocks.
                "words": ax.text(1, 1.03, "", transform=ax.transAxes, ha="right", va="bottom"),
                "idle": blocks.patch(ax, facecolor=theme.COLOURS["idle"], zorder=1),
                "transfers": blocks.patch(ax, fill=False, zorder=2, **TRANSFER_LINE),
                **{kind: blocks.patch(ax, facecolor=COLOURS[kind], zorder=3) for kind in KINDS},
                "end": lines[0],
                "without": lines[1],
            }
        )
    made[-1].set_xlabel("time, in forwards (a backward takes 2)", labelpad=4)
    key = [
        Patch(color=COLOURS[FORWARD], label="forward"),
        Patch(color=COLOURS[BACKWARD], label="backward"),
        Patch(color=theme.COLOURS["idle"], label="idle"),
        Line2D([], [], label="transfer", **TRANSFER_LINE),
        Line2D([], [], label="end", **END_LINE),
        Line2D([], [], label="end at c = 0", **END_WITHOUT),
    ]
    place = {"loc": "upper left", "bbox_to_anchor": (0.09, 0.985), "borderaxespad": 0.2, "borderpad": 0}
    figure.legend(handles=key, ncols=len(key), handlelength=1.4, columnspacing=1.6, **place)
    return panels


def update(panels: list[dict], result: Result) -> list | None:
    """Fills the artists; p and m change the axes, c does not."""
    moved = []
    seam = result.longest / 900  # a pixel between neighbours; drawing the edges of blocks would cost double
    for panel in panels:
        run = result.runs[panel["name"]]
        t = run.timeline
        for kind in KINDS:
            chosen = t.kind == kind
            panel[kind].set_path(blocks.rectangles(t.lane[chosen], t.start[chosen], t.stop[chosen] - seam))
        stages = np.arange(result.p)
        panel["idle"].set_path(blocks.rectangles(stages, 0 * stages, 0 * stages + t.span))
        panel["transfers"].set_path(blocks.slants(t, np.full(result.p - 1, result.c)))
        longer = f" (+{digits(result.longer(panel['name']))}c)" if result.c else ""
        panel["words"].set_text(f"step {digits(t.span, 4)}{longer}")
        for line, x in ((panel["end"], t.span), (panel["without"], run.without)):
            line.set_data([x, x], [-0.5, result.p - 0.5])
        moved += [panel[part] for part in ("idle", "transfers", *KINDS, "without", "end", "words")]
    return None if _limits_moved(panels, result) else moved


def _limits_moved(panels: list[dict], result: Result) -> bool:
    """Sets the axes and titles for p and m, and says whether they were others before."""
    if panels[0]["limits"] == (result.p, result.m):
        return False
    for panel in panels:
        panel["limits"] = (result.p, result.m)
        panel["axes"].set_title(f"{panel['name']}: up to {result.runs[panel['name']].peak} in flight", pad=5)
        panel["axes"].set(xlim=(0, result.longest * 1.01), ylim=(result.p - 0.5, -0.5))
        panel["axes"].set_yticks([0, result.p - 1], ["stage 0", f"{result.p - 1}"])
    return True


def readout(result: Result) -> list[str]:
    """The numbers of the three timelines."""
    times = f"in forwards: forward 1, backward 2, transfer c = {digits(result.c)}"
    lines = [f"p = {result.p} stages, m = {result.m} micro-batches; {times}"]
    for name, run in result.runs.items():
        step = f"step {digits(run.timeline.span, 4)}"
        if result.c:
            step += (
                f", {digits(result.longer(name))}c more than the {digits(run.without, 4)} without transfers"
            )
        lines.append(f"{name}: {step}; at most {run.peak} micro-batches in flight")
    return lines


def alt(result: Result) -> str:
    """What the picture shows, in one sentence."""
    steps = ", ".join(f"{name} {digits(run.timeline.span, 4)}" for name, run in result.runs.items())
    return f"Three pipeline timelines on one time axis; length of the step in forwards: {steps}."


pipeline_transfer = Lab("pipeline_transfer", compute, build, update, readout, alt, size=(9, 5))
