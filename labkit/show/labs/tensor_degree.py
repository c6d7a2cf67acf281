"""Tensor-parallel degree across the node boundary: seconds of one layer, and what a sample costs."""

import numpy as np

from labkit.course.chapter3_tensor_degree import legal_degrees
from labkit.errors import InputRefused
from labkit.planner.placement import tensor_time
from labkit.planner.traffic import Workload
from labkit.presets import cluster as load_cluster
from labkit.presets import model as load_model
from labkit.show import theme, ticks
from labkit.show.lab import Lab
from labkit.show.labels import EndLabels
from labkit.units import digits, format_bytes, format_rate, format_share, format_time

DEGREES = 2 ** np.arange(6)
MODELS = ["llama2-7b", "guide-13b", "llama2-70b", "gpt3-175b"]


def compute(cluster="a100", ports=1, model="guide-13b", micro_batch=4):
    """One layer and micro-batch at every degree: seconds of compute and of all_reduces, legal or not.

    Each host has ``ports`` of the preset's ports; degrees beyond the fast-link domain fill whole domains.
    """
    machine, of = load_cluster(cluster), load_model(model)
    if of.experts:
        raise InputRefused(f"{of.name} has experts, which another section splits. Choose a dense model.")
    work = Workload(of.parameters / of.layers, 1, of.hidden, of.sequence, micro_batch=micro_batch)
    times = tensor_time(work, machine, DEGREES, ports)
    cost = DEGREES * times.total / times.total[0]
    at = int(np.searchsorted(DEGREES, machine.domain))
    return dict(
        machine=machine,
        of=of,
        work=work,
        ports=ports,
        times=times,
        legal=np.isin(DEGREES, legal_degrees(of, DEGREES[-1])),
        cost=cost,
        boundary=at if at + 1 < len(DEGREES) else None,
    )


def build(figure):
    """Left: seconds of a layer; right: cost of a sample; the degrees beyond the node shaded."""
    axes = theme.axes(figure, columns=2, left=0.08, right=0.97, bottom=0.16, top=0.88, wspace=0.66)
    left, right = axes
    for ax in axes:
        ax.set(xlim=(0.85, 38), xlabel="tensor-parallel degree t")
        ticks.scale(ax.xaxis, "number", log=2, most=7)
    ticks.scale(left.yaxis, "time", log=10, most=6)
    left.set(ylim=(3e-5, 1e1), title="one layer, one micro-batch")
    ticks.scale(right.yaxis, "number", log=10, most=5)
    right.set(ylim=(0.7, 1e3), title="cards × seconds per sample (t = 1: 1)")
    lines = [
        left.plot([], [], "o-", ms=5, color=theme.COLOURS[colour], label=name)[0]
        for name, colour in (("compute", "compute"), ("4 all_reduces", "tensor"))
    ]
    cost = right.plot([], [], "-", color=theme.COLOURS["text"])[0]
    legal = right.plot([], [], "o", ms=9, color=theme.COLOURS["text"])[0]
    illegal = right.plot([], [], "X", ms=10, color=theme.COLOURS["warning"])[0]
    shades = [ax.axvspan(0, 0, color=theme.COLOURS["inter"], alpha=0.10, lw=0, zorder=0) for ax in axes]
    return dict(
        lines=lines,
        labels=EndLabels(left, lines),
        cost=cost,
        legal=legal,
        illegal=illegal,
        shades=shades,
        where=left.text(0, 5.5, "", ha="left", va="center", color=theme.COLOURS["inter"]),
        factor=right.text(0.03, 0.95, "", transform=right.transAxes, va="top", fontsize=12),
        crosses=right.text(
            0.03, 0.84, "", transform=right.transAxes, va="top", color=theme.COLOURS["warning"]
        ),
    )


def update(artists, result):
    """Curves, shaded degrees and the factor at the boundary."""
    times, domain = result["times"], result["machine"].domain
    compute_line, sends = artists["lines"]
    compute_line.set_data(DEGREES, times.compute)
    sends.set_data(DEGREES[1:], times.communication[1:])
    artists["cost"].set_data(DEGREES, result["cost"])
    for name, chosen in (("legal", result["legal"]), ("illegal", ~result["legal"])):
        artists[name].set_data(DEGREES[chosen], result["cost"][chosen])
    edge = domain * np.sqrt(2)
    for shade in artists["shades"]:
        shade.set(x=edge, width=max(0.0, 38 - edge), y=0, height=1)
    outside = edge < 38
    artists["where"].set(
        text="over nodes" if outside else "all inside one domain", x=edge * 1.06 if outside else 1
    )
    artists["factor"].set_text(_factor(result))
    bad = DEGREES[~result["legal"]]
    artists["crosses"].set_text(f"× does not divide {result['of'].heads} heads" if bad.size else "")
    names = ("cost", "legal", "illegal", "where", "factor", "crosses")
    return [*artists["shades"], *artists["lines"], *artists["labels"].place(), *(artists[n] for n in names)]


def _factor(result) -> str:
    at = result["boundary"]
    if at is None:
        return f"no boundary up to t = {DEGREES[-1]}"
    return f"t = {DEGREES[at]} to {DEGREES[at + 1]}: {result['cost'][at + 1] / result['cost'][at]:.1f} x"


def readout(result):
    """The layer, the boundary and the degrees that are not legal, in numbers."""
    machine, times, cost, at = (result[key] for key in ("machine", "times", "cost", "boundary"))
    of, ports = result["of"], result["ports"]
    each = ", ".join(f"{t}: {digits(value)}" for t, value in zip(DEGREES, cost, strict=True))
    inside = at if at is not None else len(DEGREES) - 1
    share = times.communication[inside] / times.total[inside]
    if at is None:
        crossing = f"the domain of {machine.domain} GPUs holds every degree shown: nothing crosses"
    else:
        crossing = (
            f"t = {DEGREES[at + 1]}, over two nodes, {ports} x {format_rate(machine.inter.bandwidth)} each: "
            f"4 all_reduces {format_time(times.communication[at + 1])}, a sample costs "
            f"{cost[at + 1] / cost[at]:.1f}x"
        )
    bad = DEGREES[~result["legal"]]
    illegal = ", ".join(map(str, bad)) if bad.size else "none of these"
    return [
        f"{machine.name}, {of.name}, all_reduces of {format_bytes(result['work'].activation_bytes)}; "
        f"t = {DEGREES[inside]}: compute {format_time(times.compute[inside])}, all_reduces "
        f"{format_share(share)} of both",
        crossing,
        f"cards x seconds per sample by t (t = 1 as 1): {each}",
        f"not legal with {of.heads} heads, {of.kv_heads} kv heads, ffn {of.ffn:,}: {illegal}",
    ]


def alt(result):
    """What a reader who cannot see the picture needs."""
    return (
        f"Left: seconds of compute and of all_reduces of one layer of {result['of'].name} against the "
        f"tensor-parallel degree 1 to 32 on {result['machine'].name}; right: cards times seconds per sample. "
        f"{_factor(result)}."
    )


tensor_degree = Lab("tensor_degree", compute, build, update, readout, alt, size=(9.4, 3.8))
