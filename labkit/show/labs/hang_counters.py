"""Ranks and their calls of one group in order: which met, where they first differ, who waits, who leads."""

import numpy as np
from matplotlib.patches import Patch

from labkit.course.made_hang import MOST_RANKS, NETWORK, OMITTED, STRAY, made_hang
from labkit.evidence.hang.compare import compare
from labkit.evidence.hang.progress import progress_of
from labkit.evidence.hang.signature import ranks_said
from labkit.show import blocks, theme
from labkit.show.lab import Lab
from labkit.show.sense import several_ranks
from labkit.spec.checks import whole
from labkit.spec.rule import listed
from labkit.units import words

COLUMNS = 10  # the calls of the step and one more
SHORT = {"all_gather": "AG", "all_reduce": "AR", "reduce_scatter": "RS"}
STATES = {
    "ended": theme.COLOURS["call_ended"],
    "ended, different layers met": theme.COLOURS["call_mixed"],
    "waiting": theme.COLOURS["call_waits"],
    "queued behind": theme.COLOURS["grid"],
}
PLACES = (1.02, 1.115)  # of the columns of words beside the grid, in shares of the axis


def compute(n=4, fault=OMITTED, rank=1, at=2, ahead=2):
    """The calls of a made-up job, and what the reader of evidence makes of what it left behind.

    ``rank`` counts modulo ``n``, so that every setting of the sliders has a meaning.
    """
    several_ranks(n, MOST_RANKS)
    rank = whole(rank, "the rank with the fault", least=0) % n
    job = made_hang(n, fault, rank, at, ahead)
    (table,) = progress_of(job.evidence)
    return dict(job=job, fault=fault, rank=rank, at=at, found=compare(table, ended=True, states=True))


def build(figure):
    """The grid with a column for each call in order, and words beside it."""
    ax = theme.axes(figure, left=0.075, right=0.79, bottom=0.03, top=0.70)
    ax.set(xlim=(0, COLUMNS), xticks=[], yticks=[])
    ax.grid(False)
    for spine in ax.spines.values():
        spine.set_visible(False)
    key = [Patch(color=colour, label=name) for name, colour in STATES.items()]
    figure.legend(
        handles=key, ncols=4, loc="upper left", bbox_to_anchor=(0.065, 0.915), handlelength=1.2,
        columnspacing=1.4, borderpad=0,
    )  # fmt: skip
    muted = dict(color=theme.COLOURS["muted"], fontsize=10, transform=ax.transAxes, va="bottom")
    ax.text(0, 1.095, "AG all_gather, AR all_reduce, RS reduce_scatter; the number is the layer", **muted)
    for column in range(COLUMNS):
        ax.text((column + 0.5) / COLUMNS, 1.012, str(column + 1), ha="center", **muted)
    for x, head in zip(PLACES, ("calls", "last line"), strict=True):
        ax.text(x, 1.012, head, **muted)
    return dict(
        ax=ax,
        cells={name: blocks.patch(ax, facecolor=colour) for name, colour in STATES.items()},
        frame=ax.plot([], [], color=theme.COLOURS["warning"], lw=2, clip_on=False)[0],
        words=blocks.Numbers(ax, fontsize=9.5),
        ranks=blocks.Numbers(ax, "left", fontsize=11),
        beside=[blocks.Numbers(ax, "right", fontsize=10) for _ in PLACES],
        title=figure.text(0.075, 0.955, "", ha="left", va="center", fontsize=12),
    )


def update(artists, result):
    """Fills the cells; their heights follow the number of ranks, within fixed axes."""
    job, found = result["job"], result["found"]
    n = len(job.calls)
    artists["ax"].set_ylim(1, 0)
    cells = [(rank, k, call) for rank, own in enumerate(job.calls) for k, call in enumerate(own)]
    row = (np.array([rank for rank, _, _ in cells]) + 0.5) / n
    left = np.array([k for _, k, _ in cells], float)
    state = np.array([_state(job, k) for _, k, _ in cells])
    for name, shape in artists["cells"].items():
        chosen = state == name
        shape.set_visible(bool(chosen.any()))  # Matplotlib would draw an empty path as the one before it
        if chosen.any():
            x = left[chosen]
            shape.set_path(blocks.rectangles(row[chosen], x + 0.04, x + 0.96, 0.86 / n))
    x = np.array([] if job.stuck is None else [0, 1, 1, 0, 0]) + (job.stuck or 0)
    artists["frame"].set_data(x, [0, 0, 1, 1, 0][: len(x)])
    artists["words"].set_numbers(row, left, left + 1, [_short(call) for _, _, call in cells], height=1 / n)
    at, zero = (np.arange(n) + 0.5) / n, np.zeros(n)
    colours = [theme.COLOURS["warning" if rank in found.suspects else "text"] for rank in range(n)]
    artists["ranks"].set_numbers(at, zero, zero, [f"rank {r}" for r in range(n)], colours, 1 / n)
    lines = [len(own) for own in job.calls], [_short(own[-1]) if own else "none" for own in job.calls]
    for column, place, texts in zip(artists["beside"], PLACES, lines, strict=True):
        x = zero + place * COLUMNS
        column.set_numbers(at, x, x, texts, colours, 1 / n)
    artists["title"].set_text(_title(result))
    moved = [*artists["cells"].values(), artists["frame"], artists["words"], artists["ranks"]]
    return [*moved, *artists["beside"], artists["title"]]


def _state(job, k: int) -> str:
    if job.stuck is None or k < job.stuck:
        return "ended, different layers met" if k in job.mixed else "ended"
    return "waiting" if k == job.stuck else "queued behind"


def _short(call: tuple[str, int]) -> str:
    operation, layer = call
    which = " log" if call == STRAY else f" {layer}" if layer else ""
    return SHORT[operation] + which


def _title(result) -> str:
    found = result["found"]
    if result["job"].stuck is None:
        return "the reader: nothing differs" + (", and the data is wrong" if result["job"].mixed else "")
    blamed = f"likely {ranks_said(found.suspects)}" if found.suspects else "nobody is named"
    return f"the reader: {words(found.verdict)} at call {found.first.sequence}, {blamed}"


def readout(result):
    """What was made, where it shows, who waits and who is named, and what the logs end with."""
    job, found, n = result["job"], result["found"], len(result["job"].calls)
    who = "all ranks" if result["fault"] == NETWORK else f"rank {result['rank']} of {n}"
    where = "nothing differs"
    if found.first is not None:
        at = found.first.sequence
        where = f"{words(found.verdict)} at call {at}, {at - result['at']} after the fault"
    mixed = [k + 1 for k in job.mixed]
    counts = ", ".join(str(len(own)) for own in job.calls)
    return [
        f"made: {who}, {result['fault']}, at call {result['at']}; found: {where}",
        _who(found, n),
        f"calls made, rank by rank: {counts}; {_last_lines(job)}",
        "ended with data of different layers: " + (_numbers(mixed) if mixed else "no call"),
    ]


def _numbers(calls: list[int]) -> str:
    return f"call{'s' if len(calls) > 1 else ''} {listed(calls, 'and')}"


def _who(found, n: int) -> str:
    if found.first is None:
        return "nobody waits, nobody is absent, nobody is named"
    absent = ranks_said(found.absent) if found.absent else "nobody"
    differs = f"differs: {listed(list(found.differs), 'and')}; " if found.differs else ""
    if found.suspects:
        blamed = f"likely {ranks_said(found.suspects)}: the others are {n - len(found.suspects)} of {n}"
    else:
        blamed = "nobody is named: " + (
            "no mismatch" if not (found.absent or found.differs) else "1 against 1"
        )
    return f"{differs}absent: {absent}; {blamed}"


def _last_lines(job) -> str:
    lines = {own[-1] if own else None for own in job.calls}
    return "their logs end " + ("with the same call" if len(lines) == 1 else "with different calls")


def alt(result):
    """What a reader who cannot see the picture needs."""
    stuck = result["job"].stuck
    return (
        f"A grid of {len(result['job'].calls)} ranks and their calls in order; "
        + ("every column ends" if stuck is None else f"column {stuck + 1} waits, those before it ended")
        + f", {len(result['job'].mixed)} of them with data of different layers."
    )


hang_counters = Lab("hang_counters", compute, build, update, readout, alt, size=(9.4, 3.9))
