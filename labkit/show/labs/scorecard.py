"""The scorecard of a job whose causes are known: figures, limits as bands, limits that contradict (5.4)."""

import re

import numpy as np
from matplotlib.colors import to_rgb
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from labkit.course.chapter5_jobs import RECOMPUTE, made_job, repeated
from labkit.errors import InputRefused
from labkit.evidence.health import AT_LEAST, CONFLICT, HEALTHY, health
from labkit.evidence.limits import GUIDE, efficiency_needed
from labkit.show import blocks, theme, ticks
from labkit.show.lab import Lab
from labkit.units import format_share, format_time

METRICS = ("scaling_efficiency", "mfu", "tensor_parallel_exposed", "data_parallel_exposed", "rank_spread")
NAMES = ("scaling efficiency", "MFU", "tensor parallel\nexposed", "data parallel\nexposed", "spread of ranks")
ROWS = np.arange(len(METRICS), dtype=float)
BAND = 0.6 * np.array([1, 1, 1]) + 0.4 * np.array(to_rgb(theme.COLOURS["good"]))
PARTS = {
    "useful work": theme.COLOURS["compute"],
    "recompute": theme.COLOURS["context"],
    "tensor": theme.COLOURS["tensor"],
    "bubble": theme.COLOURS["bubble"],
    "waiting": theme.COLOURS["muted"],
    "data": theme.COLOURS["data"],
}


def compute(
    gpus=64,
    p=4,
    m=16,
    tensor=0.30,
    data=0.10,
    coverage=0.0,
    recompute="none",
    single=0.55,
    late=0.0,
):
    """The measured job, its scorecard, and the parts of its step in shares."""
    if recompute not in RECOMPUTE:
        raise InputRefused(f"recompute is {recompute!r}; choose one of {', '.join(RECOMPUTE)}")
    if p > gpus:
        raise InputRefused(f"{p} stages on {gpus} cards leave some without one. Choose p up to {gpus}.")
    job = made_job(gpus, p, m, tensor, data, coverage, recompute, single, late)
    step, card = job.step, health(job)
    seconds = (1.0, repeated(recompute), step.tp, step.bubble, step.idle, step.dp)
    return dict(
        job=job,
        card=card,
        setting=(gpus, p, m),
        found=[card.of(metric) for metric in METRICS],
        conflicts=[finding for finding in card if finding.verdict == CONFLICT],
        slower=job.rate.per_s < job.base.per_s,
        needed=efficiency_needed(GUIDE.mfu[0], single),
        parts=np.array(seconds) / step.total,
    )


def build(figure):
    """Above, a row for each figure with its limit as a band; below, the step as one bar."""
    above, below = theme.axes(
        figure, rows=2, left=0.152, right=0.72, bottom=0.09, top=0.86, height_ratios=(4.4, 1), hspace=0.34
    )
    for ax in (above, below):
        ticks.scale(ax.xaxis, "share")
        ax.spines["left"].set_visible(False)
        ax.tick_params(axis="y", length=0)
        ax.grid(False, axis="y")
    above.set(xlim=(0, 1), ylim=(len(METRICS) - 0.45, -0.55))
    above.set_yticks(ROWS, NAMES)
    above.tick_params(axis="y", pad=9)  # so that a dot at 0 stands clear of its name
    below.set(xlim=(0, 1), ylim=(-0.5, 0.5))
    below.set_yticks([0], ["the step"])
    marks = {"color": theme.COLOURS["text"], "ls": ""}
    key = [
        Patch(color=BAND, label="healthy by the guide"),
        Line2D([], [], marker="o", ms=9, label="the job", **marks),
        Line2D([], [], marker="o", ms=9, mfc="white", label="all collectives, hidden or not", **marks),
        Line2D([], [], marker="|", ms=14, mew=2, label="efficiency that MFU 40 % takes", **marks),
    ]
    where = dict(loc="upper left", handletextpad=0.5, borderpad=0, columnspacing=1.4)
    figure.legend(handles=key, ncols=4, bbox_to_anchor=(0.02, 0.995), handlelength=1.1, **where)
    parts = [Patch(color=colour, label=name) for name, colour in PARTS.items()]
    figure.legend(
        handles=parts, ncols=2, bbox_to_anchor=(0.735, 0.27), handlelength=1.0, fontsize=10, **where
    )
    dot = dict(ls="", marker="o", ms=11, zorder=5, clip_on=False)
    return dict(
        bands=blocks.patch(above, facecolor=BAND, zorder=1),
        stems=blocks.patch(above, fill=False, linewidth=1.2, color=theme.COLOURS["muted"], zorder=2),
        total=above.plot([], [], mec=theme.COLOURS["text"], mfc="white", **dot)[0],
        needed=above.plot([], [], "|", ms=22, mew=2, color=theme.COLOURS["text"], zorder=4)[0],
        good=above.plot([], [], color=theme.COLOURS["good"], **dot)[0],
        bad=above.plot([], [], color=theme.COLOURS["warning"], **dot)[0],
        says=blocks.Numbers(above, "right", fontsize=11),
        limits=blocks.Numbers(above, "right", fontsize=11),
        bar={name: blocks.patch(below, facecolor=colour) for name, colour in PARTS.items()},
        shares=blocks.Numbers(below, fontsize=10),
        conflict=figure.text(0.152, 0.905, "", va="center", fontsize=12),
    )


def update(artists, result):
    """Moves bands, marks and words."""
    found, job = result["found"], result["job"]
    low, high = np.array([_band(finding) for finding in found]).T
    artists["bands"].set_path(blocks.rectangles(ROWS, low, high, 0.7))
    value = np.array([min(finding.value, 1.0) for finding in found])
    healthy = np.array([finding.verdict == HEALTHY for finding in found])
    artists["stems"].set_path(blocks.rectangles(ROWS, 0 * value, value, 0.0))
    artists["good"].set_data(value[healthy], ROWS[healthy])
    artists["bad"].set_data(value[~healthy], ROWS[~healthy])
    total = job.step.communication / job.step.total
    artists["total"].set_data([total], [METRICS.index("data_parallel_exposed")])
    needed = [result["needed"]] if result["needed"] <= 1 else []
    artists["needed"].set_data(needed, [METRICS.index("scaling_efficiency")] * len(needed))
    colours = [theme.COLOURS["good" if fine else "warning"] for fine in healthy]
    says = [f"{_share(finding.value)}: {finding.verdict}" for finding in found]
    aside = np.full(len(ROWS), 1.02)
    artists["says"].set_numbers(ROWS - 0.2, aside, aside, says, colours)
    artists["limits"].set_numbers(ROWS + 0.2, aside, aside, [f"({one.limit})" for one in found], colours)
    stops = np.cumsum(result["parts"])
    starts = stops - result["parts"]
    for name, start, stop in zip(PARTS, starts, stops, strict=True):
        artists["bar"][name].set_path(
            blocks.rectangles(np.zeros(1), np.array([start]), np.array([stop]), 0.8)
        )
    texts = [format_share(part) for part in result["parts"]]
    white = [theme.COLOURS["text"] if name in ("recompute", "bubble", "data") else "white" for name in PARTS]
    artists["shares"].set_numbers(0 * stops, starts, stops, texts, white)
    artists["conflict"].set_text(_conflict(result))
    artists["conflict"].set_color(theme.COLOURS["warning" if result["conflicts"] else "muted"])
    names = ("bands", "stems", "total", "needed", "good", "bad", "says", "limits", "shares", "conflict")
    return [*(artists[name] for name in names), *artists["bar"].values()]


def _band(finding) -> tuple[float, float]:
    """Where the guide calls a figure healthy; the MFU's range ends where one card's usually does."""
    if finding.metric == "mfu":
        return GUIDE.mfu
    return (finding.threshold, 1.0) if finding.metric in AT_LEAST else (0.0, finding.threshold)


def _share(value: float) -> str:
    """A share whose last bit, which depends on the order of sums, decides nothing."""
    return format_share(round(value, 12))


def _conflict(result) -> str:
    """Whether limits contradict each other here; an efficiency cannot pass and fall short at once."""
    for finding in result["conflicts"]:
        implied = _share(finding.value)
        if finding.metric == "implied_mfu":
            return f"limits contradict: an efficiency that just passes implies an MFU of {implied}"
        return f"limits contradict: every share is within its own, together they leave {implied}"
    return "no limits contradict each other here"


def readout(result):
    """The figures with their limits, what takes the step, what the limits imply, and what to look at."""
    efficiency, mfu, tensor, data, spread = result["found"]
    job, (gpus, p, m) = result["job"], result["setting"]
    parts = {name: format_share(part) for name, part in zip(PARTS, result["parts"], strict=True)}
    total = format_share(job.step.communication / job.step.total)
    single, needed, least = job.base_mfu, result["needed"], efficiency.threshold
    takes = (
        f"takes an efficiency of {format_share(needed)}" if needed <= 1 else "is out of reach of such cards"
    )
    return [
        f"{gpus} cards, p = {p}, m = {m}: efficiency {_share(efficiency.value)}, {efficiency.verdict}; "
        f"MFU {format_share(mfu.value)}, {mfu.verdict}; ranks {format_share(spread.value)}, {spread.verdict}",
        f"exposed: tensor parallel {format_share(tensor.value)}, {tensor.verdict}; data parallel "
        f"{format_share(data.value)}, {data.verdict}; all collectives {total}",
        f"{format_time(job.step.total)} for 1 s of useful work: recompute {parts['recompute']}, bubble "
        f"{parts['bubble']}, waiting {parts['waiting']} of the step",
        f"the limits imply: efficiency {format_share(least)} x one card's {format_share(single)} = MFU "
        f"{format_share(least * single)}; MFU {format_share(mfu.threshold)} {takes}",
        f"look at: {'; '.join(_look_at(result)) or 'nothing, all is healthy'}",
        _conflict(result),
    ]


def _look_at(result) -> list[str]:
    """The next thing of each figure beyond its limit, in a word or two."""
    brief = {
        "scaling_efficiency": ("efficiency", "network" if result["slower"] else "topology"),
        "mfu": ("MFU", ""),
        "tensor_parallel_exposed": ("tensor", "its node"),
        "data_parallel_exposed": ("data", "overlap"),
        "rank_spread": ("ranks", "which"),
    }
    said = []
    for finding in result["found"]:
        name, what = brief[finding.metric]
        late = finding.look_at.startswith("the late ranks")
        first = re.split("[:,]| first", finding.look_at)[0].removeprefix("the ")
        if finding.verdict != HEALTHY:
            said.append(f"{name}, {'late ranks' if late else what or first}")
    return said


def alt(result):
    """What a reader who cannot see the picture needs."""
    beyond = sum(finding.verdict != HEALTHY for finding in result["found"])
    return (
        "Five rows, scaling efficiency, MFU, exposed tensor- and data-parallel communication and spread of "
        f"the ranks, each with the guide's healthy range as a band and the job's value as a dot, {beyond} of "
        "them outside; below, the step as a bar of useful work, recompute, tensor, bubble, waiting and data."
    )


scorecard = Lab("scorecard", compute, build, update, readout, alt, size=(9.8, 4.7))
