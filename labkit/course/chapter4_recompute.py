"""Section 4.2's memory: what activations take, and what is left of them with a checkpoint every k layers."""

from dataclasses import replace

import numpy as np

from labkit.course.table import Table, table
from labkit.planner.activations import LayerActivations, layer_activation_bytes, layer_activations
from labkit.planner.recompute import (
    best_every,
    checkpointed_bytes,
    checkpoints,
    closed_form_every,
    recursive_recompute,
)
from labkit.planner.states import FP32_GRADIENTS, state_bytes
from labkit.presets import model, published
from labkit.spec import Plan, Transformer
from labkit.strategies.checkpoint import random_stack, stack_pass
from labkit.strategies.layer import saved_bytes, whole_layer
from labkit.units import GiB, digits, format_bytes, format_share

LAYERS = 32
BOUNDARY, FUSED, STORED = 2.0, 34.0, 114.0  # s b h: a layer's input; a layer; with scores at s/h = 2048/5120
WAYS = {
    "none": {"recompute": "none"},
    "selective": {"recompute": "selective"},
    "full": {"recompute": "full"},
}


def thirteen() -> Transformer:
    """13B with 40 layers; the guide's own shape of that name has 32."""
    return model("gpt3-13b")


def layer_of(of: Transformer, sequence, micro_batch=1, fused=True, **plan) -> LayerActivations:
    """Bytes of one layer's activations and of its input, without recompute; ``plan`` as ``Plan`` takes it."""
    how = Plan(micro_batch=micro_batch, fused_attention=fused, **plan)
    return layer_activations(replace(of, sequence=sequence), how)


def scores_lead_at(of: Transformer, **plan) -> float:
    """The sequence from which attention scores take more than all else that a layer keeps, if stored.

    The rest grows with s, the scores with its square: 34 h / (5 a) without tensor parallel.

    >>> round(scores_lead_at(thirteen()))
    870
    """
    s = of.sequence
    rest, both = (layer_of(of, s, fused=fused, **plan).kept for fused in (True, False))
    return s * rest / (both - rest)


def half_at(of: Transformer, states: float, fused=True, **plan) -> float:
    """The sequence at which the activations of all layers are as large as ``states`` bytes: half of both.

    >>> round(half_at(thirteen(), 26e9))
    3734
    """
    s = of.sequence
    rest, both = (of.layers * layer_of(of, s, fused=way, **plan).kept for way in (True, fused))
    linear, square = rest / s, (both - rest) / s**2
    if square == 0:
        return states / linear
    return (np.sqrt(linear**2 + 4 * square * states) - linear) / (2 * square)


def sequence_table(sequences=(1024, 2048, 4096, 8192, 32768)) -> Table:
    """Activations of the 13B model, one sequence, nothing recomputed: linear in s, or not."""
    rows = []
    for s in sequences:
        fused, stored = (layer_of(thirteen(), s, fused=fused).kept for fused in (True, False))
        unit = s * thirteen().hidden
        rows.append(
            (
                f"{s:,}",
                stored / unit,
                format_bytes(thirteen().layers * stored),
                format_share((stored - fused) / stored),
                fused / unit,
                format_bytes(thirteen().layers * fused),
            )
        )
    heads = (
        "sequence",
        "scores stored, s b h",
        "40 layers",
        "scores' share",
        "fused, s b h",
        "40 layers, fused",
    )
    return table(heads, rows)


def half_table(ranks=(8, 16, 32, 64)) -> Table:
    """From which sequence activations are over half: 13B at stage 3, its states spread over N ranks."""
    rows = []
    for n in ranks:
        states = state_bytes(13e9, n, 3)
        shares = [
            format_share(part / (part + states))
            for part in (thirteen().layers * layer_of(thirteen(), s).kept for s in (2048, 8192))
        ]
        halves = [f"{half_at(thirteen(), states, fused=fused):,.0f}" for fused in (True, False)]
        rows.append((n, format_bytes(states), *shares, *halves))
    heads = ("N", "states", "share at 2,048", "share at 8,192", "half from s =", "if scores are stored, s =")
    return table(heads, rows)


def published_layer(row: dict, **changes) -> float:
    """One layer's bytes, by the published formula, in the setting of a row of Korthikanti et al. (2022)."""
    names = ("sequence", "micro_batch", "hidden", "heads", "tp", "recompute")
    given = {name: row[name] for name in names} | {"sequence_parallel": bool(row["sequence_parallel"])}
    return layer_activation_bytes(**given | changes)


def published_share(row: dict) -> float:
    """Percent of what tensor parallel alone keeps, as figure 7 of Korthikanti et al. (2022) counts."""
    return 100 * published_layer(row) / published_layer(row, recompute="none", sequence_parallel=False)


def published_table() -> Table:
    """Figure 7 of Korthikanti et al. (2022): percent of the activations that tensor parallel alone keeps."""
    rows: dict[tuple, list] = {}
    for row in published("korthikanti_2022_memory"):
        way = row["recompute"], bool(row["sequence_parallel"])
        pair = f"{published_share(row):.1f} ({digits(row['percent'], 4)})"
        rows.setdefault(way, []).append(pair)
    names = [row["model"] for row in published("korthikanti_2022_memory") if row["recompute"] == "full"]
    heads = ("recompute", "sequence parallel", *(f"{name}, %" for name in names))
    return table(heads, [(recompute, split, *found) for (recompute, split), found in rows.items()])


def published_gib_table() -> Table:
    """Figure 1 of Korthikanti et al. (2022), GiB on a card: states at 18 bytes, and activations."""
    rows = []
    for row in published("korthikanti_2022_memory"):
        if row["activations_gib"] == "":
            continue
        p, v = row["pp"], row["v"]
        weights = 12 * row["layers"] * row["hidden"] ** 2 / (row["tp"] * p)
        kept = row["layers"] * (1 + (p - 1) / (p * v) if v > 1 else 1) * published_layer(row)
        found = (state_bytes(weights, recipe=FP32_GRADIENTS) / GiB, kept / GiB)
        printed = (row["states_gib"], row["activations_gib"])
        way = "selective, sequence parallel" if row["sequence_parallel"] else "tensor parallel alone"
        pairs = [f"{a:.2f} ({b:.2f})" for a, b in zip(found, printed, strict=True)]
        rows.append((row["model"], way, *pairs, "yes" if sum(found) < 80 else "no"))
    return table(("model", "way", "states, GiB", "activations, GiB", "fits 80 GiB"), rows)


def share_kept(every, layers=LAYERS, layer=FUSED, boundary=BOUNDARY):
    """Share of all activations that is held at the peak, with a checkpoint every ``every`` layers."""
    return checkpointed_bytes(layers, every, boundary, layer) / (layers * layer)


def group_table(groups=(1, 2, 4, 6, 8, 16, 32)) -> Table:
    """What one more forward buys at 32 layers, in s b h: inputs kept, group computed again, share of all."""
    rows = [("guide", "", "", f"{format_share(1 / LAYERS)} to {format_share(LAYERS**-0.5)}", "")]
    for k in groups:
        inputs, again = checkpoints(LAYERS, k) * BOUNDARY, k * FUSED - BOUNDARY
        shares = [format_share(share_kept(k, layer=layer)) for layer in (FUSED, STORED)]
        rows.append((k, inputs, again, *shares))
    heads = ("k", "inputs, s b h", "group again, s b h", "share held", "share, scores stored (s = 2,048)")
    return table(heads, rows)


def square_root_table(depths=(16, 32, 64, 128)) -> Table:
    """The best k found by trying all, by closed form, and the textbook's."""
    rows = []
    for layers in depths:
        textbook = round(layers**0.5)
        best = best_every(layers, BOUNDARY, FUSED)
        shares = [format_share(share_kept(k, layers)) for k in (best, textbook)]
        closed = closed_form_every(layers, BOUNDARY, FUSED)
        alike = best_every(layers, FUSED, FUSED)
        rows.append((layers, closed, best, shares[0], textbook, shares[1], alike))
    heads = (
        "layers L",
        "closed form sqrt(2 L/34)",
        "best k",
        "held at best k",
        "textbook k = sqrt(L)",
        "held at sqrt(L)",
        "best k if an input were as large as a layer",
    )
    return table(heads, rows)


def recursion_table(parts=(32, 6, 3, 2), layers=LAYERS) -> Table:
    """Checkpoints inside checkpoints, counted: memory towards 1/L, for more than one more forward."""
    rows = [("guide", "", format_share(1 / layers), 1, 4 / 3)]
    for count in parts:
        found = recursive_recompute(layers, count)
        share = found.held(BOUNDARY, FUSED) / (layers * FUSED)
        extra = found.extra_forwards
        rows.append((count, found.inputs, format_share(share), extra, (3 + extra) / 3))
    return table(("parts at each cut", "inputs held", "share held", "extra forwards", "compute, times"), rows)


def stack_sizes(stack) -> tuple[float, float]:
    """Bytes of a layer's input, and of all that a layer keeps, counted on one layer of a real stack."""
    x, d_output, layers = stack
    *_, saved = whole_layer(x, d_output, *layers[0])
    return saved_bytes([{"residual": x}]), saved_bytes(saved)


def stack_table(layers=24, groups=(1, 2, 3, 4, 6, 8, 12, 24)) -> Table:
    """A real stack run at several k: gradients compared, forwards and peak bytes counted."""
    stack = random_stack(layers)
    boundary, layer = stack_sizes(stack)
    kept = stack_pass(*stack)
    rows = [("none", kept.forwards, format_bytes(kept.peak), format_bytes(layers * layer), "")]
    for k in groups:
        again = stack_pass(*stack, every=k)
        pairs = zip(kept.gradients, again.gradients, strict=True)
        same = all(np.array_equal(a[name], b[name]) for a, b in pairs for name in a)
        expected = checkpointed_bytes(layers, k, boundary, layer)
        rows.append((k, again.forwards, format_bytes(again.peak), format_bytes(expected), same))
    heads = ("k", "layer forwards", "peak held", "by the formula", "same gradients")
    return table(heads, rows)
