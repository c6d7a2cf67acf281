"""A router's skew: what each rank's experts get, what is dropped, and what waits for the fullest rank."""

import numpy as np
from matplotlib.collections import LineCollection, PolyCollection

from labkit.course.chapter3_experts import Case, experts_case
from labkit.show import theme, ticks
from labkit.show.lab import Lab
from labkit.show.labels import EndLabels
from labkit.show.sense import several_ranks
from labkit.strategies.experts import imbalance
from labkit.units import digits, format_share, format_time

TOKENS = 512  # of each rank; fewer than in a real micro-batch, so that a slider answers at once
ENDS = (2.4, 3.6, 5, 7.5, 10, 15, 20, 28, 40)  # where both axes may end, in multiples of the even load
TIMES = ("AllToAll,\ndropless", "AllToAll,\ncapacity", "experts,\ndropless", "experts,\ncapacity")
SHARES = ("choices\ndropped", "tokens with\nno expert", "padding in\nbuffers")
HEIGHT, PALE = 0.66, 0.45
HEADROOM = 0.84  # of the left axes; above stand the names of the colours


def compute(ranks=8, experts=32, top_k=2, skew=0.6, factor=1.25, balance=0.0, placement="contiguous") -> Case:
    """One router's case; a capacity ``factor`` of 0 is no capacity at all (dropless)."""
    several_ranks(ranks, most=32)
    return experts_case(ranks, experts, skew, top_k, factor or None, balance, placement, TOKENS)


def build(figure):
    """Left: the load of every rank; right: four times over those of an even load, and three shares."""
    left, times, shares = _axes(figure)
    left.set(xlim=(0, 1), title="tokens of each rank, × the even load")
    left.set_xticks([])
    ticks.scale(left.yaxis, "number", most=6)
    bars = {
        name: left.add_collection(PolyCollection([], facecolor=theme.COLOURS[colour], edgecolor="none"))
        for name, colour in (("kept", "expert"), ("dropped", "warning"))
    }
    for number, (name, colour) in enumerate((("dropped", "warning"), ("kept", "expert"))):
        at = dict(transform=left.transAxes, ha="right", va="top", weight="bold")
        left.text(0.985, 0.985 - 0.075 * number, name, color=theme.COLOURS[colour], **at)
    lines = [
        left.plot([], [], color=theme.COLOURS[colour], label=name, ls=dashes, lw=1.8)[0]
        for name, colour, dashes in (("even", "muted", ":"), ("capacity", "text", "--"))
    ]
    times.set(title="time, × that of an even load", ylim=(-0.6, 3.6))
    times.set_yticks([3, 2, 1, 0], TIMES)
    times.grid(False, axis="y")
    times.axvline(1, color=theme.COLOURS["muted"], ls=":", lw=1.8, zorder=0.5)  # behind the bars
    ticks.scale(times.xaxis, "number", most=5)
    colours = [theme.COLOURS[name] for name in ("communication", "communication", "compute", "compute")]
    shares.set(xlim=(0, 1), ylim=(-0.6, 2.6))
    ticks.scale(shares.xaxis, "share", most=5)
    shares.set_yticks([2, 1, 0], SHARES)
    shares.grid(False, axis="y")
    tones = [theme.COLOURS[name] for name in ("warning", "warning", "idle")]
    artists = dict(
        left=left,
        times=times,
        end=None,
        bars=bars,
        nodes=left.add_collection(LineCollection([], colors=theme.COLOURS["muted"], linewidths=0.8)),
        lines=lines,
        labels=EndLabels(left, lines),
        where=left.text(0.5, -0.035, "", transform=left.transAxes, ha="center", va="top"),
        took=list(times.barh([3, 2, 1, 0], [0] * 4, height=HEIGHT, color=colours)),
        says=[times.text(0, y, "", va="center") for y in (3, 2, 1, 0)],
        lost=list(shares.barh([2, 1, 0], [0] * 3, height=HEIGHT, color=tones)),
        parts=[shares.text(0, y, "", va="center") for y in (2, 1, 0)],
    )
    for bar in (artists["took"][1], artists["took"][3], artists["lost"][1]):
        bar.set_alpha(PALE)
    return artists


def _axes(figure):
    left = theme.axes(figure, left=0.06, right=0.465, bottom=0.115, top=0.9)
    times = theme.axes(figure, left=0.655, right=0.96, bottom=0.5, top=0.9)
    shares = theme.axes(figure, left=0.655, right=0.96, bottom=0.095, top=0.375)
    return left, times, shares


def update(artists, case: Case):
    """Moves bars, lines and words; a load beyond the axes changes them."""
    kept, demand = case.kept / case.mean, case.demand / case.mean
    artists["bars"]["kept"].set_verts(_boxes(0 * kept, kept))
    artists["bars"]["dropped"].set_verts(_boxes(kept, demand))
    ratios = (*case.exchange_ratio, *case.compute_ratio)
    end = next(end for end in ENDS if end >= max(demand.max() / HEADROOM, *ratios))
    domains = np.arange(8, case.ranks, 8) / case.ranks  # hosts of the preset hold 8
    artists["nodes"].set_segments([[(x, 0), (x, end)] for x in domains])
    even, capacity = artists["lines"]
    even.set_data([0, 1], [1, 1])
    capacity.set_visible(case.factor is not None)
    if case.factor is not None:
        capacity.set_data([0, 1], [_room(case)] * 2)
    nodes = f"{len(domains) + 1} nodes" if len(domains) else "one node"
    artists["where"].set_text(f"ranks 0 to {case.ranks - 1} on {nodes}")
    seconds = (*case.exchange[1:], *case.compute[1:])
    for row, (bar, text) in enumerate(zip(artists["took"], artists["says"], strict=True)):
        shown = case.factor is not None or row % 2 == 0
        bar.set_width(ratios[row] if shown else 0)
        says = f" {format_time(seconds[row])} = {ratios[row]:.2f}× " if shown else " no capacity is set"
        _beside(text, says, ratios[row] if shown else 1, end, dark=row % 2 == 0)
    lost = (case.limited.dropped, case.limited.passed_by, case.limited.padding)
    for row, (bar, text, share) in enumerate(zip(artists["lost"], artists["parts"], lost, strict=True)):
        bar.set_width(share)
        _beside(text, f" {format_share(share)} ", share, 1, dark=row == 0)
    if artists["end"] != end:
        artists["end"] = end
        artists["left"].set_ylim(0, end)
        artists["times"].set_xlim(0, end)
        artists["labels"].place()
        return None
    return [
        *artists["bars"].values(),
        artists["nodes"],
        *artists["lines"],
        *artists["labels"].place(),
        artists["where"],
        *artists["took"],
        *artists["says"],
        *artists["lost"],
        *artists["parts"],
    ]


def _room(case: Case) -> float:
    """Rows of a rank's buffers over the even load: the factor, but for rounding up."""
    return case.limited.capacity * case.limited.experts / (case.mean)


def _boxes(low, high) -> np.ndarray:
    """One box per rank over the width of the axes, shape (ranks, 4, 2)."""
    n = len(low)
    x = np.arange(n) / n
    left, right = x + 0.1 / n, x + 0.9 / n
    return np.stack([np.stack([left, left, right, right], -1), np.stack([low, high, high, low], -1)], axis=-1)


def _beside(text, words, x, end, dark):
    """Behind the end of a bar, or inside it where there is no room behind: in white on a ``dark`` one."""
    inside = x > 0.5 * end
    text.set(text=words, x=x, ha="right" if inside else "left")
    text.set_color("white" if inside and dark else theme.COLOURS["text"])


def readout(case: Case):
    """The loads, the times over an even load's, and what was dropped or padded."""
    k, limited = case.free.chosen.shape[2], case.limited
    capacity = "dropless" if case.factor is None else f"capacity {digits(case.factor)}"
    rows = [
        f"{case.ranks} ranks x {TOKENS:,} tokens, top-{k} of {case.free.experts} experts: fullest rank "
        f"{case.demand.max():,} of mean {case.mean:,.0f} = {imbalance(case.demand):.2f}x"
    ]
    for name, seconds in (("four AllToAlls", case.exchange), ("experts' products", case.compute)):
        even, free, limit = seconds
        says = f"{capacity} {format_time(limit)} ({limit / even:.2f}x)" if case.factor else "no capacity set"
        rows.append(
            f"{name}: even load {format_time(even)}, dropless {format_time(free)} ({free / even:.2f}x), "
            + says
        )
    rows.append(
        f"{capacity}: {format_share(limited.dropped)} of choices dropped, {format_share(limited.passed_by)} "
        f"of tokens with no expert, buffers {format_share(limited.padding)} padding"
    )
    return rows


def alt(case: Case):
    """What a reader who cannot see the picture needs."""
    return (
        f"Left: the load of {case.ranks} expert-parallel ranks as bars, kept and dropped, over the even "
        f"load, the fullest {imbalance(case.demand):.1f} times the mean; right: times of the AllToAlls and "
        "of the experts' products over those of an even load, and the shares of dropped choices and padding."
    )


expert_skew = Lab("expert_skew", compute, build, update, readout, alt, size=(9.6, 4.4))
