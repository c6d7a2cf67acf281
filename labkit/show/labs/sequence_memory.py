"""Activations by sequence: linear with fused attention, quadratic with stored scores; and their share."""

from dataclasses import replace

import numpy as np

from labkit.course.chapter4_recompute import half_at
from labkit.errors import InputRefused
from labkit.planner.activations import layer_activations
from labkit.planner.recompute import checkpointed_bytes
from labkit.planner.states import state_bytes
from labkit.presets import cluster as load_cluster
from labkit.presets import model as load_model
from labkit.show import memory_parts, theme, ticks
from labkit.show.lab import Lab
from labkit.show.labels import EndLabels
from labkit.spec import Plan
from labkit.spec.rule import counted
from labkit.units import GB, MB, TB, format_bytes, format_share

SEQUENCES = 2 ** np.arange(9, 18)
STYLES = {"scores stored": ":", "fused": "-", "full recompute": "--"}
LOW, HIGH = 1e7, 2e16  # bytes on the axis


def compute(
    cluster="a100",
    model="gpt3-13b",
    n=8,
    tp=1,
    sequence=8192,
    micro_batch=1,
    sequence_parallel=False,
):
    """Activations of all layers by sequence, in three ways, and states: ``n`` cards, stage 3 over n / tp."""
    if n < 1 or n % tp:
        raise InputRefused(
            f"A replica takes tp {tp} cards; N = {n} is no multiple of it. Choose more cards or a smaller tp."
        )
    machine, of, dp = load_cluster(cluster), load_model(model), n // tp
    plan = Plan(tp=tp, dp=dp, zero=3, micro_batch=micro_batch, sequence_parallel=sequence_parallel)
    held = np.array([_held(replace(of, sequence=int(s)), plan) for s in (*SEQUENCES, sequence)]).T
    states = state_bytes(of.parameters / tp, dp, 3)
    how = dict(micro_batch=micro_batch, tp=tp, sequence_parallel=sequence_parallel)
    halves = [half_at(of, states, fused, **how) for fused in (False, True)]
    halves.append(float(sequence * states / held[-1, -1]))  # in proportion to s
    return dict(
        machine=machine,
        of=of,
        plan=plan,
        sequence=sequence,
        states=states,
        half=dict(zip(STYLES, halves, strict=True)),
        held=dict(zip(STYLES, held, strict=True)),
        share=dict(zip(STYLES, held / (held + states), strict=True)),
    )


def _held(of, plan) -> list[float]:
    """Bytes that all layers keep with scores stored, with fused attention, and under full recompute."""
    stored, fused = (layer_activations(of, replace(plan, fused_attention=way)) for way in (False, True))
    again = checkpointed_bytes(of.layers, 1, fused.boundary, fused.kept)
    return [of.layers * stored.kept, of.layers * fused.kept, again]


def build(figure):
    """Left bytes, right the activations' share, both against the sequence."""
    left, right = axes = theme.axes(
        figure, columns=2, left=0.085, right=0.85, bottom=0.16, top=0.88, wspace=0.72
    )
    for ax in axes:
        ax.set(xlim=(SEQUENCES[0], SEQUENCES[-1] * 1.15), xlabel="sequence, tokens")
        ticks.scale(ax.xaxis, "number", log=2, most=5)
    ticks.scale(left.yaxis, "bytes", log=10, most=4)
    left.set_yticks([100 * MB, 10 * GB, TB, 100 * TB])
    left.set(ylim=(LOW, HIGH), title="held by one card")
    ticks.scale(right.yaxis, "share")
    right.set(ylim=(0, 1.03), title="activations, share of both")
    hue = theme.COLOURS | memory_parts.COLOURS
    lines = [left.plot([], [], color=hue["activations"], ls=ls, label=way)[0] for way, ls in STYLES.items()]
    lines.append(left.plot([], [], color=hue["states"], label="states")[0])
    lines.append(left.plot([], [], color=hue["text"], lw=1.4, label="card")[0])
    shares = [right.plot([], [], color=hue["activations"], ls=ls, label=way)[0] for way, ls in STYLES.items()]
    right.axhline(0.5, color=hue["muted"], lw=1.0, ls="-.")
    return dict(
        lines=lines,
        shares=shares,
        labels=[EndLabels(left, lines), EndLabels(right, shares, gap=10)],
        dots=[right.plot([], [], "o", color=hue["text"], ms=7, zorder=5)[0] for _ in STYLES],
        here=[ax.axvline(SEQUENCES[0], color=hue["muted"], lw=1.2, ls="--") for ax in axes],
    )


def update(artists, result):
    """The curves, and the chosen sequence on them."""
    curves = [*result["held"].values(), *(np.full(len(SEQUENCES) + 1, level) for level in _levels(result))]
    for line, values in zip(artists["lines"], curves, strict=True):
        line.set_data(SEQUENCES, values[:-1])
    for line, dot, share in zip(artists["shares"], artists["dots"], result["share"].values(), strict=True):
        line.set_data(SEQUENCES, share[:-1])
        dot.set_data([result["sequence"]], [share[-1]])
    for line in artists["here"]:
        line.set_xdata([result["sequence"]] * 2)
    labels = [text for group in artists["labels"] for text in group.place()]
    groups = ("lines", "shares", "dots", "here")
    return [*(artist for group in groups for artist in artists[group]), *labels]


def _levels(result) -> tuple[float, float]:
    return result["states"], result["machine"].gpu.usable


def readout(result):
    """The chosen sequence in each way, and from where activations are over half."""
    plan, of, at = result["plan"], result["of"], result["sequence"]
    states, card = map(format_bytes, _levels(result))
    nothing = " (sequence parallel: no change)" if plan.sequence_parallel and plan.tp == 1 else ""
    held = ", ".join(f"{way} {format_bytes(values[-1])}" for way, values in result["held"].items())
    share = ", ".join(f"{way} {format_share(values[-1])}" for way, values in result["share"].items())
    half = "; ".join(f"{s:,.0f} ({way})" for way, s in result["half"].items())
    return [
        f"{of.name} on {counted(plan.ranks, 'card')}, tp {plan.tp}{nothing}, stage 3 over {plan.dp}: "
        f"states {states} of {card}",
        f"activations at s = {at:,}, micro-batch {plan.micro_batch}: {held}",
        f"their share of states and activations: {share}",
        f"over half from s = {half}",
    ]


def alt(result):
    """What a reader who cannot see the picture needs."""
    share = format_share(result["share"]["fused"][-1])
    return (
        "Left, bytes against the sequence on logarithmic axes: states level, activations rising in a "
        "straight line with fused attention and under full recompute, twice as steeply where scores are "
        f"stored. Right, the activations' share of both; with fused attention {share} at "
        f"{result['sequence']:,} tokens."
    )


sequence_memory = Lab("sequence_memory", compute, build, update, readout, alt, size=(9.4, 3.8))
