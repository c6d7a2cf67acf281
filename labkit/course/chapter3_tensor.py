"""Section 3.2 as tables: the layer split over ranks, its bill, what hides, context parallel."""

from dataclasses import replace

import numpy as np

from labkit.course.chapter2_topology import PARAMETERS, layer
from labkit.course.table import Table, table
from labkit.planner.activations import layer_activation_bytes
from labkit.planner.placement import tensor_time
from labkit.planner.traffic import tensor_parallel
from labkit.presets import cluster, model
from labkit.spec import Cluster
from labkit.spec.transformer import Transformer
from labkit.strategies.communicator import sent_per_rank
from labkit.strategies.context import all_to_all_attention, ring_attention
from labkit.strategies.layer import random_layer, whole_layer
from labkit.strategies.tensor import LayerPass, split_layer
from labkit.strategies.tensor_overlap import beside_weight_gradients, half_batches, in_chunks, in_turn
from labkit.units import digits, format_bytes, format_share, format_time

POSITIONS, HEADS, HEAD_DIM = 64, 8, 16  # the small layer on which everything is counted, hidden 128
WAYS = {
    "tensor parallel": {},
    "the same, full recompute": {"recompute": "full"},
    "and sequence parallel, whole inputs saved": {"sequence_parallel": True, "keep_inputs": True},
    "and sequence parallel, as published": {"sequence_parallel": True},
}


def small_layer(kv_heads=HEADS):
    """x, output gradient, weights and dropout masks of a layer that a laptop splits in a blink."""
    return random_layer(POSITIONS, HEADS, kv_heads, HEAD_DIM)


def difference(split: LayerPass, inputs) -> float:
    """Largest difference of output, input gradient and all weight gradients from the unsplit layer."""
    output, d_x, gradients, _ = whole_layer(*inputs)
    pairs = [(split.gradients[name], gradients[name]) for name in gradients]
    for parts, whole in ((split.outputs, output), (split.input_gradients, d_x)):
        step = len(whole) // len(parts[0])
        pairs.append((np.concatenate(parts[: max(1, step)]), whole))
    return max(float(np.abs(a - b).max()) for a, b in pairs)


def split_facts(t=4, **how) -> dict[str, float]:
    """What one pass of the small layer over ``t`` ranks took, counted.

    ``forward`` and ``backward`` (the second with all that runs again): collectives; ``traffic``: bytes that a
    rank sends over those of four all_reduces; ``saved``: bytes of activations in units of s b h, without the
    attention scores; ``difference``: from the unsplit layer.
    """
    inputs = small_layer()
    split = split_layer(*inputs, t, **how)
    calls = [call for call in split.calls if call.purpose != "gradients"]
    forward = [call for call in calls if call.purpose == "forward"]
    lean = split_layer(*inputs, t, **{"recompute": "selective", **how})
    return {
        "forward": len(forward),
        "backward": len(calls) - len(forward),
        "traffic": sent_per_rank(calls) / sent_per_rank(split_layer(*inputs, t).calls),
        "saved": max(lean.saved) / inputs[0].size,
        "difference": difference(split, inputs),
    }


def split_table(t=8) -> Table:
    """One layer over ``t`` ranks, four ways: collectives, traffic and saved activations, all counted."""
    rows = []
    for name, how in WAYS.items():
        facts = split_facts(t, **how)
        equal = "yes" if facts["difference"] < 1e-11 else "no"
        rows.append(
            (name, facts["forward"], facts["backward"], f"{facts['traffic']:g}x", facts["saved"], equal)
        )
    heads = ("way", "forward", "backward", "traffic", "saved, in s b h", "equal to unsplit")
    return table(heads, rows)


def bill_table(t=8) -> Table:
    """The guide's 84 MB: payload and traffic per rank of one micro-batch, and over 16 of them."""
    work = layer()
    rows = []
    for name, per_layer in (("forward", 2), ("and backward", 4), ("with full recompute", 6)):
        (row,) = tensor_parallel(work, t, per_layer=per_layer)
        payload = row.payload * row.count
        rows.append(
            (
                name,
                f"{row.count:.0f} x {format_bytes(row.payload)}",
                format_bytes(payload),
                format_bytes(row.bytes_per_rank),
                format_bytes(16 * row.bytes_per_rank),
            )
        )
    heads = ("per micro-batch", "collectives", "payload", f"sent by a rank, t = {t}", "16 micro-batches")
    return table(heads, rows)


def micro_batches(batch=64, t=8, machine: Cluster | None = None):
    """(micro-batch sizes, seconds of a step of ``batch`` sequences in micro-batches of each): claim 3.2-i."""
    sizes = np.array([1, 2, 4, 8, 16])
    work = replace(layer(), micro_batch=sizes, micro_batches=batch / sizes)
    return sizes, tensor_time(work, machine or cluster("a100"), t)


def micro_batch_table(batch=64, t=8) -> Table:
    """One step of 64 sequences in micro-batches of each size: bytes, number of collectives, shares."""
    sizes, times = micro_batches(batch, t)
    rows = []
    for i, size in enumerate(sizes):
        (row,) = tensor_parallel(replace(layer(int(size)), micro_batches=batch / size), t)
        rows.append(
            (
                str(size),
                format_bytes(row.payload),
                f"{row.count:,.0f}",
                format_bytes(row.bytes_per_rank),
                format_share(times.bandwidth[i] / times.communication[i]),
                format_share(times.communication[i] / times.total[i]),
            )
        )
    heads = ("micro-batch", "each", "per step", "sent by a rank", "of the link's rate", "of the step")
    return table(heads, rows)


def block_times(t=8, machine: Cluster | None = None, micro_batch=4):
    """Seconds of one block, half a layer of the guide's 13 B, forward on preset a100 unless another is given.

    Returns those of its products, those of its second matrix alone, and the all_reduce as a function of the
    share of the tensor that it carries.
    Forward is a third of a layer's compute. Of the 12 h^2 of a layer's products the second matrices have h^2
    (attention) and 4 h^2 (MLP): 5 of 12 in the mean block.
    """
    machine = machine or cluster("a100")
    work = replace(layer(micro_batch), layers=1, parameters=PARAMETERS / layer().layers)

    def all_reduce(share: float) -> float:
        piece = replace(work, micro_batch=work.micro_batch * share)
        return tensor_time(piece, machine, t).communication / 4

    block = tensor_time(work, machine, t).compute / 3 / 2
    return block, block * 5 / 12, all_reduce


def overlap_table(t=8) -> Table:
    """What can be hidden of the all_reduces of two layers on preset a100: small timelines of four blocks.

    Backward a block computes as much again for its input gradient, and as much for its weight gradients;
    those of the first matrix, 7 of 12, need nothing of the all_reduce and may run beside it.
    """
    block, product, all_reduce = block_times(t)
    rest = block - product
    lines = {"forward, as the data dependence has it": in_turn(block, all_reduce)}
    for chunks in (2, 4, 16):
        lines[f"forward, product in {chunks} chunks"] = in_chunks(rest, product, all_reduce, chunks)
    lines["forward, two half micro-batches in turn"] = half_batches(block, all_reduce)
    beside = beside_weight_gradients(block + product, rest, all_reduce)
    lines["backward, beside the weight gradient"] = beside
    return table(
        ("four blocks (two layers)", "seconds", "communication", "hidden"),
        (
            (name, format_time(line.span), format_time(line.communication[0]), format_share(line.coverage))
            for name, line in lines.items()
        ),
    )


def context_bytes(of: Transformer, sequence: int, cp: int) -> dict[str, float]:
    """Bytes that a rank sends for one layer, forward and backward, counted on a small sequence and scaled.

    Both ways send bytes in proportion to positions and head dimension, so that a small count holds for all.
    """
    draw, positions = np.random.default_rng(0), 2 * cp
    arrays = [
        draw.normal(size=(count, positions, 1)) for count in (of.heads, of.kv_heads, of.kv_heads, of.heads)
    ]
    scale = sequence / positions * of.head_dim
    ways = {"ring": ring_attention(*arrays, cp), "all_to_all": all_to_all_attention(*arrays, cp)}
    return {name: scale * sent_per_rank(split.calls) for name, split in ways.items()}


def context_table(sequence=131072) -> Table:
    """Ring against all_to_all for one layer of a long sequence: bytes of a rank, by degree and kv heads."""
    rows = []
    for name in ("llama2-7b", "llama3.1-8b"):
        of = model(name)
        for cp in (2, 4, 8):
            sent = context_bytes(of, sequence, cp)
            rows.append((name, f"{of.heads} / {of.kv_heads}", str(cp), *map(format_bytes, sent.values())))
    return table(("model", "heads / kv heads", "cp", "ring", "all_to_all"), rows)


def balance_table(positions=64) -> Table:
    """Share of the ranks' time in a causal ring that is work, with plain chunks and with zigzag ones."""
    arrays = np.random.default_rng(0).normal(size=(4, 1, positions, 2))
    rows = []
    for cp in (2, 4, 8):
        shares = [ring_attention(*arrays, cp, balanced).balance for balanced in (False, True)]
        rows.append((str(cp), *map(format_share, shares)))
    return table(("cp", "one chunk a rank", "an early and a late one"), rows)


def activations_table() -> Table:
    """Activations of one layer of the guide's 13 B by the published formula, in units of s b h."""
    of = model("guide-13b")
    shape = (of.sequence, 4, of.hidden, of.heads)
    unit = of.sequence * 4 * of.hidden
    rows = []
    for name, how in (
        ("everything saved", {"recompute": "none"}),
        ("scores computed again or fused", {"recompute": "selective"}),
        ("and sequence parallel", {"recompute": "selective", "sequence_parallel": True}),
        ("full recompute", {"recompute": "full"}),
    ):
        at = [layer_activation_bytes(*shape, t, **how) for t in (1, 2, 4, 8)]
        rows.append((name, *(digits(value / unit) for value in at), format_bytes(at[-1])))
    return table(("saved", "t = 1", "2", "4", "8", "bytes at t = 8"), rows)
