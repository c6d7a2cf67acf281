"""Short and long sequences: what fills the card, and which plan is the best for each."""

from functools import cache

import numpy as np
from matplotlib.patches import Patch

from labkit.course.chapter6_sequence import MODEL, activation_bytes, best_plan, states_of
from labkit.presets import cluster as load_cluster
from labkit.show import blocks, memory_parts, theme, ticks
from labkit.show.lab import Lab
from labkit.spec import Plan
from labkit.spec.checks import whole
from labkit.units import format_bytes, format_share

SEQUENCES = 2 ** np.arange(9, 16)
CARD = "a100"
WIDTH = 0.66


def compute(sequence=8192, micro_batch=1, zero=1, fused=True):
    """13B on eight A100: activations of 40 layers beside states at a ZeRO stage, for every sequence.

    Nothing is cut but the states: what a plan has to deal with. Below, the best plan for each sequence, its
    micro-batch and stage its own choice.
    """
    sequence, micro_batch = whole(sequence, "the sequence"), whole(micro_batch, "the micro-batch")
    kept = activation_bytes(np.append(SEQUENCES, sequence), micro_batch, fused)
    states = states_of(zero)
    return dict(
        sequence=sequence,
        micro_batch=micro_batch,
        zero=zero,
        fused=fused,
        states=states,
        kept=kept,
        share=kept / (kept + states),
        plans=_plans()[fused],
        card=load_cluster(CARD).gpu.usable,
    )


@cache
def _plans() -> dict[bool, list[Plan]]:
    """All searches at once, so that no later step of a control has to wait for one."""
    return {fused: [best_plan(int(s), fused) for s in SEQUENCES] for fused in (True, False)}


def build(figure):
    """Bars of shares over the sequences; above them bytes, below them plans."""
    ax = theme.axes(figure, left=0.105, right=0.985, bottom=0.335, top=0.81)
    ticks.scale(ax.yaxis, "share")
    ax.set(xlim=(-0.5, len(SEQUENCES) - 0.5), ylim=(0, 1.0))
    ax.set_xticks([])
    ax.grid(False, axis="x")
    ax.axhline(0.5, color="white", lw=1.6, ls="--", zorder=3)
    places = np.arange(len(SEQUENCES))
    figure.legend(
        handles=[Patch(color=memory_parts.COLOURS[name], label=name) for name in ("activations", "states")],
        ncols=2,
        loc="upper left",
        bbox_to_anchor=(0.095, 1.0),
        columnspacing=1.2,
        handlelength=1.2,
    )
    along = {"transform": ax.get_xaxis_transform(), "ha": "center"}
    ax.text(-0.56, -0.08, "tokens", transform=ax.get_xaxis_transform(), ha="right", va="top")
    ax.text(-0.56, -0.21, "best plan", transform=ax.get_xaxis_transform(), ha="right", va="top")
    figure.text(0.36, 0.968, "above: bytes on a card, red where it has fewer", va="top", fontsize=11)
    return dict(
        bars={
            name: blocks.patch(ax, facecolor=memory_parts.COLOURS[name], zorder=2)
            for name in ("activations", "states")
        },
        here=ax.plot([], [], color=theme.COLOURS["text"], lw=2.4, zorder=5, clip_on=False)[0],
        sums=[ax.text(x, 1.03, "", va="bottom", **along) for x in places],
        says=[
            ax.text(x, 0.02, "", ha="center", va="bottom", color="white", fontsize=12, zorder=4)
            for x in places
        ],
        tokens=[
            ax.text(x, -0.08, f"{s:,}", va="top", **along) for x, s in zip(places, SEQUENCES, strict=True)
        ],
        plans=[ax.text(x, -0.21, "", va="top", fontsize=10.5, linespacing=1.35, **along) for x in places],
    )


def update(artists, result):
    """Bars, bytes and plans; a frame around the chosen sequence."""
    places = np.arange(len(SEQUENCES), dtype=float)
    share = result["share"][:-1]
    for name, low, high in (("activations", 0 * share, share), ("states", share, 0 * share + 1)):
        artists["bars"][name].set_path(
            blocks.rectangles((low + high) / 2, places - WIDTH / 2, places + WIDTH / 2, high - low)
        )
    chosen = float(np.clip(np.log2(result["sequence"] / SEQUENCES[0]), -0.1, len(SEQUENCES) - 0.9))
    left, right = chosen - WIDTH / 2, chosen + WIDTH / 2
    artists["here"].set_data([left, right, right, left, left], [0, 0, 1, 1, 0])
    for place, (plan, kept) in enumerate(zip(result["plans"], result["kept"][:-1], strict=True)):
        total = float(kept + result["states"])
        fits = total <= result["card"]
        artists["sums"][place].set(
            text=format_bytes(total), color=theme.COLOURS["text" if fits else "warning"]
        )
        artists["says"][place].set_text(format_share(float(share[place].round(2))))
        before = result["plans"][place - 1] if place else plan
        colour = "text" if _lines(before) == _lines(plan) else "compute"
        artists["plans"][place].set(text=_lines(plan), color=theme.COLOURS[colour])
    groups = ("sums", "says", "plans")
    return [
        *artists["bars"].values(),
        artists["here"],
        *(text for group in groups for text in artists[group]),
    ]


def _lines(plan: Plan) -> str:
    """A plan in a narrow column: its cut, its stage, what it does about activations."""
    cut = [f"{name} {plan.degree(name)}" for name in ("tp", "pp", "dp") if plan.degree(name) > 1]
    rest = [f"ZeRO-{plan.zero}"] if plan.zero else []
    if plan.sequence_parallel and plan.tp > 1:
        rest.append("seq. parallel")
    if plan.recompute != "none":
        rest.append(f"{plan.recompute} rec.")
    return "\n".join([", ".join(cut), *rest])


def readout(result):
    """The chosen sequence, its share, where the half is passed, and the plans at both ends."""
    kept, states, share = result["kept"], result["states"], result["share"]
    over = SEQUENCES[share[:-1] > 0.5]
    total = float(kept[-1] + states)
    fits = "fits" if total <= result["card"] else "does not fit"
    attention = "fused attention" if result["fused"] else "scores stored"
    words = _lines(result["plans"][int(np.argmin(np.abs(SEQUENCES - result["sequence"])))])
    return [
        f"{MODEL} (40 layers), eight cards, {attention}, micro-batch {result['micro_batch']}, ZeRO stage "
        f"{result['zero']}",
        f"{result['sequence']:,} tokens: activations {format_bytes(float(kept[-1]))} beside states "
        f"{format_bytes(states)}, a share of {format_share(float(share[-1].round(2)))}; "
        f"{format_bytes(total)} of {format_bytes(result['card'])}: {fits}",
        f"over half from {over[0]:,} tokens on"
        if over.size
        else f"never over half up to {SEQUENCES[-1]:,} tokens",
        "the best plan there: " + words.replace("\n", ", "),
    ]


def alt(result):
    """What a reader who cannot see the picture needs."""
    return (
        "A bar for each sequence from 512 to 32,768 tokens, cut into the share of states and that of "
        f"activations, which grows from {format_share(float(result['share'][0].round(2)))} to "
        f"{format_share(float(result['share'][-2].round(2)))}; bytes above, the best plan below."
    )


sequence_switch = Lab("sequence_switch", compute, build, update, readout, alt, size=(9.8, 4.0))
