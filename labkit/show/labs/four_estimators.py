"""One plan as four public estimators count it, by part, beside what they print and what the card leaves."""

from labkit.course.chapter4_estimators import PARTS, PRINTED, TOOLS, on_one_set, on_the_card, their_own
from labkit.errors import InputRefused
from labkit.presets import cluster
from labkit.show import memory_parts, theme
from labkit.show.lab import Lab
from labkit.units import GiB

OWN, ONE = "their own", "one set for all"
WIDE = 84  # GiB; the axis holds what a card leaves


def compute(conventions=OWN):
    """The four estimates and labkit's, with each tool's ``conventions`` or with one set for all four."""
    if conventions not in (OWN, ONE):
        raise InputRefused(f"conventions are {conventions!r}; choose {OWN!r} or {ONE!r}")
    found = their_own() if conventions == OWN else on_one_set()
    return dict(
        conventions=conventions,
        estimates=[*found, on_the_card()],
        leaves=cluster("a100").gpu.usable,
    )


def build(figure):
    """A row for each tool, its parts end to end; two columns of figures at the right."""
    ax = theme.axes(figure, left=0.13, right=0.84, bottom=0.15, top=0.84)
    names = [*TOOLS, "labkit"]
    ax.set(xlim=(0, WIDE), ylim=(len(names) - 0.4, -0.6), xlabel="GiB on the fullest card")
    ax.set_yticks(range(len(names)), names)
    ax.tick_params(axis="y", length=0)
    ax.grid(False, axis="y")
    ax.spines[["left"]].set_visible(False)
    look = dict(color=theme.COLOURS["measured"], ms=8, zorder=5)
    (printed,) = ax.plot(list(PRINTED.values()), range(len(TOOLS)), "D", **look)
    head = dict(transform=ax.transAxes, ha="left", va="bottom", fontsize=11)
    x = 0.0
    for part, step in zip(PARTS, (0.16, 0.14, 0.225, 0.16, 0.1), strict=True):
        # Words in the grey of a bar are hard to read.
        hue = theme.COLOURS["muted"] if part == "other" else memory_parts.COLOURS[part]
        ax.text(x, 1.035, memory_parts.WORDS[part], color=hue, **head)
        x += step
    ax.text(x, 1.035, "◆ it prints", color=theme.COLOURS["measured"], **head)
    leaves = ax.axvline(0, color=theme.COLOURS["warning"], lw=1.4)
    column = dict(transform=ax.get_yaxis_transform(), va="center", fontsize=11)
    for at, word in ((1.09, "here"), (1.2, "prints")):
        ax.text(at, 1.035, word, ha="right", **{key: head[key] for key in ("transform", "va", "fontsize")})
    for row, tool in enumerate(TOOLS):
        ax.text(1.2, row, f"{PRINTED[tool]:g}", ha="right", color=theme.COLOURS["measured"], **column)
    rows = range(len(names))
    bars = {part: ax.barh(rows, [0.0] * len(names), 0.62, color=memory_parts.COLOURS[part]) for part in PARTS}
    card = ax.text(0, len(names) - 1, "card ", ha="right", va="center", color=theme.COLOURS["warning"])
    return dict(
        bars=bars,
        totals=[ax.text(1.09, row, "", ha="right", **column) for row in rows],
        leaves=leaves,
        card=card,
        printed=printed,
    )


def update(artists, result):
    """Sets the bars and the totals."""
    found = result["estimates"]
    for row, one in enumerate(found):
        start = 0.0
        for part, bars in artists["bars"].items():
            size = one.parts[part] / GiB
            bars[row].set(x=start, width=size)
            start += size
        artists["totals"][row].set_text(f"{start:.1f}")
    at = result["leaves"] / GiB
    artists["leaves"].set_xdata([at, at])
    artists["card"].set_x(at)
    moved = [bar for bars in artists["bars"].values() for bar in bars]
    # The printed figures stand still, but over the bars.
    return [*moved, *artists["totals"], artists["leaves"], artists["card"], artists["printed"]]


def readout(result):
    """Each tool's total beside what it prints, and labkit's beside the card."""
    *found, ours = result["estimates"]
    others, leaves = ours.parts["other"] / GiB, result["leaves"] / GiB
    totals = ", ".join(f"{one.tool} {one.total / GiB:.1f}" for one in found)
    return [
        f"{result['conventions']}: {totals} GiB",
        "they print: " + ", ".join(f"{tool} {size:g}" for tool, size in PRINTED.items()) + " GiB",
        f"labkit {ours.total / GiB:.1f} of {leaves:.1f} GiB, {others:.1f} of it buffers, libraries, slack",
    ]


def alt(result):
    """What a reader who cannot see the picture needs."""
    sizes, conventions = [one.total / GiB for one in result["estimates"][:-1]], result["conventions"]
    return (
        f"Stacked bars of one plan's memory by part for four estimators, conventions: {conventions}; from "
        f"{min(sizes):.1f} to {max(sizes):.1f} GiB, where the tools print {min(PRINTED.values()):g} to "
        f"{max(PRINTED.values()):g}."
    )


four_estimators = Lab("four_estimators", compute, build, update, readout, alt, size=(9.4, 3.6))
