"""Micro-batch against tensor-parallel communication: bytes stay, collectives and their latency do not."""

import numpy as np

from labkit.planner.placement import tensor_time
from labkit.planner.traffic import Workload, tensor_parallel
from labkit.presets import cluster as load_cluster
from labkit.presets import model as load_model
from labkit.show import theme, ticks
from labkit.show.lab import Lab
from labkit.show.labels import EndLabels
from labkit.units import MiB, format_bytes, format_share, format_time

STEP = 4 * MiB  # tokens of a step, whatever the micro-batch
TOKENS = 2.0 ** np.arange(7, 19.01, 0.25)
MICRO_BATCHES = 2 ** np.arange(7)


def compute(cluster="a100", degree=8, model="guide-13b", sequence=2048, micro_batch=4):
    """Seconds of one step of ``STEP`` tokens at every micro-batch, and at ``micro_batch`` sequences."""
    machine, of = load_cluster(cluster), load_model(model)
    tokens = np.append(TOKENS, float(sequence * micro_batch))
    work = Workload(
        of.parameters, of.layers, of.hidden, sequence=1, micro_batch=tokens, micro_batches=STEP / tokens
    )
    times = tensor_time(work, machine, degree)
    (row,) = tensor_parallel(work, degree)
    # Latency goes as 1 / tokens and the time of the bytes is constant, so one point tells where they meet.
    knee = float(tokens[-1] * times.latency[-1] / times.bandwidth[-1])
    return dict(
        machine=machine,
        of=of,
        degree=degree,
        sequence=sequence,
        micro_batch=micro_batch,
        tokens=tokens,
        times=times,
        count=float(row.count[-1]),
        payload=float(row.payload[-1]),
        sent=float(row.bytes_per_rank[-1]),
        knee=knee,
        knee_payload=float(row.payload[-1] * knee / tokens[-1]),
    )


def build(figure):
    """Left: seconds of a step; right: the share that is communication; x is the size of a micro-batch."""
    left, right = axes = theme.axes(
        figure, columns=2, left=0.085, right=0.875, bottom=0.16, top=0.88, wspace=0.66
    )
    for ax in axes:
        ax.set(xlim=(TOKENS[0], 1.2 * TOKENS[-1]), xlabel="tokens in a micro-batch")
        ticks.scale(ax.xaxis, "number", log=2, most=5)
    ticks.scale(left.yaxis, "time", log=10, most=6)
    left.set(ylim=(1e-3, 4e4), title="one step of 4 Mi tokens")
    ticks.scale(right.yaxis, "share")
    right.set(ylim=(0, 1.03), title="share of the step")
    colours = {"compute": "compute", "bytes": "bandwidth", "latency": "latency"}
    lines = [left.plot([], [], color=theme.COLOURS[c], label=name)[0] for name, c in colours.items()]
    shares = [
        right.plot([], [], color=theme.COLOURS[c], label=name)[0]
        for name, c in (("all_reduces", "tensor"), ("latency", "latency"))
    ]
    text = theme.COLOURS["text"]
    return dict(
        lines=lines,
        shares=shares,
        labels=[EndLabels(left, lines), EndLabels(right, shares)],
        dots=[ax.plot([], [], "o", ms=4, color=text)[0] for ax in axes],
        here=[ax.plot([], [], "o", ms=9, color=text)[0] for ax in axes],
        knees=[ax.axvline(TOKENS[0], color=theme.COLOURS["muted"], lw=1.2, ls="--") for ax in axes],
        says=left.text(0, 1.5e-3, " latency = bytes", color=theme.COLOURS["muted"]),
    )


def update(artists, result):
    """Curves, the micro-batches of whole sequences, the chosen one, and where latency meets bandwidth."""
    times, tokens = result["times"], result["tokens"]
    parts = (times.compute, times.bandwidth, times.latency)
    communication, latency = times.communication / times.total, times.latency / times.total
    # Whatever does not depend on the micro-batch comes as one number.
    for line, values in zip(artists["lines"], parts, strict=True):
        line.set_data(TOKENS, np.broadcast_to(values, tokens.shape)[:-1])
    for line, values in zip(artists["shares"], (communication, latency), strict=True):
        line.set_data(TOKENS, values[:-1])
    whole = result["sequence"] * MICRO_BATCHES
    whole = whole[(whole >= TOKENS[0]) & (whole <= TOKENS[-1])]
    for ax_dots, values in zip(artists["dots"], (times.latency, communication), strict=True):
        ax_dots.set_data(whole, np.exp(np.interp(np.log(whole), np.log(TOKENS), np.log(values[:-1]))))
    for dot, values in zip(artists["here"], (times.latency, communication), strict=True):
        dot.set_data([tokens[-1]], [values[-1]])
    knee = result["knee"]
    for line in artists["knees"]:
        line.set_xdata([knee, knee])
    artists["says"].set(x=knee, visible=TOKENS[0] <= knee <= TOKENS[-1])
    labels = [text for group in artists["labels"] for text in group.place()]
    groups = ("lines", "shares", "dots", "here", "knees")
    return [*(artist for group in groups for artist in artists[group]), *labels, artists["says"]]


def readout(result):
    """The chosen micro-batch, what a step sends, and where latency passes bandwidth."""
    times, b, sequence = result["times"], result["micro_batch"], result["sequence"]
    rate = times.bandwidth[-1] / times.communication[-1]
    knee = result["knee"] / sequence
    return [
        f"{result['machine'].name}, {result['of'].name}, t = {result['degree']}: "
        f"micro-batch {b} x {sequence:,} tokens, all_reduces of {format_bytes(result['payload'])}",
        f"a step: {result['count']:,.0f} all_reduces, {format_bytes(result['sent'])} sent by a rank at any "
        f"micro-batch; {format_time(times.communication[-1])}",
        f"of that latency {format_time(times.latency[-1])}: {format_share(rate)} of the link's rate; "
        f"all_reduces {format_share(times.communication[-1] / times.total[-1])} of the step",
        f"latency = bytes at {format_bytes(result['knee_payload'])}: {knee:.2g} of a sequence of "
        f"{sequence:,} tokens",
    ]


def alt(result):
    """What a reader who cannot see the picture needs."""
    return (
        "Left: seconds of compute, of bytes and of latency in a step of 4 Mi tokens against the tokens of a "
        "micro-batch; only latency falls. Right: the share of the step that is tensor-parallel communication "
        f"at degree {result['degree']}; latency equals bytes at {result['knee']:.3g} tokens."
    )


tensor_micro_batch = Lab("tensor_micro_batch", compute, build, update, readout, alt, size=(9.4, 3.8))
